"""Named guardrails: each says whether it lets the plan pass, and in numbers why.

Asked when a recommendation is made, when it is reviewed and again at dispatch. The kill switch
belongs to commands.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from .choose import Limits, refusal
from .floors import floors, is_step_to
from .model import Pair, Targets
from .predict import Prediction

MIN_WORKERS = "min_workers"
STEP_LIMIT = "step_limit"
COOLDOWN = "cooldown"
NO_ACTIVE_COMMAND = "no_active_command"
NO_FOREIGN_CHANGE = "no_foreign_change"
DATA_FRESH = "data_fresh"
CALIBRATED = "calibrated"
PASSING_STATE = "passing_state"
GPU_BUDGET = "gpu_budget"
RATIO_LIMITS = "ratio_limits"
FLAP = "flap"

#: The flag on an open recommendation when `data_fresh` fails; Apply is then paused, not wrong.
DATA_STALE = "data_stale"


@dataclass(frozen=True, slots=True)
class Guardrail:
    """One check. `detail` is a message code with `params` (JSON values)."""

    code: str
    passed: bool
    detail: str
    params: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return {
            "code": self.code,
            "passed": self.passed,
            "detail": self.detail,
            "params": dict(self.params),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Guardrail:
        return cls(data["code"], data["passed"], data.get("detail", ""), data.get("params", {}))


@dataclass(frozen=True, slots=True)
class Circumstances:
    """What the checks look at besides the plan. Times in seconds, aware datetimes.

    `data_age_s` None: no window at all. `stale` names the required figures that are not fresh.
    `may_reduce`, `donors` and `incomplete` are what the figures let be taken away (`DataState`).
    `restores_floor`: the plan brings a pool back to its floor, which rests on a fresh inventory and
    on no figure. `model_only` names the phases whose capacity is not calibrated. `holds_*` say
    which objectives hold now by measurement (None: not known, then the prediction for now decides).
    """

    now: datetime
    data_age_s: float | None
    stale: tuple[str, ...]
    may_reduce: bool
    donors: frozenset[str]
    incomplete: tuple[str, ...]
    inventory_is_fresh: bool
    model_only: tuple[str, ...]
    is_growth: bool
    cooldown_up_s: float
    cooldown_down_s: float
    last_change_at: datetime | None
    active_command: str
    foreign_change_at: datetime | None
    frozen_until: datetime | None
    reversals: tuple[datetime, ...]
    flap_reversals: int
    flap_window_s: float
    holds_ttft: bool | None
    holds_tpot: bool | None
    restores_floor: bool = False


def check(
    target: Pair,
    current: Pair,
    limits: Limits,
    circumstances: Circumstances,
    targets: Targets,
    now: Prediction,
    passing: Prediction,
) -> tuple[Guardrail, ...]:
    """All guardrails, passed or not. `passing` predicts the lowest capacity on the way."""
    return (
        _data_fresh(target, current, circumstances),
        _calibrated(circumstances),
        _no_active_command(circumstances),
        _no_foreign_change(circumstances),
        _cooldown(circumstances),
        _min_workers(target, current, limits, circumstances),
        _step_limit(target, current, limits),
        _gpu_budget(target, current, limits),
        _ratio_limits(target, current, limits),
        _passing_state(circumstances, targets, now, passing),
        _flap(circumstances),
    )


def first_failure(results: Sequence[Guardrail]) -> str:
    """The code to block with; `data_stale` for old data; empty when all pass."""
    failed = next((result.code for result in results if not result.passed), "")
    return DATA_STALE if failed == DATA_FRESH else failed


def lowest_on_the_way(target: Pair, current: Pair) -> Pair:
    """The least of each role that serves while the plan runs (DESIGN law 6): whatever the order of
    growing and shrinking, no pool falls below the smaller of before and after."""
    return Pair(min(current.prefill, target.prefill), min(current.decode, target.decode))


def _data_fresh(target: Pair, current: Pair, c: Circumstances) -> Guardrail:
    """What the figures may drive (DESIGN law 1): nothing while they are old, and no worker is taken
    from a pool whose figures are only evidence of a breach or tell of part of the workers."""
    if c.restores_floor and not c.inventory_is_fresh:
        return Guardrail(DATA_FRESH, False, "inventory_old")
    if not c.restores_floor and c.data_age_s is None:
        return Guardrail(DATA_FRESH, False, "no_data")
    if not c.restores_floor and c.stale:
        return Guardrail(
            DATA_FRESH, False, "signals_stale", {"signals": list(c.stale), "age_s": c.data_age_s}
        )
    held = _held(target, current, c)
    if held:
        params = {"roles": held, "signals": [*c.stale, *c.incomplete]}
        return Guardrail(DATA_FRESH, False, "growth_only", params)
    if c.restores_floor:
        return Guardrail(DATA_FRESH, True, "inventory_fresh")
    return Guardrail(DATA_FRESH, True, "data_age", {"age_s": c.data_age_s})


def _held(target: Pair, current: Pair, c: Circumstances) -> list[str]:
    """Roles that would lose workers and may not."""
    change = {"prefill": target.prefill - current.prefill, "decode": target.decode - current.decode}
    giving = [role for role, workers in change.items() if workers < 0]
    if not any(workers > 0 for workers in change.values()):
        return [] if c.may_reduce else giving
    return [role for role in giving if role not in c.donors]


def _calibrated(c: Circumstances) -> Guardrail:
    """A model-only busy share may flag, not command (DESIGN law 3b); a floor needs no model."""
    if c.model_only and not c.restores_floor:
        return Guardrail(CALIBRATED, False, "model_only", {"phases": list(c.model_only)})
    return Guardrail(CALIBRATED, True, "calibrated")


def _no_active_command(c: Circumstances) -> Guardrail:
    if c.active_command:
        return Guardrail(NO_ACTIVE_COMMAND, False, "command_active", {"command": c.active_command})
    return Guardrail(NO_ACTIVE_COMMAND, True, "no_command_active")


def _no_foreign_change(c: Circumstances) -> Guardrail:
    at = c.foreign_change_at
    if at is not None and (c.last_change_at is None or at > c.last_change_at):
        return Guardrail(NO_FOREIGN_CHANGE, False, "foreign_change", {"at": at.isoformat()})
    return Guardrail(NO_FOREIGN_CHANGE, True, "no_foreign_change")


def _cooldown(c: Circumstances) -> Guardrail:
    wait_s = c.cooldown_up_s if c.is_growth else c.cooldown_down_s
    if c.last_change_at is None:
        return Guardrail(COOLDOWN, True, "no_change_yet", {"cooldown_s": wait_s})
    left = wait_s - (c.now - c.last_change_at).total_seconds()
    if left > 0:
        return Guardrail(COOLDOWN, False, "cooling_down", {"left_s": left, "cooldown_s": wait_s})
    return Guardrail(COOLDOWN, True, "cooldown_over", {"cooldown_s": wait_s})


def _min_workers(target: Pair, current: Pair, limits: Limits, c: Circumstances) -> Guardrail:
    floor = floors(limits)
    passed = target.prefill >= floor.prefill and target.decode >= floor.decode
    passed = passed or (c.restores_floor and is_step_to(target, current, floor))
    params = {**floor.as_dict(), "target": target.as_dict()}
    return Guardrail(MIN_WORKERS, passed, "floors", params)


def _step_limit(target: Pair, current: Pair, limits: Limits) -> Guardrail:
    steps = {}
    passed = True
    for role, before, after in (
        ("prefill", current.prefill, target.prefill),
        ("decode", current.decode, target.decode),
    ):
        most = limits.step_up(before) if after > before else limits.step_down(before)
        steps[role] = {"change": after - before, "limit": most}
        passed = passed and abs(after - before) <= most
    return Guardrail(STEP_LIMIT, passed, "steps", steps)


def _gpu_budget(target: Pair, current: Pair, limits: Limits) -> Guardrail:
    before, after = limits.gpus(current), limits.gpus(target)
    if before is None or after is None:
        same = target.total <= current.total and not limits.can_scale
        return Guardrail(GPU_BUDGET, same, "gpu_unit_unknown")
    free = Decimal(0) if limits.gpu_budget is None else max(Decimal(0), limits.gpu_budget - before)
    passed = after <= before + free
    return Guardrail(
        GPU_BUDGET,
        passed,
        "gpus",
        {"before": str(before), "after": str(after), "free": str(free)},
    )


def _ratio_limits(target: Pair, current: Pair, limits: Limits) -> Guardrail:
    passed = refusal(target, current, limits) != RATIO_LIMITS
    params = {"min": limits.ratio_min, "max": limits.ratio_max}
    return Guardrail(RATIO_LIMITS, passed, "ratio", params)


def _passing_state(
    c: Circumstances, targets: Targets, now: Prediction, passing: Prediction
) -> Guardrail:
    """The lowest capacity on the way must not breach an objective that holds now."""
    holds_ttft = now.meets_ttft if c.holds_ttft is None else c.holds_ttft
    holds_tpot = now.meets_tpot if c.holds_tpot is None else c.holds_tpot
    params = {
        "lowest": passing.pair.as_dict(),
        "ttft_s": passing.ttft_s,
        "tpot_s": passing.tpot_s,
    }
    if targets.ttft_s is not None and holds_ttft and not passing.meets_ttft and now.meets_ttft:
        return Guardrail(PASSING_STATE, False, "would_breach_ttft", params)
    if targets.tpot_s is not None and holds_tpot and not passing.meets_tpot and now.meets_tpot:
        return Guardrail(PASSING_STATE, False, "would_breach_tpot", params)
    return Guardrail(PASSING_STATE, True, "lowest_capacity", params)


def _flap(c: Circumstances) -> Guardrail:
    if c.frozen_until is not None and c.frozen_until > c.now:
        return Guardrail(FLAP, False, "frozen", {"until": c.frozen_until.isoformat()})
    since = c.now - timedelta(seconds=c.flap_window_s)
    recent = sum(1 for at in c.reversals if at > since)
    params = {"reversals": recent, "limit": c.flap_reversals, "window_s": c.flap_window_s}
    return Guardrail(FLAP, recent < c.flap_reversals, "reversals", params)
