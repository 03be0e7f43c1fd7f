"""The Prometheus collector: raw samples of all targets of a source, a fixed number of queries.

One query per stored metric name of the profiles in use, whatever the number of deployments, pools
or workers; whose a series is, is found here from its instance label. Names, spellings and the
scrape interval come from what the server stores, not from what documents say.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import islice, pairwise
from typing import Any, Final, TypeVar

import msgspec

from apps.engines.schema import Profile

from ..domain.addresses import canonical
from . import promql
from .client import Failure, Prometheus, SourceFailed
from .matrix import Series
from .naming import Piece, Use, resolve
from .pool_queries import read_pools
from .pooled import PoolAnswers, PoolKey
from .promql import Matcher, Selector
from .ranges import Collector, Span

Q = TypeVar("Q")
A = TypeVar("A")

#: Queries in flight at one Prometheus.
THREADS: Final = 4
#: Up to so many targets a query names them; above, it takes whole jobs and sorts here.
NAMED_TARGETS: Final = 64
#: Labels that name the copy of an HA pair, where `up` carries them.
REPLICAS: Final = ("prometheus_replica", "replica", "__replica__")


@dataclass(frozen=True, slots=True)
class Labels:
    """How a Prometheus names things. `jobs` and `matchers` (allowed values by label) limit the
    search (empty: any); `replicas` tell the copies of an HA pair apart; `pools` are the labels
    that name (deployment, role); `same_hosts` declares host names that are one host."""

    instance: str = "instance"
    job: str = "job"
    jobs: tuple[str, ...] = ()
    matchers: tuple[tuple[str, tuple[str, ...]], ...] = ()
    replicas: tuple[str, ...] = ()
    pools: tuple[str, ...] = ()
    same_hosts: Mapping[str, str] = field(default_factory=dict)
    scrape_s: float | None = None

    @classmethod
    def from_parameters(cls, parameters: Mapping[str, Any]) -> Labels:
        """From a source's stored parameters; raises ValueError for what cannot be."""
        matchers, hosts = parameters.get("matchers") or {}, parameters.get("same_hosts") or {}
        if not isinstance(matchers, Mapping) or not isinstance(hosts, Mapping):
            raise ValueError("matchers and same_hosts are objects")
        scrape = parameters.get("scrape_interval_s")
        if scrape is not None and not 0 < float(scrape) <= 3600:
            raise ValueError("the scrape interval lies between 0 and 3600 s")
        return cls(
            instance=promql.label(str(parameters.get("instance_label", "instance"))),
            job=promql.label(str(parameters.get("job_label", "job"))),
            jobs=tuple(str(job) for job in parameters.get("jobs", ())),
            matchers=tuple(
                (promql.label(str(name)), tuple(str(value) for value in values))
                for name, values in sorted(matchers.items())
            ),
            replicas=tuple(promql.label(str(n)) for n in parameters.get("replica_labels", ())),
            pools=tuple(promql.label(str(name)) for name in parameters.get("pool_labels", ())),
            same_hosts={str(k).lower(): str(v).lower() for k, v in hosts.items()},
            scrape_s=None if scrape is None else float(scrape),
        )

    def limits(self) -> tuple[Matcher, ...]:
        """The matchers of every query."""
        found = [Matcher(name, "=~", promql.any_of(values)) for name, values in self.matchers]
        if self.jobs:
            found.append(Matcher(self.job, "=~", promql.any_of(self.jobs)))
        return tuple(found)


@dataclass(frozen=True, slots=True)
class Request:
    """One target to read: `key` is the caller's, `match` the label values its series must have.
    Histograms of one with a `pool` are read with the pool, here only their sums and counts."""

    key: str
    url: str
    profile: Profile
    match: Mapping[str, str] = field(default_factory=dict)
    wants_histograms: bool = True
    pool: PoolKey = ()


@dataclass(frozen=True, slots=True)
class UpState:
    """What `up` says of the addresses: good and fresh, down, or unknown (pushed data has none).
    `texts` holds the spellings of each address, `replicas` the labels that name copies, `pools` the
    values of the labels that name the pool of each address, `times` when each was scraped well."""

    good: frozenset[str]
    known: frozenset[str]
    texts: Mapping[str, tuple[str, ...]]
    replicas: tuple[str, ...]
    spacing_s: float | None
    pools: Mapping[str, PoolKey] = field(default_factory=dict)
    times: Mapping[str, Sequence[float]] = field(default_factory=dict)


def up_state(
    source: Prometheus,
    labels: Labels,
    requests: Sequence[Request],
    *,
    end: float,
    max_age_s: float,
    reach_s: float = 0.0,
) -> UpState:
    """Which addresses were scraped well and recently, and when over the last `reach_s` seconds
    (one query). Raises SourceFailed."""
    selector = Selector(("up",), (*labels.limits(), *_named(labels, requests)))
    # Long enough for two scrapes, so that their distance can be seen.
    answer = source.ranges(str(selector), max(2.5 * max_age_s, 60.0, reach_s), end)
    newest: dict[str, tuple[float, float]] = {}
    texts: dict[str, dict[str, None]] = {}
    times: dict[str, set[float]] = {}
    gaps: list[float] = []
    present: set[str] = set()
    pools: dict[str, PoolKey] = {}
    wanted = {canonical(request.url, labels.same_hosts) for request in requests}
    for item in answer:
        metric, values = _labels_of(item), item.values
        text = metric.get(labels.instance, "")
        address = canonical(text, labels.same_hosts)
        if address not in wanted or not values:
            continue
        present |= metric.keys() & {*REPLICAS}
        texts.setdefault(address, {})[text] = None
        if labels.pools:
            pools[address] = tuple(metric.get(name, "") for name in labels.pools)
        last = values[-1]
        times.setdefault(address, set()).update(at for at, up in values if up == 1)
        gaps += [b[0] - a[0] for a, b in pairwise(values)]
        known = newest.get(address)
        if known is None or (last[1], last[0]) > (known[1], known[0]):
            newest[address] = last
    good = {a for a, (at, value) in newest.items() if value == 1 and at >= end - max_age_s}
    return UpState(
        good=frozenset(good),
        known=frozenset(newest),
        texts={address: tuple(found) for address, found in texts.items()},
        replicas=labels.replicas or tuple(name for name in REPLICAS if name in present),
        spacing_s=statistics.median(gaps) if gaps else None,
        pools=pools,
        times={address: sorted(found) for address, found in times.items()},
    )


def _labels_of(item: Series) -> dict[str, str]:
    try:
        return item.labels
    except msgspec.DecodeError as error:
        raise SourceFailed(
            "the answer is not that of a Prometheus", Failure.NOT_PROMETHEUS
        ) from error


@dataclass(frozen=True, slots=True)
class Samples:
    """What the queries brought; `native` are histograms that this server stores without buckets,
    `lacking` why histograms are missing as a whole, `pools` the histograms of whole pools."""

    collectors: Mapping[str, Collector]
    native: tuple[str, ...] = ()
    lacking: str = ""
    pools: PoolAnswers = field(default_factory=PoolAnswers)

    @property
    def defects(self) -> int:
        """Values that were refused: NaN, infinite, or beyond what can be counted."""
        return sum(collector.defects for collector in self.collectors.values())

    @property
    def conflicts(self) -> frozenset[str]:
        """Targets whose copies contradict each other."""
        found = [collector.conflicts for collector in self.collectors.values()]
        return frozenset(key for keys in found for key in keys)


def read(
    source: Prometheus,
    labels: Labels,
    requests: Sequence[Request],
    up: UpState,
    *,
    stored: frozenset[str],
    span: Span,
) -> Samples:
    """The raw samples of all targets from `span.start` (less the scrape before it) to `span.end`.

    Counters and gauges must all answer (raises SourceFailed); if the histograms do not, they are
    missing with a reason.
    """
    groups: dict[str, list[Request]] = {}
    for request in requests:
        groups.setdefault(request.profile.profile, []).append(request)
    origin = (labels.instance, labels.job, *up.replicas)
    collectors: dict[str, Collector] = {}
    plain: list[tuple[str, str, tuple[Use, ...]]] = []
    native: dict[str, None] = {}
    for name, group in groups.items():
        collectors[name] = Collector(
            labels.same_hosts, _by_address(group, labels), labels.instance, origin, span.end
        )
        resolved = resolve(group[0].profile, stored)
        native |= dict.fromkeys(resolved.native)
        limits = (*labels.limits(), *_named(labels, requests))
        plain += _selectors(name, resolved.plain, limits)
    # The base of a window is the last sample not after its start, and one scrape may be missing.
    range_s = span.end - span.start + 2.2 * span.scrape_s
    _run(source, plain, range_s, span.end, collectors)
    pools, lacking = PoolAnswers(), ""
    try:
        pools = _pools(source, labels, requests, up, stored, span)
        queries = _histograms(labels, groups, up, stored, pools)
        _run(source, queries, range_s, span.end, collectors)
    except SourceFailed as error:
        lacking = str(error)
    natives = set(native)
    for collector in collectors.values():
        natives |= collector.natives
    return Samples(collectors, tuple(sorted(natives)), lacking, pools)


def _pools(
    source: Prometheus,
    labels: Labels,
    requests: Sequence[Request],
    up: UpState,
    stored: frozenset[str],
    span: Span,
) -> PoolAnswers:
    whole = [request for request in requests if request.wants_histograms and request.pool]
    if not whole:
        return PoolAnswers()
    return read_pools(
        source,
        profiles=list({request.profile.profile: request.profile for request in whole}.values()),
        pools=sorted({request.pool for request in whole}),
        labels=labels.pools,
        limits=labels.limits(),
        instance=labels.instance,
        replicas=up.replicas,
        stored=stored,
        start=span.start,
        end=span.end,
    )


def _histograms(
    labels: Labels,
    groups: Mapping[str, Sequence[Request]],
    up: UpState,
    stored: frozenset[str],
    pools: PoolAnswers,
) -> list[tuple[str, str, tuple[Use, ...]]]:
    """Buckets of the targets that are read one by one (also those whose pool mixes ladders), and
    only sums and counts of the others."""
    queries: list[tuple[str, str, tuple[Use, ...]]] = []
    for name, group in groups.items():
        resolved = resolve(group[0].profile, stored)
        due = [request for request in group if request.wants_histograms]
        single = [r for r in due if not r.pool or r.pool in pools.mixed]
        whole = [r for r in due if r.pool and r.pool not in pools.mixed]
        for some, names in ((single, resolved.histograms), (whole, _totals(resolved.histograms))):
            if some:
                all_of_it = len(some) == len(group)
                only = _named(labels, group) if all_of_it else (_only(labels, some, up),)
                queries += _selectors(name, names, (*labels.limits(), *only))
    return queries


def _totals(histograms: Mapping[str, tuple[Use, ...]]) -> dict[str, tuple[Use, ...]]:
    """Sum and count of each histogram, as counters of their own."""
    found: dict[str, tuple[Use, ...]] = {}
    for name, uses in histograms.items():
        if not name.endswith("_bucket"):
            continue
        for end in ("_sum", "_count"):
            found[name.removesuffix("_bucket") + end] = tuple(
                Use(f"{use.metric}{end}", Piece.COUNTER, use.rank) for use in uses
            )
    return found


def _by_address(
    group: Iterable[Request], labels: Labels
) -> dict[str, list[tuple[str, Mapping[str, str]]]]:
    found: dict[str, list[tuple[str, Mapping[str, str]]]] = {}
    for request in group:
        address = canonical(request.url, labels.same_hosts)
        found.setdefault(address, []).append((request.key, request.match))
    return found


def _selectors(
    profile: str, names: Mapping[str, tuple[Use, ...]], matchers: tuple[Matcher, ...]
) -> list[tuple[str, str, tuple[Use, ...]]]:
    return [
        (profile, str(Selector((name,), matchers)), uses) for name, uses in sorted(names.items())
    ]


def _named(labels: Labels, requests: Sequence[Request]) -> tuple[Matcher, ...]:
    """A small source names its targets, in any spelling; a large one takes all of its jobs."""
    addresses = sorted({canonical(request.url, labels.same_hosts) for request in requests})
    if not addresses or len(addresses) > NAMED_TARGETS:
        return ()
    if any(name in labels.same_hosts.values() for name in (a.rsplit(":", 1)[0] for a in addresses)):
        return ()
    if any(address.startswith("[") for address in addresses):
        return ()  # too many ways to write the zeros
    forms = []
    for address in addresses:
        host, _, port = address.rpartition(":")
        default = "?" if port in ("80", "443") else ""
        forms.append(f"{promql.any_of((host,))}(?::{port}){default}" if default else
                     promql.any_of((address,)))  # fmt: skip
    return (Matcher(labels.instance, "=~", f"(?i:(?:https?://)?(?:{'|'.join(forms)})(?:/.*)?)"),)


def _only(labels: Labels, due: Sequence[Request], up: UpState) -> Matcher:
    """Exactly the stored spellings of some targets: plain alternatives, which a Prometheus looks
    up one by one instead of trying them on every series."""
    addresses = {canonical(request.url, labels.same_hosts) for request in due}
    texts = [text for address in sorted(addresses) for text in up.texts.get(address, (address,))]
    return Matcher(labels.instance, "=~", promql.any_of(texts))


def _run(
    source: Prometheus,
    queries: Sequence[tuple[str, str, tuple[Use, ...]]],
    range_s: float,
    end: float,
    collectors: Mapping[str, Collector],
) -> None:
    """Ask several at once, but take answers in one by one: few large answers exist at a time."""

    def ask(query: tuple[str, str, tuple[Use, ...]]) -> list[Series]:
        return source.ranges(query[1], range_s, end)

    for (profile, _, uses), answer in _bounded(ask, queries):
        collectors[profile].add(answer, uses)


def _bounded(ask: Callable[[Q], A], queries: Sequence[Q]) -> Iterator[tuple[Q, A]]:
    rest = iter(queries)
    with ThreadPoolExecutor(THREADS, thread_name_prefix="promql") as pool:
        waiting = [(query, pool.submit(ask, query)) for query in islice(rest, THREADS)]
        try:
            while waiting:
                query, future = waiting.pop(0)
                answer = future.result()
                waiting += [
                    (following, pool.submit(ask, following)) for following in islice(rest, 1)
                ]
                yield query, answer
        finally:
            for _, future in waiting:
                future.cancel()
