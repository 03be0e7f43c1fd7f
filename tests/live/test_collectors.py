"""Both collectors on the same fleet over the same interval give the same windows.

A real Prometheus scrapes the metric servers that the direct collector reads. Meanwhile an engine
restarts, another switches its role, and a failure series is born.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pytest

from apps.accounts.domain.authorize import SYSTEM
from apps.common.measurement import State
from apps.engines import histogram
from apps.engines.window import (
    CounterIncrease,
    GaugeValue,
    HistogramIncrease,
    Signal,
    Window,
)
from apps.fleet import selectors as fleet_selectors
from apps.fleet import services as fleet_services
from apps.fleet.domain.defaults import DEMO
from apps.fleet.models import AttributeSource, Deployment, Span, Worker
from apps.telemetry import selectors, services
from apps.telemetry.models import Source
from apps.telemetry.services import through_prometheus, through_scrape
from apps.telemetry.services.tick import DeploymentTick, prepare
from tests.integration.telemetry.conftest import Fleet, metric_fleet
from tests.support.prometheus import Prometheus

__all__ = ["metric_fleet"]

pytestmark = [pytest.mark.live, pytest.mark.django_db]

FAST = replace(DEMO, collect_interval_s=1.0, window_s=12.0, diagnosis_window_s=12.0)
RATE = 60.0


@pytest.fixture
def prometheus(metric_fleet: Fleet, tmp_path: Path, settings) -> Iterator[Prometheus]:
    targets = [f"127.0.0.1:{server.port}" for server in metric_fleet.servers.values()]
    found = Prometheus(targets, 1.0, tmp_path)
    settings.FULCRUM_LOOPBACK_PORTS = settings.FULCRUM_LOOPBACK_PORTS | {found.port}
    try:
        found.start()
        yield found
    finally:
        found.stop()


class Traffic:
    """A steady stream of requests; d1 stops taking any when it is about to switch."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet
        self.decode = ["d0", "d1"]
        self.prefill = ["p0", "p1"]
        self.failing = False
        self._stop = threading.Event()
        self._random = random.Random(7)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        started, sent = time.monotonic(), 0
        while not self._stop.wait(0.005):
            while sent < (time.monotonic() - started) * RATE:
                sent += 1
                self._one(sent)

    def _one(self, number: int) -> None:
        self.fleet.serve(
            ttft_s=self._random.expovariate(1 / 0.6),
            tpot_s=self._random.uniform(0.012, 0.024),
            prompt=800,
            output=100,
            prefill=self.prefill[number % len(self.prefill)],
            decode=self.decode[number % len(self.decode)],
        )
        if self.failing and number % 10 == 0:
            self.fleet.router.completed(status=503)

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(5)


@pytest.fixture
def traffic(metric_fleet: Fleet) -> Iterator[Traffic]:
    found = Traffic(metric_fleet)
    yield found
    found.stop()


@pytest.fixture
def fast_defaults(metric_fleet: Fleet, monkeypatch) -> None:
    monkeypatch.setattr(fleet_selectors, "defaults_for", lambda deployment: FAST)
    Source.objects.update(interval_s=1)
    # The fixture lives at a time of its own; here the clock is the real one.
    Span.objects.update(valid_from=datetime.now(UTC) - timedelta(hours=1))


def prometheus_source(fleet: Fleet, url: str) -> Source:
    cluster = fleet.deployment.cluster
    return Source.objects.create(
        name="prom",
        cluster=cluster,
        kind="prometheus",
        url=url,
        interval_s=1,
        created_at=datetime.now(UTC),
        parameters={"jobs": ["fleet"]},
    )


def scrape_once(fleet: Fleet, source: Source) -> datetime:
    now = datetime.now(UTC)
    result = services.collect_source(source_id=source.pk, now=now, owner="live")
    assert result is not None and result.answered == 5
    return now


def run_for(fleet: Fleet, source: Source, seconds: float) -> datetime:
    """Collect directly once a second; returns the last tick."""
    at = datetime.now(UTC)
    ends = time.monotonic() + seconds
    following = time.monotonic()
    while following < ends:
        at = scrape_once(fleet, source)
        following += 1.0
        time.sleep(max(0.0, following - time.monotonic()))
    return at


def both(fleet: Fleet, scrape: Source, prom: Source) -> tuple[dict[str, Window], dict[str, Window]]:
    """The windows of one tick by each collector."""
    deployment = Deployment.objects.select_related("backend").get(pk=fleet.deployment.pk)
    targets = services.sync_targets(deployment, scrape)
    now = datetime.now(UTC)
    tick: DeploymentTick = prepare(scrape, deployment, targets, now)
    direct = through_scrape.collect(scrape, [tick], 5)
    asked = through_prometheus.collect(prom, [tick], {}, 5)
    assert (direct.error, asked.error) == ("", "")
    assert len(asked.answered) == 5
    return (
        {window.scope: window for _, window in direct.windows},
        {window.scope: window for _, window in asked.windows},
    )


def per_second(window: Window, signal: Signal) -> float:
    value = window.values[signal]
    assert isinstance(value, CounterIncrease)
    return value.increase / window.seconds


def bucket_of(window: Window, signal: Signal, q: float) -> int:
    value = window.values[signal]
    assert isinstance(value, HistogramIncrease)
    found = histogram.quantile(value, q)
    assert found is not None
    return len(value.bounds) if found.upper is None else value.bounds.index(found.upper)


def compare(direct: Window, asked: Window) -> None:
    assert set(direct.values) == set(asked.values)
    assert set(direct.reported) == set(asked.reported)
    assert direct.expected == asked.expected
    for signal, value in direct.values.items():
        other = asked.values[signal]
        if isinstance(value, CounterIncrease):
            assert isinstance(other, CounterIncrease)
            mine, theirs = per_second(direct, signal), per_second(asked, signal)
            assert theirs == pytest.approx(mine, rel=0.1, abs=0.2), signal
            assert set(value.by_worker) == set(other.by_worker), signal
        elif isinstance(value, GaugeValue):
            assert isinstance(other, GaugeValue)
            assert other.by_worker == pytest.approx(dict(value.by_worker)), signal
        else:
            assert isinstance(other, HistogramIncrease)
            assert other.bounds == value.bounds
            assert other.count == pytest.approx(value.count, rel=0.1), signal
            if value.mean is None:
                continue
            assert other.mean == pytest.approx(value.mean, rel=0.1), signal
            for q in (0.5, 0.95, 0.99):
                step = abs(bucket_of(direct, signal, q) - bucket_of(asked, signal, q))
                assert step <= 1, (signal, q)
        assert direct.names[signal] == asked.names[signal]


def test_both_collectors_agree(metric_fleet, fast_defaults, prometheus, traffic):
    source = metric_fleet.source()
    prom = prometheus_source(metric_fleet, prometheus.url)
    metric_fleet.engine("d0").gauges(running=12, usage=0.42)
    run_for(metric_fleet, source, 14)

    def agree() -> None:
        direct, asked = both(metric_fleet, source, prom)
        assert set(direct) == set(asked) == {"router", "prefill", "decode"}
        for scope in direct:
            compare(direct[scope], asked[scope])
        assert per_second(asked["router"], Signal.REQUESTS_ARRIVED) == pytest.approx(RATE, rel=0.1)

    # A stall of the machine delays one collector's scrapes and not the other's; a true
    # difference of the two does not go away.
    ends = time.monotonic() + 40
    while True:
        run_for(metric_fleet, source, 2)
        try:
            return agree()
        except AssertionError:
            if time.monotonic() > ends:
                raise


def test_births_restarts_and_a_role_switch(metric_fleet, fast_defaults, prometheus, traffic):
    source = metric_fleet.source()
    prom = prometheus_source(metric_fleet, prometheus.url)
    run_for(metric_fleet, source, 10)
    traffic.failing = True  # its series is born now
    metric_fleet.engine("p0").clear()  # p0 restarts
    metric_fleet.engine("p0").gauges()
    traffic.decode = ["d0"]
    run_for(metric_fleet, source, 2)
    metric_fleet.engine("d1").switch("prefill")
    fleet_services.record_role(
        now=datetime.now(UTC),
        worker_id=metric_fleet.workers["d1"].pk,
        role="prefill",
        source=AttributeSource.REPORTED,
    )
    traffic.prefill = ["p0", "p1", "d1"]
    run_for(metric_fleet, source, 6)
    direct, asked = both(metric_fleet, source, prom)
    for scope in ("router", "decode", "prefill"):
        mine, theirs = direct[scope], asked[scope]
        assert mine.reported == theirs.reported
        assert set(mine.values) == set(theirs.values)
    for scope, signal in (
        ("router", Signal.REQUESTS_ARRIVED),
        ("router", Signal.REQUESTS_FAILED),
        ("prefill", Signal.INPUT_TOKENS),
        ("decode", Signal.OUTPUT_TOKENS),
    ):
        mine, theirs = per_second(direct[scope], signal), per_second(asked[scope], signal)
        # One scrape of one worker may fall on either side of the switch or the restart.
        assert theirs == pytest.approx(mine, rel=0.25), (scope, signal)
        assert mine > 0
    flipped = metric_fleet.url("d1")
    assert flipped in asked["prefill"].reported
    assert flipped not in asked["decode"].reported
    by_worker = asked["decode"].values[Signal.OUTPUT_TOKENS].by_worker
    assert by_worker[flipped] > 0
    assert flipped not in asked["decode"].values[Signal.RUNNING].by_worker


def test_a_prometheus_feeds_the_figures_and_its_death_is_seen(
    metric_fleet,
    fast_defaults,
    prometheus,
    traffic,
):
    metric_fleet.source().delete()
    source = prometheus_source(metric_fleet, prometheus.url)
    ends = time.monotonic() + 20
    found = None
    while time.monotonic() < ends:
        time.sleep(1)
        now = datetime.now(UTC)
        services.collect_source(source_id=source.pk, now=now, owner="live")
        found = selectors.figures(metric_fleet.deployment, now)
        # The rate is right from the first window on; percentiles need enough requests.
        if (found.ttft.p95.state, found.tpot.p95.state) == (State.OK, State.OK):
            break
    assert found is not None
    assert found.arrivals_per_s.number() == pytest.approx(RATE, rel=0.1)
    assert (found.ttft.p95.state, found.tpot.p95.state) == (State.OK, State.OK)
    assert "prom" in found.ttft.p95.trace.source

    metric_fleet.servers["d0"].stop()
    ends = time.monotonic() + 10
    while time.monotonic() < ends and found.decode.running.state is not State.PARTIAL:
        time.sleep(1)
        now = datetime.now(UTC)
        services.collect_source(source_id=source.pk, now=now, owner="live")
        found = selectors.figures(metric_fleet.deployment, now)
    assert found.decode.running.state is State.PARTIAL
    assert found.ttft.p95.state is State.OK

    os.kill(prometheus.pid, 15)
    time.sleep(1.5)
    now = datetime.now(UTC)
    result = services.collect_source(source_id=source.pk, now=now, owner="live")
    assert result is not None and result.error
    source.refresh_from_db()
    assert source.state == "down"
    late = now + timedelta(seconds=6)
    dead = selectors.figures(metric_fleet.deployment, late).ttft.p95
    assert dead.state is State.SOURCE_DOWN
    assert dead.value is not None


def test_one_source_of_the_cluster_reads_all_its_deployments(metric_fleet):
    """Each target once, and each deployment's windows from its own targets."""
    first = metric_fleet.deployment
    metric_fleet.source().delete()
    at = metric_fleet.at
    shared = services.create_source(
        actor=SYSTEM, now=at, cluster=first.cluster, kind="scrape", interval_s=5
    )
    second = fleet_services.register_deployment(
        actor=SYSTEM, now=at, cluster=first.cluster, slug="search", name="search",
        served_model="Qwen/Qwen3-32B", environment="demo", preset="demo",
    )  # fmt: skip
    fleet_services.declare_pool(
        actor=SYSTEM, now=at, deployment=second, role="decode", accelerator="h200-sxm",
        devices_per_worker=Decimal(1), engine="sglang", engine_version="0.5.23", wanted=1, facts={},
    )  # fmt: skip
    Worker.objects.filter(pk=metric_fleet.workers["d1"].pk).update(deployment=second)
    metric_fleet.engine("d0").gauges(running=3)
    metric_fleet.engine("d1").gauges(running=7)
    for seconds in (5, 10):
        result = services.collect_source(
            source_id=shared.pk, now=at + timedelta(seconds=seconds), owner="t"
        )
        assert result is not None
        assert (result.answered, result.targets) == (5, 5)
    now = at + timedelta(seconds=10)
    running = {d.slug: selectors.figures(d, now).decode.running for d in (first, second)}
    assert {slug: (f.state, f.value) for slug, f in running.items()} == {
        "chat": (State.OK, 3),
        "search": (State.OK, 7),
    }
