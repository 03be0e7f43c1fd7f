"""What the rules look at, and the few numbers derived from it. Times in seconds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from apps.common.measurement import Measurement, Place, State, missing
from apps.common.units import Unit
from apps.telemetry.domain.figures import DeploymentFigures, PhaseFigures, Quantiles, Usual

from .busy import BusyShares

#: States in which a figure says nothing about now.
LOST = frozenset({State.STALE, State.NO_DATA, State.SOURCE_DOWN, State.CONFLICT})


@dataclass(frozen=True, slots=True)
class Symptoms:
    """Input of the rules.

    `expected_seconds_per_token` is prefill work per token by the calibration. `short_for_s` says
    how long each role has had fewer serving workers than wanted, `idle_for_s` how long the idler
    pool (by role) has been flagged. `router_wait` is the router's own queueing, where it exists.
    """

    figures: DeploymentFigures
    usual: Usual
    busy: BusyShares
    ttft_objective_s: float | None
    tpot_objective_s: float | None
    expected_seconds_per_token: float | None = None
    prefill_seconds: float | None = None
    short_for_s: Mapping[str, float] = field(default_factory=dict)
    replica_grace_s: float = 60.0
    idle_for_s: Mapping[str, float] = field(default_factory=dict)
    idle_hold_s: float = 600.0
    has_open_command: bool = False
    router_wait: Measurement | None = None
    usual_router_wait_s: float | None = None

    @property
    def has_traffic(self) -> bool:
        """False if arrivals stand still: a percentile then tells of requests long gone."""
        return self.figures.arrivals_per_s.state is not State.NO_TRAFFIC

    @property
    def ttft_breached(self) -> bool:
        return self.has_traffic and breached(self.figures.ttft, self.ttft_objective_s)

    @property
    def tpot_breached(self) -> bool:
        return self.has_traffic and breached(self.figures.tpot, self.tpot_objective_s)

    @property
    def prefill_busy(self) -> float:
        return number(self.busy.prefill)

    @property
    def decode_tokens_busy(self) -> float:
        return number(self.busy.decode_tokens)

    @property
    def ttft_mean_s(self) -> float:
        return number(self.figures.ttft.mean)

    @property
    def queue_share(self) -> Measurement:
        """Queue time before prefill as a share of mean TTFT."""
        phase = self.figures.prefill
        queue = phase.queue_time_mean if phase else missing(Unit.SECONDS)
        return share_of(queue, self.figures.ttft.mean, "queue_over_ttft")

    @property
    def backlog_wait_s(self) -> float:
        """What the last in today's prefill queue will wait: it leads, the histogram lags."""
        phase = self.figures.prefill
        if phase is None or phase.workers_serving == 0:
            return 0.0
        seconds = self.prefill_seconds or number(phase.stage_time_mean)
        return queued(phase) * seconds / phase.workers_serving

    @property
    def backlog_share(self) -> float:
        """Share of the coming TTFT that is queue, by the backlog."""
        wait = self.backlog_wait_s
        phase = self.figures.prefill
        work = self.prefill_seconds or (number(phase.stage_time_mean) if phase else 0.0)
        return wait / (wait + work) if wait + work > 0 else 0.0

    @property
    def kv_transfer(self) -> Measurement:
        """Mean KV transfer time, measured by either side, else what queue, prefill and (where it is
        known) the host's overhead leave of TTFT."""
        for phase in (self.figures.prefill, self.figures.decode):
            if phase is not None and phase.kv_transfer_mean.value is not None:
                return phase.kv_transfer_mean
        prefill, ttft = self.figures.prefill, self.figures.ttft.mean
        if prefill is None or ttft.value is None or prefill.stage_time_mean.value is None:
            return missing(Unit.SECONDS, method="not_exported")
        if prefill.queue_time_mean.value is None:
            return missing(Unit.SECONDS, method="not_exported")
        hardware = self.figures.hardware.get("prefill")
        rest = ttft.number() - prefill.queue_time_mean.number() - prefill.stage_time_mean.number()
        rest -= number(hardware.host_overhead) if hardware else 0.0
        return Measurement(
            max(0.0, rest), Unit.SECONDS, ttft.state, ttft.observed_at, ttft.place, "derived"
        )

    @property
    def decode_admission_wait_s(self) -> float:
        """Little's law over the requests that wait for decode to accept them."""
        decode, rate = self.figures.decode, number(self.figures.completions_per_s)
        if decode is None or rate <= 0:
            return 0.0
        return queued(decode) / rate


def number(figure: Measurement) -> float:
    """The value, or 0 where nothing is known; only for rules that fire upwards."""
    return 0.0 if figure.value is None or figure.state in LOST else float(figure.value)


def queued(phase: PhaseFigures) -> float:
    """Requests that wait for the pool itself: its waiting gauge also counts those in transfer."""
    return max(0.0, number(phase.waiting) - number(phase.transferring))


def breached(latency: Quantiles, objective_s: float | None) -> bool:
    """P95 over the objective, with enough requests; at the ladder's end it counts as over."""
    p95 = latency.p95
    if objective_s is None or p95.state not in (State.OK, State.CLAMPED, State.PARTIAL):
        return False
    return p95.value is not None and p95.number() > objective_s


def share_of(part: Measurement, whole: Measurement, method: str) -> Measurement:
    """`part / whole` capped at 1, or missing."""
    if part.value is None or not whole.value:
        return missing(Unit.RATIO, part.state if part.value is None else whole.state, method=method)
    return Measurement(
        min(1.0, part.number() / whole.number()),
        Unit.RATIO,
        part.state,
        part.observed_at,
        Place.ENGINE,
        method,
    )


def coverage(phase: PhaseFigures | None) -> float:
    """Reporting over serving workers; 1 when none is known to serve."""
    if phase is None:
        return 0.0
    expected = phase.workers_serving or phase.workers_wanted
    return min(1.0, phase.workers_reporting / expected) if expected else 1.0
