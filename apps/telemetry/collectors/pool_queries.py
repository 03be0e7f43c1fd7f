"""Asks for the histograms of whole pools, recorded ones where the server has our rules."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from apps.engines.schema import Profile

from . import pooled, promql
from .client import Prometheus, Row
from .pooled import Grouping, PoolAnswers, PoolKey, Source
from .promql import Matcher, Selector

#: Pool queries in flight; each keeps a core of the server busy.
THREADS: Final = 2
#: A recorded sample may be this much older than its rule's interval (seconds).
_SLACK_S: Final = 15.0


def read_pools(
    client: Prometheus,
    *,
    profiles: Sequence[Profile],
    pools: Sequence[PoolKey],
    labels: Sequence[str],
    limits: tuple[Matcher, ...],
    instance: str,
    replicas: Sequence[str],
    stored: frozenset[str],
    start: float,
    end: float,
) -> PoolAnswers:
    """Increases of `pools` over `(start, end]`: three queries per histogram, whatever the number
    of pools. Raises SourceFailed."""
    answers = PoolAnswers()
    asks: list[tuple[str, Callable[[list[Row]], None]]] = []
    names = sorted({pool[0] for pool in pools})
    mine = (*limits, Matcher(labels[0], "=~", promql.any_of(names)))
    up = str(Selector(("up",), limits))
    for profile in profiles:
        own = (profile.role_label.name,) if profile.role_label else ()
        grouping = Grouping(
            tuple(labels), (*profile.collapse, *replicas), instance=instance, extra=own
        )
        for source in pooled.sources(profile, stored):
            asks += _asks(answers, profile, source, grouping, mine, up, stored, start, end)
    with ThreadPoolExecutor(THREADS, thread_name_prefix="promql-pools") as pool:
        found = pool.map(lambda ask: client.query(ask[0], end), asks)
        for (_, take), rows in zip(asks, found, strict=True):
            take(rows)
    return answers


def _asks(
    answers: PoolAnswers,
    profile: Profile,
    source: Source,
    grouping: Grouping,
    limits: tuple[Matcher, ...],
    up: str,
    stored: frozenset[str],
    start: float,
    end: float,
) -> list[tuple[str, Callable[[list[Row]], None]]]:
    filters = pooled.filters(profile, source.ref)
    is_recorded = (
        pooled.rule_name(source.bucket, pooled.INCREASE) in stored
        and abs(end - start - pooled.RULE_WINDOW_S) <= 5
    )

    def increase(name: str) -> str:
        if is_recorded:
            # Rules drop the labels that profiles require to be empty, and keep the others.
            kept = tuple(m for m in filters if m.name not in profile.totals)
            by = [*grouping.pools, *grouping.extra, *(["le"] if name.endswith("_bucket") else [])]
            oldest = end - pooled.RULE_INTERVAL_S - _SLACK_S
            only = tuple(m for m in limits if m.name in grouping.pools)
            recorded = pooled.rule_name(name, pooled.INCREASE)
            return pooled.recorded_query(recorded, (*only, *kept), by, oldest)
        matchers = (*limits, *filters)
        return pooled.increase_query(name, matchers, up, end - start, grouping)

    if is_recorded and pooled.rule_name(source.bucket, pooled.SERIES) in stored:
        only = tuple(m for m in limits if m.name in grouping.pools)
        oldest = end - pooled.RULE_INTERVAL_S - _SLACK_S
        name = pooled.rule_name(source.bucket, pooled.SERIES)
        count = pooled.recorded_query(name, only, [*grouping.pools, "le"], oldest)
    else:
        by_pool = Grouping(grouping.pools, ())
        count = pooled.series_query(source.bucket, (*limits, *filters), by_pool)
    pools = grouping.pools
    return [
        (increase(source.bucket), lambda rows: answers.add_buckets(profile, source, pools, rows)),
        (increase(source.total), lambda rows: answers.add_totals(profile, source, pools, rows)),
        (count, lambda rows: answers.add_series(pools, rows)),
    ]
