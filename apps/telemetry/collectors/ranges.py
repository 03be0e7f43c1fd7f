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
from itertools import pairwise
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


@dataclass(slots=True)
class Copy:
    """One origin's series of one target."""

    series: dict[tuple[str, Piece, LabelPairs], tuple[int, Samples]] = field(default_factory=dict)
    siblings: set[str] = field(default_factory=set)

    def add(self, use: Use, labels: LabelPairs, samples: Samples) -> None:
        if use.piece is Piece.SIBLING:
            self.siblings.add(use.metric)
            return
        key = (use.metric, use.piece, labels)
        known = self.series.get(key)
        # Two spellings of one metric (an exporter and its re-export) must not count twice.
        if known is None or use.rank < known[0]:
            self.series[key] = (use.rank, samples)


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
    _known: dict[str, str] = field(default_factory=dict)
    _times: list[float] = field(default_factory=list)

    def add(self, answer: Iterable[Mapping[str, Any]], uses: Sequence[Use]) -> None:
        """Take in one answer. Raises SourceFailed if it is not one, or lies in the future."""
        for item in answer:
            metric = item["metric"]
            wanted = self.targets.get(self._address(metric.get(self.instance_label, "")))
            if not wanted:
                continue
            samples = self._samples(item, uses)
            if samples is None:
                continue
            labels, origin = self._labels(metric)
            for key, match in wanted:
                copy = self.copies.setdefault(key, {}).setdefault(origin, Copy())
                fits = not match or _matches(labels, match)
                for use in uses:
                    if fits or use.piece is Piece.SIBLING:
                        copy.add(use, labels, samples)

    def _address(self, text: str) -> str:
        found = self._known.get(text)
        if found is None:
            found = self._known[text] = canonical(text, self.same_hosts)
        return found

    def _samples(self, item: Mapping[str, Any], uses: Sequence[Use]) -> Samples | None:
        rows = item.get("values")
        if rows is None:
            if "histograms" not in item:
                raise SourceFailed(_FOREIGN, Failure.NOT_PROMETHEUS)
            self.natives |= {use.metric for use in uses}
            return None
        times: list[float] = []
        values: list[float] = []
        try:
            for at, text in rows:
                value = float(text)
                if -LARGEST < value < LARGEST:
                    times.append(float(at))
                    values.append(value)
                else:
                    self.defects += 1
        except (TypeError, ValueError) as error:
            raise SourceFailed(_FOREIGN, Failure.NOT_PROMETHEUS) from error
        if not times:
            return None
        if times == self._times:
            times = self._times  # the series of one scrape share one list
        self._times = times
        if times[-1] > self.end + MAX_SKEW_S:
            raise SourceFailed("samples lie in the future", Failure.CLOCK)
        return times, values

    def _labels(self, metric: Mapping[str, str]) -> tuple[LabelPairs, Origin]:
        origin = tuple(metric.get(name, "") for name in self.origin_labels)
        pairs = {
            name: value
            for name, value in metric.items()
            if value and name != "__name__" and name not in self.origin_labels
        }
        for name in [name for name in pairs if name.startswith("exported_")]:
            # A target's label won over the exporter's own; profiles mean the exporter's.
            pairs[name.removeprefix("exported_")] = pairs.pop(name)
        return tuple(sorted(pairs.items())), origin

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
        if len(points) > 2 and not keep_all and self._is_plain(copy, points):
            points = [points[0], points[-1]]
        found = []
        for number, at in enumerate(points):
            stamp = at
            if number == len(points) - 1:
                stamp = span.end
            elif number == 0 and base >= 0 and at >= span.start - 2 * span.scrape_s:
                stamp = span.start
            reading = _reading(copy, at, 0.9 * span.scrape_s)
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

    @staticmethod
    def _is_plain(copy: Copy, points: Sequence[float]) -> bool:
        """True if first and last sample of each series say all: none vanished, none fell."""
        first, last = points[0], points[-1]
        for (_, piece, _), (_, (times, values)) in copy.series.items():
            if times[-1] != last:
                return False
            if piece is Piece.COUNTER or piece is Piece.BUCKET:
                begin = bisect_right(times, first) - 1
                inside = values[max(0, begin) :]
                if any(new < old for old, new in pairwise(inside)):
                    return False
        return True


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
        if other is None or key[1] not in (Piece.COUNTER, Piece.BUCKET):
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


def _reading(copy: Copy, at: float, tolerance: float) -> Reading:
    values: dict[str, dict[LabelPairs, float]] = {}
    raw: dict[tuple[str, LabelPairs], dict[float, float]] = {}
    sums: dict[tuple[str, LabelPairs], float] = {}
    for (metric, piece, labels), (_, samples) in copy.series.items():
        value = _as_of(samples, at, tolerance)
        if value is None:
            continue
        if piece is Piece.COUNTER or piece is Piece.GAUGE:
            values.setdefault(metric, {})[labels] = value
        elif piece is Piece.SUM:
            sums[(metric, labels)] = value
        else:
            edge, rest = _split(labels)
            if edge is not None:
                by_bound = raw.setdefault((metric, rest), {})
                by_bound[edge] = max(by_bound.get(edge, 0.0), value)
    buckets: dict[str, dict[LabelPairs, Buckets]] = {}
    for (metric, labels), by_bound in raw.items():
        if math.inf in by_bound:
            bounds = tuple(sorted(by_bound))
            counts = tuple(by_bound[edge] for edge in bounds)
            state = Buckets(bounds[:-1], counts, sums.get((metric, labels), 0.0))
            buckets.setdefault(metric, {})[labels] = state
    return Reading(values, buckets, frozenset(copy.siblings))


def _split(labels: LabelPairs) -> tuple[float | None, LabelPairs]:
    """The bound of a bucket's series, and its other labels."""
    for index, (name, text) in enumerate(labels):
        if name == "le":
            try:
                return bound(text), labels[:index] + labels[index + 1 :]
            except ValueError:
                return None, labels
    return None, labels
