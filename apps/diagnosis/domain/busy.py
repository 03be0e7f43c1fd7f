"""Busy share per pool (DESIGN law 3b, research on metrics §2a): never raw utilisation.

1.0 means that the pool does all it can inside the objectives; it may exceed 1 in overload. An
uncalibrated figure carries the method `model only`: it may flag, not command.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from apps.common.measurement import Measurement, Place, State, missing, worst
from apps.common.units import Unit
from apps.simulation.service_time import CALIBRATED, MODEL_ONLY, ObjectiveRate
from apps.telemetry.domain.figures import DeploymentFigures, PhaseFigures

ENGINE_TIME, REQUEST_TIME, MODEL = "engine_time", "request_time", "model"
RUNNING = "running"
TOKEN_RATE, KV_USED = "token_rate", "kv_used"
KV_SHARE = 0.85


@dataclass(frozen=True, slots=True)
class Capacity:
    """What the calibration says about one worker.

    `prefill_seconds` is E[S] of the uncached tokens of the present prompts; `decode` is G*, None
    without a TPOT objective.
    """

    prefill_seconds: float | None
    prefill_basis: str
    decode: ObjectiveRate | None
    decode_basis: str


@dataclass(frozen=True, slots=True)
class BusyShares:
    """`decode` is the larger of `decode_tokens` and KV used / 0.85; `slots` is shown beside it."""

    prefill: Measurement
    decode: Measurement
    decode_tokens: Measurement
    slots: Measurement

    def to_json(self) -> dict[str, Any]:
        return {
            "prefill": self.prefill.to_json(),
            "decode": self.decode.to_json(),
            "decode_tokens": self.decode_tokens.to_json(),
            "slots": self.slots.to_json(),
        }


def busy_shares(figures: DeploymentFigures, capacity: Capacity) -> BusyShares:
    """The busy shares of both planned pools."""
    tokens = decode_token_share(figures, capacity)
    return BusyShares(
        prefill=prefill_busy(figures, capacity),
        decode=decode_busy(figures, tokens),
        decode_tokens=tokens,
        slots=slot_share(figures.decode),
    )


def prefill_busy(figures: DeploymentFigures, capacity: Capacity) -> Measurement:
    """Prefill work-seconds per second over serving workers, by the first method that answers.

    In order: `engine_time` (forward seconds), `request_time` (sum of prefill times; exact only
    where one prefill runs at a time, else an upper bound), `model` (arrivals x E[S]), and last
    `running` (share of workers that run anything), which is an upper bound and no more.
    """
    phase = figures.prefill
    if phase is None or _workers(phase) == 0:
        return missing(Unit.RATIO, method="no_workers")
    forward = phase.forward_seconds_per_s
    if forward.value is not None:
        if forward.method == REQUEST_TIME:
            return _request_time(_per_worker(forward, phase, REQUEST_TIME), phase)
        return _per_worker(forward, phase, ENGINE_TIME)
    if forward.state is State.NO_TRAFFIC:
        return missing(Unit.RATIO, State.NO_TRAFFIC, method=ENGINE_TIME)
    stage, rate = phase.stage_time_mean, figures.completions_per_s
    if stage.value is not None and rate.value is not None:
        work = _scaled(stage, rate.number(), worst((stage.state, rate.state)), REQUEST_TIME)
        return _request_time(_per_worker(work, phase, REQUEST_TIME), phase)
    arrivals = figures.arrivals_per_s
    if capacity.prefill_seconds is not None and arrivals.value is not None:
        method = MODEL if capacity.prefill_basis == CALIBRATED else MODEL_ONLY
        work = _scaled(arrivals, capacity.prefill_seconds, arrivals.state, method)
        return _per_worker(work, phase, method)
    running = _running_share(phase)
    return running or missing(Unit.RATIO, worst((forward.state, stage.state)))


def decode_token_share(figures: DeploymentFigures, capacity: Capacity) -> Measurement:
    """Output tokens per second over (serving workers x G*)."""
    phase, rate = figures.decode, capacity.decode
    if phase is None or _workers(phase) == 0:
        return missing(Unit.RATIO, method="no_workers")
    tokens = phase.tokens_per_s
    if tokens.value is None and tokens.state is not State.NO_TRAFFIC:
        tokens = figures.output_tokens_per_s
    if tokens.value is None:
        return missing(Unit.RATIO, tokens.state, method=TOKEN_RATE)
    if rate is None:
        return missing(Unit.RATIO, State.NO_DATA, method="no_objective")
    method = TOKEN_RATE if capacity.decode_basis == CALIBRATED else MODEL_ONLY
    return _per_worker(
        _scaled(tokens, 1.0 / rate.tokens_per_s, tokens.state, method), phase, method
    )


def decode_busy(figures: DeploymentFigures, tokens: Measurement) -> Measurement:
    """max(token share, KV used / 0.85). One part missing leaves the other as a lower bound."""
    phase = figures.decode
    if phase is None:
        return tokens
    used = phase.kv_used
    memory = (
        _scaled(used, 1.0 / KV_SHARE, used.state, KV_USED)
        if used.value is not None
        else missing(Unit.RATIO, used.state, method=KV_USED)
    )
    if tokens.value is None or memory.value is None:
        if tokens.state is State.NO_TRAFFIC:
            return tokens
        known = tokens if memory.value is None else memory
        if known.value is None:
            return missing(Unit.RATIO, worst((tokens.state, memory.state)), method=TOKEN_RATE)
        return Measurement(
            known.value, Unit.RATIO, known.state, known.observed_at, known.place, known.method,
            lower=known.value,
        )  # fmt: skip
    larger = tokens if tokens.number() >= memory.number() else memory
    return Measurement(
        larger.value,
        Unit.RATIO,
        worst((tokens.state, memory.state)),
        larger.observed_at,
        larger.place,
        larger.method,
        coverage=larger.coverage,
    )


def slot_share(phase: PhaseFigures | None) -> Measurement:
    """Running sequences over batch slots: shown, never a busy share (it is not linear in load)."""
    if phase is None or phase.running.value is None or not phase.max_running.value:
        return missing(Unit.RATIO, method="slots")
    return Measurement(
        phase.running.number() / phase.max_running.number(),
        Unit.RATIO,
        worst((phase.running.state, phase.max_running.state)),
        phase.running.observed_at,
        Place.ENGINE,
        "slots",
    )


def imbalance(busy: BusyShares, *, ratio: float, smaller_below: float) -> str:
    """Role of the idler pool if larger / smaller > `ratio` and the smaller < `smaller_below`."""
    if busy.prefill.value is None or busy.decode.value is None:
        return ""
    prefill, decode = busy.prefill.number(), busy.decode.number()
    role, smaller, larger = (
        ("prefill", prefill, decode) if prefill < decode else ("decode", decode, prefill)
    )
    return role if smaller < smaller_below and larger > ratio * smaller else ""


def _request_time(figure: Measurement, phase: PhaseFigures) -> Measurement:
    """Prompts that share an iteration each count its whole time, so the sum can only be too high;
    it is exact where no worker takes more than one at a time."""
    limit, workers = phase.max_running, max(phase.workers_reporting, _workers(phase))
    if limit.value is not None and limit.number() <= workers:
        return figure
    return replace(figure, upper=figure.value)


def _running_share(phase: PhaseFigures) -> Measurement | None:
    """Share of the reporting workers that run anything, or None where none says."""
    gauges = [w.running for w in phase.workers if w.is_reporting and w.running.value is not None]
    if not gauges:
        return None
    share = sum(1 for gauge in gauges if gauge.number() > 0) / len(gauges)
    return Measurement(
        share,
        Unit.RATIO,
        worst(gauge.state for gauge in gauges),
        min((gauge.observed_at for gauge in gauges if gauge.observed_at), default=None),
        Place.ENGINE,
        RUNNING,
        upper=share,
        coverage=(len(gauges), max(_workers(phase), len(gauges))),
        trace=gauges[0].trace,
    )


def _workers(phase: PhaseFigures) -> int:
    return phase.workers_serving or phase.workers_reporting


def _per_worker(work: Measurement, phase: PhaseFigures, method: str) -> Measurement:
    # With part of the workers reporting, the sum covers only those; what a frontend or router
    # counted covers all of them.
    at_engines = work.place is Place.ENGINE
    partial = at_engines and work.state is State.PARTIAL and phase.workers_reporting > 0
    share = phase.workers_reporting if partial else _workers(phase)
    return Measurement(
        work.number() / share,
        Unit.RATIO,
        work.state,
        work.observed_at,
        work.place,
        method,
        coverage=(phase.workers_reporting, max(_workers(phase), phase.workers_reporting)),
        trace=work.trace,
    )


def _scaled(figure: Measurement, factor: float, state: State, method: str) -> Measurement:
    return Measurement(
        figure.number() * factor,
        Unit.RATIO,
        state,
        figure.observed_at,
        figure.place,
        method,
        trace=figure.trace,
    )
