"""What a pair of worker counts would give: TTFT and TPOT P95, goodput, cost, each with a range.

Point and 90 % range from seeded draws over the drift of rate and lengths and the error of the
learnt models (research on planning §4: without drift of length a range covers 39 instead of 79 %).
The range describes windows of the coming `horizon_s`, not the error of a mean.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal

import numpy as np

from apps.common.measurement import Measurement, Place, State, missing
from apps.common.units import Unit

from .demand import Demand
from .model import Engine, Money, Pair, Targets
from .size import DecodeState, Floats, PrefillState, decode_state, prefill_state

DRAWS, LOW, HIGH = 200, 0.05, 0.95
NORMAL_95 = 1.6448536269514722
BISECTIONS = 40
#: Instants at which the queue of one horizon is looked at.
HORIZON_STEPS = 12
_ERFC = (0.254829592, -0.284496736, 1.421413741, -1.453152027, 1.061405429)
#: Floors of the half-widths, else a quiet history gives a range of nothing (§4).
TTFT_FLOOR, TPOT_FLOOR, LOGIT_FLOOR = 0.02, 0.01, 0.10
ALL_GOOD = 0.999
METHOD = "model"
TTFT, TPOT, GOODPUT, COST = "ttft_p95", "tpot_p95", "goodput", "cost_per_million"


@dataclass(frozen=True, slots=True)
class Outcome:
    """One pair under one demand, draw by draw (arrays of equal length; the point is one draw).

    `good` is the lower end of the joint share (law 3a), `good_rate` good tokens per second.
    """

    ttft_s: Floats
    tpot_s: Floats
    ttft_share: Floats
    tpot_share: Floats
    good: Floats
    good_rate: Floats
    prefill_busy: Floats
    decode_busy: Floats


@dataclass(frozen=True, slots=True)
class Prediction:
    """A pair's predicted figures. `meets_*` compare the point with the objective (True without
    one), `chance_*` are the shares of draws that meet it. `served_share` is what of the demand the
    pair can carry at all."""

    pair: Pair
    ttft_s: float
    tpot_s: float
    good_share: float
    prefill_busy: float
    decode_busy: float
    served_share: float
    meets_ttft: bool
    meets_tpot: bool
    chance_ttft: float | None
    chance_tpot: float | None
    per_hour: Decimal | None
    figures: dict[str, Measurement]

    @property
    def meets_all(self) -> bool:
        return self.meets_ttft and self.meets_tpot


def point(
    pair: Pair, demand: Demand, engine: Engine, targets: Targets, money: Money, *, horizon_s: float
) -> Prediction:
    """The central prediction without ranges: cheap enough for every point of a lattice."""
    central = _outcome(pair, demand, engine, targets, _no_draws(), horizon_s)
    return _summary(pair, central, targets, money, {}, None)


def predict(
    pair: Pair,
    demand: Demand,
    engine: Engine,
    targets: Targets,
    money: Money,
    *,
    horizon_s: float,
    seed: int,
    at: datetime,
    width_scale: float = 1.0,
) -> Prediction:
    """The prediction with ranges. The same arguments give the same figures to the last digit.

    `width_scale` widens every range as past commands ask for (split conformal, §4).
    """
    drawn = _outcome(pair, demand, engine, targets, _draws(demand, engine, seed), horizon_s)
    central = _outcome(pair, demand, engine, targets, _no_draws(), horizon_s)
    figures = {
        TTFT: _log_range(central.ttft_s, drawn.ttft_s, TTFT_FLOOR, width_scale, at),
        TPOT: _log_range(central.tpot_s, drawn.tpot_s, TPOT_FLOOR, width_scale, at),
        GOODPUT: _share_range(central.good, drawn.good, width_scale, at),
        COST: _cost(money.per_hour(pair), central.good_rate, drawn.good_rate, width_scale, at),
    }
    return _summary(pair, central, targets, money, figures, drawn)


@dataclass(frozen=True, slots=True)
class _Factors:
    rate: Floats
    input: Floats
    output: Floats
    prefill: Floats
    decode: Floats


def _no_draws() -> _Factors:
    one = np.ones(1)
    return _Factors(one, one, one, one, one)


def _draws(demand: Demand, engine: Engine, seed: int) -> _Factors:
    generator = np.random.default_rng(seed)
    # Normal numbers are drawn in one block and paired with their mirror: half the noise, and the
    # same draws whatever the pair, so that two pairs are compared under the same futures.
    half = generator.standard_normal((DRAWS // 2, 5))
    normal = np.concatenate([half, -half])
    drift = demand.drift
    spread = (drift.rate, drift.input, drift.output, engine.prefill_error, engine.decode_error)
    rate, prompt, answer, prefill, decode = (
        np.exp(sigma * normal[:, i]) for i, sigma in enumerate(spread)
    )
    return _Factors(rate, prompt, answer, prefill, decode)


def _outcome(
    pair: Pair, demand: Demand, engine: Engine, targets: Targets, factors: _Factors, horizon: float
) -> Outcome:
    rate = demand.rate * factors.rate
    prefill, service = prefill_state(
        engine.prefill,
        rate=rate,
        mean_tokens=demand.mean_input * factors.input,
        cv2=engine.length_cv2,
        arrival_cv2=engine.arrival_cv2,
        workers=pair.prefill,
        factor=factors.prefill,
    )
    context = demand.mean_prompt * factors.input + demand.mean_output * factors.output / 2.0
    decode = decode_state(
        engine,
        token_rate=demand.token_rate * factors.rate * factors.output,
        context=context,
        workers=pair.decode,
        factor=factors.decode,
    )
    # Decode that cannot admit everything makes requests wait before their first token.
    admission = np.maximum(0.0, decode.load - 1.0) * HIGH * horizon
    fixed = engine.transfer_s + decode.step_s + admission
    quantile = targets.ttft_quantile
    standing = demand.backlog * prefill.mean_s / pair.prefill
    ttft = _ttft_quantile(prefill, service, fixed, standing, rate, quantile, horizon)
    ttft_share = _ttft_share(prefill, service, fixed, standing, rate, targets.ttft_s, horizon)
    tpot, tpot_share = _tpot(engine, decode, context, factors.decode, targets)
    good = np.clip(ttft_share + tpot_share - 1.0, 0.0, 1.0)
    done = rate / np.maximum(1.0, np.maximum(prefill.rho, decode.load))
    tokens = demand.mean_prompt * factors.input + demand.mean_output * factors.output
    return Outcome(
        ttft_s=ttft,
        tpot_s=tpot,
        ttft_share=ttft_share,
        tpot_share=tpot_share,
        good=good,
        good_rate=done * tokens * good,
        prefill_busy=prefill.rho,
        decode_busy=decode.load,
    )


def _ttft_quantile(
    prefill: PrefillState,
    service: Floats,
    fixed: Floats,
    standing: Floats,
    rate: Floats,
    q: float,
    horizon: float,
) -> Floats:
    """The smallest t with P(TTFT > t) <= 1 - q, bounded by what one horizon can pile up on the
    standing queue (all in seconds)."""
    overload = np.maximum(0.0, prefill.rho - 1.0) * q * horizon
    # A random walk of work over the horizon: near saturation the steady state is never reached.
    work_sd = np.sqrt(rate * horizon * (service**2).mean(axis=-1)) / prefill.workers
    own = np.quantile(service, q, axis=-1) + fixed
    ceiling = own + standing + overload + NORMAL_95 * work_sd
    low, high = np.zeros_like(ceiling), ceiling.copy()
    for _ in range(BISECTIONS):
        middle = (low + high) / 2.0
        late = prefill.late_share(middle[..., None] - service - fixed[..., None]).mean(axis=-1)
        fits = late <= 1.0 - q
        high = np.where(fits, middle, high)
        low = np.where(fits, low, middle)
    return np.asarray(high)


def _ttft_share(
    prefill: PrefillState,
    service: Floats,
    fixed: Floats,
    standing: Floats,
    rate: Floats,
    objective: float | None,
    horizon: float,
) -> Floats:
    """Share within the objective. A queue near or beyond saturation has no time to settle, so what
    the horizon can pile up counts there, the steady state where it is better."""
    if objective is None:
        return np.ones_like(prefill.rho)
    slack = objective - service - fixed[..., None]
    steady = 1.0 - prefill.late_share(slack).mean(axis=-1)
    variance = rate * (service**2).mean(axis=-1) / prefill.workers**2
    within = _reflected(slack, standing, prefill.rho - 1.0, variance, horizon).mean(axis=-1)
    return np.asarray(np.where(prefill.rho >= 1.0, within, np.maximum(steady, within)))


def _reflected(
    slack: Floats, standing: Floats, drift: Floats, variance: Floats, horizon: float
) -> Floats:
    """Mean over the horizon of P(queued work <= slack): Brownian motion with this drift and
    variance (seconds of work per second), reflected at an empty queue, from the standing queue
    (Harrison, Brownian Motion and Stochastic Flow Systems, 1985, section 1.8)."""
    x = np.maximum(slack, 0.0)[..., None]
    start, mu, var = (np.asarray(part)[..., None, None] for part in (standing, drift, variance))
    var = np.maximum(var, 1e-12)
    times = (np.arange(HORIZON_STEPS) + 0.5) / HORIZON_STEPS * horizon
    sd = np.sqrt(var * times)
    direct = _normal_cdf((x - start - mu * times) / sd)
    mirrored = np.exp(np.minimum(2.0 * mu * x / var, 700.0)) * _normal_cdf(
        (-x - start - mu * times) / sd
    )
    found = np.clip(direct - mirrored, 0.0, 1.0).mean(axis=-1)
    return np.where(slack >= 0.0, found, 0.0)


def _tpot(
    engine: Engine, decode: DecodeState, context: Floats, factor: Floats, targets: Targets
) -> tuple[Floats, Floats]:
    """TPOT at its quantile and the share within the objective: the batch varies by its root."""
    slope = (engine.decode.beta_s + engine.decode.gamma_s * context) * factor
    spread = engine.tpot_spread * np.sqrt(np.maximum(decode.batch, 1e-9))
    upper = np.minimum(decode.batch + spread, np.maximum(decode.largest, decode.batch))
    tpot = decode.step_s + slope * (upper - decode.batch)
    if targets.tpot_s is None:
        return np.asarray(tpot), np.ones_like(tpot)
    room = (targets.tpot_s - decode.step_s) / np.maximum(slope, 1e-12)
    full = decode.load >= 1.0
    score = NORMAL_95 * room / spread
    share = np.where(full, (room >= 0).astype(float), _normal_cdf(score))
    return np.asarray(tpot), np.asarray(share)


def _normal_cdf(x: Floats) -> Floats:
    """Phi, by Abramowitz and Stegun 7.1.26 (error below 1e-7 of the share)."""
    z = np.abs(x) / math.sqrt(2.0)
    t = 1.0 / (1.0 + 0.3275911 * z)
    tail = np.exp(-(z**2)) * t * np.polynomial.polynomial.polyval(t, _ERFC)
    return np.where(x >= 0.0, 1.0 - tail / 2.0, tail / 2.0)


def _summary(
    pair: Pair,
    central: Outcome,
    targets: Targets,
    money: Money,
    figures: dict[str, Measurement],
    drawn: Outcome | None,
) -> Prediction:
    ttft, tpot = float(central.ttft_s[0]), float(central.tpot_s[0])
    return Prediction(
        pair=pair,
        ttft_s=ttft,
        tpot_s=tpot,
        good_share=float(central.good[0]),
        prefill_busy=float(central.prefill_busy[0]),
        decode_busy=float(central.decode_busy[0]),
        served_share=1.0 / max(1.0, central.prefill_busy[0], central.decode_busy[0]),
        meets_ttft=targets.ttft_s is None or ttft <= targets.ttft_s,
        meets_tpot=targets.tpot_s is None or tpot <= targets.tpot_s,
        chance_ttft=_chance(drawn.ttft_s if drawn else None, targets.ttft_s),
        chance_tpot=_chance(drawn.tpot_s if drawn else None, targets.tpot_s),
        per_hour=money.per_hour(pair),
        figures=figures,
    )


def _chance(draws: Floats | None, objective: float | None) -> float | None:
    if draws is None or objective is None:
        return None
    return float((draws <= objective).mean())


def _log_range(
    central: Floats, drawn: Floats, floor: float, scale: float, at: datetime
) -> Measurement:
    value = float(central[0])
    middle = math.log(max(value, 1e-9))
    low, high = (math.log(max(float(np.quantile(drawn, p)), 1e-9)) for p in (LOW, HIGH))
    below, above = (max(floor, scale * d) for d in (middle - low, high - middle))
    return _figure(value, math.exp(middle - below), math.exp(middle + above), Unit.SECONDS, at)


def _share_range(central: Floats, drawn: Floats, scale: float, at: datetime) -> Measurement:
    value = float(central[0])
    middle = _logit(value)
    low, high = (_logit(float(np.quantile(drawn, p))) for p in (LOW, HIGH))
    below, above = (max(LOGIT_FLOOR, scale * d) for d in (middle - low, high - middle))
    lower, upper = _expit(middle - below), _expit(middle + above)
    if upper >= ALL_GOOD:
        upper = 1.0  # the logit never gets there, a quiet window does
    return _figure(value, min(value, lower), max(value, upper), Unit.RATIO, at)


def _cost(
    per_hour: Decimal | None, central: Floats, drawn: Floats, scale: float, at: datetime
) -> Measurement:
    """USD per 1M good tokens: the money is exact, the tokens are an estimate with a range."""
    unit = Unit.USD_PER_MILLION_TOKENS
    if per_hour is None:
        return missing(unit, place=Place.MODEL, method="price_needed", observed_at=at)
    tokens = float(central[0])
    if tokens <= 0:
        return missing(unit, State.NO_TRAFFIC, place=Place.MODEL, method="no_good_tokens")
    fewest, most = (max(0.0, float(np.quantile(drawn, p))) for p in (LOW, HIGH))
    fewest = max(0.0, tokens - scale * max(0.0, tokens - fewest))
    most = tokens + scale * max(0.0, most - tokens)
    return Measurement(
        value=_unit_cost(per_hour, tokens),
        unit=unit,
        state=State.OK,
        observed_at=at,
        place=Place.MODEL,
        method=METHOD,
        lower=_unit_cost(per_hour, most),
        upper=_unit_cost(per_hour, fewest) if fewest > 0 else None,
    )


def _unit_cost(per_hour: Decimal, tokens_per_s: float) -> Decimal:
    hourly = Decimal(repr(tokens_per_s)) * 3600
    return (per_hour / hourly * 1_000_000).quantize(Decimal("0.000001"))


def _figure(value: float, lower: float, upper: float, unit: Unit, at: datetime) -> Measurement:
    return Measurement(value, unit, State.OK, at, Place.MODEL, METHOD, lower=lower, upper=upper)


def _logit(share: float) -> float:
    kept = min(1.0 - 1e-4, max(1e-4, share))
    return math.log(kept / (1.0 - kept))


def _expit(x: float) -> float:
    return 1.0 / (1.0 + math.exp(-x))


def spread_from_measured(
    engine: Engine, demand: Demand, decode_workers: int, measured_p95_s: float | None
) -> Engine:
    """The engine with the spread of TPOT that the fleet shows now, within 1/4 to 4 roots of B
    (long answers average over many batches, short ones see a single one)."""
    if measured_p95_s is None or decode_workers < 1:
        return engine
    now = decode_state(
        engine,
        token_rate=demand.output_tokens_per_s,
        context=demand.context_tokens,
        workers=decode_workers,
    )
    batch, step = float(now.batch), float(now.step_s)
    slope = engine.decode.beta_s + engine.decode.gamma_s * demand.context_tokens
    if batch < 1.0 or slope <= 0 or float(now.load) >= 1.0:
        return engine
    roots = (measured_p95_s - step) / slope / math.sqrt(batch)
    return replace(engine, tpot_spread=min(4.0, max(0.25, roots)))
