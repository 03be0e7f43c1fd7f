"""The stand-ins of exporters: true names, and figures that follow the engines' work."""

from __future__ import annotations

import pytest

from apps.simulation.demo.hardware import (
    BOOT_J,
    CPUS_PER_NODE,
    DECODE_TENSOR,
    IDLE_W,
    PREFILL_TENSOR,
    PREFILL_W,
    Exporters,
)
from apps.simulation.demo.http import Reply, Request
from apps.simulation.service_time import load_profile
from tests.contract.engines.data import text
from tests.unit.simulation.support import Wire
from tests.unit.simulation.virtual import VirtualLoop

from .test_engines import both_legs, sglang_pair

ENERGY = "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"


def scrape(exporters: Exporters, path: str) -> str:
    wire = Wire()
    exporters.handle(Request("GET", path, {}, {}), Reply(wire))  # type: ignore[arg-type]
    assert wire.status == 200
    return wire.body


def value(body: str, name: str, **labels: str) -> float:
    (found,) = [
        float(line.rsplit(" ", 1)[1])
        for line in body.splitlines()
        if line.startswith(f"{name}{{") and all(f'{k}="{v}"' in line for k, v in labels.items())
    ]
    return found


def test_a_prefill_shows_tensor_cores_and_a_decode_shows_memory(loop: VirtualLoop) -> None:
    engines = sglang_pair(loop)
    exporters = Exporters(engines, loop)
    both_legs(*engines, 8000, 200, room=1)
    loop.run_until(5)
    body = scrape(exporters, "/demo-node-1/gpu")
    tensor = {gpu: value(body, "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", gpu=gpu) for gpu in "01"}
    dram = {gpu: value(body, "DCGM_FI_PROF_DRAM_ACTIVE", gpu=gpu) for gpu in "01"}
    seconds = load_profile().prefill.seconds([(0, 8000)])
    assert tensor["0"] == pytest.approx(seconds * PREFILL_TENSOR / 5)
    assert dram["1"] > dram["0"] and tensor["0"] > 3 * tensor["1"] > 3 * DECODE_TENSOR / 5


def test_energy_is_power_over_time_and_counts_since_boot(loop: VirtualLoop) -> None:
    engines = sglang_pair(loop)
    exporters = Exporters(engines, loop)
    both_legs(*engines, 8000, 20, room=1)
    loop.run_until(30)
    body = scrape(exporters, "/demo-node-1/gpu")
    seconds = load_profile().prefill.seconds([(0, 8000)])
    joules = value(body, ENERGY, gpu="0") / 1000 - BOOT_J
    assert joules == pytest.approx(30 * IDLE_W + seconds * PREFILL_W)
    # Half a minute after the work, the gauges have forgotten it.
    assert value(body, "DCGM_FI_DEV_POWER_USAGE", gpu="0") == pytest.approx(IDLE_W)
    assert value(body, "DCGM_FI_PROF_SM_ACTIVE", gpu="0") == 0


def test_the_engines_keep_counting_what_they_counted(loop: VirtualLoop) -> None:
    engines = sglang_pair(loop)
    Exporters(engines, loop)
    both_legs(*engines, 2000, 50, room=1)
    loop.run_until(5)
    assert engines[0].metrics.forward_s.value == pytest.approx(
        load_profile().prefill.seconds([(0, 2000)])
    )
    assert engines[1].metrics.realtime["decode"].value > 0


def test_a_hosts_cpu_seconds_add_up_to_its_time(loop: VirtualLoop) -> None:
    engines = sglang_pair(loop)
    exporters = Exporters(engines, loop)
    both_legs(*engines, 8000, 200, room=1)
    loop.run_until(20)
    body = scrape(exporters, "/demo-node-1/host")
    lines = [line for line in body.splitlines() if line.startswith("node_cpu_seconds_total")]
    assert len(lines) == 2 * CPUS_PER_NODE
    assert sum(float(line.rsplit(" ", 1)[1]) for line in lines) == pytest.approx(20 * CPUS_PER_NODE)
    used = sum(float(line.rsplit(" ", 1)[1]) for line in lines if 'mode="user"' in line)
    assert 20 * 2 * 0.6 < used < 20 * CPUS_PER_NODE / 2


def test_every_name_is_one_of_the_samples(loop: VirtualLoop) -> None:
    exporters = Exporters(sglang_pair(loop), loop)
    for path, sample in (("gpu", "dcgm.prom"), ("host", "node-exporter.prom")):
        body = scrape(exporters, f"/demo-node-1/{path}")
        names = {line.split()[2] for line in body.splitlines() if line.startswith("# TYPE")}
        types = {line for line in body.splitlines() if line.startswith("# TYPE")}
        assert names
        assert types <= set(text("samples", sample).splitlines())


def test_eight_gpus_stand_on_a_node_and_an_unknown_path_is_not_found(loop: VirtualLoop) -> None:
    engines = [engine for _ in range(5) for engine in sglang_pair(loop)]
    exporters = Exporters(engines, loop)
    assert exporters.nodes == ["demo-node-1", "demo-node-2"]
    assert [(gpu.node, gpu.index) for gpu in exporters.gpus][8] == ("demo-node-2", 0)
    assert [entry["url"] for entry in exporters.state(9)][:2] == [
        "http://127.0.0.1:9/demo-node-1/gpu", "http://127.0.0.1:9/demo-node-1/host",
    ]  # fmt: skip
    wire = Wire()
    exporters.handle(Request("GET", "/other", {}, {}), Reply(wire))  # type: ignore[arg-type]
    assert wire.status == 404
