"""From the signals of targets to a `Window` of a scope, and from windows to a longer window."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import pairwise

from . import histogram
from .evaluate import SELF, SignalPart, TargetSignals
from .window import (
    CounterIncrease,
    GaugeValue,
    HistogramIncrease,
    Kind,
    Signal,
    SignalValue,
    Window,
)


@dataclass(frozen=True, slots=True)
class TargetPart:
    """What one worker (by URL) or router contributes to a scope. `is_current`: it answered at the
    window's end in this scope, so its gauges count."""

    url: str
    signals: TargetSignals
    is_current: bool = True


def combine(
    *,
    scope: str,
    start: datetime,
    end: datetime,
    parts: Sequence[TargetPart],
    expected: Iterable[str],
    reported: Iterable[str],
    source: str = "",
    is_partial: bool = False,
    covered_s: float | None = None,
) -> Window:
    """The window of a scope. Histograms of another ladder than the one with most observations are
    left out, so that their workers lack the signal and coverage says so."""
    values: dict[Signal, SignalValue] = {}
    names: dict[Signal, str] = {}
    by_signal: dict[Signal, list[tuple[TargetPart, SignalPart]]] = {}
    for target in parts:
        for signal, part in target.signals.items():
            by_signal.setdefault(signal, []).append((target, part))
    for signal in Signal:
        found = by_signal.get(signal, [])
        value = _value(found)
        if value is None:
            continue
        values[signal] = value
        names[signal] = " | ".join(dict.fromkeys(part.names for _, part in found))
    return Window(
        scope=scope,
        start=start,
        end=end,
        values=values,
        expected=tuple(sorted(set(expected))),
        reported=tuple(sorted(set(reported))),
        source=source,
        names=names,
        is_partial=is_partial,
        covered_s=covered_s,
    )


def _value(found: Sequence[tuple[TargetPart, SignalPart]]) -> SignalValue | None:
    if not found:
        return None
    kind = found[0][1].kind
    if kind is Kind.HISTOGRAM:
        return _histogram([(t.url, p.histogram) for t, p in found if p.histogram is not None])
    if kind is Kind.GAUGE:
        found = [(target, part) for target, part in found if target.is_current]
        if not found:
            return None
    by_worker: dict[str, float] = {}
    for target, part in found:
        for key, value in (part.parts or {}).items():
            url = target.url if key == SELF else key
            by_worker[url] = by_worker.get(url, 0.0) + value
    total = sum(by_worker.values())
    if kind is Kind.GAUGE:
        return GaugeValue(total, by_worker)
    return CounterIncrease(total, by_worker)


def _histogram(found: Sequence[tuple[str, HistogramIncrease]]) -> HistogramIncrease:
    weight: dict[tuple[float, ...], float] = {}
    for _, hist in found:
        if hist.bounds:
            weight[hist.bounds] = weight.get(hist.bounds, 0.0) + hist.count
    ladder = max(weight, key=lambda bounds: (weight[bounds], len(bounds)), default=())
    return histogram.merge(
        replace(hist, sum_by_worker={url: hist.total}, count_by_worker={url: hist.count})
        for url, hist in found
        if hist.bounds in (ladder, ())
    )


def merge_windows(windows: Iterable[Window]) -> Window:
    """One window over non-overlapping ones of a scope: counters and buckets add, gauges and
    coverage are the newest's. A ladder that differs from the newest's ends that signal's history.
    Raises ValueError on overlap or when there is none."""
    newest_first = sorted(windows, key=lambda window: window.end, reverse=True)
    if not newest_first:
        raise ValueError("no windows")
    for newer, older in pairwise(newest_first):
        if older.end > newer.start or older.scope != newer.scope:
            raise ValueError("windows overlap or belong to different scopes")
    newest = newest_first[0]
    values: dict[Signal, SignalValue] = dict(newest.values)
    names = dict(newest.names)
    stopped: set[Signal] = set()
    for window in newest_first[1:]:
        for signal, value in window.values.items():
            if signal in stopped:
                continue
            names.setdefault(signal, window.names.get(signal, ""))
            if signal not in values:
                if not isinstance(value, GaugeValue):
                    values[signal] = value
                continue
            try:
                values[signal] = _added(values[signal], value)
            except histogram.MixedLadders:
                stopped.add(signal)
    return Window(
        scope=newest.scope,
        start=newest_first[-1].start,
        end=newest.end,
        values=values,
        expected=newest.expected,
        reported=newest.reported,
        source=newest.source,
        names=names,
        covered_s=sum(window.seconds for window in newest_first),
        is_partial=any(window.is_partial for window in newest_first),
        is_conflict=any(window.is_conflict for window in newest_first),
    )


def _added(newer: SignalValue, older: SignalValue) -> SignalValue:
    if isinstance(newer, HistogramIncrease) and isinstance(older, HistogramIncrease):
        return histogram.merge((newer, older))
    if isinstance(newer, CounterIncrease) and isinstance(older, CounterIncrease):
        by_worker = dict(newer.by_worker)
        for url, value in older.by_worker.items():
            by_worker[url] = by_worker.get(url, 0.0) + value
        return CounterIncrease(newer.increase + older.increase, by_worker)
    return newer
