"""From raw samples of a Prometheus to readings per target, as the direct collector takes them.

Raw samples instead of `increase()`: it extrapolates, misses the first value of a new series and
hides how old a sample is. From the samples both collectors difference by the same rules
(`apps.engines.deltas`). A value is taken *as of* a time: the last sample not after it, so that
windows that tile share their samples.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final, NamedTuple, TypeVar

import msgspec

from apps.engines.deltas import Buckets
from apps.engines.exposition import Labels as LabelPairs
from apps.engines.exposition import bound
from apps.engines.readings import Reading

from ..domain.addresses import canonical
from .client import MAX_SKEW_S, Failure, SourceFailed
from .matrix import Identity, Origin, Series, common_start, identity, without_bound
from .naming import Piece, Use

K = TypeVar("K")

#: No exporter counts that far; a larger number is a broken one.
LARGEST: Final = 1e100
#: Copies of one target may differ by what came between their scrapes, not by more (share).
AGREE_WITHIN: Final = 0.2
_FOREIGN: Final = "the answer is not that of a Prometheus"

#: Times ascending, and their values.
Samples = tuple[tuple[float, ...], tuple[float, ...]]


@dataclass(frozen=True, slots=True)
class Span:
    """What is asked for: `(start, end]` as Unix times, the interval of the scrapes, how old the
    newest sample may be, and whether every sample is needed (a role changed in between)."""

    start: float
    end: float
    scrape_s: float
    max_age_s: float


#: The rank of the spelling under which a series is stored (the lowest counts), and its samples.
#: A plain tuple: there are some hundred thousand of them in a tick.
Ranked = tuple[int, tuple[float, ...], tuple[float, ...]]
_ByLabels = dict[LabelPairs, Ranked]


@dataclass(slots=True)
class Copy:
    """One origin's series of one target, by the profile's metric: counters and gauges (`plain`),
    sums and buckets of histograms. `counters` names the cumulative ones among the first;
    `has_falls`: a cumulative one fell in between."""

    plain: dict[str, _ByLabels] = field(default_factory=dict)
    sums: dict[str, _ByLabels] = field(default_factory=dict)
    buckets: dict[str, dict[LabelPairs, dict[float, Ranked]]] = field(default_factory=dict)
    counters: set[str] = field(default_factory=set)
    siblings: set[str] = field(default_factory=set)
    has_falls: bool = False
    _clocks: dict[tuple[float, ...], tuple[float, ...]] = field(default_factory=dict)

    def add(self, use: Use, labels: LabelPairs, edge: float | None, samples: Samples) -> None:
        metric, piece = use.metric, use.piece
        if piece is Piece.SIBLING:
            self.siblings.add(metric)
            return
        times, values = samples
        # The series of one scrape share one object, so that later `is` tells them apart.
        found = (use.rank, self._clocks.setdefault(times, times), values)
        if piece is Piece.BUCKET and edge is not None:
            by_edge = self.buckets.setdefault(metric, {}).setdefault(labels, {})
            if edge not in by_edge or use.rank < by_edge[edge][0]:
                by_edge[edge] = found
        else:
            series = (self.sums if piece is Piece.SUM else self.plain).setdefault(metric, {})
            # Two spellings of one metric (an exporter and its re-export) must not count twice.
            if labels not in series or use.rank < series[labels][0]:
                series[labels] = found
        if piece is not Piece.GAUGE:
            if piece is Piece.COUNTER:
                self.counters.add(metric)
            if not self.has_falls and sorted(values) != list(values):
                self.has_falls = True

    def all_series(self) -> Iterator[Ranked]:
        for named in (self.plain, self.sums):
            for series in named.values():
                yield from series.values()
        for histograms in self.buckets.values():
            for by_edge in histograms.values():
                yield from by_edge.values()

    def clocks(self) -> list[tuple[float, ...]]:
        """The different times of its series."""
        return list({id(times): times for _, times, _ in self.all_series()}.values())


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
    _places: dict[Identity, list[tuple[Copy, bool]]] = field(default_factory=dict)
    _edges: dict[str, float | None] = field(default_factory=dict)

    def add(self, answer: Sequence[Series], uses: Sequence[Use]) -> None:
        """Take in one answer. Raises SourceFailed if it is not one, or lies in the future."""
        try:
            self._add(answer, uses)
        except msgspec.DecodeError as error:
            raise SourceFailed(_FOREIGN, Failure.NOT_PROMETHEUS) from error

    def _add(self, answer: Sequence[Series], uses: Sequence[Use]) -> None:
        is_bucket = any(use.piece is Piece.BUCKET for use in uses)
        start = common_start(answer)
        skip = len(start)
        edge: float | None = None
        for item in answer:
            text = bytes(item.metric)
            if skip and text.startswith(start):
                text = text[skip:]
            if is_bucket:
                text, bound_text = without_bound(text)
                edge = self._edge(bound_text)
                if edge is None:
                    continue
            who = identity(text, self.instance_label, self.origin_labels)
            places = self._places.get(who)
            if places is None:
                places = self._places[who] = self._placed(who)
            samples = self._samples(item, uses) if places else None
            if samples is None:
                continue
            for copy, fits in places:
                for use in uses:
                    if fits or use.piece is Piece.SIBLING:
                        copy.add(use, who.labels, edge, samples)

    def _placed(self, who: Identity) -> list[tuple[Copy, bool]]:
        """The copies of targets that a label set belongs to, and whether it is what they want."""
        found = []
        for key, match in self.targets.get(canonical(who.instance, self.same_hosts), ()):
            copy = self.copies.setdefault(key, {}).setdefault(who.origin, Copy())
            found.append((copy, not match or _matches(who.labels, match)))
        return found

    def _edge(self, text: str) -> float | None:
        """The number of a bound: "1" and "1.0" are one bucket."""
        if text not in self._edges:
            try:
                self._edges[text] = bound(text)
            except ValueError:
                self._edges[text] = None
        return self._edges[text]

    def _samples(self, item: Series, uses: Sequence[Use]) -> Samples | None:
        rows = item.values
        if rows is None:
            if item.histograms is None:
                raise SourceFailed(_FOREIGN, Failure.NOT_PROMETHEUS)
            self.natives |= {use.metric for use in uses}
            return None
        times, values = zip(*rows, strict=True) if rows else ((), ())
        if not -LARGEST < sum(values) < LARGEST:  # also where one of them is NaN
            kept = [row for row in rows if -LARGEST < row[1] < LARGEST]
            self.defects += len(rows) - len(kept)
            times, values = zip(*kept, strict=True) if kept else ((), ())
        if not times:
            return None
        if times[-1] > self.end + MAX_SKEW_S:
            raise SourceFailed("samples lie in the future", Failure.CLOCK)
        return times, values

    def first_at(self, key: str) -> float | None:
        """When the first sample of a target was taken; None if it has none."""
        copies = self.copies.get(key, {}).values()
        return min((times[0] for copy in copies for times in copy.clocks()), default=None)

    def readings(
        self, key: str, span: Span, *, keep_all: bool = False
    ) -> list[tuple[datetime, Reading]]:
        """The readings of a target, oldest first, its base as of `span.start` and its last as of
        `span.end`; nothing when its newest sample is too old."""
        copies = self.copies.get(key)
        if not copies:
            return []
        copy = self._chosen(key, copies)
        clocks = copy.clocks()
        clock = max(clocks, key=lambda times: (times[-1], len(times)), default=())
        if not clock or clock[-1] < span.end - span.max_age_s:
            return []
        base = bisect_right(clock, span.start) - 1
        points = clock[max(0, base) :]
        is_plain = not copy.has_falls and all(times[-1] == clock[-1] for times in clocks)
        if is_plain and not keep_all and len(points) > 2:
            # First and last say all: no series vanished, none fell.
            points = (points[0], points[-1])
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
    for _, times, _ in copy.all_series():
        newest = max(newest, times[-1])
        count += len(times)
    return newest, count


def _disagree(left: Copy, right: Copy) -> bool:
    """True if totals of cumulative series differ by more than both can have counted in between."""
    for metric in left.counters & right.counters:
        for labels, (_, _, mine) in left.plain[metric].items():
            other = right.plain[metric].get(labels)
            if other is None:
                continue
            theirs = other[2]
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


class _Moment(NamedTuple):
    """A time at which values are taken: `place` is its index in the target's usual `clock`; what is
    older than `tolerance` is gone."""

    at: float
    clock: tuple[float, ...]
    place: int
    tolerance: float

    def values(self, series: Mapping[K, Ranked]) -> dict[K, float]:
        """The last value of each series not after the time, without those that are gone."""
        _, clock, place, _ = self
        found: dict[K, float] = {}
        for key, (_, times, values) in series.items():
            if times is clock:
                found[key] = values[place]
                continue
            index = bisect_right(times, self.at) - 1
            if index >= 0 and times[index] > self.at - self.tolerance:
                found[key] = values[index]
        return found


def _reading(copy: Copy, at: float, clock: tuple[float, ...], tolerance: float) -> Reading:
    moment = _Moment(at, clock, bisect_right(clock, at) - 1, tolerance)
    values: dict[str, Mapping[LabelPairs, float]] = {}
    for metric, series in copy.plain.items():
        found = moment.values(series)
        if found:
            values[metric] = found
    buckets: dict[str, dict[LabelPairs, Buckets]] = {}
    for metric, histograms in copy.buckets.items():
        sums = moment.values(copy.sums.get(metric, {}))
        for labels, by_edge in histograms.items():
            by_bound = moment.values(by_edge)
            if math.inf in by_bound:
                bounds = tuple(sorted(by_bound))
                counts = tuple([by_bound[step] for step in bounds])
                state = Buckets(bounds[:-1], counts, sums.get(labels, 0.0))
                buckets.setdefault(metric, {})[labels] = state
    return Reading(values, buckets, frozenset(copy.siblings))
