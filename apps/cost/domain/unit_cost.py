"""What a token costs now: money per hour by pool and phase, idle money, money per 1M tokens.

Pure Decimal. Sources: research on cost accounting §1.5, DESIGN laws 3a and 11. A missing price or
a zero denominator gives a figure without a value and a reason, never 0 and never infinity.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Final

from apps.common.measurement import Measurement, Place, State, missing, worst
from apps.common.units import Unit

from .money import CONTEXT, exact

MILLION: Final = Decimal(1_000_000)
HOUR_S: Final = Decimal(3600)
#: What a cached input token costs, as a share of an uncached one.
CACHED_WEIGHT: Final = Decimal("0.10")

PRICE_NEEDED = "price_needed"
UNIT_UNKNOWN = "gpu_unit_unknown"
NO_TOKENS = "no_tokens"
NO_GOOD_TOKENS = "no_good_tokens"

#: Role of a pool to the phase its cost belongs to; other roles are costed under their own name.
PHASE_OF_ROLE: Final[Mapping[str, str]] = {"prefill": "input", "decode": "output"}


@dataclass(frozen=True, slots=True)
class PoolUse:
    """One pool for costing: GPUs held (None if a worker's size is unknown), price, busy share."""

    role: str
    gpus: Decimal | None
    price_per_gpu_hour: Decimal | None
    busy: Measurement | None = None


@dataclass(frozen=True, slots=True)
class TokenRates:
    """Tokens per second of requests that ended normally (DESIGN §2), as measured."""

    uncached_input: Measurement
    cached_input: Measurement
    output: Measurement


@dataclass(frozen=True, slots=True)
class UnitCosts:
    """All money figures of a deployment at one moment.

    `per_hour` by role or component, `phase_per_hour` by phase. `missing_prices` are the
    accelerators or components without a price: with one missing the totals are missing too.
    """

    per_hour: Mapping[str, Measurement]
    phase_per_hour: Mapping[str, Measurement]
    total_per_hour: Measurement
    idle_per_hour: Measurement
    idle_share: Measurement
    input_per_million: Measurement
    output_per_million: Measurement
    completed_per_million: Measurement
    good_per_million: Measurement
    missing_prices: tuple[str, ...]


def unit_costs(
    *,
    pools: Sequence[PoolUse],
    components: Mapping[str, Decimal],
    tokens: TokenRates,
    good_share: Measurement,
    cached_weight: Decimal = CACHED_WEIGHT,
    missing_prices: Sequence[str] = (),
) -> UnitCosts:
    """Cost per hour and per 1M tokens of one deployment.

    `components` are shared costs per hour (CPU, network, licences); they are split over the phases
    by the phases' own cost. `good_share` is the share of completed tokens inside the objectives.
    """
    lines = {pool.role: _pool_per_hour(pool) for pool in pools}
    for code, amount in components.items():
        lines[code] = _money(amount)
    total = _sum(list(lines.values()))
    phases = _phases(pools, lines, components)
    idle = _idle(pools, lines)
    rates = _weighted(tokens, cached_weight)
    everything = _add([tokens.uncached_input, tokens.cached_input, tokens.output])
    completed = per_million(total, everything)
    return UnitCosts(
        per_hour=lines,
        phase_per_hour=phases,
        total_per_hour=total,
        idle_per_hour=idle,
        idle_share=_share(idle, _sum([lines[pool.role] for pool in pools])),
        input_per_million=per_million(phases.get("input", _none()), rates),
        output_per_million=per_million(phases.get("output", _none()), tokens.output),
        completed_per_million=completed,
        good_per_million=good_per_million(completed, good_share),
        missing_prices=tuple(missing_prices),
    )


def per_million(per_hour: Measurement, tokens_per_s: Measurement) -> Measurement:
    """USD per hour / (tokens/s x 3600) x 1e6; reason `no_tokens` when there are none."""
    unit = Unit.USD_PER_MILLION_TOKENS
    if tokens_per_s.value is None or exact(tokens_per_s.value) <= 0:
        known = tokens_per_s.value is not None or tokens_per_s.state is State.NO_TRAFFIC
        state = State.NO_TRAFFIC if known else tokens_per_s.state
        return missing(unit, state, method=NO_TOKENS if known else "")
    if per_hour.value is None:
        return missing(unit, per_hour.state, place=Place.DECLARED, method=per_hour.method)
    hourly = exact(tokens_per_s.value) * HOUR_S
    value = CONTEXT.multiply(CONTEXT.divide(exact(per_hour.value), hourly), MILLION)
    return Measurement(
        value=value,
        unit=unit,
        state=worst((per_hour.state, tokens_per_s.state)),
        observed_at=tokens_per_s.observed_at,
        place=tokens_per_s.place,
        method="per_hour_over_rate",
    )


def good_per_million(completed: Measurement, good_share: Measurement) -> Measurement:
    """USD per 1M good tokens, a range where the share is one (law 3a).

    The value goes with the share's value (its lower end), so it is the upper end of the money. When
    that share is 0 only a lower bound of the money is known: state `clamped`, "at or above".
    """
    unit, method = Unit.USD_PER_MILLION_TOKENS, good_share.method
    if completed.value is None:
        return missing(unit, completed.state, method=completed.method)
    if good_share.value is None:
        return missing(unit, good_share.state, method=method)
    cost = exact(completed.value)
    low_share = exact(good_share.value if good_share.lower is None else good_share.lower)
    high_share = exact(good_share.value if good_share.upper is None else good_share.upper)
    if high_share <= 0:
        return missing(unit, State.NO_TRAFFIC, method=NO_GOOD_TOKENS)
    cheapest = CONTEXT.divide(cost, high_share)
    state = worst((completed.state, good_share.state))
    if low_share <= 0:
        if state is State.OK:
            state = State.CLAMPED
        dearest, value = None, cheapest
    else:
        dearest = CONTEXT.divide(cost, low_share)
        value = dearest
    return Measurement(
        value=value,
        unit=unit,
        state=state,
        observed_at=good_share.observed_at or completed.observed_at,
        place=good_share.place,
        method=method,
        lower=cheapest,
        upper=dearest,
    )


def phase_unit_cost(
    cost: Decimal,
    tokens: Decimal,
    cached_tokens: Decimal = Decimal(0),
    weight: Decimal = Decimal(0),
) -> Decimal | None:
    """USD per 1M of `tokens` when cached ones count `weight` each; None when there are none.

    With input-phase money, uncached and cached tokens this is the price of an uncached token;
    `weight` times it is that of a cached one.
    """
    counted = CONTEXT.add(tokens, CONTEXT.multiply(weight, cached_tokens))
    if counted <= 0:
        return None
    return CONTEXT.multiply(CONTEXT.divide(cost, counted), MILLION)


def _pool_per_hour(pool: PoolUse) -> Measurement:
    if pool.gpus is None:
        return missing(Unit.USD_PER_HOUR, place=Place.DECLARED, method=UNIT_UNKNOWN)
    if pool.price_per_gpu_hour is None:
        return missing(Unit.USD_PER_HOUR, place=Place.DECLARED, method=PRICE_NEEDED)
    return _money(CONTEXT.multiply(pool.gpus, pool.price_per_gpu_hour))


def _phases(
    pools: Sequence[PoolUse], lines: Mapping[str, Measurement], components: Mapping[str, Decimal]
) -> dict[str, Measurement]:
    direct: dict[str, list[Measurement]] = {}
    for pool in pools:
        phase = PHASE_OF_ROLE.get(pool.role, pool.role)
        direct.setdefault(phase, []).append(lines[pool.role])
    phases = {phase: _sum(parts) for phase, parts in direct.items()}
    shared = sum(components.values(), Decimal(0))
    base = _sum(list(phases.values()))
    if not shared or base.value is None or exact(base.value) == 0:
        return phases
    return {
        phase: _money(
            CONTEXT.add(
                exact(amount.value or 0),
                CONTEXT.multiply(
                    shared, CONTEXT.divide(exact(amount.value or 0), exact(base.value))
                ),
            )
        )
        for phase, amount in phases.items()
    }


def _idle(pools: Sequence[PoolUse], lines: Mapping[str, Measurement]) -> Measurement:
    """Money of capacity not used inside the objectives: (1 - min(1, busy)) of each pool's cost."""
    parts: list[Measurement] = []
    for pool in pools:
        line = lines[pool.role]
        if line.value is None:
            parts.append(line)
            continue
        busy = pool.busy
        if busy is None or busy.value is None:
            state = State.NO_DATA if busy is None else busy.state
            if state is not State.NO_TRAFFIC:
                parts.append(missing(Unit.USD_PER_HOUR, state, method="busy_unknown"))
                continue
            used = Decimal(0)
        else:
            used = min(Decimal(1), max(Decimal(0), exact(busy.value)))
        amount = CONTEXT.multiply(exact(line.value), 1 - used)
        # What is idle is as fresh as the busy share it rests on; the money itself is exact.
        state = State.OK if busy is None or busy.value is None else busy.state
        seen = busy.observed_at if busy is not None else None
        parts.append(replace(_money(amount), state=state, observed_at=seen))
    total = _sum(parts)
    return total if total.value is None else replace(total, method="idle_x_price")


def _weighted(tokens: TokenRates, weight: Decimal) -> Measurement:
    """Uncached-equivalent input rate: uncached + weight x cached."""
    uncached, cached = tokens.uncached_input, tokens.cached_input
    if cached.value is None or uncached.value is None:
        return uncached
    rate = CONTEXT.add(exact(uncached.value), CONTEXT.multiply(weight, exact(cached.value)))
    return Measurement(
        rate, Unit.TOKENS_PER_SECOND, uncached.state, uncached.observed_at, uncached.place
    )


def _add(rates: Sequence[Measurement]) -> Measurement:
    """Sum of token rates; cached tokens that nobody reports count as none."""
    known = [rate for rate in rates if rate.value is not None]
    needed = (rates[0], rates[-1])
    if any(rate.value is None for rate in needed):
        return missing(Unit.TOKENS_PER_SECOND, worst(rate.state for rate in needed))
    total = sum((exact(rate.value or 0) for rate in known), Decimal(0))
    return Measurement(
        total,
        Unit.TOKENS_PER_SECOND,
        worst(rate.state for rate in known),
        rates[0].observed_at,
        rates[0].place,
    )


def _sum(parts: Sequence[Measurement]) -> Measurement:
    lost = [part for part in parts if part.value is None]
    if not parts or lost:
        method = lost[0].method if lost else ""
        state = worst(part.state for part in lost) if lost else State.NO_DATA
        return missing(Unit.USD_PER_HOUR, state, place=Place.DECLARED, method=method)
    total = _money(sum((exact(part.value or 0) for part in parts), Decimal(0)))
    times = [part.observed_at for part in parts if part.observed_at is not None]
    return replace(
        total, state=worst(part.state for part in parts), observed_at=min(times, default=None)
    )


def _share(part: Measurement, whole: Measurement) -> Measurement:
    if part.value is None:
        return missing(Unit.RATIO, part.state, method=part.method)
    if whole.value is None or exact(whole.value) == 0:
        return missing(Unit.RATIO, State.NO_DATA, method=whole.method or "no_cost")
    share = CONTEXT.divide(exact(part.value), exact(whole.value))
    return Measurement(share, Unit.RATIO, part.state, part.observed_at, method=part.method)


def _money(amount: Decimal) -> Measurement:
    return Measurement(amount, Unit.USD_PER_HOUR, State.OK, None, Place.DECLARED, "gpus_x_price")


def _none() -> Measurement:
    return missing(Unit.USD_PER_HOUR, place=Place.DECLARED, method="no_pool")
