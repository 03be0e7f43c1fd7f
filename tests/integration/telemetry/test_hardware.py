"""GPU and host exporters beside a serving fleet, from the scrape up to the figures."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest
from django.core.management import call_command
from django.template.loader import render_to_string
from django.utils import translation

from apps.accounts.domain.authorize import SYSTEM
from apps.api.encode import plain
from apps.api.v1.deployments import SourceSerializer
from apps.common.measurement import Place, State
from apps.console.presenters import pools
from apps.console.reader import Reader
from apps.engines.window import Signal
from apps.fleet import services as fleet
from apps.fleet.models import AttributeSource, Cluster, Device, Node, Worker
from apps.overview import selectors as overview
from apps.telemetry import selectors
from apps.telemetry.models import ExporterSample, HardwareCoverage, Source, StoredWindow

from .conftest import Fleet
from .exporters import Dcgm, NodeExporter
from .metric_servers import MetricServer

READER = Reader(ZoneInfo("UTC"), datetime(2026, 11, 30, 12, 0, tzinfo=UTC))

pytestmark = pytest.mark.django_db


class Hardware:
    """Exporters of two nodes: gpu-1 runs the prefill workers, gpu-2 the decode workers."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet
        self.prefill = Dcgm("gpu-1", {0: "p0", 1: "p1", 2: ""})
        self.decode = Dcgm("gpu-2", {0: "d0", 1: "d1"})
        self.host = NodeExporter()
        registries = {"dcgm-1": self.prefill, "dcgm-2": self.decode, "node": self.host}
        self.servers = {name: MetricServer(found) for name, found in registries.items()}

    def declare(self) -> None:
        exporters = [
            {"profile": "dcgm", "url": self.servers["dcgm-1"].metrics_url},
            {"profile": "dcgm", "url": self.servers["dcgm-2"].metrics_url},
            {"profile": "node", "url": self.servers["node"].metrics_url, "node": "gpu-1.dc1"},
        ]
        Source.objects.filter(deployment=self.fleet.deployment).update(
            parameters={"exporters": exporters}
        )

    def tick(self, *, requests: int = 40, busy: float = 0.5, load: float = 2.0) -> None:
        for index in range(requests):
            self.fleet.serve(prefill=f"p{index % 2}", decode=f"d{index % 2}")
        self.prefill.run(5, watts=600, tensor=0.6)
        self.decode.run(5, watts=300, tensor=0.1)
        self.host.run(5, busy=busy, load=load)
        self.fleet.collect()

    def figures(self):
        return selectors.figures(self.fleet.deployment, self.fleet.at)


@pytest.fixture
def hardware(metric_fleet: Fleet, settings) -> Iterator[Hardware]:
    found = Hardware(metric_fleet)
    ports = {server.port for server in found.servers.values()}
    settings.FULCRUM_LOOPBACK_PORTS = settings.FULCRUM_LOOPBACK_PORTS | ports
    found.declare()
    yield found
    for server in found.servers.values():
        if server._thread.is_alive():
            server.stop()


def test_figures_of_both_pools_beside_their_busy_share(hardware: Hardware) -> None:
    hardware.fleet.collect()
    for _ in range(6):
        hardware.tick()
    found = hardware.figures()
    prefill, decode = found.hardware["prefill"], found.hardware["decode"]
    assert (prefill.tensor_active.value, prefill.tensor_active.place) == (0.6, Place.EXPORTER)
    assert (prefill.power.value, decode.power.value) == (1200, 600)
    assert prefill.power.state is State.OK
    # 1,200 W for 8 requests of 1,000 tokens a second; 600 W for 1,600 tokens a second.
    assert prefill.energy_per_token.value == pytest.approx(0.15)
    assert decode.energy_per_token.value == pytest.approx(0.375)
    assert decode.energy_per_token.coverage == (2, 2)
    assert "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION" in decode.energy_per_token.trace.query
    assert (decode.faults.value, decode.faults.method) == (0, "code_changed")
    # The host of the prefill workers is known from their GPUs; nobody exports the other one.
    assert prefill.host_cpu_busy.value == pytest.approx(0.5)
    assert prefill.host_pressure.value == pytest.approx(0.5)
    assert prefill.network_share.value == pytest.approx(0.1)
    assert decode.host_cpu_busy.state is State.NO_DATA
    # The busy shares' inputs are untouched by what GPUs say.
    assert found.prefill.forward_seconds_per_s.method == "engine_time"


def test_the_page_and_the_summary_show_them(hardware: Hardware) -> None:
    hardware.fleet.collect()
    for _ in range(6):
        hardware.tick()
    page = overview.deployment_page(SYSTEM, "chat", hardware.fleet.at)
    prefill = next(pool for pool in page.pools if pool.role == "prefill")
    assert [figure.code for figure in prefill.hardware] == [
        "tensor_active", "dram_active", "power", "energy_per_token", "cpu_busy", "cpu_pressure",
        "link_use",
    ]  # fmt: skip
    power = next(f for f in plain(prefill)["hardware"] if f["code"] == "power")["measurement"]
    assert (power["value"], power["unit"], power["place"]) == (1200, "W", "exporter")
    with translation.override("en"):
        html = render_to_string(
            "pages/deployment/_pools.html",
            {"shown": {"pools": [pools.present(prefill, READER)]}},
        )
    assert "GPUs and hosts" in html
    text = html.replace("\u00a0", " ")
    assert ">1,200 W<" in text and ">0.15 J/tok<" in text


def test_joined_and_unjoined_gpus_are_counted(hardware: Hardware) -> None:
    hardware.tick()
    row = HardwareCoverage.objects.get(source=hardware.fleet.source())
    assert (row.devices_joined, row.devices_seen) == (4, 5)
    assert (row.hosts_joined, row.hosts_seen) == (1, 1)
    assert row.unjoined == ["gpu-1 2"]
    shown = SourceSerializer(hardware.fleet.source()).data["hardware"]
    assert (shown["devices_joined"], shown["devices_seen"]) == (4, 5)
    assert row.error == ""


def test_an_exporter_that_dies_takes_its_figures_and_nothing_else(hardware: Hardware) -> None:
    hardware.fleet.collect()
    for _ in range(6):
        hardware.tick()
    hardware.servers["dcgm-2"].stop()
    for _ in range(6):
        hardware.tick()
    found = hardware.figures()
    assert found.hardware["decode"].power.state is State.NO_DATA
    assert found.hardware["prefill"].power.state is State.OK
    assert found.decode.tokens_per_s.state is State.OK
    assert HardwareCoverage.objects.get().error


def test_one_silent_exporter_of_two_makes_a_pool_partial(hardware: Hardware) -> None:
    hardware.prefill.users[1] = ""
    hardware.prefill.clear()
    for _ in range(3):
        hardware.tick()
    power = hardware.figures().hardware["prefill"].power
    assert (power.value, power.state, power.coverage) == (600, State.PARTIAL, (1, 2))


def test_a_role_flip_cuts_the_windows_of_hardware(hardware: Hardware) -> None:
    hardware.fleet.collect()
    for _ in range(3):
        hardware.tick()
    row = Worker.objects.get(name="d1")
    fleet.record_role(
        now=hardware.fleet.at,
        worker_id=row.pk,
        role="prefill",
        source=AttributeSource.REPORTED,
    )
    hardware.tick()
    window = stored(hardware, "prefill/device")
    decode = stored(hardware, "decode/device")
    url = row.url
    assert window.values[Signal.DEVICE_ENERGY].by_worker[url] == pytest.approx(1500)
    assert url not in decode.values[Signal.DEVICE_POWER].by_worker
    assert decode.values[Signal.DEVICE_ENERGY].by_worker[url] == pytest.approx(4500)


def stored(hardware: Hardware, scope: str):
    row = StoredWindow.objects.get(
        deployment=hardware.fleet.deployment, scope=scope, end=hardware.fleet.at
    )
    return selectors.window_of(row)


def test_a_fault_is_seen_when_its_code_changes_and_not_for_ever(hardware: Hardware) -> None:
    hardware.fleet.collect()
    for _ in range(9):
        hardware.tick()
    assert hardware.figures().hardware["decode"].faults.value == 0
    hardware.decode.code = 79
    hardware.tick()
    found = hardware.figures().hardware["decode"]
    assert (found.fault_code.value, found.faults.value) == (79, 1)
    assert hardware.figures().hardware["prefill"].faults.value == 0
    for _ in range(15):
        hardware.tick(requests=1)
    found = hardware.figures().hardware["decode"]
    assert (found.fault_code.value, found.faults.value) == (79, 0)


def test_an_inventory_that_shares_a_gpu_gives_no_figure_to_one_worker(hardware: Hardware) -> None:
    cluster = Cluster.objects.get()
    node = Node.objects.create(
        cluster=cluster, name="gpu-2", provisioned_from=hardware.fleet.at, source="declared"
    )
    device = Device.objects.create(
        node=node, index=0, accelerator=hardware.fleet.deployment.pools.first().accelerator,
        source="declared",
    )  # fmt: skip
    for name in ("d0", "d1"):
        Worker.objects.get(name=name).devices.add(device)
    for _ in range(3):
        hardware.tick()
    power = hardware.figures().hardware["decode"].power
    assert (power.value, power.state, power.method) == (None, State.NO_DATA, "shared_device")
    assert HardwareCoverage.objects.get().shared == 2


def test_samples_are_kept_only_for_the_window(hardware: Hardware) -> None:
    for _ in range(20):
        hardware.tick(requests=1)
    assert ExporterSample.objects.count() <= 3 * 8


def test_a_source_without_exporters_reads_none(metric_fleet: Fleet) -> None:
    metric_fleet.collect()
    assert SourceSerializer(metric_fleet.source()).data["hardware"] is None
    assert not HardwareCoverage.objects.exists()
    assert not selectors.figures(metric_fleet.deployment, metric_fleet.at).hardware


def test_a_wrong_declaration_is_said_and_stops_nothing(hardware: Hardware) -> None:
    Source.objects.update(parameters={"exporters": [{"profile": "vllm", "url": "http://x"}, 7]})
    result = hardware.fleet.collect()
    assert result is not None and result.windows == 3
    assert "needs a profile" in HardwareCoverage.objects.get().error


def test_the_migrations_are_complete() -> None:
    call_command("makemigrations", "telemetry", "--check", "--dry-run", verbosity=0)
