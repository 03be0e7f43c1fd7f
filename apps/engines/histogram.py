"""Arithmetic on bucket increments of one ladder: quantiles, shares, merging.

Formulas: linear interpolation inside the bucket that holds the rank, as `histogram_quantile` does;
the bucket's own bounds bound the true quantile. NaN and infinity never leave this file.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from .window import HistogramIncrease


class MixedLadders(ValueError):
    """Histograms of different bucket bounds may not be merged (DESIGN law 2)."""


@dataclass(frozen=True, slots=True)
class Quantile:
    """`lower` and `upper` bound the true quantile; `upper` is None in the +Inf bucket, and then
    `is_clamped` says that `value` is only the last finite bound."""

    value: float
    lower: float
    upper: float | None
    is_clamped: bool


@dataclass(frozen=True, slots=True)
class Share:
    """The share of observations at or below a bound, 0..1; exact when it is one of the ladder's."""

    lower: float
    upper: float

    @property
    def is_exact(self) -> bool:
        return self.lower == self.upper


EMPTY = HistogramIncrease((), (0.0,), 0.0, 0.0)


def quantile(hist: HistogramIncrease, q: float) -> Quantile | None:
    """The q-quantile, 0 < q <= 1; None without observations or without a finite bound."""
    if not 0 < q <= 1:
        raise ValueError("q must lie in (0, 1]")
    if hist.count <= 0 or not hist.bounds:
        return None
    rank = q * hist.count
    below = 0.0
    for index, upper in enumerate(hist.bounds):
        inside = hist.counts[index]
        # The tolerance keeps a rank that equals a cumulative count in this bucket despite rounding.
        if inside > 0 and below + inside >= rank * (1 - 1e-12):
            lower = hist.bounds[index - 1] if index else min(0.0, upper)
            if index == 0 and upper <= 0:
                return Quantile(upper, upper, upper, False)
            fraction = min(1.0, max(0.0, (rank - below) / inside))
            return Quantile(lower + (upper - lower) * fraction, lower, upper, False)
        below += inside
    last = hist.bounds[-1]
    return Quantile(last, last, None, True)


def share_at_or_below(hist: HistogramIncrease, bound: float) -> Share | None:
    """Share of observations `<= bound`; None without observations or without a finite bound."""
    if hist.count <= 0 or not hist.bounds:
        return None
    index = bisect_left(hist.bounds, bound * (1 - 1e-9) if bound > 0 else bound)
    total = sum(hist.counts)
    before = sum(hist.counts[:index]) / total
    if index == len(hist.bounds):
        return Share(before, 1.0)
    through = sum(hist.counts[: index + 1]) / total
    exact = abs(hist.bounds[index] - bound) <= 1e-9 * max(abs(bound), 1e-9)
    return Share(through, through) if exact else Share(before, through)


def nearest_bounds(bounds: tuple[float, ...], value: float) -> tuple[float | None, float | None]:
    """The ladder's bounds next to `value` (both equal `value` when it is one of them)."""
    index = bisect_left(bounds, value * (1 - 1e-9) if value > 0 else value)
    if index < len(bounds) and abs(bounds[index] - value) <= 1e-9 * max(abs(value), 1e-9):
        return bounds[index], bounds[index]
    lower = bounds[index - 1] if index else None
    return lower, bounds[index] if index < len(bounds) else None


def merge(parts: Iterable[HistogramIncrease]) -> HistogramIncrease:
    """The sum over one ladder; raises MixedLadders. A histogram without bounds and observations
    (a family not yet created) is the neutral element."""
    result = EMPTY
    for part in parts:
        if not part.bounds and part.count == 0:
            ladder, counts = result.bounds, result.counts
        elif not result.bounds and result.count == 0:
            ladder, counts = part.bounds, part.counts
        elif result.bounds != part.bounds:
            raise MixedLadders(f"{len(result.bounds)} and {len(part.bounds)} bounds differ")
        else:
            ladder = result.bounds
            counts = tuple(a + b for a, b in zip(result.counts, part.counts, strict=True))
        result = HistogramIncrease(
            bounds=ladder,
            counts=counts,
            total=result.total + part.total,
            count=result.count + part.count,
            sum_by_worker=_added(result.sum_by_worker, part.sum_by_worker),
            count_by_worker=_added(result.count_by_worker, part.count_by_worker),
        )
    return result


def scaled(hist: HistogramIncrease, factor: float) -> HistogramIncrease:
    """The same observations in another unit (milliseconds to seconds: 0.001)."""
    if factor == 1.0:
        return hist
    return replace(
        hist,
        bounds=tuple(tidy(bound * factor) for bound in hist.bounds),
        total=hist.total * factor,
        sum_by_worker={k: v * factor for k, v in hist.sum_by_worker.items()},
    )


def tidy(number: float) -> float:
    """Twelve significant digits, so that 0.001 x 250 and 0.25 are the same bound."""
    return float(f"{number:.12g}")


def from_cumulative(
    bounds: tuple[float, ...], cumulative: Iterable[float], total: float
) -> HistogramIncrease:
    """From cumulative bucket increments (the last one is +Inf). A small step back, which
    extrapolation can make, counts 0."""
    counts: list[float] = []
    highest = 0.0
    for value in cumulative:
        counts.append(max(0.0, value - highest))
        highest = max(highest, value)
    return HistogramIncrease(bounds, tuple(counts), total, highest)


def _added(left: Mapping[str, float], right: Mapping[str, float]) -> dict[str, float]:
    result = dict(left)
    for key, value in right.items():
        result[key] = result.get(key, 0.0) + value
    return result
