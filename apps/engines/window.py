"""Canonical signals and the `Window`: the signals of one scope over one interval.

Both collectors produce these; everything above reads only these. Histogram counts are *not*
cumulative, so that windows merge by plain addition and percentiles stay exact to their ladder.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Final, Literal


class Kind(StrEnum):
    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Signal(StrEnum):
    """Canonical signals. Times in seconds, sizes in tokens or bytes, usage as a ratio 0..1.

    In a pool, `requests_completed` counts the legs its workers finished, not users' requests.
    `requests_aborted` (clients that went away) is only read where requests are seen whole: at
    routers and frontends. `computed_tokens` are prompt tokens computed here,
    `transferred_tokens` those whose KV came from another worker; on decode the first should be
    0. `leg_ttft` is a worker's own time to its first token (for host overhead, never an
    objective). `waiting_capacity` waits because no KV blocks are free. `stale_kv_served` counts
    reads of KV whose lease had run out: possibly wrong answers. `worker_health` is what a
    router last saw of each worker (1 or 0). `device_*` are per GPU, summed or averaged over a
    worker's GPUs; `host_*` per node.
    """

    REQUESTS_ARRIVED = "requests_arrived"
    REQUESTS_COMPLETED = "requests_completed"
    REQUESTS_FAILED = "requests_failed"
    TTFT = "ttft"
    TPOT = "tpot"
    ITL = "itl"
    E2E = "e2e"
    QUEUE_TIME = "queue_time"
    PREFILL_TIME = "prefill_time"
    KV_TRANSFER_TIME = "kv_transfer_time"
    KV_TRANSFER_BYTES = "kv_transfer_bytes"
    INPUT_TOKENS = "input_tokens"
    OUTPUT_TOKENS = "output_tokens"
    CACHED_TOKENS = "cached_tokens"
    FORWARD_SECONDS = "forward_seconds"
    PREEMPTIONS = "preemptions"
    TRANSFER_FAILURES = "transfer_failures"
    RUNNING = "running"
    WAITING = "waiting"
    WAITING_TRANSFER = "waiting_transfer"
    KV_USED = "kv_used"
    KV_CAPACITY_TOKENS = "kv_capacity_tokens"
    MAX_RUNNING = "max_running"
    WORKER_HEALTH = "worker_health"
    REQUESTS_ABORTED = "requests_aborted"
    REQUESTS_REJECTED = "requests_rejected"
    INPUT_LENGTH = "input_length"
    OUTPUT_LENGTH = "output_length"
    UNCACHED_LENGTH = "uncached_length"
    COMPUTED_TOKENS = "computed_tokens"
    TRANSFERRED_TOKENS = "transferred_tokens"
    LEG_TTFT = "leg_ttft"
    WAITING_CAPACITY = "waiting_capacity"
    STALE_KV_SERVED = "stale_kv_served"
    DEVICE_TENSOR_ACTIVE = "device_tensor_active"
    DEVICE_DRAM_ACTIVE = "device_dram_active"
    DEVICE_SM_ACTIVE = "device_sm_active"
    DEVICE_UTILISATION = "device_utilisation"
    DEVICE_POWER = "device_power"
    DEVICE_ENERGY = "device_energy"
    DEVICE_MEMORY_USED = "device_memory_used"
    DEVICE_MEMORY_FREE = "device_memory_free"
    DEVICE_FAULT_CODE = "device_fault_code"
    DEVICE_FAULTS = "device_faults"
    DEVICE_NVLINK_RATE = "device_nvlink_rate"
    DEVICE_PCIE_RATE = "device_pcie_rate"
    HOST_CPU_BUSY = "host_cpu_busy"
    HOST_CPUS = "host_cpus"
    HOST_LOAD = "host_load"
    HOST_MEMORY_AVAILABLE = "host_memory_available"
    HOST_NETWORK_RX = "host_network_rx"
    HOST_NETWORK_TX = "host_network_tx"
    HOST_NETWORK_ERRORS = "host_network_errors"
    HOST_NETWORK_SPEED = "host_network_speed"
    HOST_RDMA_RX = "host_rdma_rx"
    HOST_RDMA_TX = "host_rdma_tx"
    HOST_RDMA_SPEED = "host_rdma_speed"
    HOST_RDMA_WAIT = "host_rdma_wait"
    HOST_LINK_DOWNS = "host_link_downs"

    # Equal to its text, so it may hash like it; the Enum's own is a call for each look-up.
    __hash__ = str.__hash__

    @property
    def is_hardware(self) -> bool:
        """True for figures of GPUs and hosts, which no engine exports."""
        return self.value.startswith(("device_", "host_"))


#: What a profile describes; `device`, `host` and `transfer` are exporters beside the engines.
Part = Literal["router", "frontend", "engine", "device", "host", "transfer"]

#: What a transfer library that exports on its own port can tell.
TRANSFER_SIGNALS: Final = frozenset(
    {Signal.KV_TRANSFER_TIME, Signal.KV_TRANSFER_BYTES, Signal.TRANSFER_FAILURES}
)


def signals_of(part: Part) -> frozenset[Signal]:
    """The signals that a profile of this part maps or lists as absent."""
    if part in ("device", "host"):
        return frozenset(s for s in Signal if s.value.startswith(f"{part}_"))
    if part == "transfer":
        return TRANSFER_SIGNALS
    return frozenset(s for s in Signal if not s.is_hardware)


def hardware_scope(role: str, part: Literal["device", "host"]) -> str:
    """The scope of the windows that hold the GPUs or hosts of a pool's workers."""
    return f"{role}/{part}"


@dataclass(frozen=True, slots=True)
class CounterIncrease:
    """Increase over the window, resets handled; `by_worker` maps worker URL to its part."""

    increase: float
    by_worker: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class GaugeValue:
    """Last value in the window, summed over workers, with each worker's own."""

    total: float
    by_worker: Mapping[str, float] = field(default_factory=dict)

    @property
    def mean(self) -> float:
        return self.total / len(self.by_worker) if self.by_worker else self.total


@dataclass(frozen=True, slots=True)
class HistogramIncrease:
    """Observations of the window per bucket of one ladder.

    `bounds` are the finite upper bounds, ascending; `counts` has one more entry, for +Inf.
    `sum_by_worker` and `count_by_worker` allow means per worker.
    """

    bounds: tuple[float, ...]
    counts: tuple[float, ...]
    total: float
    count: float
    sum_by_worker: Mapping[str, float] = field(default_factory=dict)
    count_by_worker: Mapping[str, float] = field(default_factory=dict)

    @property
    def mean(self) -> float | None:
        return self.total / self.count if self.count > 0 else None


SignalValue = CounterIncrease | GaugeValue | HistogramIncrease


@dataclass(frozen=True, slots=True)
class Window:
    """The signals of one scope over `(start, end]`.

    `scope` is `router`, `frontend`, a pool role (`prefill`, `decode`, `mixed`, ...) or the
    hardware below it (`prefill/device`, `prefill/host`: see `hardware_scope`). A window never
    spans a role change of its pool's workers. A signal that is absent from `values` was not
    found; an explicit 0 is an answer. `expected` and `reported` hold worker URLs (for router
    and frontend scopes: their own address). A merged window whose parts leave gaps names the
    time it really covers in `covered_s`. `is_partial`: the source itself said that its answer
    is incomplete (warnings of a Prometheus or Thanos). `is_conflict`: copies of one of its
    targets contradict each other, so that nothing may rest on it.
    """

    scope: str
    start: datetime
    end: datetime
    values: Mapping[Signal, SignalValue]
    expected: tuple[str, ...]
    reported: tuple[str, ...]
    source: str = ""
    names: Mapping[Signal, str] = field(default_factory=dict)
    covered_s: float | None = None
    is_partial: bool = False
    is_conflict: bool = False

    @property
    def seconds(self) -> float:
        """Seconds that were observed; divide increases by these."""
        if self.covered_s is not None:
            return self.covered_s
        return (self.end - self.start).total_seconds()
