"""Windows rolled up into longer slots that lose no count. Pure.

Counters and buckets add; a gauge keeps its last value, its lowest, highest and time-weighted mean.
Where a histogram's ladder changes, the slot is split there (fault M19): the parts lie side by side,
each with its own ladder, and their counts are never mixed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from apps.engines import histogram
from apps.engines.window import (
    CounterIncrease,
    GaugeValue,
    HistogramIncrease,
    Signal,
    SignalValue,
    Window,
)

#: What a window is used for: every one for counters and gauges, those that have them for buckets.
COUNTERS, HISTOGRAMS = 1, 2


@dataclass(frozen=True, slots=True)
class GaugeSpan:
    """A gauge over a slot, summed over its workers. `seconds` were seen, `workers` gave it."""

    last: float
    low: float
    high: float
    mean: float
    seconds: float
    workers: float
    by_worker: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Rolled:
    """The signals of a scope over a slot, or over its part with one ladder.

    `seconds` were covered by counters and gauges, `histogram_seconds` by buckets (a large fleet
    collects these more rarely); `covered` are the stretches themselves. `expected` and `reported`
    are the newest window's workers, empty on levels that keep only numbers: `expected_count`, and
    `reported_count` of the window with fewest.
    """

    start: datetime
    end: datetime
    seconds: float
    histogram_seconds: float
    counters: Mapping[Signal, CounterIncrease]
    gauges: Mapping[Signal, GaugeSpan]
    histograms: Mapping[Signal, HistogramIncrease]
    expected_count: int
    reported_count: int
    covered: tuple[tuple[datetime, datetime], ...]
    expected: tuple[str, ...] = ()
    reported: tuple[str, ...] = ()
    names: Mapping[Signal, str] = field(default_factory=dict)
    source: str = ""
    is_partial: bool = False


def from_window(window: Window, uses: int = COUNTERS | HISTOGRAMS) -> Rolled:
    """A window as a part of a slot; `uses` says which of its values are taken."""
    counters: dict[Signal, CounterIncrease] = {}
    gauges: dict[Signal, GaugeSpan] = {}
    histograms: dict[Signal, HistogramIncrease] = {}
    seconds = window.seconds
    for signal, value in window.values.items():
        if isinstance(value, HistogramIncrease):
            if uses & HISTOGRAMS:
                histograms[signal] = value
        elif not uses & COUNTERS:
            continue
        elif isinstance(value, CounterIncrease):
            counters[signal] = value
        else:
            last, workers = value.total, float(len(value.by_worker) or 1)
            gauges[signal] = GaugeSpan(last, last, last, last, seconds, workers, value.by_worker)
    reported = len(set(window.expected) & set(window.reported))
    return Rolled(
        start=window.start,
        end=window.end,
        seconds=seconds if uses & COUNTERS else 0.0,
        histogram_seconds=seconds if uses & HISTOGRAMS else 0.0,
        counters=counters,
        gauges=gauges,
        histograms=histograms,
        expected_count=len(window.expected),
        reported_count=reported,
        covered=((window.start, window.end),),
        expected=window.expected,
        reported=window.reported,
        names=window.names,
        source=window.source,
        is_partial=window.is_partial,
    )


def to_window(rolled: Rolled, scope: str) -> Window:
    """A slot as one window; its gauges are the last values."""
    values: dict[Signal, SignalValue] = {**rolled.counters, **rolled.histograms}
    for signal, gauge in rolled.gauges.items():
        values[signal] = GaugeValue(gauge.last, gauge.by_worker)
    return Window(
        scope=scope,
        start=rolled.start,
        end=rolled.end,
        values=values,
        expected=rolled.expected,
        reported=rolled.reported,
        source=rolled.source,
        names=rolled.names,
        covered_s=rolled.seconds or rolled.histogram_seconds,
        is_partial=rolled.is_partial,
    )


def roll(parts: Iterable[Rolled]) -> tuple[Rolled, ...]:
    """One slot from its parts in time: one `Rolled`, or one for each stretch with one ladder per
    histogram. Parts do not overlap where they serve the same use."""
    groups: list[list[Rolled]] = []
    ladders: dict[Signal, tuple[float, ...]] = {}
    for part in sorted(parts, key=lambda part: (part.end, part.start)):
        theirs = {s: h.bounds for s, h in part.histograms.items() if h.bounds}
        if not groups or any(ladders.get(s, bounds) != bounds for s, bounds in theirs.items()):
            groups.append([])
            ladders = {}
        groups[-1].append(part)
        ladders.update(theirs)
    return tuple(_merged(group) for group in groups)


def _merged(parts: Sequence[Rolled]) -> Rolled:
    if len(parts) == 1:
        return parts[0]
    counters: dict[Signal, list[CounterIncrease]] = {}
    gauges: dict[Signal, list[GaugeSpan]] = {}
    histograms: dict[Signal, list[HistogramIncrease]] = {}
    names: dict[Signal, str] = {}
    for part in parts:
        for signal, counter in part.counters.items():
            counters.setdefault(signal, []).append(counter)
        for signal, gauge in part.gauges.items():
            gauges.setdefault(signal, []).append(gauge)
        for signal, hist in part.histograms.items():
            histograms.setdefault(signal, []).append(hist)
        names.update(part.names)
    newest = parts[-1]
    return Rolled(
        start=min(part.start for part in parts),
        end=newest.end,
        seconds=math.fsum(part.seconds for part in parts),
        histogram_seconds=math.fsum(part.histogram_seconds for part in parts),
        counters={signal: _counter(found) for signal, found in counters.items()},
        gauges={signal: _gauge(found) for signal, found in gauges.items()},
        histograms={signal: _histogram(found) for signal, found in histograms.items()},
        expected_count=newest.expected_count,
        reported_count=min(part.reported_count for part in parts),
        covered=joined(stretch for part in parts for stretch in part.covered),
        expected=newest.expected,
        reported=newest.reported,
        names=names,
        source=newest.source,
        is_partial=any(part.is_partial for part in parts),
    )


def joined(
    stretches: Iterable[tuple[datetime, datetime]],
) -> tuple[tuple[datetime, datetime], ...]:
    """The same time in as few stretches as it takes."""
    found: list[tuple[datetime, datetime]] = []
    for start, end in sorted(stretches):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], end))
        else:
            found.append((start, end))
    return tuple(found)


def _counter(found: Sequence[CounterIncrease]) -> CounterIncrease:
    return CounterIncrease(
        math.fsum(item.increase for item in found), _added(item.by_worker for item in found)
    )


def _gauge(found: Sequence[GaugeSpan]) -> GaugeSpan:
    seconds = math.fsum(item.seconds for item in found)
    weighted = math.fsum(item.mean * item.seconds for item in found)
    last = found[-1]
    return GaugeSpan(
        last=last.last,
        low=min(item.low for item in found),
        high=max(item.high for item in found),
        mean=weighted / seconds if seconds > 0 else last.mean,
        seconds=seconds,
        workers=last.workers,
        by_worker=last.by_worker,
    )


def _histogram(found: Sequence[HistogramIncrease]) -> HistogramIncrease:
    ladder = next((item.bounds for item in found if item.bounds), ())
    if any(item.bounds not in (ladder, ()) for item in found):
        raise histogram.MixedLadders("a slot is split where its ladder changes")
    seen = [item for item in found if item.bounds == ladder]
    return HistogramIncrease(
        bounds=ladder,
        counts=tuple(map(math.fsum, zip(*(item.counts for item in seen), strict=True))),
        total=math.fsum(item.total for item in found),
        count=math.fsum(item.count for item in found),
        sum_by_worker=_added(item.sum_by_worker for item in found),
        count_by_worker=_added(item.count_by_worker for item in found),
    )


def _added(maps: Iterable[Mapping[str, float]]) -> dict[str, float]:
    total: dict[str, float] = {}
    for found in maps:
        for url, value in found.items():
            total[url] = total.get(url, 0.0) + value
    return total


def without_workers(rolled: Rolled) -> Rolled:
    """The same with totals and counts only: what levels above 5 minutes keep."""
    return replace(
        rolled,
        counters={s: CounterIncrease(c.increase) for s, c in rolled.counters.items()},
        gauges={s: replace(g, by_worker={}) for s, g in rolled.gauges.items()},
        histograms={
            s: replace(h, sum_by_worker={}, count_by_worker={})
            for s, h in rolled.histograms.items()
        },
        expected=(),
        reported=(),
    )


def filled(existing: Sequence[Rolled], late: Iterable[Rolled]) -> tuple[Rolled, ...]:
    """A slot whose own parts are gone, with what came late: a late part that covers no second
    twice is added; parts that overlap what is there replace it when they cover at least as much,
    else the slot stays as it is."""
    if not existing:
        return roll(late)
    stretches = [stretch for part in existing for stretch in part.covered]
    apart: list[Rolled] = []
    overlapping: list[Rolled] = []
    for part in late:
        meets = any(
            part.start < end and start < part.end for start, end in stretches
        )  # touching ends do not meet
        (overlapping if meets else apart).append(part)
    if overlapping and _seconds([*overlapping, *apart]) >= _seconds(existing):
        return roll([*overlapping, *apart])
    return roll([*existing, *apart])


def _seconds(parts: Iterable[Rolled]) -> float:
    return math.fsum(
        (end - start).total_seconds()
        for start, end in joined(stretch for part in parts for stretch in part.covered)
    )


Totals = Mapping[tuple[str, Signal, tuple[float, ...]], tuple[float, ...]]


def totals(parts: Iterable[Rolled]) -> Totals:
    """What a roll-up must keep: each counter's increase, and of each histogram and ladder the
    buckets, sum and count."""
    found: dict[tuple[str, Signal, tuple[float, ...]], list[tuple[float, ...]]] = {}
    for part in parts:
        for signal, counter in part.counters.items():
            found.setdefault(("counter", signal, ()), []).append((counter.increase,))
        for signal, hist in part.histograms.items():
            if hist.bounds or hist.count or hist.total:
                values = (hist.total, hist.count, *hist.counts)
                found.setdefault(("histogram", signal, hist.bounds), []).append(values)
    return {
        key: tuple(map(math.fsum, zip(*rows, strict=True)))
        for key, rows in found.items()
        if any(any(row) for row in rows)
    }


def adds_up(slots: Iterable[Rolled], parts: Iterable[Rolled]) -> bool:
    """True if the slots hold every count and sum of the parts, each in its own ladder."""
    kept, given = totals(slots), totals(parts)
    return kept.keys() == given.keys() and all(
        math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-6)
        for key, values in given.items()
        for a, b in zip(kept[key], values, strict=True)
    )
