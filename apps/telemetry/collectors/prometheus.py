"""The Prometheus collector: the same signals from PromQL, grouped by instance.

The number of queries depends on the profiles (metrics that exist), not on pools or workers. Names
are discovered first, in one query, so that fall-back spellings are chosen as in the direct
collector.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from apps.engines import histogram
from apps.engines.combine import TargetPart
from apps.engines.evaluate import SELF, Parts, evaluate
from apps.engines.exposition import bound, spellings
from apps.engines.schema import Profile, Ref, Row
from apps.engines.scraped import AGGREGATES, label_product
from apps.engines.window import HistogramIncrease, Kind

from . import client, promql
from .client import Prometheus
from .promql import Matcher, Selector

#: Queries in flight at one Prometheus.
THREADS = 4


@dataclass(frozen=True, slots=True)
class Labels:
    """How a Prometheus names things; `jobs` limits the search (empty: any)."""

    instance: str = "instance"
    job: str = "job"
    jobs: tuple[str, ...] = ()

    @classmethod
    def from_parameters(cls, parameters: Mapping[str, Any]) -> Labels:
        """From a source's stored parameters; raises ValueError for an impossible label name."""
        return cls(
            instance=promql.label(str(parameters.get("instance_label", "instance"))),
            job=promql.label(str(parameters.get("job_label", "job"))),
            jobs=tuple(str(job) for job in parameters.get("jobs", ())),
        )


@dataclass(frozen=True, slots=True)
class Instance:
    """One scraped target: its instance label value and whose it is. `scope` is the role's pool,
    or router or frontend; `is_current` is False for the part before a role change."""

    instance: str
    owner: str
    scope: str
    profile: Profile
    match: tuple[tuple[str, str], ...] = ()
    is_current: bool = True


@dataclass(slots=True)
class _Answers:
    """Names found per instance; rows by what was read (metric key, worker label, aggregate,
    spelling) and instance."""

    names: dict[str, set[str]] = field(default_factory=dict)
    rows: dict[tuple[str, ...], dict[str, list[client.Row]]] = field(default_factory=dict)


def up_instances(
    source: Prometheus, labels: Labels, instances: Iterable[str], *, at: datetime, max_age_s: float
) -> frozenset[str]:
    """Instances that were scraped well and recently."""
    selector = Selector(("up",), _common(labels, instances))
    not_before = (at - timedelta(seconds=max_age_s)).timestamp()
    query = promql.per(promql.fresh(selector, not_before), (labels.instance,), aggregate="max")
    return frozenset(
        row.labels.get(labels.instance, "")
        for row in source.query(query, at.timestamp())
        if row.value == 1
    )


def collect(
    source: Prometheus,
    labels: Labels,
    instances: Sequence[Instance],
    *,
    start: datetime,
    end: datetime,
    max_age_s: float,
) -> list[tuple[str, TargetPart]]:
    """What each instance contributes over `(start, end]`, as (scope, part)."""
    found: list[tuple[str, TargetPart]] = []
    groups: dict[tuple[str, tuple[tuple[str, str], ...]], list[Instance]] = {}
    for instance in instances:
        groups.setdefault((instance.profile.profile, instance.match), []).append(instance)
    for group in groups.values():
        profile = group[0].profile
        plan = _Plan(source, labels, profile, group, start=start, end=end, max_age_s=max_age_s)
        answers = plan.run()
        for instance in group:
            reader = PrometheusReader(profile, instance, answers)
            signals = evaluate(profile, instance.scope, reader)
            part = TargetPart(instance.owner, signals, instance.is_current)
            found.append((instance.scope, part))
    return found


def _common(labels: Labels, instances: Iterable[str]) -> tuple[Matcher, ...]:
    wanted = Matcher(labels.instance, "=~", promql.any_of(sorted(set(instances))))
    if not labels.jobs:
        return (wanted,)
    return (wanted, Matcher(labels.job, "=~", promql.any_of(labels.jobs)))


class _Plan:
    """All queries for the instances of one profile."""

    def __init__(
        self,
        source: Prometheus,
        labels: Labels,
        profile: Profile,
        group: Sequence[Instance],
        *,
        start: datetime,
        end: datetime,
        max_age_s: float,
    ) -> None:
        self._source = source
        self._labels = labels
        self._profile = profile
        self._at = end.timestamp()
        self._seconds = (end - start).total_seconds()
        self._not_before = self._at - max_age_s
        self._instances = _common(labels, (item.instance for item in group))
        match = tuple(
            Matcher(name, "=~", f"(?i:{promql.any_of((value,))})|")
            for name, value in group[0].match
        )
        totals = tuple(Matcher(name, "=", "") for name in profile.totals)
        self._common = (*self._instances, *match, *totals)

    def run(self) -> _Answers:
        answers = _Answers(names=self._discover())
        present = set().union(*answers.names.values()) if answers.names else set()
        queries: dict[tuple[str, ...], str] = {}
        for kind, row, ref in self._profile.refs():
            if kind is not Kind.GAUGE and self._seconds <= 0:
                continue
            for name in _spelled(ref.name, kind):
                if name in present:
                    queries.update(self._queries(kind, row, ref, name))
        with ThreadPoolExecutor(THREADS, thread_name_prefix="promql") as pool:
            results = pool.map(lambda query: self._source.query(query, self._at), queries.values())
            for key, rows in zip(queries, results, strict=True):
                by_instance = answers.rows.setdefault(key, {})
                for item in rows:
                    instance = item.labels.get(self._labels.instance, "")
                    by_instance.setdefault(instance, []).append(item)
        return answers

    def _discover(self) -> dict[str, set[str]]:
        names = {
            spelling
            for kind, _, ref in self._profile.refs()
            for spelling in _spelled(ref.name, kind)
        }
        names |= {s for n in self._profile.siblings() for s in spellings(n, is_counter=True)}
        selector = Selector(tuple(sorted(names)), self._instances)
        query = promql.per(str(selector), (self._labels.instance, "__name__"), aggregate="group")
        found: dict[str, set[str]] = {}
        for row in self._source.query(query, self._at):
            instance = row.labels.get(self._labels.instance, "")
            found.setdefault(instance, set()).add(row.labels.get("__name__", ""))
        return found

    def _queries(
        self, kind: Kind, row: Row, ref: Ref, name: str
    ) -> Iterable[tuple[tuple[str, ...], str]]:
        matchers = (*self._common, *_filters(ref))
        by = [self._labels.instance]
        if self._profile.role_label is not None:
            by.append(self._profile.role_label.name)
        if row.worker_label:
            by.append(row.worker_label)
        selector = Selector((name,), matchers)
        collapse = self._profile.collapse
        if kind is Kind.GAUGE:
            by += ref.value_labels
            value = promql.fresh(selector, self._not_before)
            if ref.minimum is not None:
                value = f"({value}) >= {ref.minimum:g}"
            how = {"mean": "avg", "sum": "sum", "max": "max"}[row.aggregate]
            query = promql.per(value, by, collapse=collapse, aggregate=how)
            yield _key(ref, row, name), query
            return
        up = Selector(("up",), self._instances)

        def increase(series: Selector, extra: Sequence[str] = ()) -> str:
            value = promql.grown(series, up, self._labels.instance, self._seconds)
            return promql.per(value, [*by, *extra], collapse=collapse)

        if kind is Kind.COUNTER:
            yield _key(ref, row, name), increase(selector)
            return
        base = name.removesuffix("_bucket")
        yield _key(ref, row, name), increase(selector, ("le",))
        yield _key(ref, row, f"{base}_sum"), increase(Selector((f"{base}_sum",), matchers))


def _spelled(name: str, kind: Kind) -> tuple[str, ...]:
    """Spellings of what is looked for: a histogram is there if its buckets are."""
    if kind is Kind.HISTOGRAM:
        return tuple(f"{spelling}_bucket" for spelling in spellings(name))
    return spellings(name, is_counter=kind is Kind.COUNTER)


def _key(ref: Ref, row: Row, name: str) -> tuple[str, ...]:
    return ref.key, row.worker_label, row.aggregate, name


def _filters(ref: Ref) -> tuple[Matcher, ...]:
    return (
        *(Matcher(name, "=~", promql.any_of(values)) for name, values in ref.labels.items()),
        *(Matcher(name, "!~", promql.any_of(values)) for name, values in ref.without.items()),
    )


class PrometheusReader:
    """What the answers say about one instance in one role."""

    has_interval = True

    def __init__(self, profile: Profile, instance: Instance, answers: _Answers) -> None:
        self._instance = instance.instance
        self._role_label = profile.role_label
        self._allowed = profile.allowed_roles(instance.scope)
        self._names = answers.names.get(instance.instance, set())
        self._rows = answers.rows

    def has_sibling(self, name: str) -> bool:
        return any(spelling in self._names for spelling in spellings(name, is_counter=True))

    def counter(self, ref: Ref, row: Row) -> Parts | None:
        found = self._found(ref, row, Kind.COUNTER)
        return self._by_worker(found, row, "sum")

    def gauge(self, ref: Ref, row: Row) -> Parts | None:
        found = self._found(ref, row, Kind.GAUGE)
        if ref.value_labels:
            products = ((r, label_product(r.labels, ref.value_labels)) for r in found)
            found = [client.Row(r.labels, v) for r, v in products if v is not None]
        return self._by_worker(found, row, row.aggregate)

    def histogram(self, ref: Ref, row: Row) -> HistogramIncrease | None:
        name = self._spelling(ref, Kind.HISTOGRAM)
        if name is None:
            return None
        cumulative: dict[float, float] = {}
        for item in self._mine(_key(ref, row, name)):
            edge = bound(item.labels.get("le", "nan"))
            cumulative[edge] = cumulative.get(edge, 0.0) + item.value
        if math.inf not in cumulative:
            return None
        total = sum(
            item.value for item in self._mine(_key(ref, row, f"{name.removesuffix('_bucket')}_sum"))
        )
        bounds = tuple(sorted(edge for edge in cumulative if math.isfinite(edge)))
        return histogram.from_cumulative(
            bounds, (cumulative[edge] for edge in (*bounds, math.inf)), total
        )

    def _spelling(self, ref: Ref, kind: Kind) -> str | None:
        return next((name for name in _spelled(ref.name, kind) if name in self._names), None)

    def _found(self, ref: Ref, row: Row, kind: Kind) -> list[client.Row]:
        name = self._spelling(ref, kind)
        return [] if name is None else self._mine(_key(ref, row, name))

    def _mine(self, key: tuple[str, ...]) -> list[client.Row]:
        rows = self._rows.get(key, {}).get(self._instance, [])
        return [row for row in rows if self._fits(row)]

    def _fits(self, row: client.Row) -> bool:
        if self._role_label is None or self._allowed is None:
            return True
        value = row.labels.get(self._role_label.name, "")
        return not value or value in self._allowed

    def _by_worker(self, rows: Sequence[client.Row], row: Row, aggregate: str) -> Parts | None:
        if not rows:
            return None
        workers: dict[str, list[float]] = {}
        for item in rows:
            key = item.labels.get(row.worker_label, SELF) if row.worker_label else SELF
            workers.setdefault(key, []).append(item.value)
        return {worker: AGGREGATES[aggregate](values) for worker, values in workers.items()}
