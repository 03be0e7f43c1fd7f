"""GPUs and hosts joined to workers, and the windows and figures made of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from apps.common.measurement import Measurement, Place, State
from apps.common.units import Unit
from apps.engines import loader
from apps.engines.readings import Reading, read
from apps.engines.window import (
    CounterIncrease,
    GaugeValue,
    HistogramIncrease,
    Signal,
    SignalValue,
    Window,
)
from apps.fleet.domain.spans import SpanFacts
from apps.telemetry.collectors.client import Row
from apps.telemetry.collectors.hardware import units_of_prometheus, units_of_readings
from apps.telemetry.domain.hardware import SHARED, Part, hardware_windows
from apps.telemetry.domain.hardware_figures import changes_of_faults, hardware_figures
from apps.telemetry.domain.joining import DeclaredDevice, Joiner, WorkerPlace, host_names
from apps.telemetry.domain.states import View
from apps.telemetry.domain.units import UnitPlace, UnitSeries
from tests.contract.engines.data import signals, text

START = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)
END = START + timedelta(seconds=60)
DCGM, NODE = loader.load("dcgm"), loader.load("node")
#: The written sample: GPUs 0 and 1 of one prefill pod, 2 and 3 of one decode pod.
PREFILL = WorkerPlace("http://p0:8000", "qwen3-prefill-0", "serving", "prefill")
DECODE = WorkerPlace("http://d0:8000", "qwen3-decode-0", "serving", "decode")


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def gpu(
    index: int, *, energy: float, power: float = 400, pod: str = "", prefix: str = "",
    xid: float = 0,
    node: str = "gpu-node-07", part: str = "", host_label: str = "hostname", tensor: float = 0.5,
) -> str:  # fmt: skip
    labels = f'gpu="{index}",UUID="GPU-{index}",{host_label}="{node}"'
    if part:
        labels += f',GPU_I_ID="{part}",GPU_I_PROFILE="1g.18gb"'
    if pod:
        labels += f',{prefix}pod="{pod}",{prefix}namespace="serving"'
    if prefix:
        labels += ',pod="dcgm-exporter-x7x2v",namespace="gpu-operator"'
    return (
        f"DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION{{{labels}}} {energy * 1000}\n"
        f"DCGM_FI_DEV_POWER_USAGE{{{labels}}} {power}\n"
        f"DCGM_FI_PROF_PIPE_TENSOR_ACTIVE{{{labels}}} {tensor}\n"
        f"DCGM_FI_DEV_FB_USED{{{labels}}} 1000\n"
        f"DCGM_FI_DEV_XID_ERRORS{{{labels}}} {xid}\n"
    )


def units(*texts: str, every_s: float = 60, node: str = "") -> tuple[UnitSeries, ...]:
    readings: list[tuple[datetime, Reading]] = [
        (at(index * every_s), read(item, DCGM)) for index, item in enumerate(texts)
    ]
    return units_of_readings(DCGM, readings, readings[-1][0], node=node)


def windows(
    found: tuple[UnitSeries, ...], *workers: WorkerPlace, part: Part = "device"
) -> Mapping[str, Window]:
    joiner = Joiner(workers)
    joined = joiner.devices(found) if part == "device" else joiner.hosts(found)
    profile = DCGM if part == "device" else NODE
    made = hardware_windows(
        part, profile, joined, workers, start=START, end=END, source="test"
    )  # fmt: skip
    return {window.scope: window for window in made}


def counter(window: Window, signal: Signal) -> CounterIncrease:
    value = window.values[signal]
    assert isinstance(value, CounterIncrease)
    return value


def gauge(window: Window, signal: Signal) -> GaugeValue:
    value = window.values[signal]
    assert isinstance(value, GaugeValue)
    return value


def test_the_written_sample_joins_by_pod_sums_power_and_averages_activity() -> None:
    found = windows(units(text("samples", "dcgm.prom")), PREFILL, DECODE)
    assert set(found) == {"prefill/device", "decode/device"}
    power = gauge(found["prefill/device"], Signal.DEVICE_POWER)
    tensor = gauge(found["prefill/device"], Signal.DEVICE_TENSOR_ACTIVE)
    memory = gauge(found["decode/device"], Signal.DEVICE_MEMORY_USED)
    assert power.total == power.by_worker[PREFILL.url] > 1000
    assert tensor.mean == pytest.approx((0.587869 + 0.57523) / 2)
    assert gauge(found["decode/device"], Signal.DEVICE_TENSOR_ACTIVE).mean < 0.1
    assert memory.total > 2 * 100 * 2**30
    assert gauge(found["decode/device"], Signal.DEVICE_FAULTS).by_worker == {DECODE.url: 2}
    assert Signal.DEVICE_FAULTS not in found["prefill/device"].values


def test_energy_is_the_increase_and_a_series_that_appears_adds_nothing() -> None:
    found = units(
        gpu(0, energy=9e6, pod="qwen3-prefill-0"),
        gpu(0, energy=9e6 + 24_000, pod="qwen3-prefill-0")
        + gpu(1, energy=5e6, pod="qwen3-prefill-0"),
    )
    window = windows(found, PREFILL)["prefill/device"]
    assert counter(window, Signal.DEVICE_ENERGY).increase == pytest.approx(24_000)


def test_a_restart_counts_the_new_value() -> None:
    found = units(
        gpu(0, energy=9e6, pod="qwen3-prefill-0"), gpu(0, energy=300, pod="qwen3-prefill-0")
    )
    window = windows(found, PREFILL)["prefill/device"]
    assert counter(window, Signal.DEVICE_ENERGY).increase == pytest.approx(300)


def test_what_a_gpu_did_for_another_pod_is_not_the_new_ones() -> None:
    found = units(
        gpu(0, energy=1000, pod="qwen3-decode-0"),
        gpu(0, energy=3000, pod="qwen3-prefill-0"),
        gpu(0, energy=3500, pod="qwen3-prefill-0"),
        every_s=30,
    )
    joined = windows(found, PREFILL, DECODE)
    assert set(joined) == {"prefill/device"}
    assert counter(joined["prefill/device"], Signal.DEVICE_ENERGY).increase == pytest.approx(500)
    assert joined["prefill/device"].seconds == 30


def test_behind_a_prometheus_the_user_is_exported_pod_and_the_exporter_is_nobodys() -> None:
    found = units(
        gpu(0, energy=1, pod="qwen3-prefill-0", prefix="exported_")
        + gpu(1, energy=1, prefix="exported_")
    )
    joined = Joiner([PREFILL]).devices(found)
    assert set(joined.by_worker) == {PREFILL.url}
    assert (joined.seen, [place.name for place in joined.unjoined]) == (2, ["gpu-node-07 1"])


@pytest.mark.parametrize("host_label", ["hostname", "Hostname"])
@pytest.mark.parametrize("node", ["gpu-node-07", "GPU-Node-07.dc1.example", "gpu-node-07:9400"])
def test_without_pods_the_inventory_says_whose_gpu_it_is(host_label: str, node: str) -> None:
    worker = replace(PREFILL, devices=(DeclaredDevice("gpu-node-07", 1),))
    found = units(
        gpu(0, energy=1, node=node, host_label=host_label)
        + gpu(1, energy=1, node=node, host_label=host_label)
    )
    joined = Joiner([worker]).devices(found)
    assert [unit.place.gpu for unit in joined.by_worker[worker.url]] == ["1"]
    assert len(joined.unjoined) == 1


def test_the_same_pod_name_in_another_namespace_is_somebody_else() -> None:
    found = units(gpu(0, energy=1, pod="qwen3-prefill-0"))
    assert not Joiner([replace(PREFILL, namespace="staging")]).devices(found).by_worker


def test_a_declared_node_names_an_exporter_that_names_none() -> None:
    worker = replace(PREFILL, devices=(DeclaredDevice("box", 0),))
    found = units('DCGM_FI_DEV_POWER_USAGE{gpu="0"} 300\n', node="box")
    assert set(Joiner([worker]).devices(found).by_worker) == {worker.url}


def test_a_shared_gpu_has_no_figures_of_one_worker_and_says_so() -> None:
    """Time-slicing shows one pod only; the inventory knows that there are two."""
    first = replace(PREFILL, devices=(DeclaredDevice("gpu-node-07", 0, is_shared=True),))
    second = replace(first, url="http://p1:8000", name="qwen3-prefill-1")
    found = units(gpu(0, energy=1, pod="qwen3-prefill-0"), gpu(0, energy=2, pod="qwen3-prefill-0"))
    window = windows(found, first, second)["prefill/device"]
    assert not window.values
    assert window.names[Signal.DEVICE_POWER] == SHARED
    figures = hardware_figures("prefill", {"prefill/device": fresh(window)}.get, tokens(100))
    assert figures is not None
    assert (figures.power.state, figures.power.method) == (State.NO_DATA, "shared_device")
    assert (figures.nvlink_rate.state, figures.nvlink_rate.method) == (
        State.NO_DATA,
        "not_exported",
    )


def test_a_slice_has_activities_of_its_own_but_not_the_power_of_its_gpu() -> None:
    found = units(gpu(0, energy=1, pod="qwen3-prefill-0", part="3", tensor=0.25))
    window = windows(found, PREFILL)["prefill/device"]
    assert gauge(window, Signal.DEVICE_TENSOR_ACTIVE).mean == 0.25
    assert Signal.DEVICE_POWER not in window.values
    assert window.names[Signal.DEVICE_POWER] == SHARED


def test_a_role_change_cuts_and_no_window_has_two_roles() -> None:
    spans = (
        SpanFacts("decode", START - timedelta(hours=1), at(30)),
        SpanFacts("prefill", at(30), None),
    )
    worker = replace(PREFILL, role_now="prefill", roles=spans)
    stays = WorkerPlace("http://d1:8000", "qwen3-decode-0", "serving", "decode")
    readings = [
        gpu(0, energy=e, pod="qwen3-prefill-0") + gpu(1, energy=e, pod="qwen3-decode-0")
        for e in (0, 100, 300, 700, 1500)
    ]
    found = windows(units(*readings, every_s=15), worker, stays)
    prefill, decode = found["prefill/device"], found["decode/device"]
    assert counter(prefill, Signal.DEVICE_ENERGY).by_worker == {worker.url: 1200}
    assert counter(decode, Signal.DEVICE_ENERGY).by_worker == {worker.url: 300, stays.url: 1500}
    assert set(gauge(decode, Signal.DEVICE_POWER).by_worker) == {stays.url}
    assert decode.reported == (stays.url,)
    assert prefill.seconds == 30


def test_a_step_across_the_change_belongs_to_neither_role() -> None:
    spans = (
        SpanFacts("decode", START - timedelta(hours=1), at(20)),
        SpanFacts("prefill", at(20), None),
    )
    worker = replace(PREFILL, roles=spans)
    readings = [gpu(0, energy=e, pod="qwen3-prefill-0") for e in (0, 100, 300)]
    found = windows(units(*readings, every_s=30), worker)
    assert set(found) == {"prefill/device"}
    assert counter(found["prefill/device"], Signal.DEVICE_ENERGY).increase == 200


NODES = """
node_cpu_seconds_total{{cpu="0",mode="idle"}} {idle}
node_cpu_seconds_total{{cpu="0",mode="user"}} {user}
node_cpu_seconds_total{{cpu="1",mode="idle"}} {idle}
node_cpu_seconds_total{{cpu="1",mode="user"}} {user}
node_network_receive_bytes_total{{device="eth0"}} {rx}
node_network_transmit_bytes_total{{device="eth0"}} 0
node_network_receive_bytes_total{{device="veth12"}} {rx}
node_network_speed_bytes{{device="eth0"}} 1000
node_network_speed_bytes{{device="veth12"}} -125000
node_infiniband_port_data_transmitted_bytes_total{{device="mlx5_0",port="1"}} {rx}
node_infiniband_port_data_received_bytes_total{{device="mlx5_0",port="1"}} 0
node_infiniband_rate_bytes_per_second{{device="mlx5_0",port="1"}} 500
node_infiniband_port_transmit_wait_total{{device="mlx5_0",port="1"}} {wait}
node_infiniband_link_downed_total{{device="mlx5_0",port="1"}} {wait}
node_memory_MemAvailable_bytes 64e9
node_load1 5
"""


def hosts(node: str) -> tuple[UnitSeries, ...]:
    first = NODES.format(idle=1e5, user=1e4, rx=0, wait=4)
    last = NODES.format(idle=1e5 + 15, user=1e4 + 45, rx=12_000, wait=6)
    readings = [(START, read(first, NODE)), (END, read(last, NODE))]
    return units_of_readings(NODE, readings, END, node=node)


def test_hosts_are_found_by_declared_node_by_their_gpus_and_by_address() -> None:
    by_node = replace(PREFILL, devices=(DeclaredDevice("gpu-node-07.dc1", 0),))
    by_address = replace(PREFILL, url="http://gpu-node-07:8000")
    for worker in (by_node, by_address):
        assert set(Joiner([worker]).hosts(hosts("gpu-node-07:9100")).by_worker) == {worker.url}
    joiner = Joiner([PREFILL])
    assert not joiner.hosts(hosts("gpu-node-07")).by_worker
    joiner.devices(units(gpu(0, energy=1, pod="qwen3-prefill-0")))
    assert set(joiner.hosts(hosts("gpu-node-07")).by_worker) == {PREFILL.url}


def test_host_figures() -> None:
    """2 CPUs x 60 s of which 90 s busy; 12,000 bytes in 60 s on links of 1,000 and 500 B/s."""
    both = (
        replace(PREFILL, devices=(DeclaredDevice("n1", 0),)),
        replace(PREFILL, url="http://p1:8000", devices=(DeclaredDevice("n1", 1),)),
    )
    window = windows(hosts("n1"), *both, part="host")["prefill/host"]
    assert counter(window, Signal.HOST_LINK_DOWNS).increase == 2  # one host, though of two workers
    assert set(counter(window, Signal.HOST_LINK_DOWNS).by_worker) == {w.url for w in both}
    figures = hardware_figures("prefill", {"prefill/host": fresh(window)}.get, tokens(100))
    assert figures is not None
    assert figures.host_cpu_busy.value == pytest.approx(0.75)
    assert figures.host_pressure.value == pytest.approx(2.5)
    assert figures.network_rate.value == pytest.approx(200)
    assert figures.network_share.value == pytest.approx(0.2)
    assert figures.rdma_rate.value == pytest.approx(200)
    assert figures.rdma_share.value == pytest.approx(0.4)
    assert (figures.rdma_wait.value, figures.link_downs.value) == (2, 2)
    assert figures.host_memory_available.value == 64e9
    assert figures.host_cpu_busy.place is Place.EXPORTER
    assert "node_cpu_seconds_total" in figures.host_cpu_busy.trace.query
    assert figures.tensor_active.state is State.NO_DATA


def fresh(window: Window, age: State = State.OK) -> View:
    return View(window, age)


def tokens(per_s: float | None, state: State = State.OK) -> Measurement:
    return Measurement(per_s, Unit.TOKENS_PER_SECOND, state, END)


def device_window(values: dict[Signal, SignalValue], end: datetime = END) -> Window:
    return Window("decode/device", end - timedelta(seconds=60), end, values, ("a",), ("a",), "test")


def energy(joules: float) -> Window:
    return device_window({Signal.DEVICE_ENERGY: CounterIncrease(joules, {"a": joules})})


def decode(window: Window, per_s: Measurement, changes: Mapping[str, int] | None = None):
    found = hardware_figures("decode", {"decode/device": fresh(window)}.get, per_s, changes)
    assert found is not None
    return found


def test_energy_per_token_is_energy_over_the_tokens_of_the_same_time() -> None:
    """27,900 J in 60 s for 1,500 tok/s: 0.31 J per token, 0.0861 kWh per million."""
    found = decode(energy(27_900), tokens(1500))
    assert found.energy_per_token.value == pytest.approx(0.31)
    assert found.energy_per_token.unit is Unit.JOULES_PER_TOKEN
    assert found.energy_per_million.value == pytest.approx(0.31 / 3.6)
    assert found.energy_per_million.unit is Unit.KWH_PER_MILLION_TOKENS


@pytest.mark.parametrize(
    ("per_s", "state"),
    [
        (tokens(None, State.NO_TRAFFIC), State.NO_TRAFFIC),
        (tokens(0.0), State.NO_TRAFFIC),
        (tokens(None, State.NO_DATA), State.NO_DATA),
    ],
)
def test_energy_without_tokens_has_no_price(per_s: Measurement, state: State) -> None:
    found = decode(energy(27_900), per_s).energy_per_token
    assert (found.value, found.state) == (None, state)


def test_energy_is_as_doubtful_as_its_tokens() -> None:
    assert decode(energy(100), tokens(10, State.PARTIAL)).energy_per_token.state is State.PARTIAL


def codes(*values: float) -> list[Window]:
    return [
        device_window({Signal.DEVICE_FAULT_CODE: GaugeValue(v, {"a": v})}, at(60 * i))
        for i, v in enumerate(values)
    ]


@pytest.mark.parametrize(
    ("values", "changes"),
    [((79, 79, 79), 0), ((0, 79, 79), 1), ((31, 79, 31), 2), ((79, 0, 0), 0), ((79,), 0)],
)
def test_only_a_change_of_the_sticky_code_is_a_fault(
    values: tuple[float, ...], changes: int
) -> None:
    assert changes_of_faults(codes(*values)) == changes


def test_a_sticky_code_alone_is_shown_and_counts_nothing() -> None:
    window = codes(79)[0]
    still = decode(window, tokens(1), {"decode/device": 0})
    assert (still.fault_code.value, still.fault_code.method) == (79, "sticky")
    assert (still.faults.value, still.faults.method) == (0, "code_changed")
    changed = decode(window, tokens(1), {"decode/device": 1})
    assert (changed.faults.value, changed.faults.lower) == (1, 1)


def test_a_windowed_count_is_preferred() -> None:
    window = device_window(
        {
            Signal.DEVICE_FAULT_CODE: GaugeValue(79, {"a": 79}),
            Signal.DEVICE_FAULTS: GaugeValue(3, {"a": 3}),
        }
    )
    found = decode(window, tokens(1), {"decode/device": 1}).faults
    assert (found.value, found.method, found.lower) == (3, "windowed_count", None)


def times(ttft: float, queue: float, prefill: float, counts: tuple[float, float, float]) -> Window:
    def hist(total: float, count: float) -> HistogramIncrease:
        return HistogramIncrease((1.0,), (count, 0), total, count, {"a": total}, {"a": count})

    values: dict[Signal, SignalValue] = {
        Signal.LEG_TTFT: hist(ttft, counts[0]),
        Signal.QUEUE_TIME: hist(queue, counts[1]),
        Signal.PREFILL_TIME: hist(prefill, counts[2]),
    }
    return Window("prefill", START, END, values, ("a",), ("a",), "test")


def overhead(window: Window) -> Measurement | None:
    found = hardware_figures("prefill", {"prefill": fresh(window)}.get, tokens(1))
    return None if found is None else found.host_overhead


def test_host_overhead_is_what_queue_and_prefill_leave_of_ttft() -> None:
    """The real recording: 89 of 418 s were neither queue nor prefill."""
    found = overhead(times(418, 200, 129, (100, 100, 100)))
    assert found is not None
    assert found.value == pytest.approx(0.89)
    assert (found.method, found.place) == ("host_overhead", Place.ENGINE)


def test_host_overhead_of_a_recorded_engine_on_starved_cpus() -> None:
    """vLLM on CPU: 939.1 s of TTFT, 524.3 s queue and 263.4 s prefill over 169 requests."""
    found = signals("vllm", "prefill", "live", "vllm-cpu-0.32.0-prefill.prom")
    values: dict[Signal, SignalValue] = {
        signal: part.histogram for signal, part in found.items() if part.histogram is not None
    }
    measured = overhead(Window("prefill", START, END, values, ("a",), ("a",), "test"))
    assert measured is not None
    assert measured.value == pytest.approx((939.11 - 524.25 - 263.42) / 169, abs=0.001)


def test_host_overhead_is_unknown_where_the_counts_tell_of_different_requests() -> None:
    assert overhead(times(418, 200, 129, (100, 60, 100))) is None


def test_a_decode_worker_has_no_host_overhead() -> None:
    """Its TTFT also holds the KV transfer, with SGLang even the remote prefill."""
    window = replace(times(418, 200, 129, (100, 100, 100)), scope="decode")
    assert hardware_figures("decode", {"decode": fresh(window)}.get, tokens(1)) is None


def test_an_old_window_makes_old_figures() -> None:
    found = hardware_figures(
        "decode", {"decode/device": fresh(energy(600), State.STALE)}.get, tokens(1)
    )
    assert found is not None
    assert found.energy_per_token.state is State.STALE


@pytest.mark.parametrize(
    ("text_", "names"),
    [
        ("gpu-7.dc1.example:9400", ("gpu-7.dc1.example", "gpu-7")),
        ("http://10.0.0.7:8000", ("10.0.0.7",)),
        ("10.0.0.7:9100", ("10.0.0.7",)),
        ("", ()),
    ],
)
def test_a_host_in_its_spellings(text_: str, names: tuple[str, ...]) -> None:
    assert host_names(text_) == names


def test_the_place_of_a_slice_is_its_own() -> None:
    assert UnitPlace("n", "0", part="3").name == "n 0 3"


class Answers:
    """Stands for a Prometheus: answers by metric name, and remembers what it was asked."""

    def __init__(self, **by_name: list[Row]) -> None:
        self.by_name = by_name
        self.asked: list[tuple[str, float]] = []

    def query(self, expression: str, at_s: float) -> list[Row]:
        self.asked.append((expression, at_s))
        if expression.startswith("group by (__name__)"):
            return [Row({"__name__": name}, 1) for name in self.by_name]
        return next(rows for name, rows in self.by_name.items() if f'"{name}"' in expression)


def row(value: float, **labels: str) -> Row:
    return Row({"Hostname": "n1", "gpu": "0", "UUID": "u", **labels}, value)


def asked(source: Answers, *edges: datetime, jobs: tuple[str, ...] = ()) -> tuple[UnitSeries, ...]:
    return units_of_prometheus(source, DCGM, jobs, edges, max_age_s=30)  # type: ignore[arg-type]


def test_a_prometheus_is_asked_once_for_each_metric_that_exists() -> None:
    """However many GPUs there are."""
    power = [row(300, gpu=str(index), UUID=str(index)) for index in range(500)]
    source = Answers(DCGM_FI_DEV_POWER_USAGE=power, DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION=power)
    found = asked(source, START, END)
    assert len(found) == 500
    assert len(source.asked) == 3
    assert source.asked[1][1] == END.timestamp()
    assert any("increase(" in text_ and "[60000ms]" in text_ for text_, _ in source.asked)


def test_each_piece_of_a_cut_span_has_its_own_increase() -> None:
    source = Answers(DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION=[row(2000)])
    (unit,) = asked(source, START, at(20), END)
    assert [(step.start, step.end) for step in unit.steps] == [(START, at(20)), (at(20), END)]
    assert not unit.gauges
    worker = replace(
        PREFILL,
        devices=(DeclaredDevice("n1", 0),),
        roles=(SpanFacts("decode", START, at(20)), SpanFacts("prefill", at(20), None)),
    )
    joined = windows((unit,), worker)
    assert set(joined) == {"prefill/device"}  # nothing of decode reports at the end
    assert counter(joined["prefill/device"], Signal.DEVICE_ENERGY).increase == pytest.approx(2)


def test_at_the_first_tick_there_are_gauges_only() -> None:
    source = Answers(
        DCGM_FI_DEV_POWER_USAGE=[row(300)], DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION=[row(5)]
    )
    (unit,) = asked(source, END)
    assert (len(unit.gauges), unit.steps) == (1, ())


def test_an_exporter_that_restarted_counts_gauges_once_and_goes_on_with_its_counters() -> None:
    """Until the old series is stale both names answer."""
    both = [row(300, pod="exporter-a"), row(310, pod="exporter-b")]
    source = Answers(DCGM_FI_DEV_POWER_USAGE=both, DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION=both)
    worker = replace(PREFILL, devices=(DeclaredDevice("n1", 0),))
    window = windows(asked(source, START, END), worker)["prefill/device"]
    assert gauge(window, Signal.DEVICE_POWER).total == 310
    assert counter(window, Signal.DEVICE_ENERGY).increase == pytest.approx(0.61)


def test_a_pod_that_left_does_not_give_its_gpu_to_the_inventorys_worker_too() -> None:
    rows = [
        row(300, exported_pod="gone", exported_namespace="serving"),
        row(320, exported_pod="qwen3-prefill-0", exported_namespace="serving"),
    ]
    worker = replace(PREFILL, devices=(DeclaredDevice("n1", 0),))
    found = windows(asked(Answers(DCGM_FI_DEV_POWER_USAGE=rows), START, END), worker)
    assert gauge(found["prefill/device"], Signal.DEVICE_POWER).total == 320


def test_jobs_limit_where_exporters_are_looked_for() -> None:
    source = Answers(DCGM_FI_DEV_POWER_USAGE=[row(300)])
    asked(source, START, END, jobs=("dcgm",))
    assert all('job=~"dcgm"' in text_ for text_, _ in source.asked)
