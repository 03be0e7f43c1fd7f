"""Reads signals from successive scrapes of one target (the direct collector)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence

from . import histogram
from .deltas import Buckets, bucket_increase, increase
from .evaluate import SELF, Parts
from .exposition import Labels
from .plans import plan_of
from .readings import Reading
from .schema import Profile, Ref, Row
from .window import HistogramIncrease


class ScrapedReader:
    """`readings` are the target's samples of one role, oldest first; the first is the base.

    `starts_only_first`: the base was taken in another role, so of the first interval only births
    and restarts count. A series that names its role itself needs no such care: all of its increase
    is of that role, in the first interval and up to `after`, the first sample of the next role.
    """

    def __init__(
        self,
        profile: Profile,
        role: str,
        readings: Sequence[Reading],
        *,
        starts_only_first: bool = False,
        after: Reading | None = None,
    ) -> None:
        self._profile = profile
        self._plan = plan_of(profile, role)
        self._readings = readings
        self._with_after = readings if after is None else [*readings, after]
        self._starts_only_first = starts_only_first
        # Whether a series names its role makes a difference only at a change of roles.
        self._is_whole = after is None and not starts_only_first

    @property
    def has_interval(self) -> bool:
        return len(self._with_after) > 1

    def has_sibling(self, name: str) -> bool:
        return bool(self._readings) and name in self._readings[-1].siblings

    def counter(self, ref: Ref, row: Row) -> Parts | None:
        samples = [reading.values.get(ref.name, {}) for reading in self._with_after]
        if not any(samples):
            return None
        if len(samples) == 2 and self._is_whole:
            grown = _grown(samples[0], samples[1], self._accepted(samples, ref))
            return self._by_worker(grown, row, sum) if grown else None
        grown = {}
        for labels in self._accepted(samples, ref):
            names_role = self._names_role(labels)
            counted = samples if names_role else samples[: len(self._readings)]
            step = increase(
                [sample.get(labels) for sample in counted],
                starts_only_first=self._starts_only_first and not names_role,
            )
            if step is not None:
                grown[labels] = step
        return self._by_worker(grown, row, sum) if grown else None

    def gauge(self, ref: Ref, row: Row) -> Parts | None:
        if not self._readings:
            return None
        sample = self._readings[-1].values.get(ref.name)
        if not sample:
            return None
        kept: dict[Labels, float] = {}
        for labels in self._accepted([sample], ref):
            value = _gauge_value(labels, sample[labels], ref)
            if value is not None and (ref.minimum is None or value >= ref.minimum):
                kept[labels] = value
        return self._by_worker(kept, row, AGGREGATES[row.aggregate]) if kept else None

    def histogram(self, ref: Ref, row: Row) -> HistogramIncrease | None:
        samples = [reading.buckets.get(ref.name, {}) for reading in self._with_after]
        if not any(samples):
            return None
        grown: dict[Labels, Buckets] = {}
        for labels in self._accepted(samples, ref):
            names_role = self._names_role(labels)
            counted = samples if names_role else samples[: len(self._readings)]
            step = bucket_increase(
                [sample.get(labels) for sample in counted],
                starts_only_first=self._starts_only_first and not names_role,
            )
            if step is not None:
                grown[labels] = step
        if not grown:
            return None
        ladder = max(
            {state.bounds for state in grown.values()},
            key=lambda b: sum(s.count for s in grown.values() if s.bounds == b),
        )
        groups: dict[Labels, Buckets] = {}
        for labels, state in grown.items():
            if state.bounds == ladder:
                key = self._without_ranks(labels)
                groups[key] = _larger(groups.get(key), state)
        return histogram.merge(
            histogram.from_cumulative(ladder, state.cumulative, state.total)
            for state in groups.values()
        )

    def _names_role(self, labels: Labels) -> bool:
        """True if the series itself says of which role it is."""
        role = self._profile.role_label
        return role is not None and bool(dict(labels).get(role.name))

    def _accepted(self, samples: Iterable[Mapping[Labels, object]], ref: Ref) -> list[Labels]:
        """The series that pass the metric's filters, in a stable order."""
        seen = dict.fromkeys(labels for sample in samples for labels in sample)
        found = self._plan.filter(ref)
        return list(seen) if found is None else [labels for labels in seen if found.passes(labels)]

    def _without_ranks(self, labels: Labels) -> Labels:
        return tuple(pair for pair in labels if pair[0] not in self._profile.collapse)

    def _by_worker(
        self, series: Mapping[Labels, float], row: Row, aggregate: Callable[[list[float]], float]
    ) -> dict[str, float]:
        if len(series) == 1 and not row.worker_label:
            return {SELF: aggregate([*series.values()])}
        ranks: dict[Labels, float] = {}
        if self._profile.collapse:
            for labels, value in series.items():
                key = self._without_ranks(labels)
                ranks[key] = max(ranks.get(key, -math.inf), value)
        else:
            ranks.update(series)
        if not row.worker_label:
            return {SELF: aggregate(list(ranks.values()))}
        workers: dict[str, list[float]] = {}
        for labels, value in ranks.items():
            worker = dict(labels).get(row.worker_label, SELF) if row.worker_label else SELF
            workers.setdefault(worker, []).append(value)
        return {worker: aggregate(values) for worker, values in workers.items()}


def _grown(
    base: Mapping[Labels, float], last: Mapping[Labels, float], accepted: Iterable[Labels]
) -> dict[Labels, float]:
    """`deltas.increase` of many series between two samples."""
    found: dict[Labels, float] = {}
    for labels in accepted:
        value, before = last.get(labels), base.get(labels)
        if value is None:
            found[labels] = 0.0
        else:
            found[labels] = value if before is None or value < before else value - before
    return found


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)


def _number(values: list[float]) -> float:
    return float(len(values))


AGGREGATES: Mapping[str, Callable[[list[float]], float]] = {
    "sum": sum,
    "mean": _mean,
    "max": max,
    "count": _number,
}


def _gauge_value(labels: Labels, value: float, ref: Ref) -> float | None:
    if ref.value_labels:
        return label_product(dict(labels), ref.value_labels)
    return value if math.isfinite(value) else None


def label_product(labels: Mapping[str, str], names: Iterable[str]) -> float | None:
    """The product of numbers written in labels; None if one is not a number ("None")."""
    result = 1.0
    for name in names:
        try:
            result *= float(labels.get(name, ""))
        except ValueError:
            return None
    return result if math.isfinite(result) else None


def _larger(left: Buckets | None, right: Buckets) -> Buckets:
    """Elementwise maximum: ranks repeat one histogram."""
    if left is None:
        return right
    return Buckets(
        right.bounds,
        tuple(max(a, b) for a, b in zip(left.cumulative, right.cumulative, strict=True)),
        max(left.total, right.total),
    )
