"""Finding deployments in a source: reads names and labels, never values, and groups them."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final

from apps.accounts.domain.authorize import Viewer
from apps.audit import services as audit
from apps.common.fetch import FetchError, fetch
from apps.engines import loader
from apps.engines.exposition import Series, parse
from apps.fleet import connect
from apps.fleet import selectors as fleet

from ..collectors import prometheus as collector
from ..collectors.client import Prometheus, SourceFailed
from ..collectors.intervals import seconds
from ..collectors.probe import Probe, ProbeFailed
from ..collectors.prometheus import Labels, Request
from ..collectors.promql import Matcher, Selector, any_of, label
from ..collectors.ranges import Span
from ..domain.discovery import discover, undecided
from ..domain.found import Discovery, Observation, ScrapedTarget, SeriesLabels
from ..domain.identity import instance_key
from ..domain.recognise import (
    CatalogEntry,
    anchors,
    ladders,
    latency_buckets,
    profiles,
    spelled,
)
from ..domain.roles import MIXED, Behaviour, behaviour_of
from ..domain.windows import ENGINE, TargetHistory, windows_of_tick
from .source_test import MAX_ADDRESSES, bearer, metrics_address, plain_address, require_connect

#: Longest a discovery may take, in seconds.
FIND_S: Final = 20.0
#: Behaviour is judged over this span; instances asked for at most.
BEHAVIOUR_S: Final = 600.0
MAX_UNDECIDED: Final = 200
_READERS: Final = 8


def find_in_prometheus(
    *,
    actor: Viewer,
    now: datetime,
    url: str,
    token: str = "",
    parameters: Mapping[str, Any] | None = None,
) -> Discovery:
    """Deployments that a Prometheus scrapes. Raises NotAllowed, ProbeFailed, ValueError (a label
    name that is none)."""
    require_connect(actor)
    labels = Labels.from_parameters(parameters or {})
    address = plain_address(url)
    policy = connect.fetch_policy()
    probe = Probe(address, policy=policy, deadline_s=FIND_S, headers=bearer(token))
    observed = _observe(probe, labels)
    open_ones = undecided(observed)[:MAX_UNDECIDED]
    client = Prometheus(address, policy=policy, deadline_s=FIND_S / 2, headers=bearer(token))
    found = discover(observed, catalog(), _behaviours(client, labels, open_ones, observed.at))
    _record(actor, now, address, found)
    return found


def find_at_addresses(
    *,
    actor: Viewer,
    now: datetime,
    urls: Sequence[str],
    roles: Mapping[str, str] | None = None,
) -> Discovery:
    """Deployments behind a list of metrics addresses; `roles` (by metrics address) are what a
    router says of its workers. Raises NotAllowed."""
    require_connect(actor)
    told = {instance_key(url): role for url, role in (roles or {}).items()}
    wanted = list(dict.fromkeys(metrics_address(url) for url in urls))[:MAX_ADDRESSES]
    with ThreadPoolExecutor(_READERS, thread_name_prefix="connect") as pool:
        answers = list(pool.map(_scrape, wanted))
    targets, names, series = [], {}, []
    edges: list[tuple[str, str]] = []
    for target, samples in answers:
        edges += [(s.name, dict(s.labels).get("le", "")) for s in samples if "le" in dict(s.labels)]
        targets.append(replace(target, role=told.get(target.instance, "")))
        names[target.instance] = frozenset(item.name for item in samples)
        series += [SeriesLabels(target.instance, s.name, dict(s.labels)) for s in _told(samples)]
    bounds = {p.profile: steps for p in profiles() if (steps := ladders(edges, p.profile))}
    observed = Observation(tuple(targets), names, tuple(series), time.time(), bounds)
    found = discover(observed, catalog())
    _record(actor, now, f"{len(wanted)} addresses", found)
    return found


def catalog() -> tuple[CatalogEntry, ...]:
    """The accelerators with the names that exporters give them."""
    return tuple(
        CatalogEntry(row.slug, (row.name, *(str(name) for name in row.facts.get("aliases") or ())))
        for row in fleet.accelerators()
    )


def _observe(probe: Probe, labels: Labels) -> Observation:
    jobs = (Matcher(labels.job, "=~", any_of(labels.jobs)),) if labels.jobs else ()
    instance, job = label(labels.instance), label(labels.job)
    up = Selector(("up",), jobs)
    states = probe.vector(str(up))
    ages = {
        (row.get(instance, ""), row.get(job, "")): float(value)
        for row, value in probe.vector(f"timestamp({up})")
    }
    told = _active_targets(probe, instance)
    targets = tuple(_target(row, value == "1", ages, told, instance, job) for row, value in states)
    names: dict[str, set[str]] = {}
    series: list[SeriesLabels] = []
    for profile in profiles():
        every = Selector(tuple(sorted(spelled(profile.profile))), jobs)
        for row, _ in probe.vector(f"group by ({instance}, __name__) ({every})"):
            names.setdefault(row.get(instance, ""), set()).add(row.get("__name__", ""))
        if anchors(profile.profile):
            for row, _ in probe.vector(str(Selector(anchors(profile.profile), jobs))):
                told_labels = {k: v for k, v in row.items() if k not in ("__name__", instance, job)}
                series.append(
                    SeriesLabels(row.get(instance, ""), row.get("__name__", ""), told_labels)
                )
    frozen = {key: frozenset(found) for key, found in names.items()}
    return Observation(targets, frozen, tuple(series), time.time(), _ladders(probe, jobs))


def _ladders(probe: Probe, jobs: tuple[Matcher, ...]) -> dict[str, dict[str, tuple[float, ...]]]:
    found = {}
    for profile in profiles():
        names = tuple(sorted(latency_buckets(profile.profile)))
        if names:
            rows = probe.vector(f"group by (__name__, le) ({Selector(names, jobs)})")
            pairs = [(row.get("__name__", ""), row.get("le", "")) for row, _ in rows]
            if pairs:
                found[profile.profile] = ladders(pairs, profile.profile)
    return found


def _target(
    row: Mapping[str, str],
    is_up: bool,
    ages: Mapping[tuple[str, str], float],
    told: Mapping[str, Mapping[str, Any]],
    instance: str,
    job: str,
) -> ScrapedTarget:
    key = (row.get(instance, ""), row.get(job, ""))
    more = told.get(key[0], {})
    return ScrapedTarget(
        instance=key[0],
        job=key[1],
        url=str(more.get("scrapeUrl") or ""),
        labels={k: v for k, v in row.items() if k not in ("__name__", instance, job)},
        is_up=is_up,
        error=str(more.get("lastError") or "")[:200],
        sample_at=ages.get(key),
        interval_s=seconds(str(more.get("scrapeInterval") or "")),
    )


def _active_targets(probe: Probe, instance: str) -> dict[str, Mapping[str, Any]]:
    """Scrape addresses and intervals by instance; empty where the server does not tell (a querier
    in front of several)."""
    try:
        data = probe.get("/api/v1/targets", state="active")
    except ProbeFailed:
        return {}
    rows = data.get("activeTargets") if isinstance(data, Mapping) else None
    found: dict[str, Mapping[str, Any]] = {}
    for row in rows if isinstance(rows, list) else ():
        known = row.get("labels") if isinstance(row, Mapping) else None
        if isinstance(known, Mapping):
            found[str(known.get(instance, ""))] = row
    return found


def _behaviours(
    client: Prometheus, labels: Labels, wanted: Sequence[tuple[str, str]], at: float
) -> dict[str, Behaviour]:
    """What engines without any role label did; empty when the server would not say."""
    if not wanted:
        return {}
    requests = [Request(name, name, loader.load(profile)) for name, profile in wanted]
    start_s = at - BEHAVIOUR_S
    try:
        up = collector.up_state(client, labels, requests, end=at, max_age_s=BEHAVIOUR_S)
        span = Span(start_s, at, up.spacing_s or BEHAVIOUR_S / 4, BEHAVIOUR_S)
        stored = client.names(start_s, at)
        samples = collector.read(client, labels, requests, up, stored=stored, span=span)
    except SourceFailed:
        return {}
    histories = [
        TargetHistory(
            owner=request.key,
            scope=ENGINE,
            profile=request.profile,
            readings=samples.collectors[request.profile.profile].readings(
                request.key, span, keep_all=False
            ),
            role_now=MIXED,
        )
        for request in requests
    ]
    start, end = (datetime.fromtimestamp(moment, UTC) for moment in (start_s, at))
    windows = windows_of_tick(histories, start=start, end=end, expected={}, source="")
    return {
        name: behaviour_of(window, name)
        for window in windows
        for name in {name for name, _ in wanted} & set(window.reported)
    }


def _scrape(url: str) -> tuple[ScrapedTarget, tuple[Series, ...]]:
    instance = instance_key(url)
    try:
        result = fetch(
            url,
            policy=connect.fetch_policy(),
            headers={"Accept": "text/plain;version=0.0.4"},
            total_s=FIND_S / 2,
        )
    except FetchError as error:
        return ScrapedTarget(instance, "", url, is_up=False, error=str(error)), ()
    if result.status != 200:
        told = f"the target answered HTTP {result.status}"
        return ScrapedTarget(instance, "", url, is_up=False, error=told), ()
    series = parse(result.text()).series
    return ScrapedTarget(instance, "", url, is_up=True, sample_at=time.time()), series


def _told(samples: Sequence[Series]) -> list[Series]:
    """The series whose labels tell what is served."""
    wanted = {name for profile in profiles() for name in anchors(profile.profile)}
    return [item for item in samples if item.name in wanted]


def _record(actor: Viewer, now: datetime, where: str, found: Discovery) -> None:
    audit.record(
        actor=actor,
        now=now,
        action="source.find",
        object_kind="source",
        object_id="",
        object_label=where,
        after={
            "deployments": len(found.deployments),
            "workers": sum(len(item.workers) for item in found.deployments),
        },
    )
