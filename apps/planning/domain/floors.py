"""A pool below its own floor is restored, on the inventory alone (DESIGN law 1). Pure.

No telemetry is needed to know that a floor is broken, so an outage of metrics does not keep a
deployment below it (ai-dynamo/dynamo#14575). Only free GPUs, or a donor pool that its own figures
let go of a worker, are used; one step at a time.
"""

from __future__ import annotations

from dataclasses import replace

from .choose import Limits, lattice
from .model import Money, Pair
from .predict import Prediction

BELOW_FLOOR = "below_floor"


def floors(limits: Limits) -> Pair:
    """The least workers of each role; never below one."""
    return Pair(max(1, limits.min_prefill), max(1, limits.min_decode))


def restored(current: Pair, limits: Limits, donors: frozenset[str]) -> Pair | None:
    """The pair of the next step to the floors; None where no pool is below its floor, or where no
    step is possible within limits and GPUs."""
    floor = floors(limits)
    if current.prefill >= floor.prefill and current.decode >= floor.decode:
        return None
    # A step may end below the floor; it may not lead further away from it.
    least = replace(
        limits,
        min_prefill=min(floor.prefill, current.prefill),
        min_decode=min(floor.decode, current.decode),
    )
    options = [p for p in lattice(current, least) if _restores(p, current, floor, donors)]

    def key(pair: Pair) -> tuple[int, int, int, Pair]:
        # Nearest to the floors, from nobody if there are free GPUs, with few moves.
        return (_shortfall(pair, floor), _shortfall(pair, current), pair.moved_from(current), pair)

    return min(options, key=key, default=None)


def is_step_to(target: Pair, current: Pair, floor: Pair) -> bool:
    """True if no role ends below its floor without having come nearer to it."""
    return _shortfall(target, floor) == 0 or (
        _shortfall(target, floor) < _shortfall(current, floor)
        and target.prefill >= min(floor.prefill, current.prefill)
        and target.decode >= min(floor.decode, current.decode)
    )


def unpredicted(pair: Pair, money: Money) -> Prediction:
    """A pair of which nothing is predicted, because the figures for it are missing: it has no
    figure to show, and stands in no comparison."""
    return Prediction(
        pair=pair,
        ttft_s=0.0,
        tpot_s=0.0,
        good_share=0.0,
        prefill_busy=0.0,
        decode_busy=0.0,
        served_share=0.0,
        meets_ttft=True,
        meets_tpot=True,
        chance_ttft=None,
        chance_tpot=None,
        per_hour=money.per_hour(pair),
        figures={},
    )


def _restores(pair: Pair, current: Pair, floor: Pair, donors: frozenset[str]) -> bool:
    roles = (
        ("prefill", pair.prefill, current.prefill, floor.prefill),
        ("decode", pair.decode, current.decode, floor.decode),
    )
    for role, after, before, least in roles:
        if before < least:
            if not before <= after <= least:
                return False
        elif after > before or (after < before and (after < least or role not in donors)):
            return False
    return _shortfall(pair, floor) < _shortfall(current, floor)


def _shortfall(pair: Pair, floor: Pair) -> int:
    """Workers that `pair` lacks to `floor`, over both roles."""
    return max(0, floor.prefill - pair.prefill) + max(0, floor.decode - pair.decode)
