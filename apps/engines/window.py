"""Canonical signals and the `Window`: the signals of one scope over one interval.

Both collectors produce these; everything above reads only these. Histogram counts are *not*
cumulative, so that windows merge by plain addition and percentiles stay exact to their ladder.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum


class Kind(StrEnum):
    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Signal(StrEnum):
    """Canonical signals. Times in seconds, sizes in tokens or bytes, usage as a ratio 0..1.

    In a pool, `requests_completed` counts the legs its workers finished, not users' requests.
    `worker_health` is what a router last saw of each worker (1 or 0).
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

    `scope` is `router`, `frontend`, or a pool role (`prefill`, `decode`, `mixed`, ...). A window
    never spans a role change of its pool's workers. A signal that is absent from `values` was not
    found; an explicit 0 is an answer. `expected` and `reported` hold worker URLs (for router and
    frontend scopes: their own address). A merged window whose parts leave gaps names the time it
    really covers in `covered_s`. `is_partial`: the source itself said that its answer is
    incomplete (warnings of a Prometheus or Thanos).
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

    @property
    def seconds(self) -> float:
        """Seconds that were observed; divide increases by these."""
        if self.covered_s is not None:
            return self.covered_s
        return (self.end - self.start).total_seconds()
