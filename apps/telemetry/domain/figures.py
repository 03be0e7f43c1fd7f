"""The figures of one deployment at one time, as everything above telemetry reads them.

Every figure is a `Measurement` with its place (DESIGN law 3) and state (law 1). Built from stored
windows by `apps.telemetry.domain.build.figures_from_windows`; never from a live query.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final

from apps.common.measurement import Measurement, State
from apps.engines.window import HistogramIncrease

#: The last token of a prompt is always computed, so a prompt is never wholly cached.
LEAST_COMPUTED: Final = 0.05


@dataclass(frozen=True, slots=True)
class Quantiles:
    """Percentiles and mean of one latency, in seconds, from merged bucket increments."""

    p50: Measurement
    p95: Measurement
    p99: Measurement
    mean: Measurement
    histogram: HistogramIncrease | None


@dataclass(frozen=True, slots=True)
class WorkerFigures:
    """One worker. `seconds_per_token` is forward time per token of its phase (for peers)."""

    url: str
    name: str
    role: str
    serving: str
    is_reporting: bool
    waiting: Measurement
    running: Measurement
    kv_used: Measurement
    tokens_per_s: Measurement
    forward_share: Measurement
    seconds_per_token: Measurement


@dataclass(frozen=True, slots=True)
class PhaseFigures:
    """One pool. Queues, running requests, capacity and limits are totals over its workers;
    `kv_used` is their mean ratio; `forward_seconds_per_s` is summed (2.0 = two fully busy; method
    `request_time` where only prefill times per request exist). `stage_time_mean` is a request's
    prefill time, on decode the mean time of a token. `tokens_per_s` are input tokens on prefill,
    output tokens else. `preemptions` counts those of the window.
    """

    role: str
    workers_wanted: int
    workers_serving: int
    workers_reporting: int
    waiting: Measurement
    running: Measurement
    transferring: Measurement
    kv_used: Measurement
    kv_capacity_tokens: Measurement
    max_running: Measurement
    tokens_per_s: Measurement
    forward_seconds_per_s: Measurement
    queue_time_mean: Measurement
    stage_time_mean: Measurement
    kv_transfer_mean: Measurement
    preemptions: Measurement
    workers: tuple[WorkerFigures, ...]


@dataclass(frozen=True, slots=True)
class HardwareFigures:
    """The GPUs and hosts of one pool, as exporters see them; shown beside the busy share, never in
    its place.

    Activities are ratios, averaged over the workers' GPUs. `power`, memory and `faults` are totals
    of the pool. `energy_per_token` is that of the pool per token of its phase (input on prefill,
    output else), counted once; `energy_per_million` the same per million. `fault_code` is the
    last code (XID), which sticks: only `faults` says that something happened, and its method how
    that is known. `host_pressure` is load per CPU (above 1, processes wait). Network figures are
    of the kernel, `rdma_*` of InfiniBand and RoCE, which the kernel does not see; shares are of the
    link's speed, of the busier direction. `rdma_wait` is the growth of ticks without credit.
    `host_overhead` is the mean time a request spends in the serving process outside queue and
    prefill (metrics research 8.7).
    """

    role: str
    tensor_active: Measurement
    dram_active: Measurement
    sm_active: Measurement
    power: Measurement
    energy_per_token: Measurement
    energy_per_million: Measurement
    memory_used: Measurement
    memory_free: Measurement
    nvlink_rate: Measurement
    pcie_rate: Measurement
    faults: Measurement
    fault_code: Measurement
    host_cpu_busy: Measurement
    host_pressure: Measurement
    host_memory_available: Measurement
    network_rate: Measurement
    network_share: Measurement
    network_errors: Measurement
    rdma_rate: Measurement
    rdma_share: Measurement
    rdma_wait: Measurement
    link_downs: Measurement
    host_overhead: Measurement


@dataclass(frozen=True, slots=True)
class DeploymentFigures:
    """All figures of a deployment over the window that ends at `at` and lasts `span_s` seconds.

    Counts: requests at the frontend or router, else where the decode workers finish them; input
    tokens at the frontend, else prefill; output tokens at the frontend, else decode; cached tokens
    never from decode (DESIGN law 4).
    """

    at: datetime | None
    span_s: float
    ttft: Quantiles
    tpot: Quantiles
    arrivals_per_s: Measurement
    completions_per_s: Measurement
    failures_per_s: Measurement
    input_tokens_per_s: Measurement
    output_tokens_per_s: Measurement
    cached_tokens_per_s: Measurement
    mean_input_tokens: Measurement
    mean_output_tokens: Measurement
    prefill: PhaseFigures | None
    decode: PhaseFigures | None
    mixed: PhaseFigures | None
    hardware: Mapping[str, HardwareFigures] = field(default_factory=dict)

    @property
    def uncached_input_tokens_per_s(self) -> Measurement:
        """Input tokens that had to be computed; equals the input rate where the engine reports no
        cached tokens (its method then says so)."""
        whole, cached = self.input_tokens_per_s, self.cached_tokens_per_s
        if whole.value is None or cached.value is None:
            return replace(whole, method="no_cached_tokens_reported")
        computed = max(0.0, whole.number() - cached.number())
        # A cached count that is not credible makes the difference so, too.
        state = State.CONFLICT if cached.state is State.CONFLICT else whole.state
        return replace(whole, value=computed, state=state, method="input_minus_cached")

    @property
    def mean_uncached_tokens(self) -> Measurement:
        """Mean tokens of a prompt that had to be computed: what prefill work depends on. Equals
        the prompt where no place reports cached tokens (its method then says so)."""
        mean, whole = self.mean_input_tokens, self.input_tokens_per_s
        computed = self.uncached_input_tokens_per_s
        if mean.value is None or not whole.value or computed.method != "input_minus_cached":
            return replace(mean, method="no_cached_tokens_reported")
        share = max(LEAST_COMPUTED, computed.number() / whole.number())
        return replace(mean, value=mean.number() * share, method="input_minus_cached")

    def phase(self, role: str) -> PhaseFigures | None:
        """The pool of a planned role."""
        return {"prefill": self.prefill, "decode": self.decode, "mixed": self.mixed}.get(role)


@dataclass(frozen=True, slots=True)
class Usual:
    """Medians to compare with, and what they rest on.

    `basis` is `same_hour_4_weeks`, `last_24_h`, or `since_start` when less history exists; None
    values mean not enough history to say what is usual. `prefill_busy` is forward time per worker
    (0..1); `decode_busy` needs a calibrated twin and stays None here.
    """

    basis: str
    ttft_mean_s: float | None = None
    queue_time_s: float | None = None
    prefill_time_s: float | None = None
    kv_transfer_s: float | None = None
    tpot_p95_s: float | None = None
    mean_input_tokens: float | None = None
    mean_output_tokens: float | None = None
    arrivals_per_s: float | None = None
    prefill_busy: float | None = None
    decode_busy: float | None = None
