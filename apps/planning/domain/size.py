"""Queueing: how long requests wait for N workers, and how many workers a demand needs.

Prefill is a late-binding queue of N servers: P(W > w) = C exp(-2N(1 - rho)w / ((ca2 + cs2)E[S]))
with Sakasegawa's C = rho^(sqrt(2(N+1)) - 1) (research on peers §3.4). Decode is a batch whose step
time grows with its load (§3.5). All arguments broadcast, so that draws are one call.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from apps.simulation.service_time import ObjectiveRate, PrefillModel, objective_rate

from .model import Engine, Targets

Floats = NDArray[np.float64]

KV_SHARE, SEQUENCES_SHARE, DECODE_MARGIN = 0.85, 0.94, 0.05
QUANTILE_POINTS = 24
MAX_WORKERS = 4096


def _normal_quantile(p: float) -> float:
    """Inverse of the standard normal distribution by bisection (a few points, at import)."""
    low, high = -8.0, 8.0
    for _ in range(60):
        middle = (low + high) / 2
        below = 0.5 * (1 + math.erf(middle / math.sqrt(2))) < p
        low, high = (middle, high) if below else (low, middle)
    return (low + high) / 2


#: Standard normal quantiles at the middles of equal slices; lengths are taken as lognormal.
_SLICES: Floats = np.array(
    [_normal_quantile((i + 0.5) / QUANTILE_POINTS) for i in range(QUANTILE_POINTS)]
)


def length_quantiles(mean: Floats | float, cv2: float) -> Floats:
    """Lengths at the middles of equal slices of a lognormal, last axis = slice, same mean."""
    sigma = math.sqrt(math.log(1.0 + cv2))
    shape: Floats = np.exp(sigma * _SLICES)
    lengths: Floats = np.asarray(mean)[..., None] * (shape / shape.mean())
    return lengths


def prefill_seconds(model: PrefillModel, lengths: Floats) -> Floats:
    """S(n) for an array of lengths."""
    return np.asarray(model.a_s + model.b_s * lengths + model.c_s * lengths**2)


@dataclass(frozen=True, slots=True)
class PrefillState:
    """A prefill pool under a demand: offered work in busy workers, mean service, waiting law."""

    work: Floats
    mean_s: Floats
    workers: int
    cv2: Floats
    arrival_cv2: float

    @property
    def rho(self) -> Floats:
        """Offered work over workers; 1 and more never settles."""
        return self.work / self.workers

    def late_share(self, slack_s: Floats) -> Floats:
        """P(W > slack); 1 where the pool does not settle or nothing is left to wait."""
        rho = np.minimum(self.rho, 0.9999)
        waits = rho ** (math.sqrt(2.0 * (self.workers + 1)) - 1.0)
        decay = 2.0 * self.workers * (1.0 - rho) / ((self.arrival_cv2 + self.cv2) * self.mean_s)
        extra = slack_s.ndim - rho.ndim
        waits, decay = _lift(waits, extra), _lift(decay, extra)
        tail = np.minimum(1.0, waits * np.exp(-decay * np.maximum(slack_s, 0.0)))
        return np.asarray(np.where((slack_s <= 0) | (_lift(self.rho, extra) >= 1.0), 1.0, tail))


def _lift(values: Floats, extra: int) -> Floats:
    return values.reshape(values.shape + (1,) * extra)


def prefill_state(
    model: PrefillModel,
    *,
    rate: Floats | float,
    mean_tokens: Floats | float,
    cv2: float,
    arrival_cv2: float,
    workers: int,
    factor: Floats | float = 1.0,
) -> tuple[PrefillState, Floats]:
    """The pool's state and the service times by length slice (last axis). `factor` scales S."""
    service = (
        prefill_seconds(model, length_quantiles(mean_tokens, cv2)) * np.asarray(factor)[..., None]
    )
    mean = service.mean(axis=-1)
    spread = service.var(axis=-1) / mean**2
    state = PrefillState(np.asarray(rate) * mean, mean, workers, spread, arrival_cv2)
    return state, service


@dataclass(frozen=True, slots=True)
class DecodeState:
    """A decode pool under a token rate: batch per worker, step time, share of what it can do.

    `load` is the offered rate over the rate at the largest batch the engine admits; 1 and more
    means that requests wait to be admitted.
    """

    batch: Floats
    step_s: Floats
    load: Floats
    largest: Floats


def decode_state(
    engine: Engine,
    *,
    token_rate: Floats | float,
    context: Floats | float,
    workers: int,
    factor: Floats | float = 1.0,
) -> DecodeState:
    """Fixed point B = (g / N) tau(B, B ctx) of a linear step, capped at the engine's limits."""
    rate = np.asarray(token_rate, dtype=float) / workers
    ctx = np.asarray(context, dtype=float)
    alpha = engine.decode.alpha_s * np.asarray(factor, dtype=float)
    slope = (engine.decode.beta_s + engine.decode.gamma_s * ctx) * np.asarray(factor, dtype=float)
    largest = largest_batch(engine, ctx)
    room = 1.0 - rate * slope
    with np.errstate(divide="ignore", invalid="ignore"):
        wanted = np.where(room > 0, rate * alpha / np.where(room > 0, room, 1.0), np.inf)
    batch = np.minimum(wanted, largest)
    step = alpha + slope * batch
    most = largest / (alpha + slope * largest)
    return DecodeState(batch, step, rate / most, np.asarray(largest))


def largest_batch(engine: Engine, context: Floats) -> Floats:
    """The largest batch the engine admits: sequences and 0.85 of the KV memory (a bound of 4096
    stands in where neither is known)."""
    limit = np.full_like(context, 4096.0)
    if engine.max_sequences:
        limit = np.minimum(limit, SEQUENCES_SHARE * engine.max_sequences)
    if engine.kv_capacity_tokens:
        limit = np.minimum(limit, KV_SHARE * engine.kv_capacity_tokens / np.maximum(context, 1.0))
    return np.maximum(limit, 1.0)


def infeasible_share(engine: Engine, targets: Targets, mean_tokens: float) -> float:
    """phi: prompts whose own service and transfer exceed the objective, with any number."""
    if targets.ttft_s is None:
        return 0.0
    lengths = length_quantiles(mean_tokens, engine.length_cv2)
    own = prefill_seconds(engine.prefill, lengths) + engine.transfer_s
    return float((own > targets.ttft_s).mean())


def prefill_need(
    engine: Engine,
    targets: Targets,
    *,
    rate: float,
    mean_tokens: float,
    backlog: float,
    drain_s: float,
) -> int:
    """Smallest N that keeps the objective for the feasible share, settles, and drains the backlog.

    Monotone in rate and length. Without a TTFT objective: 85 % busy.
    """
    if rate <= 0:
        return 1
    work_s = rate * float(
        prefill_seconds(engine.prefill, length_quantiles(mean_tokens, engine.length_cv2)).mean()
    )
    for workers in range(max(1, math.floor(work_s)), MAX_WORKERS):
        state, service = prefill_state(
            engine.prefill,
            rate=rate,
            mean_tokens=mean_tokens,
            cv2=engine.length_cv2,
            arrival_cv2=engine.arrival_cv2,
            workers=workers,
        )
        work = float(state.work)
        spare = workers - work
        if spare <= 0 or backlog * float(state.mean_s) > spare * drain_s:
            continue
        if targets.ttft_s is None:
            if work <= 0.85 * workers:
                return workers
            continue
        slack = targets.ttft_s - service - engine.transfer_s
        feasible = slack > 0
        if not feasible.any():
            return workers
        late = float(state.late_share(slack)[feasible].mean())
        if late <= 1.0 - targets.ttft_quantile:
            return workers
    return MAX_WORKERS


def decode_need(engine: Engine, targets: Targets, *, token_rate: float, context: float) -> int:
    """Smallest N whose workers stay inside G*, with two standard deviations of the batch (§3.5)."""
    if token_rate <= 0:
        return 1
    best = decode_rate(engine, targets, context)
    concurrency = token_rate * best.step_s
    return max(1, math.ceil((concurrency + 2.0 * math.sqrt(concurrency)) / best.batch))


def decode_rate(engine: Engine, targets: Targets, context: float) -> ObjectiveRate:
    """G* of one worker; without a TPOT objective the engine's own largest batch bounds it."""
    limit = targets.tpot_s
    if limit is None:
        batch = float(largest_batch(engine, np.asarray(context)))
        step = engine.decode.step_seconds(batch, batch * context)
        return ObjectiveRate(batch, step, batch / step, "engine", True)
    return objective_rate(
        engine.decode,
        context_tokens=context,
        tpot_objective_s=limit,
        max_sequences=engine.max_sequences,
        kv_capacity_tokens=engine.kv_capacity_tokens,
        margin=DECODE_MARGIN,
        kv_share=KV_SHARE,
        sequences_share=SEQUENCES_SHARE,
    )
