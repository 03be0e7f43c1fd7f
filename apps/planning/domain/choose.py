"""Which pair to recommend, or none and why (research on peers §3.7-3.8, planning §2.1 and §6).

A lattice of pairs under floors, limits, steps and GPUs; the cheapest that meets the objectives,
else the one with the best goodput. Growth needs a cause that growth cures and a present pair that
the model expects to fail; a reduction needs spare capacity that has lasted. So nothing oscillates:
the two conditions cannot hold for the same load.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from .model import Pair
from .predict import Prediction

MIN_GAIN = 0.01
#: A latency that falls below this share of what it is has clearly improved.
MIN_FASTER = 0.9
#: The prefill pool must not be fuller than this after a reduction, nor decode of its engine limit.
REST_BUSY = 0.70
MIN_CHANCE = 0.90
ALTERNATIVES = 2
#: Reasons that take capacity away; every other one adds or moves it.
REDUCTIONS = ("load_returned", "spare_capacity")


@dataclass(frozen=True, slots=True)
class Limits:
    """What a pair must respect. GPUs in GPUs per worker; `gpu_budget` None = not known.

    `can_flip`: a worker may change its role (same shape, same GPUs). `can_scale`: workers may start
    and stop, which takes or frees GPUs. Ratio limits are prefill / decode in GPUs.
    """

    min_prefill: int = 1
    min_decode: int = 1
    max_prefill: int | None = None
    max_decode: int | None = None
    gpus_prefill: Decimal | None = Decimal(1)
    gpus_decode: Decimal | None = Decimal(1)
    gpu_budget: Decimal | None = None
    can_flip: bool = True
    can_scale: bool = False
    step_up_workers: int = 2
    step_up_share: float = 0.5
    step_down_workers: int = 1
    step_down_share: float = 0.25
    ratio_min: float | None = None
    ratio_max: float | None = None

    def gpus(self, pair: Pair) -> Decimal | None:
        if self.gpus_prefill is None or self.gpus_decode is None:
            return None
        return self.gpus_prefill * pair.prefill + self.gpus_decode * pair.decode

    def step_up(self, workers: int) -> int:
        return max(self.step_up_workers, math.ceil(self.step_up_share * workers))

    def step_down(self, workers: int) -> int:
        return max(self.step_down_workers, math.floor(self.step_down_share * workers))


@dataclass(frozen=True, slots=True)
class Situation:
    """What is known besides the predictions.

    `grow` are the roles whose growth cures the cause; `may_scale` is False for causes under which
    no scaling may be advised. `breached` says that an objective is missed by measurement.
    `held_need` is the largest need of the hold time, None while history is shorter than that.
    `standing` is the pair to return to when the load that moved the fleet has gone. `donors` are
    the roles whose figures let a worker go to the other pool (DESIGN law 1). `is_idle`: there is
    no traffic, so that only the idle rule is left: step by step to the floors, whatever an empty
    fleet's latency is predicted to be (an objective that one request alone misses keeps nobody).
    """

    cause: str
    grow: tuple[str, ...]
    may_scale: bool
    breached: bool
    held_need: Pair | None
    standing: Pair | None = None
    donors: frozenset[str] = frozenset({"prefill", "decode"})
    is_idle: bool = False


@dataclass(frozen=True, slots=True)
class Option:
    """A pair considered, and why it was not chosen (code and parameters)."""

    prediction: Prediction
    reason: str = ""
    params: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Choice:
    """`chosen` None means: do nothing, for the reason of code `reason`.

    `kind` is `rebalance` or `scale`.
    """

    chosen: Prediction | None
    kind: str
    reason: str
    params: Mapping[str, Any]
    now: Prediction
    alternatives: tuple[Option, ...] = ()


Predictor = Callable[[Pair], Prediction]


def choose(
    current: Pair,
    situation: Situation,
    limits: Limits,
    predict: Predictor,
    confirm: Predictor | None = None,
) -> Choice:
    """The plan for this evaluation. `predict` is called once per pair of the lattice, `confirm` (a
    prediction with chances) for those that a reduction would choose."""
    now = predict(current)
    if not situation.may_scale:
        return _nothing(now, "cause_forbids_scaling", {"cause": situation.cause})
    if situation.grow:
        return _grow(current, situation, limits, predict, now)
    return _reduce(current, situation, limits, predict, confirm or predict, now)


def lattice(current: Pair, limits: Limits) -> list[Pair]:
    """All pairs within steps, floors, limits, ratio and GPUs, the present one left out."""
    pairs = []
    for prefill in _range(current.prefill, limits.min_prefill, limits.max_prefill, limits):
        for decode in _range(current.decode, limits.min_decode, limits.max_decode, limits):
            pair = Pair(prefill, decode)
            if pair != current and not refusal(pair, current, limits):
                pairs.append(pair)
    return pairs


def refusal(pair: Pair, current: Pair, limits: Limits) -> str:
    """The code of the first limit that `pair` breaks, empty if none does."""
    if pair.prefill < max(1, limits.min_prefill) or pair.decode < max(1, limits.min_decode):
        return "min_workers"
    if _above(pair.prefill, limits.max_prefill) or _above(pair.decode, limits.max_decode):
        return "max_workers"
    for before, after in ((current.prefill, pair.prefill), (current.decode, pair.decode)):
        if after - before > limits.step_up(before) or before - after > limits.step_down(before):
            return "step_limit"
    if not _moves_allowed(pair, current, limits):
        return "moves"
    before_gpus, after_gpus = limits.gpus(current), limits.gpus(pair)
    if before_gpus is None or after_gpus is None:
        return "" if pair.total <= current.total and limits.can_flip else "gpu_budget"
    budget = before_gpus if limits.gpu_budget is None else max(before_gpus, limits.gpu_budget)
    if after_gpus > budget:
        return "gpu_budget"
    return "ratio_limits" if _ratio_broken(pair, limits) else ""


def _range(now: int, least: int, most: int | None, limits: Limits) -> range:
    low = max(1, least, now - limits.step_down(now))
    high = now + limits.step_up(now)
    return range(low, (high if most is None else min(most, high)) + 1)


def _above(workers: int, most: int | None) -> bool:
    return most is not None and workers > most


def _moves_allowed(pair: Pair, current: Pair, limits: Limits) -> bool:
    if limits.can_scale:
        return True
    # A flip keeps the number of workers and needs workers of one shape.
    same_shape = limits.gpus_prefill == limits.gpus_decode
    return limits.can_flip and same_shape and pair.total == current.total


def _ratio_broken(pair: Pair, limits: Limits) -> bool:
    if limits.gpus_prefill is None or not limits.gpus_decode:
        return False
    ratio = float(limits.gpus_prefill * pair.prefill / (limits.gpus_decode * pair.decode))
    low, high = limits.ratio_min, limits.ratio_max
    return (low is not None and ratio < low) or (high is not None and ratio > high)


def _grow(
    current: Pair, situation: Situation, limits: Limits, predict: Predictor, now: Prediction
) -> Choice:
    """A pair with more of what is full. Only if the model too expects the present pair to fail:
    a queue that is draining after a change looks saturated and needs nothing."""
    if now.meets_all:
        code = "model_expects_recovery" if situation.breached else "enough_capacity"
        return _nothing(now, code, {"cause": situation.cause})
    growing = [pair for pair in lattice(current, limits) if _grows(pair, current, situation.grow)]
    allowed = [pair for pair in growing if not _gives(pair, current) - situation.donors]
    if growing and not allowed:
        return _nothing(now, "growth_only", {"cause": situation.cause})
    candidates = [predict(pair) for pair in allowed]
    # What gives must not be pushed over its own objective.
    safe = [p for p in candidates if not _breaks(p, now)]
    better = [p for p in safe if p.meets_all or _is_better(p, now, situation.grow)]
    if not better:
        return _nothing(now, "no_room_to_grow", {"cause": situation.cause})
    ranked = _ranked(better, current)
    chosen = ranked[0]
    others = [_rejected(p, chosen, current) for p in _ranked(candidates, current) if p != chosen]
    return Choice(
        chosen=chosen,
        kind=_kind(chosen.pair, current),
        reason=situation.cause,
        params={"meets": chosen.meets_all},
        now=now,
        alternatives=tuple(others[:ALTERNATIVES]),
    )


def _reduce(
    current: Pair,
    situation: Situation,
    limits: Limits,
    predict: Predictor,
    confirm: Predictor,
    now: Prediction,
) -> Choice:
    """Back to the standing pair, or fewer workers; only if spare capacity has lasted."""
    need = situation.held_need
    if situation.breached or need is None:
        code = "objective_missed" if situation.breached else "hold_not_over"
        return _nothing(now, code, {})
    standing = situation.standing
    if standing is not None and standing != current and not refusal(standing, current, limits):
        back = confirm(standing)
        if _has_room(back, need, current, situation) and _is_likely(back, situation):
            return Choice(back, _kind(standing, current), "load_returned", {}, now)
    smaller = [predict(pair) for pair in lattice(current, limits) if _saves(pair, current, limits)]
    ranked = _ranked([p for p in smaller if _has_room(p, need, current, situation)], current)
    for chosen in ranked:
        if _is_likely(confirm(chosen.pair), situation):
            others = [_rejected(p, chosen, current) for p in ranked if p != chosen]
            kind = _kind(chosen.pair, current)
            return Choice(chosen, kind, "spare_capacity", {}, now, tuple(others[:ALTERNATIVES]))
    return _nothing(now, "balanced", {})


def _grows(pair: Pair, current: Pair, roles: Sequence[str]) -> bool:
    more = {"prefill": pair.prefill - current.prefill, "decode": pair.decode - current.decode}
    wanted = [more[role] for role in roles]
    return all(change >= 0 for change in wanted) and any(change > 0 for change in wanted)


def _gives(pair: Pair, current: Pair) -> frozenset[str]:
    """The roles that would lose workers."""
    less = {"prefill": pair.prefill < current.prefill, "decode": pair.decode < current.decode}
    return frozenset(role for role, loses in less.items() if loses)


def _is_better(after: Prediction, now: Prediction, roles: Sequence[str]) -> bool:
    """More good requests. Or, where one step cannot make them good yet, what is full gets clearly
    better: nothing is taken from the other pool, or that pool still meets its own objective."""
    if after.good_share >= now.good_share + MIN_GAIN:
        return True
    takes_prefill = after.pair.prefill < now.pair.prefill
    takes_decode = after.pair.decode < now.pair.decode
    if (takes_prefill and not after.meets_ttft) or (takes_decode and not after.meets_tpot):
        return False
    if after.served_share >= now.served_share + MIN_GAIN:
        return True
    latencies = {
        "prefill": (after.ttft_s, now.ttft_s),
        "decode": (after.tpot_s, now.tpot_s),
    }
    return any(then <= MIN_FASTER * before for then, before in (latencies[r] for r in roles))


def _breaks(after: Prediction, now: Prediction) -> bool:
    return (now.meets_ttft and not after.meets_ttft) or (now.meets_tpot and not after.meets_tpot)


def _saves(pair: Pair, current: Pair, limits: Limits) -> bool:
    before, after = limits.gpus(current), limits.gpus(pair)
    return before is not None and after is not None and after < before


def _has_room(p: Prediction, need: Pair, current: Pair, situation: Situation) -> bool:
    """The N/(N-1) test by prediction: after the cut both objectives hold with room, and no
    pool falls below the largest need of the hold time."""
    is_full = p.prefill_busy > REST_BUSY or p.decode_busy > REST_BUSY
    if not situation.is_idle and (is_full or not p.meets_all):
        return False
    if p.pair.prefill < min(need.prefill, current.prefill):
        return False
    return p.pair.decode >= min(need.decode, current.decode)


def _is_likely(p: Prediction, situation: Situation) -> bool:
    chances = (p.chance_ttft, p.chance_tpot)
    return situation.is_idle or all(chance is None or chance >= MIN_CHANCE for chance in chances)


def _ranked(options: Sequence[Prediction], current: Pair) -> list[Prediction]:
    """Meets the objectives, then cheap, then few moves, then good; ties by the pair itself."""

    def key(p: Prediction) -> tuple[Any, ...]:
        cost = p.per_hour if p.per_hour is not None else Decimal(p.pair.total)
        moved = p.pair.moved_from(current)
        if p.meets_all:
            return (0, cost, moved, -p.good_share, p.pair)
        return (1, -round(p.good_share, 2), -round(p.served_share, 2), cost, moved, p.pair)

    return sorted(options, key=key)


def _rejected(p: Prediction, chosen: Prediction, current: Pair) -> Option:
    if not p.meets_ttft:
        return Option(p, "misses_ttft", {"ttft_s": p.ttft_s})
    if not p.meets_tpot:
        return Option(p, "misses_tpot", {"tpot_s": p.tpot_s})
    if p.per_hour is not None and chosen.per_hour is not None and p.per_hour > chosen.per_hour:
        return Option(p, "costs_more", {"per_hour": str(p.per_hour - chosen.per_hour)})
    if p.pair.moved_from(current) > chosen.pair.moved_from(current):
        return Option(p, "more_moves", {"moves": p.pair.moved_from(current)})
    return Option(p, "less_headroom", {"good_share": p.good_share})


def _kind(pair: Pair, current: Pair) -> str:
    up = pair.prefill > current.prefill or pair.decode > current.decode
    down = pair.prefill < current.prefill or pair.decode < current.decode
    return "rebalance" if up and down else "scale"


def _nothing(now: Prediction, reason: str, params: Mapping[str, Any]) -> Choice:
    return Choice(None, "", reason, params, now)
