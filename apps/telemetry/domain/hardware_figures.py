"""The hardware figures of a pool, from the windows of its GPUs, its hosts and its engines. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Final, Literal

from apps.common.measurement import Measurement, Place, State, Trace, missing, worst
from apps.common.units import Unit
from apps.engines.window import GaugeValue, Signal, Window, hardware_scope

from .figures import HardwareFigures
from .hardware import SHARED
from .states import View

#: The two kinds of hardware scope.
PARTS: Final[tuple[Literal["device", "host"], ...]] = ("device", "host")
#: Method of a figure that a shared GPU cannot give for one worker.
NOT_ATTRIBUTABLE: Final = "shared_device"
KWH_PER_JOULE: Final = 1 / 3.6e6
#: Requests of the three times of host overhead may differ by those in flight, no more.
COUNTS_DIFFER: Final = 0.1


def hardware_figures(
    role: str,
    view: Callable[[str], View | None],
    tokens_per_s: Measurement,
    fault_changes: Mapping[str, int] | None = None,
) -> HardwareFigures | None:
    """All figures of a role; None when neither exporters nor engines say anything of hardware."""
    device, host = (view(hardware_scope(role, part)) for part in PARTS)
    # A decode worker's own TTFT holds the transfer, and with some engines the remote prefill.
    overhead = host_overhead(view(role) if role != "decode" else None)
    if device is None and host is None and overhead.value is None:
        return None
    energy = _energy(device, tokens_per_s)
    rx, tx = (_rate(host, s) for s in (Signal.HOST_NETWORK_RX, Signal.HOST_NETWORK_TX))
    rdma = tuple(_rate(host, s) for s in (Signal.HOST_RDMA_RX, Signal.HOST_RDMA_TX))
    return HardwareFigures(
        role=role,
        tensor_active=_mean(device, Signal.DEVICE_TENSOR_ACTIVE),
        dram_active=_mean(device, Signal.DEVICE_DRAM_ACTIVE),
        sm_active=_mean(device, Signal.DEVICE_SM_ACTIVE),
        power=_total(device, Signal.DEVICE_POWER, Unit.WATTS),
        energy_per_token=energy,
        energy_per_million=_scaled(energy, 1e6 * KWH_PER_JOULE, Unit.KWH_PER_MILLION_TOKENS),
        memory_used=_total(device, Signal.DEVICE_MEMORY_USED, Unit.BYTES),
        memory_free=_total(device, Signal.DEVICE_MEMORY_FREE, Unit.BYTES),
        nvlink_rate=_total(device, Signal.DEVICE_NVLINK_RATE, Unit.BYTES_PER_SECOND),
        pcie_rate=_total(device, Signal.DEVICE_PCIE_RATE, Unit.BYTES_PER_SECOND),
        faults=_faults(device, fault_changes or {}),
        fault_code=_largest(device, Signal.DEVICE_FAULT_CODE),
        host_cpu_busy=_over(host, Signal.HOST_CPU_BUSY, Signal.HOST_CPUS, "cpu_seconds"),
        host_pressure=_over(host, Signal.HOST_LOAD, Signal.HOST_CPUS, "load_per_cpu"),
        host_memory_available=_total(host, Signal.HOST_MEMORY_AVAILABLE, Unit.BYTES),
        network_rate=_busier(rx, tx),
        network_share=_busier(
            *(_over(host, s, Signal.HOST_NETWORK_SPEED, "of_link_speed")
              for s in (Signal.HOST_NETWORK_RX, Signal.HOST_NETWORK_TX))
        ),
        network_errors=_count(host, Signal.HOST_NETWORK_ERRORS),
        rdma_rate=_busier(*rdma),
        rdma_share=_busier(
            *(_over(host, s, Signal.HOST_RDMA_SPEED, "of_link_speed")
              for s in (Signal.HOST_RDMA_RX, Signal.HOST_RDMA_TX))
        ),
        rdma_wait=_count(host, Signal.HOST_RDMA_WAIT),
        link_downs=_count(host, Signal.HOST_LINK_DOWNS),
        host_overhead=overhead,
    )  # fmt: skip


def changes_of_faults(windows: Sequence[Window]) -> int:
    """How often a worker's last fault code became another one over consecutive windows. A code
    that goes back to 0 is a restarted exporter, not a fault."""
    found = 0
    ordered = sorted(windows, key=lambda window: window.end)
    for before, after in pairwise(ordered):
        old = before.values.get(Signal.DEVICE_FAULT_CODE)
        new = after.values.get(Signal.DEVICE_FAULT_CODE)
        if isinstance(old, GaugeValue) and isinstance(new, GaugeValue):
            found += sum(
                1
                for worker, code in new.by_worker.items()
                if code and worker in old.by_worker and old.by_worker[worker] != code
            )
    return found


def host_overhead(engine: View | None) -> Measurement:
    """(sum of TTFT - queue - prefill) over requests, at the engines of one pool: time in the API
    process, tokenising and between processes. Unknown where one of the three is not exported, or
    where they count different requests."""
    if engine is None:
        return missing(Unit.SECONDS, method="host_overhead")
    times = [
        engine.histogram(signal)
        for signal in (Signal.LEG_TTFT, Signal.QUEUE_TIME, Signal.PREFILL_TIME)
    ]
    formula = "({name}_sum - queue_sum - prefill_sum) / {name}_count over {span}"
    known = [found for found in times if found is not None and found.count > 0]
    value = None
    if len(known) == len(times):
        ttft, queue, prefill = known
        counts = [found.count for found in known]
        if max(counts) - min(counts) <= COUNTS_DIFFER * max(counts):
            # Means, not sums: a request in flight is in one count and not in another.
            rest = ttft.total / ttft.count - queue.total / queue.count
            value = max(0.0, rest - prefill.total / prefill.count)
    return engine.figure(value, Unit.SECONDS, Signal.LEG_TTFT, formula, method="host_overhead")


def _nothing(view: View | None, unit: Unit, signal: Signal) -> Measurement | None:
    """Why a signal has no figure, or None if it has one."""
    trace = Trace(query=signal.value)
    if view is None:
        return missing(unit, place=Place.EXPORTER, trace=trace)
    if view.value(signal) is None:
        is_shared = view.window.names.get(signal) == SHARED
        method = NOT_ATTRIBUTABLE if is_shared else "not_exported"
        return missing(unit, place=Place.EXPORTER, method=method, trace=trace)
    return None


def _total(view: View | None, signal: Signal, unit: Unit) -> Measurement:
    lacking = _nothing(view, unit, signal)
    if lacking is not None or view is None:
        return lacking or missing(unit)
    gauge = view.gauge(signal)
    value = None if gauge is None else gauge.total
    return view.figure(value, unit, signal, "sum(last({name}))", method="last_value")


def _mean(view: View | None, signal: Signal) -> Measurement:
    lacking = _nothing(view, Unit.RATIO, signal)
    if lacking is not None or view is None:
        return lacking or missing(Unit.RATIO)
    gauge = view.gauge(signal)
    value = None if gauge is None or not gauge.by_worker else gauge.mean
    return view.figure(value, Unit.RATIO, signal, "avg(last({name}))", method="mean_of_workers")


def _largest(view: View | None, signal: Signal) -> Measurement:
    lacking = _nothing(view, Unit.COUNT, signal)
    if lacking is not None or view is None:
        return lacking or missing(Unit.COUNT)
    gauge = view.gauge(signal)
    value = max(gauge.by_worker.values(), default=None) if gauge else None
    return view.figure(value, Unit.COUNT, signal, "max(last({name}))", method="sticky")


def _count(view: View | None, signal: Signal) -> Measurement:
    lacking = _nothing(view, Unit.COUNT, signal)
    if lacking is not None or view is None:
        return lacking or missing(Unit.COUNT)
    counter = view.counter(signal)
    value = None if counter is None or view.window.seconds <= 0 else counter.increase
    return view.figure(value, Unit.COUNT, signal, "increase({name}[{span}])", method="increase")


def _rate(view: View | None, signal: Signal) -> Measurement:
    lacking = _nothing(view, Unit.BYTES_PER_SECOND, signal)
    if lacking is not None or view is None:
        return lacking or missing(Unit.BYTES_PER_SECOND)
    return view.figure(
        view.rate(signal), Unit.BYTES_PER_SECOND, signal, "increase({name}[{span}]) / {span}",
        method="increase",
    )  # fmt: skip


def _over(view: View | None, signal: Signal, base: Signal, method: str) -> Measurement:
    """The highest ratio among the workers' hosts: an average would hide the host that is full."""
    lacking = _nothing(view, Unit.RATIO, signal) or _nothing(view, Unit.RATIO, base)
    if lacking is not None or view is None:
        return lacking or missing(Unit.RATIO)
    limits = view.gauge(base)
    counter, gauge = view.counter(signal), view.gauge(signal)
    seconds = view.window.seconds
    amounts: Mapping[str, float] = {}
    if gauge is not None:
        amounts = gauge.by_worker
    elif counter is not None and seconds > 0:
        amounts = {url: value / seconds for url, value in counter.by_worker.items()}
    shares = [
        amount / limits.by_worker[url]
        for url, amount in amounts.items()
        if limits is not None and limits.by_worker.get(url, 0.0) > 0
    ]
    return view.figure(
        max(shares, default=None), Unit.RATIO, signal, f"max({{name}} / {base.value})",
        method=method,
    )  # fmt: skip


def _busier(one: Measurement, other: Measurement) -> Measurement:
    """The busier direction of a link."""
    known = [figure for figure in (one, other) if figure.value is not None]
    return max(known, key=Measurement.number) if known else one


def _faults(view: View | None, changes: Mapping[str, int]) -> Measurement:
    """Faults counted in the exporter's own window; else how often the sticky code changed, which
    is a lower bound: a repeat of the same code is invisible."""
    windowed = _total(view, Signal.DEVICE_FAULTS, Unit.COUNT)
    if windowed.value is not None:
        return replace(windowed, method="windowed_count")
    if view is None or view.gauge(Signal.DEVICE_FAULT_CODE) is None:
        return windowed
    count = float(changes.get(view.window.scope, 0))
    return view.figure(
        count, Unit.COUNT, Signal.DEVICE_FAULT_CODE, "changes({name}[{span}])",
        method="code_changed", lower=count,
    )  # fmt: skip


def _energy(view: View | None, tokens_per_s: Measurement) -> Measurement:
    """Joules per token of the pool's phase, both over the same window."""
    unit = Unit.JOULES_PER_TOKEN
    lacking = _nothing(view, unit, Signal.DEVICE_ENERGY)
    if lacking is not None or view is None:
        return lacking or missing(unit)
    watts = view.rate(Signal.DEVICE_ENERGY)
    state = tokens_per_s.state
    value = None
    if watts is not None and tokens_per_s.value is not None:
        # Without tokens the energy is spent, but a price of 0 tokens is none.
        state = State.NO_TRAFFIC if tokens_per_s.number() <= 0 else state
        value = watts / tokens_per_s.number() if tokens_per_s.number() > 0 else None
    figure = view.figure(
        value, unit, Signal.DEVICE_ENERGY, "increase({name}[{span}]) / tokens",
        state=State.NO_TRAFFIC if state is State.NO_TRAFFIC else State.OK,
        method="energy_by_tokens",
    )  # fmt: skip
    if figure.value is None or tokens_per_s.value is None:
        return figure
    return figure.with_state(worst((figure.state, tokens_per_s.state)))


def _scaled(figure: Measurement, factor: float, unit: Unit) -> Measurement:
    value = None if figure.value is None else figure.number() * factor
    return replace(figure, value=value, unit=unit)
