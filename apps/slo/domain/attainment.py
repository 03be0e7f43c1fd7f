"""Attainment and goodput from histograms (DESIGN laws 2 and 3a).

A share is exact only where the threshold is a bound of the ladder; else it is a range, and the
caller can say which bounds would be exact.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from apps.common.measurement import Measurement, Place, State, missing, worst
from apps.common.units import Unit
from apps.engines.histogram import nearest_bounds, share_at_or_below
from apps.engines.window import HistogramIncrease
from apps.telemetry.domain.figures import Quantiles

BOUND_NOT_IN_LADDER = "bound_not_in_ladder"
ABOVE_LADDER = "above_ladder"
MARGINALS = "marginals"

#: States of a latency figure with which its histogram still describes the requests it counted.
_COUNTED = frozenset({State.OK, State.CLAMPED, State.PARTIAL, State.STALE})


@dataclass(frozen=True, slots=True)
class Attainment:
    """The share of requests within one threshold. `warning` is a code, empty if exact.

    `nearest` are the ladder's bounds on both sides of a threshold that it does not hold.
    """

    share: Measurement
    warning: str = ""
    nearest: tuple[float, ...] = ()


def attainment(
    latency: Quantiles, threshold_s: float, *, min_requests: int, observed_at: datetime | None
) -> Attainment:
    """Share of requests at or below `threshold_s` seconds; its value is the lower end of a range.

    A window with no request, or fewer than `min_requests`, gives no share (`no_traffic`,
    `too_few` with the count), because "100 % of 3" would be read as good news.
    """
    p95, histogram = latency.p95, latency.histogram
    place = p95.place
    if histogram is None or p95.state not in _COUNTED | {State.TOO_FEW}:
        state = p95.state if p95.state not in _COUNTED else State.NO_DATA
        return Attainment(missing(Unit.RATIO, state, place=place, observed_at=observed_at))
    found = share_at_or_below(histogram, threshold_s)
    if found is None:
        return Attainment(missing(Unit.RATIO, State.NO_TRAFFIC, place=place))
    count = round(histogram.count)
    if p95.state is State.TOO_FEW or count < min_requests:
        return Attainment(
            Measurement(
                None, Unit.RATIO, State.TOO_FEW, observed_at, place, "histogram", sample_count=count
            )
        )
    warning, nearest = _exactness(histogram, threshold_s)
    share = Measurement(
        value=found.lower,
        unit=Unit.RATIO,
        state=p95.state if p95.state is not State.CLAMPED else State.OK,
        observed_at=observed_at,
        place=place,
        method="histogram",
        lower=found.lower,
        upper=found.upper,
        coverage=p95.coverage,
        sample_count=count,
        trace=p95.trace,
    )
    return Attainment(share, warning, nearest)


def _exactness(histogram: HistogramIncrease, threshold_s: float) -> tuple[str, tuple[float, ...]]:
    below, above = nearest_bounds(histogram.bounds, threshold_s)
    if below is not None and below == above:
        return "", ()
    nearest = tuple(bound for bound in (below, above) if bound is not None)
    return (ABOVE_LADDER if above is None else BOUND_NOT_IN_LADDER), nearest


@dataclass(frozen=True, slots=True)
class Goodput:
    """Requests inside all latency objectives: as a share of completed ones, and per second."""

    share: Measurement
    rate: Measurement


def goodput(shares: list[Measurement], completions_per_s: Measurement) -> Goodput:
    """Joint share from marginals (law 3a): max(0, sum - (n - 1)) <= good share <= min.

    Value = lower end. With one objective the joint share is that one. A missing share makes the
    goodput missing with the worst state: it is not assumed to be met.
    """
    if not shares:
        nothing = missing(Unit.RATIO, State.NO_DATA, method="no_objective")
        return Goodput(nothing, missing(Unit.REQUESTS_PER_SECOND, method="no_objective"))
    state = worst(share.state for share in shares)
    if any(share.value is None for share in shares):
        return Goodput(missing(Unit.RATIO, state), missing(Unit.REQUESTS_PER_SECOND, state))
    lowers = [_end(share, share.lower) for share in shares]
    uppers = [_end(share, share.upper) for share in shares]
    lower = max(0.0, sum(lowers) - (len(shares) - 1))
    upper = max(lower, min(uppers))
    share = Measurement(
        value=lower,
        unit=Unit.RATIO,
        state=state,
        observed_at=shares[0].observed_at,
        place=_place(shares),
        method=MARGINALS if len(shares) > 1 else shares[0].method,
        lower=lower,
        upper=upper,
        sample_count=min((s.sample_count for s in shares if s.sample_count), default=None),
    )
    return Goodput(share, _rate(share, completions_per_s))


def _rate(share: Measurement, completions_per_s: Measurement) -> Measurement:
    state = worst((share.state, completions_per_s.state))
    if completions_per_s.value is None or share.value is None:
        return missing(Unit.REQUESTS_PER_SECOND, state)
    rate = float(completions_per_s.value)
    return Measurement(
        value=rate * float(share.value),
        unit=Unit.REQUESTS_PER_SECOND,
        state=state,
        observed_at=share.observed_at,
        place=share.place,
        method=share.method,
        lower=rate * _end(share, share.lower),
        upper=rate * _end(share, share.upper),
    )


def _end(share: Measurement, bound: object) -> float:
    return float(bound) if isinstance(bound, float | int) else share.number()


def _place(shares: list[Measurement]) -> Place:
    """The place of the first share that was measured nearest to the user."""
    order = (Place.FRONTEND, Place.ROUTER, Place.ENGINE)
    return min((s.place for s in shares), key=lambda p: order.index(p) if p in order else 9)
