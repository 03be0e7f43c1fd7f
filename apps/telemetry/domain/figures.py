"""The figures of one deployment at one time, as everything above telemetry reads them.

Every figure is a `Measurement` with its place (DESIGN law 3) and state (law 1). Built from stored
windows by `apps.telemetry.domain.build.figures_from_windows`; never from a live query.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime

from apps.common.measurement import Measurement, State
from apps.engines.window import HistogramIncrease


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
