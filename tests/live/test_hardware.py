"""GPU and host exporters behind a real Prometheus: joined as behind the direct scrape.

The Prometheus gives its targets pod labels of their own, as in a cluster, so that the users of GPUs
arrive as `exported_pod`.
"""

from __future__ import annotations

import json
import threading
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from apps.engines.window import CounterIncrease, GaugeValue, Signal, Window
from apps.fleet.domain.defaults import DEMO
from apps.telemetry.models import HardwareCoverage, Source
from apps.telemetry.services import hardware
from apps.telemetry.services.tick import Collected, prepare
from tests.integration.telemetry.conftest import Fleet, metric_fleet
from tests.integration.telemetry.exporters import Dcgm, NodeExporter
from tests.integration.telemetry.metric_servers import MetricServer
from tests.support.prometheus import Prometheus

__all__ = ["metric_fleet"]

pytestmark = [pytest.mark.live, pytest.mark.django_db]

SPAN_S = 8
FAST = replace(DEMO, collect_interval_s=1.0, window_s=float(SPAN_S))


@pytest.fixture
def exporters(settings) -> Iterator[dict[str, MetricServer]]:
    found = {
        "gpu-1": MetricServer(Dcgm("gpu-1", {0: "p0", 1: "p1", 2: ""})),
        "gpu-2": MetricServer(Dcgm("gpu-2", {0: "d0", 1: "d1"})),
        "node": MetricServer(NodeExporter()),
    }
    yield found
    for server in found.values():
        server.stop()


@pytest.fixture
def prometheus(exporters: dict[str, MetricServer], tmp_path: Path) -> Iterator[Prometheus]:
    found = Prometheus((), 1, tmp_path)

    def job(name: str, servers: list[MetricServer], labels: str) -> str:
        targets = [f"127.0.0.1:{server.port}" for server in servers]
        return (
            f"  - job_name: {name}\n"
            f"    static_configs: [{{targets: {targets!r}, labels: {{{labels}}}}}]\n"
        )

    gpus = [exporters["gpu-1"], exporters["gpu-2"]]
    (tmp_path / "prometheus.yml").write_text(
        "global: {scrape_interval: 1s, scrape_timeout: 900ms}\n"
        "scrape_configs:\n"
        + job("dcgm", gpus, "pod: dcgm-exporter-1, namespace: gpu-operator")
        + job("dcgm-twice", gpus, "pod: dcgm-exporter-1, namespace: gpu-operator")
        + job("node", [exporters["node"]], "node: gpu-1.dc1.example"),
        encoding="utf-8",
    )
    found.start()
    yield found
    found.stop()


def wait_scraped(url: str, *, targets: int, seconds: float) -> None:
    """A Prometheus takes some seconds before its first scrape."""
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        with urllib.request.urlopen(f"{url}/api/v1/query?query=sum(up)", timeout=2) as answer:
            found = json.load(answer)["data"]["result"]
        if found and float(found[0]["value"][1]) == targets:
            return
        time.sleep(0.2)
    pytest.fail(f"not all {targets} targets were scraped within {seconds} s")


class Running:
    """Lets the hardware run in real time: 600 W and 300 W a GPU, half of the CPUs busy."""

    def __init__(self, exporters: dict[str, MetricServer]) -> None:
        self._registries = {name: server.registry for name, server in exporters.items()}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        last = time.monotonic()
        while not self._stop.wait(0.05):
            now = time.monotonic()
            self._registries["gpu-1"].run(now - last, watts=600, tensor=0.6)
            self._registries["gpu-2"].run(now - last, watts=300, tensor=0.1)
            self._registries["node"].run(now - last, busy=0.5, load=2)
            last = now

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()


def amounts(windows: list[Window], scope: str, signal: Signal) -> dict[str, float]:
    window = next(window for window in windows if window.scope == scope)
    value = window.values[signal]
    assert isinstance(value, CounterIncrease | GaugeValue)
    return dict(value.by_worker)


def test_a_real_prometheus_gives_the_windows_of_the_direct_scrape(
    metric_fleet: Fleet,
    exporters: dict[str, MetricServer],
    prometheus: Prometheus,
    settings,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    settings.FULCRUM_LOOPBACK_PORTS = settings.FULCRUM_LOOPBACK_PORTS | {
        prometheus.port,
        *(server.port for server in exporters.values()),
    }
    monkeypatch.setattr("apps.telemetry.services.tick.fleet.defaults_for", lambda _: FAST)
    source = metric_fleet.source()
    source.parameters = {
        "exporters": [
            {"profile": "dcgm", "url": exporters["gpu-1"].metrics_url},
            {"profile": "dcgm", "url": exporters["gpu-2"].metrics_url},
            {"profile": "node", "url": exporters["node"].metrics_url, "node": "gpu-1"},
        ]
    }
    running = Running(exporters)
    try:
        wait_scraped(prometheus.url, targets=5, seconds=20)
        time.sleep(1.5)
        start = datetime.now(UTC)
        read(metric_fleet, source, start, start)
        time.sleep(SPAN_S)
        end = datetime.now(UTC)
        scraped = read(metric_fleet, source, start, end)
        behind = Source(
            name="prom", cluster=source.cluster, kind="prometheus",
            url=prometheus.url, created_at=start,
        )  # fmt: skip
        behind.save()
        # The last scrapes of the Prometheus are up to a second old.
        time.sleep(1)
        asked = read(metric_fleet, behind, start, end)
    finally:
        running.stop()
    assert {window.scope for window in asked} == {window.scope for window in scraped}
    for scope in ("prefill/device", "decode/device"):
        for signal in (Signal.DEVICE_POWER, Signal.DEVICE_TENSOR_ACTIVE, Signal.DEVICE_MEMORY_USED):
            assert amounts(asked, scope, signal) == amounts(scraped, scope, signal)
        theirs = amounts(asked, scope, Signal.DEVICE_ENERGY)
        assert theirs == pytest.approx(amounts(scraped, scope, Signal.DEVICE_ENERGY), rel=0.15)
    watts = amounts(scraped, "prefill/device", Signal.DEVICE_ENERGY)
    assert watts == pytest.approx(dict.fromkeys(watts, 600 * SPAN_S), rel=0.1)
    busy = amounts(asked, "prefill/host", Signal.HOST_CPU_BUSY)
    assert busy == pytest.approx(dict.fromkeys(busy, 4 * 0.5 * SPAN_S), rel=0.15)
    assert amounts(asked, "prefill/host", Signal.HOST_CPUS) == dict.fromkeys(busy, 4)
    row = HardwareCoverage.objects.get(source=behind)
    assert (row.devices_joined, row.devices_seen, row.hosts_joined) == (4, 5, 1)
    assert row.unjoined == ["gpu-1 2"]


def read(fleet: Fleet, source: Source, start: datetime, end: datetime) -> list[Window]:
    """The hardware windows of one tick whose engine windows cover `(start, end]`."""
    tick = prepare(source, fleet.deployment, (), end)
    engines = Window("prefill", start, end, {}, (), ())
    collected = Collected(at=end, windows=[(fleet.deployment.pk, engines)])
    hardware.add_windows(source, [tick], {}, collected, end)
    return [window for _, window in collected.windows[1:]]
