"""Series of GPUs and hosts, from successive scrapes of exporters or from a Prometheus.

Both give `UnitSeries`; what they mean for workers is decided in `domain.joining`
and `domain.hardware`. Births never
count: hardware counters count since boot, so the first sample of a series is no increase.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from itertools import pairwise

from apps.engines.exposition import Labels, spellings
from apps.engines.readings import Reading
from apps.engines.schema import Profile, Ref, Row
from apps.engines.scraped import AGGREGATES
from apps.engines.window import Kind

from ..domain.units import Key, Step, UnitPlace, UnitSeries, place_of
from . import promql
from .client import Prometheus
from .promql import Matcher, Selector

#: Queries in flight at one Prometheus.
THREADS = 4
#: Labels in which two scrapes of one exporter differ.
_COPIES = ("endpoint", "instance", "job", "prometheus", "prometheus_replica", "replica", "service")


def units_of_readings(
    profile: Profile, readings: Sequence[tuple[datetime, Reading]], end: datetime, *, node: str = ""
) -> tuple[UnitSeries, ...]:
    """The units of one exporter from its readings, oldest first; gauges are those of `end`.

    A step counts for a user only if it had the GPU at both of its ends.
    """
    gauges: dict[UnitPlace, dict[Key, float]] = {}
    if readings and readings[-1][0] == end:
        gauges = _gauges(profile, readings[-1][1], node)
    steps: dict[UnitPlace, list[Step]] = {place: [] for place in gauges}
    counted = [(at, _counters(profile, reading, node)) for at, reading in readings]
    for (before, old), (after, new) in pairwise(counted):
        for place, series in new.items():
            increases = _increases(old.get(place, {}), series)
            if increases:
                steps.setdefault(place, []).append(Step(before, after, increases))
    return tuple(
        UnitSeries(place, gauges.get(place, {}), tuple(found)) for place, found in steps.items()
    )


def _refs(profile: Profile, *kinds: Kind) -> dict[Key, tuple[Kind, Row, Ref]]:
    """What a profile reads, once per metric and way to bring its series together."""
    found: dict[Key, tuple[Kind, Row, Ref]] = {}
    for kind, row, ref in profile.refs():
        if kind in kinds:
            aggregate = "sum" if kind is Kind.COUNTER else row.aggregate
            found.setdefault((ref.key, aggregate), (kind, row, ref))
    return found


def _gauges(profile: Profile, reading: Reading, node: str) -> dict[UnitPlace, dict[Key, float]]:
    values: dict[UnitPlace, dict[Key, list[float]]] = {}
    for key, (_, _, ref) in _refs(profile, Kind.GAUGE).items():
        for labels, value in _accepted(reading, ref):
            if ref.minimum is None or value >= ref.minimum:
                place = place_of(dict(labels), profile, node=node)
                values.setdefault(place, {}).setdefault(key, []).append(value)
    return {
        place: {key: AGGREGATES[key[1]](found) for key, found in by_key.items()}
        for place, by_key in values.items()
    }


_Counters = dict[tuple[Key, Labels], float]


def _counters(profile: Profile, reading: Reading, node: str) -> dict[UnitPlace, _Counters]:
    found: dict[UnitPlace, _Counters] = {}
    for key, (_, _, ref) in _refs(profile, Kind.COUNTER).items():
        for labels, value in _accepted(reading, ref):
            place = place_of(dict(labels), profile, node=node)
            found.setdefault(place, {})[(key, labels)] = value
    return found


def _accepted(reading: Reading, ref: Ref) -> Iterable[tuple[Labels, float]]:
    for labels, value in reading.values.get(ref.name, {}).items():
        if value == value and abs(value) != float("inf") and ref.accepts(dict(labels)):
            yield labels, value


def _increases(old: _Counters, new: _Counters) -> dict[Key, float]:
    """A fall is a restart and the new value counts; a birth does not."""
    found: dict[Key, float] = {}
    for series, value in new.items():
        if series in old:
            grown = value if value < old[series] else value - old[series]
            found[series[0]] = found.get(series[0], 0.0) + grown
    return found


def units_of_prometheus(
    source: Prometheus,
    profile: Profile,
    jobs: Sequence[str],
    edges: Sequence[datetime],
    *,
    max_age_s: float,
) -> tuple[UnitSeries, ...]:
    """All units that a Prometheus knows, over the pieces between `edges`; one edge gives gauges
    only. One query finds the names that exist, then one per metric (and piece, for counters).
    Raises SourceFailed."""
    end = edges[-1]
    present = _present(source, profile, jobs, end)
    by = sorted({label for labels in profile.join.values() for label in labels})
    copies = [label for label in _COPIES if label not in by]
    queries: dict[tuple[Key, int], tuple[str, float]] = {}
    for key, (kind, row, ref) in _refs(profile, Kind.GAUGE, Kind.COUNTER).items():
        name = next(
            (n for n in spellings(ref.name, is_counter=kind is Kind.COUNTER) if n in present), None
        )
        if name is None:
            continue
        selector = Selector((name,), (*_jobs(jobs), *_filters(ref)))
        if kind is Kind.GAUGE:
            value = promql.fresh(selector, end.timestamp() - max_age_s)
            if ref.minimum is not None:
                value = f"({value}) >= {ref.minimum:g}"
            how = {"mean": "avg"}.get(row.aggregate, row.aggregate)
            queries[(key, -1)] = (
                promql.per(value, by, collapse=copies, aggregate=how),
                end.timestamp(),
            )
            continue
        for index, (start, stop) in enumerate(pairwise(edges)):
            span = promql.duration((stop - start).total_seconds())
            query = promql.per(f"increase({selector}[{span}])", by, collapse=copies)
            queries[(key, index)] = query, stop.timestamp()
    return _units(profile, source, queries, list(pairwise(edges)))


def _units(
    profile: Profile,
    source: Prometheus,
    queries: Mapping[tuple[Key, int], tuple[str, float]],
    pieces: Sequence[tuple[datetime, datetime]],
) -> tuple[UnitSeries, ...]:
    found: dict[UnitPlace, dict[int, dict[Key, float]]] = {}
    with ThreadPoolExecutor(THREADS, thread_name_prefix="promql") as pool:
        answers = pool.map(lambda query: source.query(*query), queries.values())
        for (key, index), rows in zip(queries, answers, strict=True):
            for row in rows:
                values = found.setdefault(place_of(row.labels, profile), {}).setdefault(index, {})
                if index < 0:
                    values[key] = max(values.get(key, row.value), row.value)
                else:  # an exporter that restarted under another name goes on with its counters
                    values[key] = values.get(key, 0.0) + row.value
    return tuple(
        UnitSeries(
            place,
            by_piece.get(-1, {}),
            tuple(
                Step(*pieces[index], increases)
                for index, increases in sorted(by_piece.items())
                if index >= 0
            ),
        )
        for place, by_piece in found.items()
    )


def _present(
    source: Prometheus, profile: Profile, jobs: Sequence[str], at: datetime
) -> frozenset[str]:
    names = {
        spelling
        for kind, _, ref in profile.refs()
        for spelling in spellings(ref.name, is_counter=kind is Kind.COUNTER)
    }
    selector = Selector(tuple(sorted(names)), _jobs(jobs))
    query = promql.per(str(selector), ("__name__",), aggregate="group")
    return frozenset(row.labels.get("__name__", "") for row in source.query(query, at.timestamp()))


def _jobs(jobs: Sequence[str]) -> tuple[Matcher, ...]:
    return (Matcher("job", "=~", promql.any_of(jobs)),) if jobs else ()


def _filters(ref: Ref) -> tuple[Matcher, ...]:
    return (
        *(Matcher(name, "=~", promql.any_of(values)) for name, values in ref.labels.items()),
        *(Matcher(name, "!~", promql.any_of(values)) for name, values in ref.without.items()),
        *(Matcher(name, "!~", pattern) for name, pattern in ref.unlike.items()),
    )
