"""From raw samples of a Prometheus to readings per target, as the direct collector takes them.

Raw samples instead of `increase()`: it extrapolates, misses the first value of a new series and
hides how old a sample is. From the samples both collectors difference by the same rules
(`apps.engines.deltas`). A value is taken *as of* a time: the last sample not after it, so that
windows that tile share their samples.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from operator import le
from typing import Any, Final

from apps.engines.deltas import Buckets
from apps.engines.exposition import Labels as LabelPairs
from apps.engines.exposition import bound
from apps.engines.readings import Reading

from ..domain.addresses import canonical
from .client import MAX_SKEW_S, Failure, SourceFailed
from .naming import Piece, Use

#: No exporter counts that far; a larger number is a broken one.
LARGEST: Final = 1e100
#: Copies of one target may differ by what came between their scrapes, not by more (share).
AGREE_WITHIN: Final = 0.2
#: Label sets of one target that are remembered while its answers are read.
_LABELS_KEPT: Final = 12
_FOREIGN: Final = "the answer is not that of a Prometheus"

#: One stored copy of a target: spelling of its address, job, replica.
Origin = tuple[str, ...]
#: Times ascending, and their values.
Samples = tuple[list[float], list[float]]


@dataclass(frozen=True, slots=True)
class Span:
    """What is asked for: `(start, end]` as Unix times, the interval of the scrapes, how old the
    newest sample may be, and whether every sample is needed (a role changed in between)."""

    start: float
    end: float
    scrape_s: float
    max_age_s: float


#: A series: its profile's metric, what it is to it, labels (without `le`), the bound of a bucket.
Key = tuple[str, Piece, LabelPairs, float | None]


@dataclass(slots=True)
class Copy:
    """One origin's series of one target. `has_falls`: a cumulative one fell in between."""

    series: dict[Key, tuple[int, Samples]] = field(default_factory=dict)
    siblings: set[str] = field(default_factory=set)
    has_falls: bool = False

    def add(self, use: Use, labels: LabelPairs, edge: float | None, samples: Samples) -> None:
        piece = use.piece
        if piece is Piece.SIBLING:
            self.siblings.add(use.metric)
            return
        key = (use.metric, piece, labels, edge if piece is Piece.BUCKET else None)
        known = self.series.get(key)
        # Two spellings of one metric (an exporter and its re-export) must not count twice.
        if known is None or use.rank < known[0]:
            self.series[key] = (use.rank, samples)
        values = samples[1]
        if piece is not Piece.GAUGE and not all(map(le, values, values[1:])):
            self.has_falls = True


@dataclass(slots=True)
class Collector:
    """Takes answers in, and gives readings per target out.

    `targets` maps a canonical address to the keys of the targets there, each with the label
    values its series must have. `defects` counts values that no exporter can mean; `natives` and
    `conflicts` name histograms without buckets, and targets whose copies contradict each other.
    """

    same_hosts: Mapping[str, str]
    targets: Mapping[str, Sequence[tuple[str, Mapping[str, str]]]]
    instance_label: str
    origin_labels: tuple[str, ...]
    end: float
    copies: dict[str, dict[Origin, Copy]] = field(default_factory=dict)
    defects: int = 0
    natives: set[str] = field(default_factory=set)
    conflicts: set[str] = field(default_factory=set)
    _times: list[float] = field(default_factory=list)
    _seen: dict[str, list[tuple[dict[str, str], LabelPairs, Origin]]] = field(default_factory=dict)
    _edges: dict[str, float | None] = field(default_factory=dict)

    def add(self, answer: Iterable[Mapping[str, Any]], uses: Sequence[Use]) -> None:
        """Take in one answer. Raises SourceFailed if it is not one, or lies in the future."""
        is_bucket = any(use.piece is Piece.BUCKET for use in uses)
        for item in answer:
            metric = item["metric"]
            text = metric.get(self.instance_label, "")
            wanted = self.targets.get(canonical(text, self.same_hosts))
            if not wanted:
                continue
            samples = self._samples(item, uses)
            if samples is None:
                continue
            metric.pop("__name__", None)
            edge = self._edge(metric.pop("le", "")) if is_bucket else None
            if is_bucket and edge is None:
                continue
            labels, origin = self._labels(text, metric)
            for key, match in wanted:
                copies = self.copies.setdefault(key, {})
                copy = copies.get(origin)
                if copy is None:
                    copy = copies[origin] = Copy()
                fits = not match or _matches(labels, match)
                for use in uses:
                    if fits or use.piece is Piece.SIBLING:
                        copy.add(use, labels, edge, samples)

    def _edge(self, text: str) -> float | None:
        """The number of a bound: "1" and "1.0" are one bucket."""
        if text not in self._edges:
            try:
                self._edges[text] = bound(text)
            except ValueError:
                self._edges[text] = None
        return self._edges[text]

    def _samples(self, item: Mapping[str, Any], uses: Sequence[Use]) -> Samples | None:
        rows = item.get("values")
        if rows is None:
            if "histograms" not in item:
                raise SourceFailed(_FOREIGN, Failure.NOT_PROMETHEUS)
            self.natives |= {use.metric for use in uses}
            return None
        try:
            times = [row[0] for row in rows]
            values = [float(row[1]) for row in rows]
            total = sum(values)
            if not -LARGEST < total < LARGEST:  # also where one of them is NaN
                kept = [
                    pair for pair in zip(times, values, strict=True) if -LARGEST < pair[1] < LARGEST
                ]
                self.defects += len(values) - len(kept)
                times, values = [at for at, _ in kept], [value for _, value in kept]
            if not times:
                return None
            if times == self._times:
                times = self._times  # the series of one scrape share one list
            elif times[-1] > self.end + MAX_SKEW_S:
                raise SourceFailed("samples lie in the future", Failure.CLOCK)
        except (TypeError, ValueError, IndexError) as error:
            raise SourceFailed(_FOREIGN, Failure.NOT_PROMETHEUS) from error
        self._times = times
        return times, values

    def _labels(self, text: str, metric: dict[str, str]) -> tuple[LabelPairs, Origin]:
        """The exporter's own labels, and where the series comes from. Most metrics of a target
        have the same labels, so they are looked up before they are made."""
        seen = self._seen.setdefault(text, [])
        for known, labels, origin in seen:
            if known == metric:
                return labels, origin
        origin = tuple(metric.get(name, "") for name in self.origin_labels)
        pairs = {
            name: value
            for name, value in metric.items()
            if value and name not in self.origin_labels
        }
        for name in [name for name in pairs if name.startswith("exported_")]:
            # A target's label won over the exporter's own; profiles mean the exporter's.
            pairs[name.removeprefix("exported_")] = pairs.pop(name)
        labels = tuple(sorted(pairs.items()))
        if len(seen) < _LABELS_KEPT:
            seen.append((metric, labels, origin))
        return labels, origin

    def first_at(self, key: str) -> float | None:
        """When the first sample of a target was taken; None if it has none."""
        found = (
            samples[0][0]
            for copy in self.copies.get(key, {}).values()
            for _, samples in copy.series.values()
        )
        return min(found, default=None)

    def readings(
        self, key: str, span: Span, *, keep_all: bool = False
    ) -> list[tuple[datetime, Reading]]:
        """The readings of a target, oldest first, its base as of `span.start` and its last as of
        `span.end`; nothing when its newest sample is too old."""
        copies = self.copies.get(key)
        if not copies:
            return []
        copy = self._chosen(key, copies)
        clock = max(
            (samples[0] for _, samples in copy.series.values()),
            key=lambda times: (times[-1], len(times)),
            default=[],
        )
        if not clock or clock[-1] < span.end - span.max_age_s:
            return []
        base = bisect_right(clock, span.start) - 1
        points = clock[max(0, base) :]
        is_plain = not copy.has_falls and all(
            times is clock or times[-1] == clock[-1] for _, (times, _) in copy.series.values()
        )
        if is_plain and not keep_all and len(points) > 2:
            # First and last say all: no series vanished, none fell.
            points = [points[0], points[-1]]
        found = []
        for number, at in enumerate(points):
            stamp = at
            if number == len(points) - 1:
                stamp = span.end
            elif number == 0 and base >= 0 and at >= span.start - 2 * span.scrape_s:
                stamp = span.start
            elif number == 0:
                # Counted from here to the last sample, not to the window's end: rates are over
                # as long.
                stamp = min(at + span.end - points[-1], points[1])
            reading = _reading(copy, at, clock, 0.9 * span.scrape_s)
            found.append((datetime.fromtimestamp(stamp, UTC), reading))
        return found

    def _chosen(self, key: str, copies: Mapping[Origin, Copy]) -> Copy:
        """The copy with the newest and most samples: copies of one target count once."""
        if len(copies) == 1:
            return next(iter(copies.values()))
        ordered = sorted(copies.items(), key=lambda item: (_weight(item[1]), item[0]), reverse=True)
        best = ordered[0][1]
        if any(_disagree(best, other) for _, other in ordered[1:]):
            self.conflicts.add(key)
        return best


def _weight(copy: Copy) -> tuple[float, int]:
    newest, count = 0.0, 0
    for _, (times, _) in copy.series.values():
        newest = max(newest, times[-1])
        count += len(times)
    return newest, count


def _disagree(left: Copy, right: Copy) -> bool:
    """True if totals of cumulative series differ by more than both can have counted in between."""
    for key, (_, (_, mine)) in left.series.items():
        other = right.series.get(key)
        if other is None or key[1] is not Piece.COUNTER:
            continue
        theirs = other[1][1]
        larger = max(abs(mine[-1]), abs(theirs[-1]))
        moved = max(abs(mine[-1] - mine[0]), abs(theirs[-1] - theirs[0]))
        if abs(mine[-1] - theirs[-1]) > AGREE_WITHIN * larger + moved:
            return True
    return False


def _matches(labels: LabelPairs, match: Mapping[str, str]) -> bool:
    present = dict(labels)
    return all(
        name not in present or present[name].lower() == value.lower()
        for name, value in match.items()
    )


def _as_of(samples: Samples, at: float, tolerance: float) -> float | None:
    """The last value not after `at`; None if that is older than a scrape."""
    times, values = samples
    index = bisect_right(times, at) - 1
    if index < 0 or times[index] <= at - tolerance:
        return None
    return values[index]


def _reading(copy: Copy, at: float, clock: list[float], tolerance: float) -> Reading:
    values: dict[str, dict[LabelPairs, float]] = {}
    raw: dict[tuple[str, LabelPairs], dict[float, float]] = {}
    sums: dict[tuple[str, LabelPairs], float] = {}
    place = bisect_right(clock, at) - 1
    for (metric, piece, labels, edge), (_, samples) in copy.series.items():
        if samples[0] is clock:
            value: float | None = samples[1][place]
        else:
            value = _as_of(samples, at, tolerance)
        if value is None:
            continue
        if edge is not None:
            raw.setdefault((metric, labels), {})[edge] = value
        elif piece is Piece.SUM:
            sums[(metric, labels)] = value
        else:
            values.setdefault(metric, {})[labels] = value
    buckets: dict[str, dict[LabelPairs, Buckets]] = {}
    for (metric, labels), by_bound in raw.items():
        if math.inf in by_bound:
            bounds = tuple(sorted(by_bound))
            counts = tuple(by_bound[step] for step in bounds)
            state = Buckets(bounds[:-1], counts, sums.get((metric, labels), 0.0))
            buckets.setdefault(metric, {})[labels] = state
    return Reading(values, buckets, frozenset(copy.siblings))
