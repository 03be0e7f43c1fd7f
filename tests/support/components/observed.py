"""What both of our collectors make of real components over one interval.

The same components stand twice in the inventory: once read by a direct scrape, once through a real
Prometheus that scrapes them. `begin` is the first tick and `end` the second; whatever the
components did in between is in the windows of `end`.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from django.test import override_settings

from apps.accounts.domain.authorize import SYSTEM
from apps.engines.codec import window_from_json
from apps.engines.window import (
    CounterIncrease,
    GaugeValue,
    HistogramIncrease,
    Signal,
    Window,
)
from apps.fleet import connect
from apps.fleet import selectors as fleet_selectors
from apps.fleet import services as fleet
from apps.fleet.domain.defaults import DEMO
from apps.fleet.models import Accelerator, Deployment, Worker
from apps.telemetry import selectors, services
from apps.telemetry.collectors.client import Prometheus as Client
from apps.telemetry.domain.figures import DeploymentFigures
from apps.telemetry.models import Source, StoredWindow
from tests.support.components.process import until
from tests.support.prometheus import Prometheus

DIRECT, ASKED = "direct", "asked"
KINDS = (DIRECT, ASKED)
#: Seconds between two scrapes of the Prometheus.
SCRAPE_S = 0.5
#: Shortest window, so that what a Prometheus adds at its edges is small against it.
WINDOW_S = 6.0

Windows = Mapping[str, Mapping[str, Window]]


@dataclass(frozen=True, slots=True)
class Reporter:
    """A worker as the inventory holds it."""

    name: str
    role: str
    url: str
    metrics_url: str


@dataclass(frozen=True, slots=True)
class Subject:
    """A deployment of real components. `parameters` name the router's or frontend's metrics."""

    slug: str
    engine: str
    reporters: tuple[Reporter, ...]
    parameters: Mapping[str, str]

    @property
    def metrics_urls(self) -> list[str]:
        own = [url for name, url in self.parameters.items() if name.endswith("metrics_url")]
        return [*own, *(reporter.metrics_url for reporter in self.reporters)]


@dataclass
class Observer:
    """Both collectors on some subjects. Times are the real clock's."""

    prometheus: Prometheus
    prometheus_urls: frozenset[str]
    subjects: dict[str, frozenset[str]]
    sources: dict[tuple[str, str], Source] = field(default_factory=dict)
    _began: datetime | None = None
    _ended: datetime | None = None
    _gone: frozenset[str] = frozenset()

    def begin(self) -> None:
        """The first tick, once the Prometheus has seen everything as it is now."""
        self._settle()
        self._began = self._tick()
        self._settle()

    def end(self, gone: Collection[str] = (), *, window_s: float = WINDOW_S) -> dict[str, Windows]:
        """The second tick: windows by subject, collector and scope, of at least `window_s`. It is
        the first tick of what may follow. `gone`: metrics addresses that answer no more."""
        assert self._began is not None
        self._gone = frozenset(gone)
        began = self._began
        time.sleep(max(0.0, window_s - (datetime.now(UTC) - began).total_seconds()))
        self._settle()
        self._ended = self._tick()
        found: dict[str, Windows] = {}
        for slug in {slug for slug, _ in self.sources}:
            found[slug] = {kind: self._windows(slug, kind) for kind in KINDS}
            for windows in found[slug].values():
                starts = {scope: window.start for scope, window in windows.items()}
                assert set(starts.values()) == {began}, (began, self._ended, starts)
        self._began = self._ended
        self._settle()
        return found

    def figures(self, slug: str, kind: str) -> DeploymentFigures:
        """The figures at the last tick."""
        assert self._ended is not None
        deployment = self.sources[slug, kind].deployment
        assert deployment is not None
        return selectors.figures(deployment, self._ended)

    def stored(self, name: str, instance: str, **labels: str) -> float | None:
        """The sum of a metric's series of one instance as the Prometheus holds it now, asked
        through our own client; None if there is no such series."""
        client = Client(self.prometheus.url, policy=connect.fetch_policy(), deadline_s=10)
        matchers = "".join(f',{key}=~"{value}"' for key, value in labels.items())
        query = f'sum({{__name__="{name}",instance="{urlsplit(instance).netloc}"{matchers}}})'
        rows = client.query(query, time.time())
        return rows[0].value if rows else None

    def _settle(self) -> None:
        """Wait until every living target was scraped after now."""
        now = time.time()
        client = Client(self.prometheus.url, policy=connect.fetch_policy(), deadline_s=60)
        wanted = {urlsplit(url).netloc for url in self.prometheus_urls - self._gone}

        def is_scraped() -> bool:
            rows = client.query("timestamp(up) and up == 1", time.time())
            seen = {row.labels["instance"] for row in rows if row.value > now + 0.05}
            return wanted <= seen

        until(is_scraped, 40, f"{len(wanted)} targets are scraped")

    def _tick(self) -> datetime:
        now = datetime.now(UTC)
        began = self._began or now
        defaults = replace(
            DEMO,
            collect_interval_s=1.0,
            fresh_intervals=10.0,
            window_s=(now - began).total_seconds(),
        )
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(fleet_selectors, "defaults_for", lambda deployment: defaults)
            for key, source in self.sources.items():
                result = services.collect_source(source_id=source.pk, now=now, owner="components")
                assert result is not None and not result.error, (key, result)
                assert result.targets - result.answered == len(self._silent(key[0])), (key, result)
        return now

    def _silent(self, slug: str) -> frozenset[str]:
        return self._gone & self.subjects[slug]

    def _windows(self, slug: str, kind: str) -> dict[str, Window]:
        rows = StoredWindow.objects.filter(
            deployment=self.sources[slug, kind].deployment, end=self._ended
        )
        return {
            row.scope: window_from_json(row.payload, scope=row.scope, start=row.start, end=row.end)
            for row in rows
        }


@contextmanager
def observer(subjects: Sequence[Subject], folder: Path) -> Iterator[Observer]:
    """Inventory, sources and a Prometheus for these subjects. Needs the database."""
    urls = sorted({url for subject in subjects for url in subject.metrics_urls})
    prometheus = Prometheus([urlsplit(url).netloc for url in urls], SCRAPE_S, folder)
    loopback = frozenset({prometheus.port, *(urlsplit(url).port or 0 for url in urls)})
    found = Observer(
        prometheus,
        frozenset(urls),
        {subject.slug: frozenset(subject.metrics_urls) for subject in subjects},
    )
    early = datetime.now(UTC) - timedelta(hours=1)
    with override_settings(FULCRUM_LOOPBACK_PORTS=loopback):
        try:
            prometheus.start()
            cluster = fleet.register_cluster(
                actor=SYSTEM, now=early, slug="lab", name="Lab", uid="lab", mode_cap="auto"
            )
            Accelerator.objects.get_or_create(
                slug="h200-sxm", defaults={"vendor": "nvidia", "name": "H200"}
            )
            for subject in subjects:
                for kind in KINDS:
                    deployment = _deployment(subject, kind, cluster, early)
                    found.sources[subject.slug, kind] = Source.objects.create(
                        name=f"{subject.slug} {kind}",
                        cluster=cluster,
                        deployment=deployment,
                        kind="scrape" if kind == DIRECT else "prometheus",
                        url="" if kind == DIRECT else prometheus.url,
                        interval_s=1,
                        created_at=early,
                        parameters={"jobs": ["fleet"]},
                    )
            yield found
        finally:
            prometheus.stop()


def _deployment(subject: Subject, kind: str, cluster: Any, early: datetime) -> Deployment:
    name = f"{subject.slug}-{kind}"
    deployment: Deployment = fleet.register_deployment(
        actor=SYSTEM, now=early, cluster=cluster, slug=name, name=name, served_model="model",
        environment="test", preset="demo",
    )  # fmt: skip
    roles = [reporter.role for reporter in subject.reporters]
    for role in dict.fromkeys(roles):
        fleet.declare_pool(
            actor=SYSTEM, now=early, deployment=deployment, role=role, accelerator="h200-sxm",
            devices_per_worker=Decimal(1), engine=subject.engine, engine_version="",
            wanted=roles.count(role), facts={},
        )  # fmt: skip
    for reporter in subject.reporters:
        fleet.declare_worker(
            now=early, deployment=deployment, name=reporter.name, url=reporter.url,
            role=reporter.role, metrics_url=reporter.metrics_url, bootstrap_port=None,
        )  # fmt: skip
    Worker.objects.filter(deployment=deployment).update(serving="serving")
    fleet.connect_backend(
        actor=SYSTEM, now=early, deployment=deployment, adapter="noop", address="",
        parameters=dict(subject.parameters),
    )  # fmt: skip
    deployment.refresh_from_db()
    return deployment


def total(window: Window, signal: Signal) -> float | None:
    """Increase, last value or observations of a signal; None if it was not found."""
    value = window.values.get(signal)
    if value is None:
        return None
    if isinstance(value, CounterIncrease):
        return value.increase
    if isinstance(value, GaugeValue):
        return value.total
    assert isinstance(value, HistogramIncrease)
    return value.count


def agrees(kind: str, window: Window, signal: Signal, expected: float) -> bool:
    """True if a total is what was expected. A direct scrape is exact. A Prometheus stretches an
    increase from the first and last scrape inside the window to its edges, by less than one
    interval at either end (its `increase` is defined so), a little more where a scrape was late."""
    found = total(window, signal)
    if found is None:
        return False
    if kind == DIRECT:
        return round(found, 6) == expected
    stretch = window.seconds / (window.seconds - 3 * SCRAPE_S)
    return expected - 1e-6 <= found <= expected * stretch + 1e-6
