"""Percentiles and means from merged bucket increments (DESIGN laws 2 and 3). Pure."""

from __future__ import annotations

from collections.abc import Sequence

from apps.common.measurement import Measurement, Place, State
from apps.common.units import Unit
from apps.engines.histogram import quantile
from apps.engines.window import HistogramIncrease, Signal

from .figures import Quantiles
from .states import View, nothing


def quantiles(
    signal: Signal,
    view: View | None,
    grown: View | None,
    *,
    minimum: int,
    has_traffic: bool,
    place: Place = Place.ENGINE,
    is_down: bool = False,
) -> Quantiles:
    """Percentiles from `grown` (the window long enough for `minimum` requests, if there is one)
    and the mean from `view`; `has_traffic` says whether requests passed at all."""
    if view is None:
        empty = nothing(Unit.SECONDS, place, signal, is_down=is_down)
        return Quantiles(empty, empty, empty, empty, None)
    wide = grown or view
    hist = wide.histogram(signal)
    p50, p95, p99 = (
        _percentile(signal, wide, hist, q, minimum, has_traffic) for q in (0.5, 0.95, 0.99)
    )
    return Quantiles(p50, p95, p99, mean(signal, view, has_traffic=has_traffic), hist)


def _percentile(
    signal: Signal,
    view: View,
    hist: HistogramIncrease | None,
    q: float,
    minimum: int,
    has_traffic: bool,
) -> Measurement:
    formula = f"histogram_quantile({q:g}, increase({{name}}_bucket[{{span}}]))"
    if hist is None:
        return view.figure(None, Unit.SECONDS, signal, formula)
    count = round(hist.count)
    if count == 0:
        state = State.NO_DATA if has_traffic else State.NO_TRAFFIC
        return view.figure(None, Unit.SECONDS, signal, formula, state=state, sample_count=0)
    if count < minimum:
        return view.figure(
            None, Unit.SECONDS, signal, formula, state=State.TOO_FEW, sample_count=count
        )
    found = quantile(hist, q)
    if found is None:
        return view.figure(None, Unit.SECONDS, signal, formula, sample_count=count)
    return view.figure(
        found.value,
        Unit.SECONDS,
        signal,
        formula,
        state=State.CLAMPED if found.is_clamped else State.OK,
        method="merged_buckets",
        lower=found.lower,
        upper=found.upper,
        sample_count=count,
    )


def mean(signal: Signal, view: View | None, *, has_traffic: bool = True) -> Measurement:
    """Sum divided by count."""
    if view is None:
        return nothing(Unit.SECONDS, Place.ENGINE, signal)
    formula = "increase({name}_sum[{span}]) / increase({name}_count[{span}])"
    hist = view.histogram(signal)
    if hist is None:
        return view.figure(None, Unit.SECONDS, signal, formula)
    if hist.mean is None:
        state = State.NO_DATA if has_traffic else State.NO_TRAFFIC
        return view.figure(None, Unit.SECONDS, signal, formula, state=state, sample_count=0)
    return view.figure(
        hist.mean,
        Unit.SECONDS,
        signal,
        formula,
        method="sum_by_count",
        sample_count=round(hist.count),
    )


def first_with(views: Sequence[View], signal: Signal) -> View | None:
    """The first view that holds the signal (places in the order of DESIGN law 3)."""
    return next((view for view in views if view.value(signal) is not None), None)
