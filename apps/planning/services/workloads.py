"""Workload profiles grow from stored windows, each window once."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Final

from django.conf import settings
from django.db import transaction

from apps.engines.window import Window
from apps.fleet.models import Deployment, PoolRole, Span, Worker
from apps.telemetry.tiled import oldest_start, tiled_windows

from ..domain.workload import (
    Grown,
    Part,
    RoleSpan,
    drifted,
    grow,
    part_of,
    places_of,
    splits,
)
from ..models import WorkloadProfile

#: Younger windows still slide; prune thins those of a quarter of an hour every ten minutes.
SETTLED: Final = timedelta(minutes=30)
#: Windows read at once; a deployment that was never profiled catches up in steps.
STEP: Final = timedelta(hours=24)
STEPS: Final = 7
SCOPES: Final = ("frontend", "router", *PoolRole.values)


def build_workloads(*, now: datetime) -> int:
    """Bring the profiles of all living deployments up to half an hour before `now`; returns how
    many windows were added. Running twice adds nothing twice."""
    added = 0
    for deployment in Deployment.objects.filter(ended_at__isnull=True):
        added += build_workload(deployment=deployment, now=now)
    return added


def build_workload(*, deployment: Deployment, now: datetime) -> int:
    """The same for one deployment."""
    until = now - SETTLED
    added = 0
    for _ in range(STEPS):
        step, is_done = _advance(deployment, until)
        added += step
        if is_done:
            break
    return added


@transaction.atomic
def _advance(deployment: Deployment, until: datetime) -> tuple[int, bool]:
    """Take up to a day of windows into the open profile; (windows taken, nothing is left)."""
    row = _open(deployment)
    if row is None or row.built_to >= until:
        return 0, True
    reach = min(until, row.built_to + STEP)
    change = _next_change(deployment, row, reach)
    # A window that holds the moment of a change belongs to neither span.
    stop = change[0] if change else reach
    taken = _take(deployment, row, stop)
    if change is not None:
        _close(row, change[0])
        _start(deployment, change[0], *change[1:])
    else:
        _split_if_drifted(deployment, row)
    return taken, change is None and reach >= until


def _open(deployment: Deployment) -> WorkloadProfile | None:
    """The open profile, locked; made at the first stored window. None before that."""
    rows = WorkloadProfile.objects.select_for_update()
    found = rows.filter(deployment=deployment, span_to__isnull=True).first()
    if found is not None:
        return found
    start = oldest_start(deployment)
    if start is None:
        return None
    return _start(deployment, start, "first", _facts_at(deployment, start))


def _start(
    deployment: Deployment, at: datetime, reason: str, facts: Mapping[str, str]
) -> WorkloadProfile:
    return WorkloadProfile.objects.create(
        deployment=deployment,
        span_from=at,
        reason=reason,
        built_to=at,
        cursors={scope: at.isoformat() for scope in SCOPES},
        base=Part().to_json(),
        **facts,
    )


def _close(row: WorkloadProfile, at: datetime) -> None:
    """End a span; one that held no request never was."""
    if row.requests <= 0 or at <= row.span_from:
        row.delete()
        return
    row.span_to = at
    row.save(update_fields=["span_to"])


def _take(deployment: Deployment, row: WorkloadProfile, stop: datetime) -> int:
    cursors = {scope: datetime.fromisoformat(at) for scope, at in row.cursors.items()}
    batch = tiled_windows(deployment, cursors, stop)
    places = places_of(batch.values())
    grown = _grown(row)
    taken = 0
    for end, windows in batch.items():
        grown = grow(grown, _middle(windows), part_of(windows, places, row.zone))
        cursors |= dict.fromkeys(windows, end)
        taken += len(windows)
    row.base = grown.base.to_json()
    row.recent = {hour.isoformat(): part.to_json() for hour, part in grown.recent}
    row.cursors = {scope: at.isoformat() for scope, at in cursors.items()}
    row.requests = grown.whole.requests
    row.built_to = stop
    row.save()
    return taken


def _middle(windows: Mapping[str, Window]) -> datetime:
    window = next(iter(windows.values()))
    return window.start + (window.end - window.start) / 2


def _grown(row: WorkloadProfile) -> Grown:
    recent = sorted(
        (datetime.fromisoformat(hour), Part.from_json(part)) for hour, part in row.recent.items()
    )
    return Grown(Part.from_json(row.base), tuple(recent))


def _split_if_drifted(deployment: Deployment, row: WorkloadProfile) -> None:
    """The last day becomes a span of its own, from its first hour on."""
    grown = _grown(row)
    if not drifted(grown):
        return
    start = grown.recent[0][0]
    row.recent, row.requests = {}, grown.base.requests
    row.span_to = start
    cursors, built_to = row.cursors, row.built_to
    row.save()
    facts = {name: getattr(row, name) for name in ("zone", "served_model", "checkpoint", "split")}
    made = _start(deployment, start, "drift", facts)
    made.recent = {hour.isoformat(): part.to_json() for hour, part in grown.recent}
    made.cursors, made.built_to = cursors, built_to
    made.requests = grown.last_day.requests
    made.save()


def _next_change(
    deployment: Deployment, row: WorkloadProfile, reach: datetime
) -> tuple[datetime, str, dict[str, str]] | None:
    """The first moment in `(span_from, reach]` at which the profile's model, checkpoint or split
    no longer held: (when, why, what holds then)."""
    changes = [
        (at, reason)
        for at, reason in (*_checkpoint_changes(deployment), *_split_changes(deployment))
        if row.span_from < at <= reach
    ]
    for at, reason in sorted(changes):
        facts = _facts_at(deployment, at)
        if any(facts[name] != getattr(row, name) for name in ("checkpoint", "split")):
            # What has no history of its own changes only when it is noticed.
            return at, reason, facts | {"served_model": row.served_model, "zone": row.zone}
    for name, reason in (("served_model", "model"), ("zone", "zone")):
        facts = _facts_at(deployment, reach)
        if facts[name] != getattr(row, name) and row.built_to > row.span_from:
            return row.built_to, reason, facts
    return None


def _facts_at(deployment: Deployment, at: datetime) -> dict[str, str]:
    checkpoints = sorted(
        {
            str(span.value)
            for span in _pool_spans(deployment)
            if span.value and span.valid_from <= at and (not span.valid_to or at < span.valid_to)
        }
    )
    held = [name for since, name in splits(_role_spans(deployment), _PLANNED) if since <= at]
    return {
        "zone": settings.TIME_ZONE,
        "served_model": deployment.served_model,
        "checkpoint": ", ".join(checkpoints)[:400],
        "split": held[-1] if held else "",
    }


_PLANNED: Final = frozenset(PoolRole.values)


def _pool_spans(deployment: Deployment) -> list[Span]:
    pools = list(deployment.pools.values_list("pk", flat=True))
    return list(
        Span.objects.filter(subject_kind="pool", subject_id__in=pools, attribute="checkpoint")
    )


def _checkpoint_changes(deployment: Deployment) -> list[tuple[datetime, str]]:
    return [(span.valid_from, "checkpoint") for span in _pool_spans(deployment)]


def _role_spans(deployment: Deployment) -> list[RoleSpan]:
    ended = dict(Worker.objects.filter(deployment=deployment).values_list("pk", "ended_at"))
    spans = Span.objects.filter(subject_kind="worker", subject_id__in=list(ended), attribute="role")
    return [
        RoleSpan(str(span.value), span.valid_from, _earlier(span.valid_to, ended[span.subject_id]))
        for span in spans
    ]


def _split_changes(deployment: Deployment) -> list[tuple[datetime, str]]:
    return [(at, "split") for at, _ in splits(_role_spans(deployment), _PLANNED)]


def _earlier(one: Any, other: Any) -> datetime | None:
    known = [at for at in (one, other) if at is not None]
    return min(known) if known else None
