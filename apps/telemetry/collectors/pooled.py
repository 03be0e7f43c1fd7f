"""Histograms of whole pools: one query per histogram, grouped by the labels that name a pool.

For fleets too large to read every bucket of every worker. The increase is exact, as in
`apps.engines.deltas`: last minus first, whole after a reset or a birth. Ladders are never merged:
a pool in which bounds have unequal numbers of series is left to be read worker by worker.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from apps.engines import histogram
from apps.engines.exposition import bound
from apps.engines.schema import Profile, Ref
from apps.engines.window import HistogramIncrease, Kind, Signal

from . import promql
from .client import Failure, SourceFailed
from .naming import Piece, resolve
from .promql import Matcher, Selector

PoolKey = tuple[str, ...]

#: The recording rules that we ship: over so many seconds, evaluated so often.
RULE_WINDOW_S: Final = 60
RULE_INTERVAL_S: Final = 30
#: How a rule's series are named after their metric.
INCREASE: Final = "increase1m"
SERIES: Final = "series"


@dataclass(frozen=True, slots=True)
class Source:
    """One histogram of a profile under the name it is stored under; `rank` as in `naming`."""

    ref: Ref
    bucket: str
    rank: int

    @property
    def total(self) -> str:
        return f"{self.bucket.removesuffix('_bucket')}_sum"


@dataclass(frozen=True, slots=True)
class Grouping:
    """`pools` name a pool, `copies` (ranks, replicas) repeat one quantity, `extra` are kept for
    filtering later."""

    pools: tuple[str, ...]
    copies: tuple[str, ...]
    instance: str = "instance"
    extra: tuple[str, ...] = ()


def sources(profile: Profile, stored: frozenset[str]) -> Iterator[Source]:
    """The histograms of a profile that are stored with buckets, each set of filters once."""
    uses = {
        (use.metric, name): use.rank
        for name, found in resolve(profile, stored).histograms.items()
        for use in found
        if use.piece is Piece.BUCKET
    }
    seen: set[tuple[str, str]] = set()
    for kind, _, ref in profile.refs():
        if kind is not Kind.HISTOGRAM:
            continue
        for (metric, name), rank in uses.items():
            if metric == ref.name and (ref.key, name) not in seen:
                seen.add((ref.key, name))
                yield Source(ref, name, rank)


def risen(series: str, up: str, seconds: float, instance: str) -> str:
    """How much each series rose: the difference, or its value where it fell (a restart) or was
    born, if its target was up before."""
    span = f"{max(1, round(seconds * 1000))}ms"
    return (
        f"(({series} - {series} offset {span}) >= 0"
        f" or {series} and on({promql.label(instance)}) ({up} offset {span} == 1))"
    )


def increase_query(source: str, matchers: tuple[Matcher, ...], up: str, seconds: float,
                   grouping: Grouping) -> str:  # fmt: skip
    """Buckets (or sums) of each pool over the last `seconds`."""
    series = str(Selector((source,), matchers))
    value = risen(series, up, seconds, grouping.instance)
    if grouping.copies:
        value = f"max without({','.join(map(promql.label, grouping.copies))}) ({value})"
    by = [*grouping.pools, *grouping.extra, *(("le",) if source.endswith("_bucket") else ())]
    return f"sum by ({','.join(dict.fromkeys(map(promql.label, by)))}) ({value})"


def series_query(source: str, matchers: tuple[Matcher, ...], grouping: Grouping) -> str:
    """How many series each bound of each pool has: unequal numbers are mixed ladders."""
    by = ",".join(dict.fromkeys(map(promql.label, [*grouping.pools, *grouping.extra, "le"])))
    return f"count by ({by}) ({Selector((source,), matchers)})"


def recorded_query(name: str, matchers: tuple[Matcher, ...], by: Sequence[str], not_before: float
                   ) -> str:  # fmt: skip
    """What a recording rule stored last, if that is not older than a Unix time."""
    series = str(Selector((name,), matchers))
    groups = ",".join(dict.fromkeys(map(promql.label, by)))
    return f"sum by ({groups}) ({series} and (timestamp({series}) >= {not_before:.3f}))"


def filters(profile: Profile, ref: Ref) -> tuple[Matcher, ...]:
    """The series of a histogram that a profile means."""
    return (
        *(Matcher(name, "=", "") for name in profile.totals),
        *(Matcher(name, "=~", promql.any_of(values)) for name, values in ref.labels.items()),
        *(Matcher(name, "!~", promql.any_of(values)) for name, values in ref.without.items()),
    )


def rule_name(stored: str, what: str) -> str:
    """The recorded series of a stored name: `fulcrum:vllm_x_seconds_bucket:increase1m`."""
    return f"fulcrum:{stored.replace(':', '_')}:{what}"


def has_rules(stored: frozenset[str]) -> bool:
    """True if the server records what our rules file says."""
    return any(n.startswith("fulcrum:") and n.endswith(f":{INCREASE}") for n in stored)


@dataclass(slots=True)
class PoolAnswers:
    """Increases by (profile, what is read, pool, the engine's own role), as cumulative buckets;
    `owns` lists the own roles that were seen in each pool."""

    buckets: dict[tuple[str, str, PoolKey, str], dict[float, float]] = field(default_factory=dict)
    totals: dict[tuple[str, str, PoolKey, str], float] = field(default_factory=dict)
    owns: dict[PoolKey, dict[str, None]] = field(default_factory=dict)
    ranks: dict[tuple[str, str], int] = field(default_factory=dict)
    mixed: set[PoolKey] = field(default_factory=set)

    def add_buckets(
        self, profile: Profile, source: Source, pools: Sequence[str], rows: Sequence[Any]
    ) -> None:
        """Take in the buckets of one histogram; the truest spelling wins."""
        known = self.ranks.setdefault((profile.profile, source.ref.key), source.rank)
        if source.rank > known:
            return
        if source.rank < known:
            self.ranks[(profile.profile, source.ref.key)] = source.rank
            mine = (profile.profile, source.ref.key)
            self.buckets = {key: v for key, v in self.buckets.items() if key[:2] != mine}
        for labels, value in _values(rows):
            key = _key(profile, source, pools, labels)
            try:
                edge = bound(labels.get("le", ""))
            except ValueError:
                continue
            self.owns.setdefault(key[2], {})[key[3]] = None
            by_bound = self.buckets.setdefault(key, {})
            by_bound[edge] = by_bound.get(edge, 0.0) + value

    def add_totals(
        self, profile: Profile, source: Source, pools: Sequence[str], rows: Sequence[Any]
    ) -> None:
        """Take in the sums of one histogram."""
        for labels, value in _values(rows):
            key = _key(profile, source, pools, labels)
            self.totals[key] = self.totals.get(key, 0.0) + value

    def add_series(self, pools: Sequence[str], rows: Sequence[Any]) -> None:
        """Take in numbers of series per bound; texts of one bound add up."""
        numbers: dict[PoolKey, dict[float, float]] = {}
        for labels, value in _values(rows):
            pool = tuple(labels.get(name, "") for name in pools)
            try:
                edge = bound(labels.get("le", ""))
            except ValueError:
                continue
            by_bound = numbers.setdefault(pool, {})
            by_bound[edge] = by_bound.get(edge, 0.0) + value
        for pool, by_bound in numbers.items():
            if len(set(by_bound.values())) > 1:
                self.mixed.add(pool)

    def histograms(
        self, profile: Profile, role: str, pools: Sequence[PoolKey]
    ) -> dict[Signal, tuple[HistogramIncrease, Ref]]:
        """The histograms of a scope that consists of some pools, and what answered."""
        found: dict[Signal, tuple[HistogramIncrease, Ref]] = {}
        for signal, rows in profile.signals.items():
            if rows.kind is not Kind.HISTOGRAM:
                continue
            for row in profile.rows(signal, role):
                refs = [ref for term in row.terms for ref in term.any_of]
                answer = next(
                    (a for a in (self._of(profile, ref, role, pools) for ref in refs) if a), None
                )
                if answer is not None:
                    found[signal] = answer
                    break
        return found

    def _of(
        self, profile: Profile, ref: Ref, role: str, pools: Sequence[PoolKey]
    ) -> tuple[HistogramIncrease, Ref] | None:
        allowed = profile.allowed_roles(role)
        parts = []
        for pool in pools:
            key = (profile.profile, ref.key, pool)
            for own in self.owns.get(pool, ()):
                by_bound = self.buckets.get((*key, own), {})
                if (own and allowed is not None and own not in allowed) or math.inf not in by_bound:
                    continue
                bounds = tuple(sorted(by_bound))
                total = self.totals.get((*key, own), 0.0)
                parts.append(
                    histogram.from_cumulative(bounds[:-1], (by_bound[b] for b in bounds), total)
                )
        if not parts or len({part.bounds for part in parts}) > 1:
            return None
        return histogram.scaled(histogram.merge(parts), ref.scale), ref


def _key(
    profile: Profile, source: Source, pools: Sequence[str], labels: Mapping[str, str]
) -> tuple[str, str, PoolKey, str]:
    role = profile.role_label
    own = labels.get(role.name, "") if role is not None and role.name not in pools else ""
    return profile.profile, source.ref.key, tuple(labels.get(n, "") for n in pools), own


def _values(rows: Sequence[Any]) -> Iterator[tuple[Mapping[str, str], float]]:
    try:
        for row in rows:
            yield row.labels, row.value
    except AttributeError as error:
        raise SourceFailed(
            "the answer is not that of a Prometheus", Failure.NOT_PROMETHEUS
        ) from error
