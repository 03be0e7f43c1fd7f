"""A tick through a Prometheus: the same windows, from the samples that it stores."""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Final
from uuid import UUID
from zlib import crc32

from django.core.cache import cache

from apps.engines import loader
from apps.engines.evaluate import Defect
from apps.engines.readings import Reading
from apps.fleet import connect
from apps.fleet.domain.spans import cuts

from ..collectors import client, pooled, prometheus
from ..collectors.client import Failure, Prometheus, SourceFailed
from ..collectors.intervals import scrape_interval
from ..collectors.pooled import PoolKey
from ..collectors.prometheus import Labels, Request, Samples, UpState
from ..collectors.ranges import Span
from ..domain.addresses import canonical
from ..domain.refused import sentence
from ..domain.windows import window_start, windows_of_tick
from ..models import Source, StoredWindow, Target, TargetScope
from .pool_windows import members_of, with_pools
from .silence import with_silence
from .tick import Collected, DeploymentTick, history_of

#: A difference over fewer scrapes says more about their phase than about the engine.
SCRAPES_PER_WINDOW: Final = 4
#: Shortest window where nobody knows how often the server scrapes (seconds).
UNKNOWN_WINDOW_S: Final = 60.0
#: With more pools on one source, each tick reads the histograms of its share of the deployments.
STAGGER_ABOVE_POOLS: Final = 40
#: Histograms of up to so many targets are read one by one in a tick, although their pools are
#: known: raw samples cost a Prometheus less than an exact increase per pool (measured).
SINGLE_TARGETS: Final = 1500
_INTERVAL_KNOWN_S: Final = 600


@dataclass(frozen=True, slots=True)
class _Plan:
    """One deployment at this tick: its window, and whether its histograms are due."""

    tick: DeploymentTick
    start: datetime
    has_histograms: bool


def collect(
    source: Source,
    ticks: Sequence[DeploymentTick],
    headers: Mapping[str, str],
    deadline_s: float,
    *,
    start: datetime | None = None,
    trace: str = "",
) -> Collected:
    """Ask the Prometheus about all targets of the source's deployments at once.

    `start` names the start of the windows (filling a gap; then all histograms are read), `trace`
    is added to where they come from.
    """
    asked = _client(source, headers, deadline_s)
    try:
        with no_cycle_search():
            result = _collect(source, ticks, asked, start, trace)
    except SourceFailed as error:
        return Collected(error=str(error), kind=error.kind, requests=asked.requests_sent)
    except ValueError as error:
        return Collected(error=str(error), kind=Failure.CONFIG, requests=asked.requests_sent)
    result.requests = asked.requests_sent
    return result


def answering(
    source: Source, ticks: Sequence[DeploymentTick], headers: Mapping[str, str], deadline_s: float
) -> int:
    """How many targets the Prometheus saw well at the time of the ticks (one query); 0 if it
    cannot be asked."""
    ticks = [tick for tick in ticks if tick.targets]
    if not ticks:
        return 0
    try:
        labels = Labels.from_parameters(source.parameters)
        end = ticks[0].at - timedelta(seconds=float(source.parameters.get("delay_s", 0)))
        up = prometheus.up_state(
            _client(source, headers, deadline_s),
            labels,
            [_request(target, False) for tick in ticks for target in tick.targets],
            end=end.timestamp(),
            max_age_s=max(
                tick.defaults.fresh_intervals * tick.defaults.collect_interval_s for tick in ticks
            ),
        )
    except (SourceFailed, ValueError):
        return 0
    return sum(
        canonical(target.url, labels.same_hosts) in up.good
        for tick in ticks
        for target in tick.targets
    )


def _client(source: Source, headers: Mapping[str, str], deadline_s: float) -> Prometheus:
    policy = replace(connect.fetch_policy(), max_bytes=client.MAX_BYTES)
    return Prometheus(source.url, policy=policy, deadline_s=deadline_s, headers=headers)


def _collect(
    source: Source,
    ticks: Sequence[DeploymentTick],
    asked: Prometheus,
    start: datetime | None,
    trace: str,
) -> Collected:
    result = Collected()
    ticks = [tick for tick in ticks if tick.targets]
    if not ticks:
        return result
    labels = Labels.from_parameters(source.parameters)
    end = ticks[0].at - timedelta(seconds=float(source.parameters.get("delay_s", 0)))
    result.at = end
    interval_s = min(tick.defaults.collect_interval_s for tick in ticks)
    scrape_s = labels.scrape_s or _scrape_interval(source, asked, labels)
    max_age_s = max(
        max(tick.defaults.fresh_intervals * tick.defaults.collect_interval_s for tick in ticks),
        2.0 * (scrape_s or interval_s),
    )
    requests = [_request(target, True) for tick in ticks for target in tick.targets]
    longest_s = max(_window_s(tick, scrape_s) for tick in ticks)
    if start is not None:
        longest_s = (end - start).total_seconds()
    up = prometheus.up_state(
        asked,
        labels,
        requests,
        end=end.timestamp(),
        max_age_s=max_age_s,
        reach_s=longest_s + interval_s + 2.2 * (scrape_s or interval_s),
    )
    scrape_s = scrape_s or up.spacing_s
    plans = _plans(source, ticks, end, scrape_s)
    if start is not None:
        plans = [replace(plan, start=start, has_histograms=True) for plan in plans]
    earliest = min(plan.start for plan in plans).timestamp()
    stored = asked.names(earliest - 2 * (scrape_s or interval_s), end.timestamp())
    pools = _pools(plans, up, labels, end, has_rules=pooled.has_rules(stored))
    requests = [
        _request(target, plan.has_histograms, pools.get(target.pk, ()))
        for plan in plans
        for target in plan.tick.targets
        if _may_answer(target, up, labels)
    ]
    span = Span(
        start=earliest,
        end=end.timestamp(),
        scrape_s=scrape_s or interval_s,
        max_age_s=max_age_s,
    )
    samples = prometheus.read(asked, labels, requests, up, stored=stored, span=span)
    requested = {request.key for request in requests}
    seen_well = {
        str(target.pk): up.times.get(canonical(target.url, labels.same_hosts), ())
        for plan in plans
        for target in plan.tick.targets
    }
    for plan in plans:
        _windows(source, asked, plan, samples, span, requested, seen_well, result, trace, pools)
    result.warning = _warning(samples, result.refused)
    return result


@contextmanager
def no_cycle_search() -> Iterator[None]:
    """A large fleet makes a million small objects, none in a cycle; looking for cycles among them
    took half of the time of a collect at 4,000 workers (measured). May be nested."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _request(target: Target, has_histograms: bool, pool: PoolKey = ()) -> Request:
    match = {str(name): str(value) for name, value in target.match.items()}
    return Request(
        str(target.pk), target.url, loader.load(target.profile), match, has_histograms, pool
    )


def _pools(
    plans: Sequence[_Plan], up: UpState, labels: Labels, end: datetime, *, has_rules: bool
) -> dict[UUID, PoolKey]:
    """The targets whose histograms are read with their whole pool: where the server has recorded
    them, or there are too many to read one by one. Its labels must name one role of one
    deployment, all of it be up under one spelling, and no role have changed in the window."""
    due = sum(len(plan.tick.targets) for plan in plans if plan.has_histograms)
    if not up.pools or not due or not (has_rules or due > SINGLE_TARGETS):
        return {}
    start = min(plan.start for plan in plans)
    owners: dict[PoolKey, set[tuple[UUID, str, str]]] = {}
    keys: dict[UUID, PoolKey] = {}
    refused: set[PoolKey] = set()
    for plan in plans:
        tick = plan.tick
        for target in tick.targets:
            address = canonical(target.url, labels.same_hosts)
            key = up.pools.get(address, ())
            if target.scope != TargetScope.ENGINE or not key or not all(key):
                continue
            role = tick.roles_now[target.pk]
            owners.setdefault(key, set()).add((tick.deployment.pk, role, target.profile))
            keys[target.pk] = key
            if (
                plan.start != start
                or target.match
                or address not in up.good
                or len(up.texts.get(address, ())) != 1
                or cuts(tick.spans[target.pk], plan.start, end)
            ):
                refused.add(key)
    return {pk: key for pk, key in keys.items() if len(owners[key]) == 1 and key not in refused}


def _may_answer(target: Target, up: UpState, labels: Labels) -> bool:
    """Not if `up` knows it and sees it down; pushed data has no `up`, its samples decide."""
    address = canonical(target.url, labels.same_hosts)
    return address in up.good or address not in up.known


def _scrape_interval(source: Source, asked: Prometheus, labels: Labels) -> float | None:
    """As the server's configuration says; remembered for ten minutes."""
    key = f"telemetry.scrape_interval.{source.pk}.{crc32(repr((source.url, labels)).encode())}"
    known = cache.get(key)
    if known is None:
        known = scrape_interval(asked.configuration(), labels.jobs) or 0.0
        cache.set(key, known, _INTERVAL_KNOWN_S)
    return float(known) or None


def _plans(
    source: Source, ticks: Sequence[DeploymentTick], end: datetime, scrape_s: float | None
) -> list[_Plan]:
    ends = _ends(ticks, end, scrape_s)
    pools = sum(len({*tick.roles_now.values()}) for tick in ticks)
    slot = _slot(source, ticks[0].at)
    found = []
    for tick in ticks:
        shares = 1
        if pools > STAGGER_ABOVE_POOLS:
            shares = max(1, round(_window_s(tick, scrape_s) / source.interval_s))
        mine = crc32(tick.deployment.pk.bytes) % shares
        start = _start(tick, ends.get(tick.deployment.pk, ()), end, scrape_s)
        found.append(_Plan(tick, start, slot % shares == mine))
    return found


def _slot(source: Source, at: datetime) -> int:
    """The number of this tick on the source's beat; lateness does not change it."""
    beat = at
    if source.next_due_at is not None:
        behind = (source.next_due_at - at).total_seconds()
        if 0 < behind <= source.interval_s:
            beat = source.next_due_at - timedelta(seconds=source.interval_s)
    return round(beat.timestamp() * 1000) // max(1, round(source.interval_s * 1000))


def _window_s(tick: DeploymentTick, scrape_s: float | None) -> float:
    """The window is at least four scrapes long: a shorter one would pretend."""
    if scrape_s is None:
        return max(tick.defaults.window_s, UNKNOWN_WINDOW_S)
    return max(tick.defaults.window_s, SCRAPES_PER_WINDOW * scrape_s)


def _ends(
    ticks: Sequence[DeploymentTick], end: datetime, scrape_s: float | None
) -> dict[UUID, list[datetime]]:
    """The ends of stored windows at which this tick's may start, by deployment (one query)."""
    longest = max(_window_s(tick, scrape_s) + tick.defaults.collect_interval_s for tick in ticks)
    rows = StoredWindow.objects.filter(
        deployment__in=[tick.deployment.pk for tick in ticks],
        end__lt=end,
        end__gte=end - timedelta(seconds=longest + 60),
    )
    found: dict[UUID, list[datetime]] = {}
    for deployment, at in rows.order_by().values_list("deployment_id", "end").distinct():
        found.setdefault(deployment, []).append(at)
    return found


def _start(
    tick: DeploymentTick, ends: Iterable[datetime], end: datetime, scrape_s: float | None
) -> datetime:
    """An earlier tick's end, so that windows tile; else a whole window back: a Prometheus has
    history that we have not read yet."""
    window_s, interval_s = _window_s(tick, scrape_s), tick.defaults.collect_interval_s
    exact = end - timedelta(seconds=window_s)
    found = window_start(ends, end, window_s, interval_s)
    near = abs((found - exact).total_seconds()) <= interval_s / 2
    return found if near else exact


def _windows(
    source: Source,
    asked: Prometheus,
    plan: _Plan,
    samples: Samples,
    span: Span,
    requested: set[str],
    seen_well: Mapping[str, Sequence[float]],
    result: Collected,
    trace: str,
    pools: Mapping[UUID, PoolKey],
) -> None:
    tick, end = plan.tick, datetime.fromtimestamp(span.end, UTC)
    mine = replace(span, start=plan.start.timestamp())
    histories = []
    for target in tick.targets:
        readings: list[tuple[datetime, Reading]] = []
        if str(target.pk) in requested:
            collector = samples.collectors[loader.load(target.profile).profile]
            spans = tick.spans[target.pk] if target.scope == TargetScope.ENGINE else ()
            readings = collector.readings(
                str(target.pk), mine, keep_all=bool(cuts(spans, plan.start, end))
            )
            if not readings or readings[0][0] > plan.start:
                first_at = collector.first_at(str(target.pk))
                readings = with_silence(readings, first_at, seen_well[str(target.pk)], mine)
        if readings:
            result.answered.add(target.pk)
        else:
            result.errors[target.pk] = "the Prometheus does not scrape it, or sees it down"
        histories.append(history_of(tick, target, readings))
    torn = {tick.roles_now[t.pk] for t in tick.targets if str(t.pk) in samples.conflicts}
    windows = windows_of_tick(
        histories,
        start=plan.start,
        end=end,
        expected=tick.expected,
        source=_trace(source, asked, tick, span, bool(torn)) + trace,
        is_partial=asked.is_partial,
        with_histograms=plan.has_histograms and not samples.lacking,
        phase_s=span.scrape_s,
        refused=result.refused,
    )
    if plan.has_histograms and not samples.lacking and pools:
        by_key = {history.owner: history for history in histories}
        windows = tuple(
            with_pools(window, members_of(tick, window, pools), by_key, samples.pools)
            for window in windows
        )
    for window in windows:
        if window.scope in torn:
            window = replace(window, is_partial=True, is_conflict=True)
        result.windows.append((tick.deployment.pk, window))


def _trace(
    source: Source, asked: Prometheus, tick: DeploymentTick, span: Span, has_conflict: bool
) -> str:
    """Where the figures come from, and what was done to them."""
    parts = [asked.name]
    if _window_s(tick, span.scrape_s) > tick.defaults.window_s:
        wide = _window_s(tick, span.scrape_s)
        parts.append(f"window widened to {wide:g} s: scraped every {span.scrape_s:g} s")
    if has_conflict:
        parts.append("copies of a target disagree by more than 20 %")
    return f"{source.name} ({'; '.join(parts)})"


def _warning(samples: Samples, refused: Sequence[Defect]) -> str:
    parts = [sentence((), refused)] if refused else []
    if samples.lacking:
        parts.append(f"no histograms: {samples.lacking}")
    if samples.native:
        names = ", ".join(samples.native[:3])
        parts.append(f"stored as native histograms, which are not readable here: {names}")
    if samples.defects:
        parts.append(f"{samples.defects} values were NaN, infinite or too large and not read")
    if samples.conflicts:
        parts.append(f"copies of {len(samples.conflicts)} targets disagree by more than 20 %")
    return "; ".join(parts)
