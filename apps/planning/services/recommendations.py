"""The life of a recommendation: opened, refreshed, superseded, expired, dismissed, applied.

Every change of state is a conditional UPDATE whose row count decides (DESIGN law 5).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.db import transaction
from django.db.models import F

from apps.accounts.domain.authorize import Permission, Viewer, require
from apps.audit.services import record as audit
from apps.common.measurement import Measurement
from apps.diagnosis.models import DiagnosisRecord
from apps.fleet import selectors as fleet

from ..domain.floors import BELOW_FLOOR
from ..domain.guardrails import DATA_STALE
from ..domain.model import Pair
from ..domain.plan import Plan
from ..domain.score import Score, score
from ..inputs import Loaded
from ..models import (
    Evaluation,
    PredictionScore,
    Recommendation,
    RecommendationCounter,
    RecommendationState,
)

OBSERVE = "observe"
MODE_OBSERVE, NO_LONGER_NEEDED, PLAN_CHANGED = "mode_observe", "no_longer_needed", "plan_changed"


class NotOpen(Exception):
    """The recommendation is not open any more; `state` says what it is."""

    def __init__(self, number: str, state: str) -> None:
        super().__init__(f"{number} is {state}")
        self.state = state


def sync(
    *,
    now: datetime,
    loaded: Loaded,
    plan: Plan | None,
    record: DiagnosisRecord,
    evaluation: Evaluation,
    measured: Mapping[str, Measurement],
) -> Recommendation | None:
    """Bring the open recommendation in line with this evaluation's plan; returns the open one.

    The same change keeps its number and gets new figures; another change supersedes it. Old data
    pause it. A plan, or the lack of one, counts when `needed` of the last `of` windows agree; one
    that restores a floor rests on no window, so it counts at once and is not paused.
    """
    expire_due(now=now, deployment_id=loaded.deployment.pk)
    found = Recommendation.objects.filter(
        deployment=loaded.deployment, state=RecommendationState.OPEN
    ).first()
    if loaded.topology.mode == OBSERVE:
        _close(found, RecommendationState.SUPERSEDED, MODE_OBSERVE, now)
        return None
    if plan is None:
        return found
    restores = plan.reason == BELOW_FLOOR
    if evaluation.stale and not restores:
        return _pause(found)
    if found is not None and _is_outdated(found, loaded):
        _close(found, RecommendationState.SUPERSEDED, PLAN_CHANGED, now)
        found = None
    votes = _votes(loaded, evaluation)
    enough = loaded.defaults.hysteresis_needed
    if plan.chosen is None:
        if found is not None and sum(1 for vote in votes if vote == _NOTHING) >= enough:
            _close(found, RecommendationState.SUPERSEDED, NO_LONGER_NEEDED, now)
            return None
        return _refresh_blocked(found, loaded)
    if found is not None and found.plan_fingerprint == plan.fingerprint:
        return _refresh(found, now, loaded, plan, record, measured)
    direction = _direction(loaded, plan.chosen.pair.as_dict())
    agreed = restores or sum(1 for vote in votes if vote == direction) >= enough
    if not agreed or _is_held_back(loaded, plan.chosen.pair, plan.fingerprint, now):
        return found
    _close(found, RecommendationState.SUPERSEDED, PLAN_CHANGED, now)
    return _open(now, loaded, plan, record, measured)


@transaction.atomic
def dismiss(
    *,
    actor: Viewer,
    now: datetime,
    recommendation_id: UUID,
    reason: str,
    until: datetime | None = None,
) -> Recommendation:
    """Set an open recommendation aside; the same targets stay away `until` then (default: a life).

    Raises NotVisible, NotAllowed, NotOpen.
    """
    found = _visible(actor, recommendation_id)
    require(actor, Permission.DISMISS, fleet.object_scope(found.deployment))
    life = timedelta(seconds=fleet.defaults_for(found.deployment).recommendation_life_s)
    _move(
        found,
        RecommendationState.DISMISSED,
        closed_at=now,
        closed_reason="dismissed",
        dismissed_by_id=actor.user_id,
        dismissed_by_name=actor.name,
        dismissed_reason=reason[:400],
        dismissed_until=until or now + life,
    )
    _audit(actor, now, "recommendation.dismiss", found, reason)
    return found


@transaction.atomic
def mark_applied(
    *, actor: Viewer, now: datetime, recommendation_id: UUID, command_id: UUID
) -> Recommendation:
    """Note the command that carries an open recommendation out, once. Raises NotOpen if it was
    applied, dismissed or superseded meanwhile: then the command must not be made."""
    found = _visible(actor, recommendation_id)
    require(actor, Permission.PROPOSE, fleet.object_scope(found.deployment))
    _move(
        found,
        RecommendationState.APPLIED,
        closed_at=now,
        closed_reason="applied",
        applied_at=now,
        applied_command_id=command_id,
    )
    _audit(actor, now, "recommendation.apply", found, "")
    return found


def expire_due(*, now: datetime, deployment_id: UUID | None = None) -> int:
    """Expire open recommendations whose life is over; returns how many."""
    rows = Recommendation.objects.filter(state=RecommendationState.OPEN, expires_at__lte=now)
    if deployment_id is not None:
        rows = rows.filter(deployment_id=deployment_id)
    return rows.update(state=RecommendationState.EXPIRED, closed_at=now, closed_reason="life_over")


def score_prediction(
    *, now: datetime, recommendation_id: UUID, measured: Mapping[str, Measurement]
) -> Score:
    """Compare what was predicted with what came, and keep it; a second call rewrites the row."""
    found = Recommendation.objects.get(pk=recommendation_id)
    result = score(predicted_after(found), measured)
    PredictionScore.objects.update_or_create(
        recommendation=found,
        defaults={
            "at": now,
            "measured": {code: figure.to_json() for code, figure in measured.items()},
            "scores": result.scores,
            "inside": result.inside,
            "relative_error": result.relative_error,
        },
    )
    return result


def predicted_after(found: Recommendation) -> dict[str, Measurement]:
    """The stored predictions."""
    return {code: Measurement.from_json(row["after"]) for code, row in found.predicted.items()}


_NOTHING = (0, 0)
#: A window without usable data is no vote for doing nothing.
_NO_VOTE = (9, 9)


def _direction(loaded: Loaded, targets: Mapping[str, int]) -> tuple[int, int]:
    """Which way each role moves: two plans of one direction are one opinion."""
    current = loaded.current
    if not targets or current is None:
        return _NOTHING
    return (
        _sign(targets["prefill"] - current.prefill),
        _sign(targets["decode"] - current.decode),
    )


def _sign(change: int) -> int:
    return (change > 0) - (change < 0)


def _votes(loaded: Loaded, newest: Evaluation) -> list[tuple[int, int]]:
    """Directions of the last `of` windows, newest first; windows are told apart by their end."""
    rows = Evaluation.objects.filter(deployment=loaded.deployment, at__lte=newest.at)
    votes: list[tuple[int, int]] = []
    seen: set[datetime | None] = set()
    newest_first = rows.order_by("-at").values_list("window_end", "stale", "wanted")
    for window_end, stale, wanted in newest_first[: 4 * loaded.defaults.hysteresis_of]:
        if window_end in seen:
            continue
        seen.add(window_end)
        votes.append(_NO_VOTE if stale else _direction(loaded, wanted))
        if len(votes) == loaded.defaults.hysteresis_of:
            break
    return votes


def _is_outdated(found: Recommendation, loaded: Loaded) -> bool:
    """Somebody changed what it would replace: its compare-and-swap would fail."""
    current = loaded.current
    return (
        current is None
        or found.expected_revision != loaded.topology.revision
        or found.current != current.as_dict()
    )


def _is_held_back(loaded: Loaded, pair: Pair, fingerprint: str, now: datetime) -> bool:
    """No new one while a command runs or waits, nor while a person has set the same aside."""
    if loaded.change.active_command_id:
        return True
    rows = Recommendation.objects.filter(deployment=loaded.deployment)
    waiting = now - timedelta(seconds=loaded.defaults.approval_life_s)
    if rows.filter(
        state=RecommendationState.APPLIED, plan_fingerprint=fingerprint, applied_at__gt=waiting
    ).exists():
        return True
    return rows.filter(
        state=RecommendationState.DISMISSED, targets=pair.as_dict(), dismissed_until__gt=now
    ).exists()


def _open(
    now: datetime,
    loaded: Loaded,
    plan: Plan,
    record: DiagnosisRecord,
    measured: Mapping[str, Measurement],
) -> Recommendation:
    sequence = _next_sequence()
    return Recommendation.objects.create(
        sequence=sequence,
        number=f"R-{sequence}",
        deployment=loaded.deployment,
        created_at=now,
        policy=loaded.defaults.preset,
        **_contents(now, loaded, plan, record, measured),
    )


def _refresh(
    found: Recommendation,
    now: datetime,
    loaded: Loaded,
    plan: Plan,
    record: DiagnosisRecord,
    measured: Mapping[str, Measurement],
) -> Recommendation | None:
    contents = _contents(now, loaded, plan, record, measured)
    rows = Recommendation.objects.filter(pk=found.pk, state=RecommendationState.OPEN)
    if rows.update(**contents) != 1:
        return None
    found.refresh_from_db()
    return found


def _contents(
    now: datetime,
    loaded: Loaded,
    plan: Plan,
    record: DiagnosisRecord,
    measured: Mapping[str, Measurement],
) -> dict[str, Any]:
    assert plan.chosen is not None and plan.now is not None and loaded.current is not None
    chosen, nothing = plan.chosen, plan.now
    label = plan.confidence.label if plan.confidence else "low"
    return {
        "refreshed_at": now,
        "expires_at": now + timedelta(seconds=loaded.defaults.recommendation_life_s),
        "kind": plan.kind,
        "reason": plan.reason,
        "params": dict(plan.params),
        "targets": chosen.pair.as_dict(),
        "current": loaded.current.as_dict(),
        "expected_revision": loaded.topology.revision,
        "plan_fingerprint": plan.fingerprint,
        "diagnosis": record,
        "predicted": {
            code: {"now": measured[code].to_json(), "after": figure.to_json()}
            for code, figure in chosen.figures.items()
        },
        "chances": {"ttft_p95": chosen.chance_ttft, "tpot_p95": chosen.chance_tpot},
        "do_nothing": {code: figure.to_json() for code, figure in nothing.figures.items()},
        "terms": dict(plan.terms),
        "alternatives": list(plan.alternatives),
        "guardrails": [result.to_json() for result in plan.guardrails],
        "confidence": label,
        "confidence_detail": plan.confidence.to_json() if plan.confidence else {},
        "blocked": plan.blocked,
    }


def _pause(found: Recommendation | None) -> Recommendation | None:
    """Old data: neither refreshed nor closed, and not to be applied (DESIGN law 1)."""
    if found is not None:
        rows = Recommendation.objects.filter(pk=found.pk, state=RecommendationState.OPEN)
        rows.update(blocked=DATA_STALE)
        found.blocked = DATA_STALE
    return found


def _refresh_blocked(found: Recommendation | None, loaded: Loaded) -> Recommendation | None:
    """Fresh data again, but this window wants nothing: no longer paused for age."""
    if found is not None and found.blocked == DATA_STALE:
        rows = Recommendation.objects.filter(pk=found.pk, state=RecommendationState.OPEN)
        rows.update(blocked="")
        found.blocked = ""
    return found


def _close(
    found: Recommendation | None, state: RecommendationState, reason: str, now: datetime
) -> None:
    if found is not None:
        Recommendation.objects.filter(pk=found.pk, state=RecommendationState.OPEN).update(
            state=state, closed_at=now, closed_reason=reason
        )


def _move(found: Recommendation, state: RecommendationState, **fields: Any) -> None:
    rows = Recommendation.objects.filter(pk=found.pk, state=RecommendationState.OPEN)
    if rows.update(state=state, **fields) != 1:
        found.refresh_from_db()
        raise NotOpen(found.number, found.state)
    found.refresh_from_db()


def _next_sequence() -> int:
    RecommendationCounter.objects.get_or_create(pk=1)
    RecommendationCounter.objects.filter(pk=1).update(last=F("last") + 1)
    return RecommendationCounter.objects.values_list("last", flat=True).get(pk=1)


def _visible(actor: Viewer, recommendation_id: UUID) -> Recommendation:
    found = (
        Recommendation.objects.filter(
            pk=recommendation_id, deployment__in=fleet.deployments_for(actor)
        )
        .select_related("deployment")
        .first()
    )
    if found is None:
        raise fleet.NotVisible(str(recommendation_id))
    return found


def _audit(actor: Viewer, now: datetime, action: str, found: Recommendation, reason: str) -> None:
    audit(
        actor=actor,
        now=now,
        action=action,
        object_kind="recommendation",
        object_id=str(found.pk),
        object_label=found.number,
        cluster_id=str(found.deployment.cluster_id),
        deployment_id=str(found.deployment_id),
        after={"state": found.state, "targets": found.targets},
        reason=reason,
    )


__all__: Sequence[str] = (
    "NotOpen",
    "dismiss",
    "expire_due",
    "mark_applied",
    "score_prediction",
    "sync",
)
