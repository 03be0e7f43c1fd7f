"""GPUs and hosts: units and traps, against numbers worked out by hand from the samples."""

from __future__ import annotations

import pytest

from apps.engines import loader
from apps.engines.evaluate import evaluate
from apps.engines.readings import read
from apps.engines.scraped import ScrapedReader
from apps.engines.window import Kind, Signal

from .data import signals, text


def value(parts, signal: Signal) -> float:
    return sum(parts[signal].parts.values())


@pytest.fixture(scope="module")
def gpus():
    return signals("dcgm", "device", "samples", "dcgm.prom")


@pytest.fixture(scope="module")
def host():
    return signals("node", "host", "samples", "node-exporter.prom")


def test_every_device_signal_is_found(gpus):
    assert set(gpus) == set(loader.load("dcgm").signals)


def test_memory_is_in_bytes_and_energy_in_joules(gpus):
    assert value(gpus, Signal.DEVICE_MEMORY_USED) == 4 * 128_960 * 1_048_576
    assert value(gpus, Signal.DEVICE_MEMORY_FREE) == 4 * 14_211 * 1_048_576
    energy_mj = sum(184_200_381_245 + i * 1_000_000_000 for i in range(4))
    assert value(gpus, Signal.DEVICE_ENERGY) == pytest.approx(energy_mj / 1000)
    assert value(gpus, Signal.DEVICE_POWER) == pytest.approx(590.913 + 602.416 + 404.383 + 384.634)


def test_utilisation_is_a_ratio_and_averaged(gpus):
    assert value(gpus, Signal.DEVICE_UTILISATION) == pytest.approx((97 + 97 + 100 + 100) / 400)
    assert 0 < value(gpus, Signal.DEVICE_TENSOR_ACTIVE) < 1


def test_faults_are_the_windowed_count_and_the_code_is_the_sticky_one(gpus):
    assert value(gpus, Signal.DEVICE_FAULT_CODE) == 31
    assert value(gpus, Signal.DEVICE_FAULTS) == 2
    assert gpus[Signal.DEVICE_FAULTS].kind is Kind.GAUGE


def test_nothing_of_a_gpu_but_energy_is_differenced():
    """DCGM types rates as counters; two equal scrapes must show the rate and not 0."""
    profile = loader.load("dcgm")
    assert {s for s, rows in profile.signals.items() if rows.kind is Kind.COUNTER} == {
        Signal.DEVICE_ENERGY
    }
    lines = text("samples", "dcgm.prom").splitlines()
    only_typed_counter = "\n".join(
        line for line in lines if "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL" in line
    )
    assert "# TYPE DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL counter" in only_typed_counter
    reading = read(only_typed_counter, profile)
    found = evaluate(profile, "device", ScrapedReader(profile, "device", [reading, reading]))
    rates = [float(line.split()[-1]) for line in only_typed_counter.splitlines() if line[0] != "#"]
    assert value(found, Signal.DEVICE_NVLINK_RATE) == sum(rates) * 1_048_576 > 0


def test_energy_is_found_under_the_name_that_parsers_make_of_it():
    profile = loader.load("dcgm")
    plain = "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"
    for name in (plain, f"{plain}_total"):
        readings = [read(f'{name}{{gpu="0"}} {v}', profile) for v in (5000, 8000)]
        found = evaluate(profile, "device", ScrapedReader(profile, "device", readings))
        assert value(found, Signal.DEVICE_ENERGY) == pytest.approx(3)


def test_the_pod_of_a_gpu_is_the_exported_one_when_there_is_one():
    join = loader.load("dcgm").join
    assert join["pod"][0] == "exported_pod"
    assert join["pod"].index("exported_pod") < join["pod"].index("pod")
    assert set(join["node"]) >= {"Hostname", "hostname"}


def test_every_host_signal_is_found(host):
    assert set(host) == set(loader.load("node").signals)


def test_host_figures(host):
    assert value(host, Signal.HOST_CPU_BUSY) == pytest.approx(2 * (9123.2 + 2210.7 + 310.5))
    assert value(host, Signal.HOST_CPUS) == 2
    assert value(host, Signal.HOST_RDMA_RX) == 2 * 914_220_331_008
    assert value(host, Signal.HOST_MEMORY_AVAILABLE) == 217_317_152_000
    assert value(host, Signal.HOST_LOAD) == 12.86


def test_unknown_link_speed_and_virtual_devices_are_left_out(host):
    assert value(host, Signal.HOST_NETWORK_SPEED) == 12_500_000_000
    profile = loader.load("node")
    names = ["eth0", "lo", "veth12", "docker0", "cali9a", "cni0", "bond0", "eth0.100", "ens3f0np0"]
    lines = [f'node_network_receive_bytes_total{{device="{n}"}} 1' for n in names]
    lines += [f'node_network_speed_bytes{{device="{n}"}} {v}'
              for n, v in (("eth0", -125000), ("ens3f0np0", 0), ("eno1", 125000))]  # fmt: skip
    lines.append("node_load1 1")
    empty = read("node_load1 1", profile)
    readings = [empty, read("\n".join(lines), profile)]
    found = evaluate(profile, "host", ScrapedReader(profile, "host", readings))
    assert value(found, Signal.HOST_NETWORK_RX) == 2
    assert value(found, Signal.HOST_NETWORK_SPEED) == 125_000
