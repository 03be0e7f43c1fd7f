"""The proof that a plan is safe at each of its steps (DESIGN law 6)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

from apps.backends.protocol import StepSpec


@dataclass(frozen=True, slots=True)
class Violation:
    """Why a plan may not run. `code` is one of `gpus`, `below_minimum`, `one_role_empty`,
    `above_maximum`, `passing_breach`, `missing_role`."""

    code: str
    step: int
    role: str = ""
    value: str = ""
    limit: str = ""


@dataclass(frozen=True, slots=True)
class Limits:
    """`gpus` is the most GPUs the deployment may use while it changes (None: no growth allowed
    beyond the first step's use). Minimums and maximums in workers, per role."""

    gpus: Decimal | None
    minimum: Mapping[str, int]
    maximum: Mapping[str, int | None]


@dataclass(frozen=True, slots=True)
class Load:
    """One phase now: its busy share (DESIGN law 3b), how many workers carry it, and whether its
    objective holds now."""

    busy: float
    workers: int
    holds: bool


def lowest_capacity(steps: Sequence[StepSpec]) -> dict[str, int]:
    """The fewest serving workers of each role on the way."""
    lowest: dict[str, int] = {}
    for step in steps:
        for role, count in step.serving_during.items():
            lowest[role] = min(count, lowest.get(role, count))
    return lowest


def largest_gpus(steps: Sequence[StepSpec], done: int = 0) -> Decimal:
    """The most GPUs in use at once from step `done` on; 0 for no steps."""
    return max((step.gpus_during for step in steps[done:]), default=Decimal(0))


def violations(
    steps: Sequence[StepSpec],
    targets: Mapping[str, int],
    limits: Limits,
    loads: Mapping[str, Load],
    serving_now: Mapping[str, int],
) -> tuple[Violation, ...]:
    """Every way in which a passing state or the target breaks a limit; empty means proved.

    A role that is below its minimum already may pass on as low as it is, never lower. A passing
    state breaches an objective when the busy share that its serving workers would carry passes 1
    although the objective holds now.
    """
    found: list[Violation] = []
    for role, target in targets.items():
        least = limits.minimum.get(role, 1)
        if target < least:
            found.append(Violation("below_minimum", -1, role, str(target), str(least)))
        most = limits.maximum.get(role)
        if most is not None and target > most:
            found.append(Violation("above_maximum", -1, role, str(target), str(most)))
    cap = limits.gpus
    if cap is None:
        cap = steps[0].gpus_during if steps else Decimal(0)
    for step in steps:
        if step.gpus_during > cap:
            found.append(Violation("gpus", step.index, "", str(step.gpus_during), str(cap)))
        served = step.serving_during
        for role, least in limits.minimum.items():
            if role not in served:
                if role in targets and serving_now.get(role, 0) > 0:
                    found.append(Violation("missing_role", step.index, role))
                continue
            floor = min(least, serving_now.get(role, least))
            if served[role] < floor:
                found.append(
                    Violation("below_minimum", step.index, role, str(served[role]), str(floor))
                )
        alive = {role: count for role, count in served.items() if serving_now.get(role, 0) > 0}
        if alive and any(count == 0 for count in alive.values()) and any(alive.values()):
            role = next(name for name, count in alive.items() if count == 0)
            found.append(Violation("one_role_empty", step.index, role, "0", "1"))
        found += _breaches(step, loads)
    return tuple(found)


def _breaches(step: StepSpec, loads: Mapping[str, Load]) -> list[Violation]:
    found = []
    for role, load in loads.items():
        count = step.serving_during.get(role)
        if count is None or count <= 0 or count >= load.workers or not load.holds:
            continue
        passing = load.busy * load.workers / count
        if passing > 1.0:
            found.append(Violation("passing_breach", step.index, role, f"{passing:.2f}", "1"))
    return found
