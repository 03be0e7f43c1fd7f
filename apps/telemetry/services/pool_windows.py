"""Puts the histograms of a whole pool into its window, with each worker's sum and count."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from uuid import UUID

from apps.engines import histogram
from apps.engines.evaluate import SELF
from apps.engines.schema import Evidence, Ref, Row, Term
from apps.engines.scraped import ScrapedReader
from apps.engines.window import HistogramIncrease, SignalValue, Window

from ..collectors.pooled import PoolAnswers, PoolKey
from ..domain.windows import TargetHistory, segments
from .tick import DeploymentTick


def with_pools(
    window: Window,
    members: Mapping[str, PoolKey],
    histories: Mapping[str, TargetHistory],
    answers: PoolAnswers,
) -> Window:
    """The window with the histograms of its pools. Pools of mixed ladders keep what was read from
    their workers one by one."""
    keys = sorted({key for key in members.values() if key not in answers.mixed})
    if not keys or len(keys) != len(set(members.values())):
        return window
    profile = next(iter(histories[owner].profile for owner in members))
    found = answers.histograms(profile, window.scope, keys)
    values, names = dict(window.values), dict(window.names)
    readers = _readers(window, members, histories)
    for signal, (whole, ref) in found.items():
        sums = _per_worker(_counter(ref, "_sum"), ref.scale, readers)
        counts = _per_worker(_counter(ref, "_count"), 1.0, readers)
        pool = replace(whole, sum_by_worker=sums, count_by_worker=counts)
        # Workers without the labels of the pool were read one by one.
        values[signal] = _with_others(pool, window.values.get(signal))
        names[signal] = ref.key
    return replace(window, values=values, names=names)


def _with_others(pool: HistogramIncrease, others: SignalValue | None) -> HistogramIncrease:
    """Both together; of two ladders, the one with most observations (as in `combine`)."""
    if not isinstance(others, HistogramIncrease):
        return pool
    try:
        return histogram.merge((pool, others))
    except histogram.MixedLadders:
        return max(pool, others, key=lambda hist: hist.count)


def _readers(
    window: Window, members: Mapping[str, PoolKey], histories: Mapping[str, TargetHistory]
) -> dict[str, ScrapedReader]:
    """Readers of the workers that answered, by owner."""
    found = {}
    for owner in members:
        history = histories[owner]
        parts = segments(history, window.start, window.end)
        if parts:
            found[owner] = ScrapedReader(history.profile, window.scope, parts[-1].readings)
    return found


def _per_worker(row: Row, scale: float, readers: Mapping[str, ScrapedReader]) -> dict[str, float]:
    ref = row.terms[0].any_of[0]
    found = {owner: reader.counter(ref, row) for owner, reader in readers.items()}
    return {o: parts.get(SELF, 0.0) * scale for o, parts in found.items() if parts is not None}


@lru_cache(maxsize=1024)
def _counter(ref: Ref, end: str) -> Row:
    """Sum or count of a histogram, with its filters, as a counter."""
    counter = Ref(
        name=f"{ref.name}{end}",
        labels=ref.labels,
        without=ref.without,
        evidence=Evidence.DOCUMENTED,
        source="sum and count of a histogram",
    )
    return Row(terms=(Term(any_of=(counter,)),))


def members_of(
    tick: DeploymentTick, window: Window, pools: Mapping[UUID, PoolKey]
) -> dict[str, PoolKey]:
    """The pool of each owner of a window that is read with its pool."""
    return {
        tick.owners[target.pk]: pools[target.pk]
        for target in tick.targets
        if target.pk in pools and tick.roles_now[target.pk] == window.scope
    }
