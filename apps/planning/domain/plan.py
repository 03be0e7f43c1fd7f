"""One evaluation, from figures to a plan with its reasons: pure, the clock is an argument.

Replay runs stored inputs through the same function.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from apps.common.measurement import State
from apps.telemetry.domain.figures import DeploymentFigures

from .choose import REDUCTIONS, Choice, Limits, Situation, choose
from .confidence import Confidence, PhaseBasis, confidence
from .data import DataState, is_idle
from .demand import Demand, LoadSample, NoDemand, demand
from .floors import BELOW_FLOOR, floors, restored, unpredicted
from .guardrails import Circumstances, Guardrail, check, first_failure, lowest_on_the_way
from .model import Engine, Money, Pair, Targets
from .predict import Prediction, point, predict, spread_from_measured
from .size import decode_need, decode_rate, infeasible_share, prefill_need

#: Seconds in which a backlog should be gone after a change (research on planning §2.1).
DRAIN_S = 60.0


@dataclass(frozen=True, slots=True)
class PlanInputs:
    """Everything one evaluation decides on. Times in seconds; `needs` are those of the hold time
    (None where an evaluation in it had none, then nothing is reduced)."""

    deployment_id: str
    now: datetime
    figures: DeploymentFigures
    recent: DeploymentFigures
    history: Sequence[LoadSample]
    current: Pair
    revision: int
    targets: Targets
    engine: Engine
    basis: tuple[PhaseBasis, PhaseBasis]
    money: Money
    limits: Limits
    cause: str
    grow: tuple[str, ...]
    may_scale: bool
    breached_ttft: bool | None
    breached_tpot: bool | None
    standing: Pair | None
    held_need: Pair | None
    circumstances: Circumstances
    horizon_s: float
    lead_s: float
    slow_s: float
    min_data_s: float
    width_scale: float = 1.0


@dataclass(frozen=True, slots=True)
class Plan:
    """What an evaluation wants. `chosen` None: nothing, and `reason` says why."""

    kind: str
    reason: str
    params: Mapping[str, Any]
    need: Pair | None
    demand: Demand | None
    now: Prediction | None
    chosen: Prediction | None
    alternatives: tuple[dict[str, Any], ...]
    guardrails: tuple[Guardrail, ...]
    blocked: str
    confidence: Confidence | None
    terms: Mapping[str, Any]
    fingerprint: str

    @property
    def is_growth(self) -> bool:
        return self.reason not in REDUCTIONS


def plan(inputs: PlanInputs, data: DataState) -> Plan:
    """The plan of one evaluation. Missing or old data give no plan, with the reason; a pool below
    its floor is restored all the same while the inventory is fresh."""
    back = restored(inputs.current, inputs.limits, data.donors)
    if back is not None and inputs.circumstances.inventory_is_fresh:
        return _restoration(back, inputs, data)
    if not data.may_grow:
        return _none("data_not_fresh", {"signals": list(data.stale)})
    try:
        load = _demand(inputs)
    except NoDemand as lacking:
        return _none("demand_unknown", {"missing": lacking.code})
    engine = _with_measured_spread(inputs, load)
    need = _need(inputs, engine, load)
    if load.history_s < inputs.min_data_s:
        return replace(_none("too_little_history", {"history_s": load.history_s}), need=need)

    def central(pair: Pair) -> Prediction:
        return point(pair, load, engine, inputs.targets, inputs.money, horizon_s=inputs.horizon_s)

    def full(pair: Pair) -> Prediction:
        return _full(pair, inputs, engine, load)

    choice = choose(inputs.current, _situation(inputs, data), inputs.limits, central, full)
    terms = _terms(inputs, engine, load, need, choice)
    if choice.chosen is None:
        found = _none(choice.reason, choice.params)
        return replace(found, need=need, demand=load, terms=terms)

    def shown(pair: Pair) -> Prediction:
        return _full(pair, inputs, engine, load.as_measured())

    chosen = shown(choice.chosen.pair)
    circumstances = replace(inputs.circumstances, is_growth=choice.reason not in REDUCTIONS)
    passing = central(lowest_on_the_way(chosen.pair, inputs.current))
    results = check(
        chosen.pair,
        inputs.current,
        inputs.limits,
        circumstances,
        inputs.targets,
        choice.now,
        passing,
    )
    return Plan(
        kind=choice.kind,
        reason=choice.reason,
        params=choice.params,
        need=need,
        demand=load,
        now=shown(inputs.current),
        chosen=chosen,
        alternatives=tuple(_alternative(option, shown) for option in choice.alternatives),
        guardrails=results,
        blocked=first_failure(results),
        confidence=confidence(inputs.basis, fresh=True, flow_rebuilt=load.rebuilt),
        terms=terms,
        fingerprint=fingerprint(
            inputs.deployment_id, choice.kind, chosen.pair, inputs.current, inputs.revision
        ),
    )


def _demand(inputs: PlanInputs) -> Demand:
    return demand(
        inputs.figures,
        inputs.recent,
        inputs.history,
        horizon_s=inputs.lead_s,
        slow_s=inputs.slow_s,
    )


def _restoration(target: Pair, inputs: PlanInputs, data: DataState) -> Plan:
    """The plan that brings a pool nearer to its floor, with predictions where figures allow any."""
    load: Demand | None = None
    need: Pair | None = None
    if data.may_grow:
        try:
            load = _demand(inputs)
        except NoDemand:
            load = None
    if load is not None:
        engine = _with_measured_spread(inputs, load)
        measured, need = load.as_measured(), _need(inputs, engine, load)
        now, chosen = (_full(p, inputs, engine, measured) for p in (inputs.current, target))
    else:
        now, chosen = (unpredicted(p, inputs.money) for p in (inputs.current, target))
    circumstances = replace(inputs.circumstances, is_growth=True, restores_floor=True)
    # Growth alone lowers nothing on the way; with a donor, its own figures allowed it.
    results = check(target, inputs.current, inputs.limits, circumstances, inputs.targets, now, now)
    kind = "scale" if target.total > inputs.current.total else "rebalance"
    return Plan(
        kind=kind,
        reason=BELOW_FLOOR,
        params={"floor": floors(inputs.limits).as_dict()},
        need=need,
        demand=load,
        now=now,
        chosen=chosen,
        alternatives=(),
        guardrails=results,
        blocked=first_failure(results),
        confidence=None,
        terms={"horizon_s": inputs.horizon_s, "cause": inputs.cause},
        fingerprint=fingerprint(
            inputs.deployment_id, kind, target, inputs.current, inputs.revision
        ),
    )


def fingerprint(deployment_id: str, kind: str, target: Pair, current: Pair, revision: int) -> str:
    """SHA-256 of what a recommendation would change, and of what it would replace."""
    body = {
        "deployment": deployment_id,
        "kind": kind,
        "targets": target.as_dict(),
        "current": current.as_dict(),
        "revision": revision,
    }
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()


def seed(deployment_id: str, at: datetime | None) -> int:
    """A seed that replay finds again: of the deployment and the window's end."""
    text = f"{deployment_id}:{at.isoformat() if at else ''}"
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big")


def holds(needs: Sequence[Pair | None]) -> Pair | None:
    """The largest need of the hold time in each phase; None if any evaluation had none."""
    known = [need for need in needs if need is not None]
    if not known or len(known) != len(needs):
        return None
    return Pair(max(n.prefill for n in known), max(n.decode for n in known))


def _with_measured_spread(inputs: PlanInputs, load: Demand) -> Engine:
    p95 = inputs.figures.tpot.p95
    measured = p95.number() if p95.state is State.OK else None
    decode = inputs.figures.decode
    workers = decode.workers_serving if decode else 0
    return spread_from_measured(inputs.engine, load, workers, measured)


def _situation(inputs: PlanInputs, data: DataState) -> Situation:
    # Reductions rest on complete data only; without it their condition is simply not known.
    held = inputs.held_need if data.may_reduce else None
    # Without traffic a percentile tells of the last requests there were: no reason to grow or to
    # keep workers; only the idle rule is left (DESIGN law 1).
    missed = bool(inputs.breached_ttft) or bool(inputs.breached_tpot)
    idle = is_idle(inputs.figures)
    return Situation(
        cause=inputs.cause,
        grow=() if idle else inputs.grow,
        may_scale=inputs.may_scale,
        breached=missed and not idle,
        held_need=held,
        standing=inputs.standing,
        donors=data.donors,
        is_idle=idle,
    )


def _need(inputs: PlanInputs, engine: Engine, load: Demand) -> Pair:
    return Pair(
        prefill_need(
            engine,
            inputs.targets,
            rate=load.rate,
            mean_tokens=load.mean_input,
            backlog=load.backlog,
            drain_s=DRAIN_S,
        ),
        decode_need(
            engine, inputs.targets, token_rate=load.token_rate, context=load.context_tokens
        ),
    )


def _full(pair: Pair, inputs: PlanInputs, engine: Engine, load: Demand) -> Prediction:
    return predict(
        pair,
        load,
        engine,
        inputs.targets,
        inputs.money,
        horizon_s=inputs.horizon_s,
        seed=seed(inputs.deployment_id, inputs.figures.at),
        at=inputs.now,
        width_scale=inputs.width_scale,
    )


def _terms(
    inputs: PlanInputs, engine: Engine, load: Demand, need: Pair, choice: Choice
) -> dict[str, Any]:
    """Every term of the decision, for the page, for replay and for the one who doubts it."""
    best = decode_rate(engine, inputs.targets, load.context_tokens)
    return {
        "demand": load.to_json(),
        "need": need.as_dict(),
        "infeasible_share": infeasible_share(engine, inputs.targets, load.mean_input),
        "prefill": {
            "coefficients": list(engine.prefill.coefficients),
            "error": engine.prefill_error,
            "basis": engine.prefill_basis,
            "busy": choice.now.prefill_busy,
            "length_cv2": engine.length_cv2,
            "arrival_cv2": engine.arrival_cv2,
            "transfer_s": engine.transfer_s,
        },
        "decode": {
            "coefficients": list(engine.decode.coefficients),
            "error": engine.decode_error,
            "basis": engine.decode_basis,
            "busy": choice.now.decode_busy,
            "batch": best.batch,
            "tokens_per_s": best.tokens_per_s,
            "binding": best.binding,
            "spread": engine.tpot_spread,
        },
        "horizon_s": inputs.horizon_s,
        "lead_s": inputs.lead_s,
        "seed": seed(inputs.deployment_id, inputs.figures.at),
        "width_scale": inputs.width_scale,
        "cause": inputs.cause,
    }


def _alternative(option: Any, full: Any) -> dict[str, Any]:
    prediction = full(option.prediction.pair)
    return {
        "targets": prediction.pair.as_dict(),
        "reason": option.reason,
        "params": dict(option.params),
        "per_hour": None if prediction.per_hour is None else str(prediction.per_hour),
        "predicted": {code: figure.to_json() for code, figure in prediction.figures.items()},
    }


def _none(reason: str, params: Mapping[str, Any]) -> Plan:
    return Plan(
        kind="",
        reason=reason,
        params=params,
        need=None,
        demand=None,
        now=None,
        chosen=None,
        alternatives=(),
        guardrails=(),
        blocked="",
        confidence=None,
        terms={},
        fingerprint="",
    )
