"""A stored recommendation as card and Review show it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal
from typing import Any, Final

from apps.accounts.domain.authorize import Permission
from apps.commands.domain import approvals
from apps.common.measurement import Measurement, Place, State
from apps.common.units import Unit
from apps.planning import selectors as planning
from apps.planning.models import Recommendation

from .domain.types import Alternative, Guardrail, PredictedRow, RecommendationView, Text
from .labels import changes, diff, why_not_permission
from .loaded import Loaded

#: Reasons of the planner that have words of their own; causes share theirs.
REASON: Final[Mapping[str, str]] = {
    "load_returned": "reason.return",
    "spare_capacity": "reason.model",
    "below_floor": "reason.below_floor",
}
ROW_ORDER: Final = ("ttft_p95", "tpot_p95", "goodput", "cost_per_million")


def view(loaded: Loaded, found: Recommendation) -> RecommendationView:
    """The read model of a recommendation for the viewer."""
    now, scope, viewer = loaded.now, loaded.scope, loaded.viewer
    similar, error = planning.similar_changes(loaded.deployment)
    rule = approvals.rule_for(loaded.deployment.environment)
    return RecommendationView(
        id=str(found.pk),
        number=found.number,
        state=found.state,
        created_at=found.created_at,
        age_s=(now - found.created_at).total_seconds(),
        valid_s=max(0.0, (found.expires_at - now).total_seconds()),
        title=title(found.current, found.targets),
        reason=_reason(loaded, found),
        diff=diff(found.current, found.targets, loaded.topology),
        revision_from=found.expected_revision,
        predicted=_rows(loaded, found.predicted) + _spend(loaded, found.targets),
        confidence="model_only" if similar < 5 else found.confidence,
        similar_changes=similar,
        median_error=error,
        guardrails=tuple(guardrail(item) for item in found.guardrails),
        notes=_notes(loaded, found),
        blocked=blocked(loaded, found),
        approvals_needed=rule.needed,
        may_propose=viewer.can(Permission.PROPOSE, scope),
        may_approve=viewer.can(Permission.APPROVE, scope),
        may_dismiss=viewer.can(Permission.DISMISS, scope),
        why_not=why_not_permission(viewer, Permission.PROPOSE, scope),
        alternatives=_alternatives(loaded, found),
        terms=found.terms,
        applied_command=_applied(found),
    )


def title(before: Mapping[str, int], after: Mapping[str, int]) -> Text:
    """The change as an instruction."""
    moved = changes(before, after)
    grown = {role: new - old for role, (old, new) in moved.items() if new > old}
    shrunk = {role: old - new for role, (old, new) in moved.items() if new < old}
    if len(grown) == 1 and len(shrunk) == 1:
        (to_role, up), (from_role, down) = next(iter(grown.items())), next(iter(shrunk.items()))
        if up == down:
            return Text("rec.role_flip", {"count": up, "from_role": from_role, "to_role": to_role})
        return Text(
            "rec.rebalance",
            {"count": down, "total": up, "from_role": from_role, "to_role": to_role},
        )
    if len(grown) == 1 and not shrunk:
        role, count = next(iter(grown.items()))
        return Text("rec.scale_up", {"count": count, "role": role})
    if len(shrunk) == 1 and not grown:
        role, count = next(iter(shrunk.items()))
        return Text("rec.scale_down", {"count": count, "role": role})
    return Text("rec.scale", {"changes": moved})


def _reason(loaded: Loaded, found: Recommendation) -> Text:
    params: dict[str, Any] = {}
    busy = loaded.evaluation.busy if loaded.evaluation else {}
    for role in ("prefill", "decode"):
        value = (busy.get(role) or {}).get("value")
        if value is not None:
            params[f"{role}_busy"] = float(value)
    if found.reason in REASON:
        return Text(REASON[found.reason])
    return Text(f"reason.{found.reason}", params)


def _rows(loaded: Loaded, predicted: Mapping[str, Any]) -> tuple[PredictedRow, ...]:
    rows = []
    for code in ROW_ORDER:
        stored = predicted.get(code)
        if not stored:
            continue
        after = Measurement.from_json(stored.get("after", stored))
        before = Measurement.from_json(stored["now"]) if "now" in stored else None
        objective = _objective(loaded, code)
        rows.append(
            PredictedRow(
                code=code,
                now=before or Measurement(None, after.unit, State.NO_DATA),
                after=after,
                objective=objective,
                meets_objective=(
                    after.number() <= objective
                    if objective is not None and after.value is not None
                    else None
                ),
            )
        )
    return tuple(rows)


def _objective(loaded: Loaded, code: str) -> float | None:
    return loaded.thresholds.get(code.removesuffix("_p95")) if code.endswith("_p95") else None


def _spend(loaded: Loaded, targets: Mapping[str, int]) -> tuple[PredictedRow, ...]:
    """Spend per hour now and after; exact, because it is counts times prices."""
    before = spend_per_hour(loaded, {r: p.wanted for r, p in loaded.topology.pools.items()})
    after = spend_per_hour(loaded, targets)
    if before is None or after is None:
        return ()
    return (PredictedRow("spend_per_hour", _money(before), _money(after), None, None),)


def spend_per_hour(loaded: Loaded, workers: Mapping[str, int]) -> Decimal | None:
    """Price of these counts per hour; None when a price or a unit is missing."""
    prices = loaded.prices
    total = Decimal(0)
    for role, count in workers.items():
        pool = loaded.topology.pools.get(role)
        if pool is None or pool.accelerator is None or pool.devices_per_worker is None:
            return None
        price = prices.get(pool.accelerator)
        if price is None:
            return None
        total += price * pool.devices_per_worker * count
    return total


def _money(amount: Decimal) -> Measurement:
    return Measurement(amount, Unit.USD_PER_HOUR, State.OK, place=Place.DECLARED, method="price")


def guardrail(stored: Mapping[str, Any]) -> Guardrail:
    """A guardrail's result with its words' code and what they need."""
    code = stored["code"]
    params = stored.get("params") or {}
    detail = None
    if code == "data_fresh" and params.get("age_s") is not None:
        detail = Text("guard.age", {"age_s": float(params["age_s"])})
    elif code == "cooldown" and params.get("left_s") is not None:
        detail = Text("guard.wait", {"left_s": float(params["left_s"])})
    elif code == "no_active_command" and params.get("command"):
        detail = Text("guard.command", {"command": str(params["command"])})
    elif code == "gpu_budget" and params.get("free") is not None:
        free = Decimal(str(params["free"]))
        needed = Decimal(str(params["after"])) - Decimal(str(params["before"]))
        detail = (
            Text("guard.gpus", {"gpus_free": free, "gpus_needed": needed})
            if needed > 0
            else Text("check.gpus_same")
        )
    return Guardrail(code=code, passed=bool(stored["passed"]), detail=detail)


def blocked(loaded: Loaded, found: Recommendation) -> Text | None:
    """Why Apply is off, None when it is on."""
    if found.state != "open":
        return Text("blocked.expired" if found.state == "expired" else "blocked.superseded")
    if found.expires_at <= loaded.now:
        return Text("blocked.expired", {"at": found.refreshed_at})
    if loaded.kill_switch:
        return Text("blocked.kill_switch")
    if (loaded.is_stale and found.reason != "below_floor") or found.blocked == "data_stale":
        params = {"age_s": loaded.age_s} if loaded.age_s is not None and loaded.is_stale else {}
        return Text("blocked.stale", params)
    if loaded.active_command is not None:
        return Text("blocked.active_command", {"command": loaded.active_command.number})
    if loaded.topology.mode == "recommend":
        return Text("blocked.mode", {"mode": "recommend"})
    if found.blocked:
        return Text("blocked.guardrail", {"guardrail": found.blocked})
    if loaded.topology.revision != found.expected_revision:
        return Text("blocked.revision")
    return None


def _notes(loaded: Loaded, found: Recommendation) -> tuple[Text, ...]:
    notes: list[Text] = []
    grown = [r for r, (old, new) in changes(found.current, found.targets).items() if new > old]
    shrunk = [r for r, (old, new) in changes(found.current, found.targets).items() if new < old]
    if grown and shrunk:
        donor = loaded.figures.phase(shrunk[0])
        victim = min(
            donor.workers if donor else (),
            key=lambda w: float(w.running.value or 0) + float(w.waiting.value or 0),
            default=None,
        )
        ttft = loaded.figures.ttft.p95.value
        tpot = loaded.figures.tpot.p95.value
        about = 10.0 + float(ttft or 0) + 200 * float(tpot or 0)
        if victim is not None and victim.running.value is not None:
            notes.append(
                Text(
                    "note.drains_first",
                    {
                        "worker": victim.name,
                        "running": int(victim.running.value),
                        "about_s": about,
                        "role": grown[0],
                        "ready_s": about + 6.0,
                    },
                )
            )
        else:
            notes.append(Text("note.flip"))
    notes.append(Text("note.auto_rollback", {"soak_s": loaded.defaults.soak_s}))
    return tuple(notes)


def _alternatives(loaded: Loaded, found: Recommendation) -> tuple[Alternative, ...]:
    nothing = Alternative(
        title=Text("rec.do_nothing"),
        targets=found.current,
        rows=_rows(loaded, found.do_nothing),
        reason=_why_rejected(
            "misses_ttft" if found.reason == "prefill_saturated" else "less_headroom",
            {"ttft_s": (found.do_nothing.get("ttft_p95") or {}).get("value")},
            loaded,
        ),
    )
    others = [
        Alternative(
            title=title(found.current, item["targets"]),
            targets=item["targets"],
            rows=_rows(loaded, item.get("predicted", {})),
            reason=_why_rejected(item.get("reason", ""), item.get("params", {}), loaded),
        )
        for item in found.alternatives
        if item["targets"] != found.current
    ]
    return (nothing, *others)


def _why_rejected(code: str, params: Mapping[str, Any], loaded: Loaded) -> Text:
    if code in ("misses_ttft", "misses_tpot"):
        seconds = params.get("ttft_s" if code == "misses_ttft" else "tpot_s")
        if seconds is None:
            return Text(f"alt.{code}")
        figure = Measurement(float(seconds), Unit.SECONDS, State.OK, place=Place.MODEL)
        extra = {"ttft_objective": loaded.thresholds.get("ttft")} if code == "misses_ttft" else {}
        return Text(f"alt.{code}", {"predicted": figure, **extra})
    if code == "costs_more" and params.get("per_hour") is not None:
        return Text("alt.dearer", {"extra": Decimal(str(params["per_hour"]))})
    return Text("alt.similar")


def _applied(found: Recommendation) -> str:
    if found.applied_command_id is None:
        return ""
    from apps.commands.models import Command

    number = Command.objects.filter(pk=found.applied_command_id).values_list("number", flat=True)
    return number.first() or ""


def none_text(loaded: Loaded, now: datetime) -> Text:
    """Why there is no recommendation."""
    evaluation = loaded.evaluation
    if loaded.topology.mode == "observe":
        return Text("none.observe")
    if evaluation is None:
        return Text("none.fresh_deployment")
    if loaded.is_stale:
        return Text("none.stale")
    if loaded.active_command is not None:
        return Text("none.command_running", {"command": loaded.active_command.number})
    busy = {
        f"{role}_busy": float(value)
        for role in ("prefill", "decode")
        if (value := (evaluation.busy.get(role) or {}).get("value")) is not None
    }
    match evaluation.reason:
        case "data_not_fresh" | "demand_unknown" | "growth_only":
            return Text("none.not_enough_signal")
        case "too_little_history":
            return Text("none.fresh_deployment")
        case "cause_forbids_scaling":
            return Text("none.not_for_this_cause")
        case "not_two_pools":
            return Text("none.single_pool")
        case "no_room_to_grow":
            return Text("none.at_limit")
        case "model_expects_recovery" | "enough_capacity":
            return Text("none.recovering")
    if evaluation.wanted:
        return Text(
            "none.holding",
            {"have": 1, "needed": loaded.defaults.hysteresis_needed},
        )
    if (loaded.diagnosis is not None) and loaded.diagnosis.cause == "balanced":
        return Text("none.balanced", busy)
    return Text("none.balanced", busy) if not evaluation.stale else Text("none.not_enough_signal")
