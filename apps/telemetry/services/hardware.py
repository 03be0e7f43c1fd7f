"""GPUs and hosts of a tick: read their exporters, join them to workers, make windows.

Called once per collect, after the engines were read, with the same windows in time. What fails
here never fails the collect: figures of hardware stand beside the others, they carry none.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID

from apps.engines import loader
from apps.engines.readings import from_json, to_json
from apps.engines.schema import Profile
from apps.engines.window import Window
from apps.fleet import connect
from apps.fleet import selectors as fleet
from apps.fleet.domain.spans import SpanFacts, cuts
from apps.fleet.models import Serving, Worker

from ..collectors.client import Prometheus, SourceFailed
from ..collectors.hardware import units_of_prometheus, units_of_readings
from ..collectors.scrape import TargetRequest, scrape
from ..domain.hardware import Part, hardware_windows
from ..domain.joining import DeclaredDevice, Joined, Joiner, WorkerPlace
from ..domain.units import UnitSeries
from ..models import ExporterSample, HardwareCoverage, Source, SourceKind
from .tick import Collected, DeploymentTick

log = logging.getLogger(__name__)

#: The profiles of exporters, by what they describe. GPUs come first: they name their hosts.
PROFILES: Final[Mapping[Part, str]] = {"device": "dcgm", "host": "node"}
#: Longest this may take of a collect, seconds.
DEADLINE_S: Final = 4.0
#: How long a source without exporters is left alone.
LOOK_AGAIN: Final = timedelta(minutes=5)
NAMED: Final = 20

Span = tuple[datetime, datetime]


@dataclass(frozen=True, slots=True)
class Exporter:
    """An exporter that a direct scrape reads."""

    profile: str
    url: str
    node: str = ""


def add_windows(
    source: Source,
    ticks: Sequence[DeploymentTick],
    headers: Mapping[str, str],
    collected: Collected,
    now: datetime,
) -> None:
    """Add the hardware windows of this tick to what was collected (scopes `<role>/device` and
    `<role>/host`), and note how many GPUs and hosts were joined."""
    spans = _spans(collected)
    if collected.error or not spans or not _is_due(source, now):
        return
    workers = _workers([tick for tick in ticks if tick.deployment.pk in spans], spans)
    name = source.name
    try:
        if source.kind == SourceKind.PROMETHEUS:
            found = _through_prometheus(source, headers, spans, workers, ticks)
        else:
            found = _through_scrape(source, spans, now)
            name = f"{source.name} (direct scrape)"
    except (SourceFailed, ValueError) as error:
        log.warning("hardware of source %s: %s", source.pk, error)
        _note(source, now, {}, str(error))
        return
    everyone = [worker for mine in workers.values() for worker in mine]
    totals: dict[Part, Joined] = {}
    joiner = Joiner(everyone)
    for part, profile_name in PROFILES.items():
        profile = loader.load(profile_name)
        for span, units in found.units.get(part, {}).items():
            joined = joiner.devices(units) if part == "device" else joiner.hosts(units)
            totals[part] = joined
            for deployment_id in (key for key, mine in spans.items() if mine == span):
                windows = hardware_windows(
                    part,
                    profile,
                    joined,
                    workers.get(deployment_id, ()),
                    start=span[0],
                    end=span[1],
                    source=name,
                    is_partial=found.is_partial,
                )
                collected.windows += [(deployment_id, window) for window in windows]
    _note(source, now, totals, found.error)


@dataclass(slots=True)
class _Found:
    """Units by part and time span."""

    units: dict[Part, dict[Span, tuple[UnitSeries, ...]]]
    is_partial: bool = False
    error: str = ""


def _spans(collected: Collected) -> dict[UUID, Span]:
    """The time that each deployment's windows of this tick cover."""
    found: dict[UUID, Span] = {}
    for deployment_id, window in collected.windows:
        found[deployment_id] = _wider(found.get(deployment_id), window)
    return found


def _wider(span: Span | None, window: Window) -> Span:
    if span is None:
        return window.start, window.end
    return min(span[0], window.start), max(span[1], window.end)


def _is_due(source: Source, now: datetime) -> bool:
    if source.kind == SourceKind.SCRAPE:
        return bool(source.parameters.get("exporters"))
    return not HardwareCoverage.objects.filter(
        source=source, look_at__gt=now, devices_seen=0, hosts_seen=0
    ).exists()


def _workers(
    ticks: Sequence[DeploymentTick], spans: Mapping[UUID, Span]
) -> dict[UUID, tuple[WorkerPlace, ...]]:
    """Living workers per deployment, with their GPUs and their roles over the window."""
    deployments = {tick.deployment.pk: tick.deployment for tick in ticks}
    rows = list(
        Worker.objects.filter(
            deployment__in=list(deployments), ended_at__isnull=True
        ).prefetch_related("devices__node", "devices__workers")
    )
    earliest = min(start for start, _ in spans.values())
    latest = max(end for _, end in spans.values())
    history: dict[UUID, list[SpanFacts]] = {}
    for span in fleet.role_spans([row.pk for row in rows], earliest, latest):
        facts = SpanFacts(span.value, span.valid_from, span.valid_to)
        history.setdefault(span.subject_id, []).append(facts)
    found: dict[UUID, list[WorkerPlace]] = {}
    for row in rows:
        devices = tuple(
            DeclaredDevice(
                device.node.name,
                device.index,
                device.share < 1 or sum(_is_there(w) for w in device.workers.all()) > 1,
            )
            for device in row.devices.all()
        )
        place = WorkerPlace(
            url=row.url,
            name=row.name,
            namespace=deployments[row.deployment_id].namespace,
            role_now=row.role,
            roles=tuple(history.get(row.pk, ())),
            devices=devices,
        )
        found.setdefault(row.deployment_id, []).append(place)
    return {key: tuple(places) for key, places in found.items()}


def _is_there(worker: Worker) -> bool:
    """False for a worker that has ended or that its router no longer knows: it uses no GPU."""
    return worker.ended_at is None and worker.serving != Serving.ABSENT


def _through_prometheus(
    source: Source,
    headers: Mapping[str, str],
    spans: Mapping[UUID, Span],
    workers: Mapping[UUID, Sequence[WorkerPlace]],
    ticks: Sequence[DeploymentTick],
) -> _Found:
    """Ask once per profile and distinct span of time, however many pools there are; a role change
    inside a span cuts it for the queries too."""
    client = Prometheus(
        source.url, policy=connect.fetch_policy(), deadline_s=DEADLINE_S, headers=headers
    )
    jobs = tuple(str(job) for job in source.parameters.get("exporter_jobs", ()))
    max_age_s = max(t.defaults.fresh_intervals * t.defaults.collect_interval_s for t in ticks)
    found: dict[Part, dict[Span, tuple[UnitSeries, ...]]] = {}
    for part, name in PROFILES.items():
        profile = loader.load(name)
        for start, end in set(spans.values()):
            edges = {start, end}
            for key, mine in workers.items():
                if spans[key] == (start, end):
                    edges |= {cut for w in mine for cut in cuts(w.roles, start, end)}
            found.setdefault(part, {})[(start, end)] = units_of_prometheus(
                client,
                profile,
                jobs,
                sorted(edges),
                # A window is at least four scrapes long; a sample may be up to two old.
                max_age_s=max(max_age_s, (end - start).total_seconds() / 2),
            )
    return _Found(found, client.is_partial)


def _through_scrape(source: Source, spans: Mapping[UUID, Span], now: datetime) -> _Found:
    """Fetch the declared exporters at once, keep their samples, difference them."""
    exporters, error = exporters_of(source.parameters)
    profiles: dict[str, Profile] = {name: loader.load(name) for name in PROFILES.values()}
    answers = scrape(
        [TargetRequest(item.url, item.url, profiles[item.profile]) for item in exporters],
        policy=connect.fetch_policy(),
        deadline_s=DEADLINE_S,
    )
    error = next((answer.error for answer in answers.values() if answer.error), error)
    ExporterSample.objects.bulk_create(
        [
            ExporterSample(source=source, url=url, at=now, payload=to_json(answer.reading))
            for url, answer in answers.items()
            if answer.reading is not None
        ],
        update_conflicts=True,
        unique_fields=["source", "url", "at"],
        update_fields=["payload"],
    )
    earliest = min(start for start, _ in spans.values())
    rows = ExporterSample.objects.filter(source=source)
    rows.filter(at__lt=earliest).delete()
    readings: dict[str, list[tuple[datetime, Any]]] = {}
    for url, at, payload in (
        rows.filter(at__lte=now).order_by("at").values_list("url", "at", "payload")
    ):
        readings.setdefault(url, []).append((at, from_json(payload)))
    found: dict[Part, dict[Span, tuple[UnitSeries, ...]]] = {}
    for part, name in PROFILES.items():
        for span in set(spans.values()):
            units: list[UnitSeries] = []
            for item in exporters:
                if item.profile == name:
                    mine = [r for r in readings.get(item.url, ()) if span[0] <= r[0] <= span[1]]
                    units += units_of_readings(profiles[name], mine, span[1], node=item.node)
            found.setdefault(part, {})[span] = tuple(units)
    return _Found(found, error=error)


def exporters_of(parameters: Mapping[str, Any]) -> tuple[tuple[Exporter, ...], str]:
    """The exporters that a source declares, and what is wrong with one that was left out."""
    found: list[Exporter] = []
    error = ""
    raw = parameters.get("exporters")
    for item in raw if isinstance(raw, list) else []:
        profile = str(item.get("profile", "")) if isinstance(item, dict) else ""
        url = str(item.get("url", "")) if isinstance(item, dict) else ""
        if profile not in PROFILES.values() or not url:
            error = "an exporter needs a profile (dcgm or node) and a url"
            continue
        found.append(Exporter(profile, url, str(item.get("node", ""))))
    return tuple(found), error


def _note(source: Source, now: datetime, totals: Mapping[Part, Joined], error: str) -> None:
    devices, hosts = totals.get("device"), totals.get("host")
    unjoined = [place.name for joined in (devices, hosts) if joined for place in joined.unjoined]
    HardwareCoverage.objects.update_or_create(
        source=source,
        defaults={
            "at": now,
            "look_at": now + LOOK_AGAIN,
            "devices_seen": devices.seen if devices else 0,
            "devices_joined": devices.seen - len(devices.unjoined) if devices else 0,
            "hosts_seen": hosts.seen if hosts else 0,
            "hosts_joined": hosts.seen - len(hosts.unjoined) if hosts else 0,
            "shared": len(devices.shared) if devices else 0,
            "unjoined": unjoined[:NAMED],
            "error": error[:200],
        },
    )
