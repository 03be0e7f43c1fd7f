"""Both collectors on the same fleet over the same interval give the same windows.

A real Prometheus scrapes the metric servers that the direct collector reads. Meanwhile an engine
restarts, another switches its role, and a failure series is born.
"""

from __future__ import annotations

import json
import math
import os
import random
import shutil
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

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
from apps.fleet.models import Accelerator, AttributeSource, Deployment, Span
from apps.telemetry import selectors, services
from apps.telemetry.models import Source, StoredWindow
from apps.telemetry.services import through_prometheus, through_scrape
from apps.telemetry.services.tick import DeploymentTick, prepare
from tests.integration.telemetry.conftest import Fleet, metric_fleet

__all__ = ["metric_fleet"]

pytestmark = [pytest.mark.live, pytest.mark.django_db]

FAST = replace(DEMO, collect_interval_s=1.0, window_s=12.0, diagnosis_window_s=12.0)
RATE = 60.0


@dataclass
class RealPrometheus:
    url: str
    pid: int


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture
def prometheus(metric_fleet: Fleet, tmp_path: Path, settings) -> Iterator[RealPrometheus]:
    binary = shutil.which("prometheus")
    if binary is None:
        if os.environ.get("CI") == "true":
            pytest.fail("prometheus is not on PATH")
        pytest.fail("prometheus is not on PATH")
    port = free_port()
    targets = [f"127.0.0.1:{server.port}" for server in metric_fleet.servers.values()]
    config = tmp_path / "prometheus.yml"
    config.write_text(
        "global: {scrape_interval: 1s, scrape_timeout: 900ms}\n"
        "scrape_configs:\n"
        "  - job_name: fleet\n"
        f"    static_configs: [{{targets: {targets!r}}}]\n",
        encoding="utf-8",
    )
    process = subprocess.Popen(
        [
            binary,
            f"--config.file={config}",
            f"--storage.tsdb.path={tmp_path / 'data'}",
            f"--web.listen-address=127.0.0.1:{port}",
            "--log.level=error",
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    settings.FULCRUM_LOOPBACK_PORTS = settings.FULCRUM_LOOPBACK_PORTS | {port}
    try:
        wait_ready(f"http://127.0.0.1:{port}/-/ready", 20)
        yield RealPrometheus(f"http://127.0.0.1:{port}", process.pid)
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(5)


def wait_ready(url: str, seconds: float) -> None:
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        try:
            with urllib.request.urlopen(url, timeout=1) as answer:
                if answer.status == 200:
                    return
        except (urllib.error.URLError, OSError):
            time.sleep(0.1)
    pytest.fail(f"{url} was not ready within {seconds} s")


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


@pytest.fixture
def demo_fleet(tmp_path: Path) -> Iterator[dict[str, Any]]:
    """The state of a running demo fleet: simulated engines behind real smg routers."""
    if not (Path(sys.executable).parent / "smg").exists() and shutil.which("smg") is None:
        if os.environ.get("CI") == "true":
            pytest.fail("smg is not installed")
        pytest.fail("smg is not installed: run make setup")
    path = tmp_path / "demo.json"
    process = subprocess.Popen(
        [sys.executable, "-m", "apps.simulation.demo", "--state", str(path), "--seed", "3",
         "--shift-after", "600", "--parent-pid", str(os.getpid())],
        stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        ends = time.monotonic() + 60
        while not path.exists():
            assert process.poll() is None and time.monotonic() < ends, "the fleet did not start"
            time.sleep(0.1)
        yield json.loads(path.read_text())
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(5)


def control(fleet: dict[str, Any], path: str, method: str = "GET") -> dict[str, Any]:
    request = urllib.request.Request(
        fleet["control_url"] + path, method=method, data=b"{}" if method == "POST" else None
    )
    with urllib.request.urlopen(request, timeout=10) as answer:
        found: dict[str, Any] = json.load(answer)
        return found


def declare(fleet: dict[str, Any], now: datetime) -> dict[str, Deployment]:
    """The demo fleet's inventory, with one source for the cluster."""
    Accelerator.objects.get_or_create(slug="h200-sxm", defaults={"vendor": "nvidia", "name": "H"})
    cluster = fleet_services.register_cluster(
        actor=SYSTEM, now=now, slug="demo", name="Demo", uid="demo", mode_cap="observe"
    )
    found = {}
    for item in fleet["deployments"]:
        deployment = fleet_services.register_deployment(
            actor=SYSTEM, now=now, cluster=cluster, slug=item["slug"], name=item["slug"],
            served_model=item["model"], environment="demo", preset="demo",
        )  # fmt: skip
        for role in ("prefill", "decode"):
            fleet_services.declare_pool(
                actor=SYSTEM, now=now, deployment=deployment, role=role, accelerator="h200-sxm",
                devices_per_worker=Decimal(1), engine=item["engine"], wanted=1, facts={},
                engine_version=item["engine_version"],
            )  # fmt: skip
        for worker in item["workers"]:
            fleet_services.declare_worker(
                now=now, deployment=deployment, name=worker["name"], url=worker["url"],
                role=worker["role"], metrics_url=worker["metrics_url"], bootstrap_port=None,
            )  # fmt: skip
        fleet_services.connect_backend(
            actor=SYSTEM, now=now, deployment=deployment, adapter="noop", address="",
            parameters={"metrics_url": item["router"]["metrics_url"]},
        )  # fmt: skip
        found[item["slug"]] = deployment
    services.create_source(actor=SYSTEM, now=now, cluster=cluster, kind="scrape", interval_s=4)
    return found


@pytest.mark.parametrize("seconds", [40])
def test_the_demo_fleet_is_read_as_its_clients_saw_it(db, settings, demo_fleet, seconds):
    urls = [d["router"]["metrics_url"] for d in demo_fleet["deployments"]]
    urls += [w["metrics_url"] for d in demo_fleet["deployments"] for w in d["workers"]]
    settings.FULCRUM_LOOPBACK_PORTS = frozenset(int(urlsplit(url).port or 0) for url in urls)
    begun = datetime.now(UTC)
    deployments = declare(demo_fleet, begun - timedelta(minutes=1))
    source = Source.objects.get()
    before = control(demo_fleet, "/truth")["totals"]

    def tick() -> datetime:
        now = datetime.now(UTC)
        result = services.collect_source(source_id=source.pk, now=now, owner="live")
        assert result is not None and result.answered == result.targets == len(urls)
        return now

    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        tick()
        time.sleep(2)
    control(demo_fleet, "/stop_load", "POST")
    ends = time.monotonic() + 40
    while time.monotonic() < ends:
        last = tick()
        time.sleep(2)
        totals = control(demo_fleet, "/truth")["totals"]
        if all(item["in_flight"] == 0 for item in totals.values()):
            break
    last = tick()
    truth = control(demo_fleet, "/truth")
    for slug, deployment in deployments.items():
        start = StoredWindow.objects.filter(deployment=deployment).earliest("end").end
        span = (last - start).total_seconds()
        found = selectors.figures_over(deployment, last, span)
        missed = before[slug]["sent"]
        sent, ok = truth["totals"][slug]["sent"], truth["totals"][slug]["ok"]
        # Requests before the first collect (a handful) are all that may be missing.
        arrived = found.arrivals_per_s.number() * found.span_s
        completed = found.completions_per_s.number() * found.span_s
        tokens_in = found.input_tokens_per_s.number() * found.span_s
        tokens_out = found.output_tokens_per_s.number() * found.span_s
        assert sent - missed - 8 <= round(arrived) <= sent
        assert ok - missed - 8 <= round(completed) <= ok
        assert tokens_in == pytest.approx(truth["totals"][slug]["tokens_in"], rel=0.15)
        assert tokens_out == pytest.approx(truth["totals"][slug]["tokens_out"], rel=0.15)
        assert tokens_in <= truth["totals"][slug]["tokens_in"] + 1
        assert tokens_out <= truth["totals"][slug]["tokens_out"] + 1
        rows = [
            row for row in truth["requests"]
            if row["deployment"] == slug and row["ok"] and row["start"] > start.timestamp()
        ]  # fmt: skip
        for histogram_of, key in ((found.ttft.histogram, "ttft"), (found.tpot.histogram, "tpot")):
            values = sorted(row[key] for row in rows if row[key] is not None)
            true = values[max(0, math.ceil(0.95 * len(values)) - 1)]
            quantile = histogram.quantile(histogram_of, 0.95)
            assert quantile is not None
            bounds = (0.0, *histogram_of.bounds)
            place = bounds.index(quantile.lower)
            upper = bounds[min(len(bounds) - 1, place + 2)]
            assert bounds[max(0, place - 1)] <= true <= upper, (slug, key, quantile)
        assert found.prefill is not None and found.decode is not None
        assert found.prefill.forward_seconds_per_s.value
        assert found.prefill.queue_time_mean.is_known
        assert found.prefill.stage_time_mean.number() > 0
        moved = found.prefill.kv_transfer_mean, found.decode.kv_transfer_mean
        assert any(figure.is_known and figure.number() > 0 for figure in moved)
        assert found.decode.kv_capacity_tokens.number() > 0
        for figure in (found.prefill.waiting, found.decode.running, found.decode.kv_used):
            assert figure.state is State.OK
