"""One evaluation of one deployment: diagnose, account, plan, store. Running twice is harmless."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.db import transaction

from apps.common.measurement import State
from apps.cost.domain.unit_cost import UnitCosts
from apps.diagnosis import services as diagnosing
from apps.diagnosis.domain.busy import BusyShares
from apps.diagnosis.domain.causes import GROWS, NEVER_SCALE, Cause
from apps.diagnosis.domain.symptoms import breached
from apps.diagnosis.models import DiagnosisRecord
from apps.fleet import selectors as fleet
from apps.slo.domain.attainment import Attainment, Goodput, goodput
from apps.slo.domain.objective import ObjectiveSignal
from apps.telemetry import services as telemetry
from apps.telemetry.domain.figures import DeploymentFigures

from .. import inputs as reading
from ..domain.data import DataState, data_state
from ..domain.demand import Demand, LoadSample, NoDemand, demand, load_sample
from ..domain.guardrails import Circumstances
from ..domain.model import Engine, Pair, Targets
from ..domain.plan import Plan, PlanInputs, holds, plan
from ..inputs import Loaded
from ..models import Evaluation, Recommendation
from ..selectors import width_scale
from . import accounting
from .recommendations import sync

RETENTION = timedelta(days=14)
HISTORY = timedelta(minutes=30)
#: Seconds until a moved worker serves, as long as no start has been measured.
START_UP_S = 15.0


@dataclass(frozen=True, slots=True)
class EvaluationResult:
    """The stored rows of one evaluation and its plan; `recommendation` is the open one, if any."""

    evaluation: Evaluation
    diagnosis: DiagnosisRecord
    plan: Plan | None
    recommendation: Recommendation | None


def evaluate(*, deployment_id: UUID | str, now: datetime) -> EvaluationResult:
    """Evaluate one deployment as of `now`. Raises NotVisible for an unknown one."""
    deployment = fleet.deployment_by_id(deployment_id)
    loaded = reading.load(deployment, now)
    calibrations = reading.calibrate(loaded, now)
    engine = reading.engine(loaded, calibrations)
    targets = reading.targets(loaded)
    busy = accounting.busy(loaded, engine, targets)
    record = _diagnose(loaded, engine, busy, now)
    attained = accounting.attainments(loaded.figures, loaded.defaults, loaded.objectives)
    good = goodput([a.share for a in attained.values()], loaded.figures.completions_per_s)
    costs = accounting.costs(loaded, busy, good)
    data = data_state(loaded.figures, now, loaded.defaults.collect_interval_s)
    current = loaded.current
    planned = None
    if current is not None:
        prepared = _plan_inputs(loaded, engine, targets, calibrations, record, current, data, now)
        planned = plan(prepared, data)
    with transaction.atomic():
        telemetry.keep_figures(deployment=loaded.deployment, figures=loaded.figures, now=now)
        evaluation = _store(loaded, now, record, attained, good, costs, busy, data, planned)
        recommendation = sync(
            now=now,
            loaded=loaded,
            plan=planned,
            record=record,
            evaluation=evaluation,
            measured=accounting.measured_now(loaded.figures, good, costs),
        )
    _prune(loaded, now)
    return EvaluationResult(evaluation, record, planned, recommendation)


def circumstances(
    loaded: Loaded, data: DataState, model_only: tuple[str, ...], now: datetime
) -> Circumstances:
    """What the guardrails look at besides the plan."""
    change, defaults, figures = loaded.change, loaded.defaults, loaded.figures
    return Circumstances(
        now=now,
        data_age_s=data.age_s,
        stale=data.stale,
        may_reduce=data.may_reduce,
        donors=data.donors,
        incomplete=data.incomplete,
        inventory_is_fresh=reading.inventory_is_fresh(loaded, now),
        model_only=model_only,
        is_growth=True,
        cooldown_up_s=defaults.cooldown_up_s,
        cooldown_down_s=defaults.cooldown_down_s,
        last_change_at=change.last_change_at,
        active_command=(change.active_command_label or "command")
        if change.active_command_id
        else "",
        foreign_change_at=change.foreign_change_at,
        frozen_until=change.frozen_until,
        reversals=tuple(datetime.fromisoformat(at) for at in change.reversals),
        flap_reversals=defaults.flap_reversals,
        flap_window_s=defaults.flap_window_s,
        holds_ttft=_holds(figures, ObjectiveSignal.TTFT, loaded),
        holds_tpot=_holds(figures, ObjectiveSignal.TPOT, loaded),
    )


def _diagnose(loaded: Loaded, engine: Engine, busy: BusyShares, now: datetime) -> DiagnosisRecord:
    defaults, figures = loaded.defaults, loaded.figures
    prompt = figures.mean_uncached_tokens
    seconds = per_token = None
    if prompt.value:
        seconds = engine.prefill.mean_seconds(prompt.number(), engine.length_cv2)
        per_token = seconds / prompt.number() if engine.prefill_basis == "calibrated" else None
    return diagnosing.record_diagnosis(
        now=now,
        deployment=loaded.deployment,
        figures=figures,
        usual=loaded.usual,
        busy=busy,
        ttft_objective_s=loaded.threshold(ObjectiveSignal.TTFT),
        tpot_objective_s=loaded.threshold(ObjectiveSignal.TPOT),
        prefill_seconds=seconds,
        expected_seconds_per_token=per_token,
        needed=defaults.hysteresis_needed,
        of=defaults.hysteresis_of,
        replica_grace_s=2 * defaults.collect_interval_s,
        idle_hold_s=defaults.imbalance_hold_s,
        imbalance_ratio=defaults.imbalance_ratio,
        imbalance_smaller_below=defaults.imbalance_smaller_below,
        has_open_command=loaded.change.active_command_id is not None,
    )


def _plan_inputs(
    loaded: Loaded,
    engine: Engine,
    targets: Targets,
    calibrations: dict[str, Any],
    record: DiagnosisRecord,
    current: Pair,
    data: DataState,
    now: datetime,
) -> PlanInputs:
    defaults, figures = loaded.defaults, loaded.figures
    cause = Cause(record.cause)
    basis, model_only = reading.bases(loaded, calibrations)
    return PlanInputs(
        deployment_id=str(loaded.deployment.pk),
        now=now,
        figures=figures,
        recent=loaded.recent,
        history=history(loaded, now),
        current=current,
        revision=loaded.topology.revision,
        targets=targets,
        engine=engine,
        basis=basis,
        money=reading.money(loaded),
        limits=reading.limits(loaded, current, now),
        cause=cause.value,
        grow=GROWS.get(cause, ()),
        may_scale=cause not in NEVER_SCALE,
        breached_ttft=breached(figures.ttft, targets.ttft_s),
        breached_tpot=breached(figures.tpot, targets.tpot_s),
        standing=reading.standing_pair(loaded, current),
        held_need=_held_need(loaded, now),
        circumstances=circumstances(loaded, data, model_only, now),
        horizon_s=max(defaults.soak_s, 2 * defaults.window_s),
        lead_s=START_UP_S + defaults.collect_interval_s,
        slow_s=defaults.diagnosis_window_s,
        min_data_s=defaults.min_data_s,
        width_scale=width_scale(loaded.deployment),
    )


def history(loaded: Loaded, now: datetime) -> list[LoadSample]:
    """The load of the last half hour, from the evaluations, oldest first; after a longer idleness
    the last load there was, whose lengths are still the best guess of the next."""
    known = Evaluation.objects.filter(deployment=loaded.deployment, at__lt=now).exclude(load={})
    recent = known.filter(at__gte=now - HISTORY).order_by("at").values_list("load", flat=True)
    rows = list(recent) or list(known.order_by("-at").values_list("load", flat=True)[:1])
    samples: dict[str, LoadSample] = {}
    for row in rows:
        samples[row["at"]] = LoadSample(
            at=datetime.fromisoformat(row["at"]),
            arrivals_per_s=row["arrivals_per_s"],
            mean_input=row["mean_input"],
            mean_output=row["mean_output"],
            in_flight=row.get("in_flight"),
        )
    return sorted(samples.values(), key=lambda s: s.at)


def demand_now(loaded: Loaded, now: datetime) -> Demand | None:
    """The demand that a plan made now would rest on; None where the figures do not tell it."""
    defaults = loaded.defaults
    try:
        return demand(
            loaded.figures,
            loaded.recent,
            history(loaded, now),
            horizon_s=START_UP_S + defaults.collect_interval_s,
            slow_s=defaults.diagnosis_window_s,
        )
    except NoDemand:
        return None


def _held_need(loaded: Loaded, now: datetime) -> Pair | None:
    """The largest need of the hold time; None when history does not reach back that far, has a
    hole, or a change happened in it."""
    start = reading.hold_start(loaded, now)
    change = loaded.change
    if change.active_command_id or (change.last_change_at and change.last_change_at > start):
        return None
    rows = Evaluation.objects.filter(deployment=loaded.deployment, at__lt=now)
    before = rows.filter(at__lte=start).order_by("-at").values_list("need", flat=True)[:1]
    if not before:
        return None
    needs = [*before, *rows.filter(at__gt=start).values_list("need", flat=True)]
    return holds([Pair(n["prefill"], n["decode"]) if n else None for n in needs])


def _store(
    loaded: Loaded,
    now: datetime,
    record: DiagnosisRecord,
    attained: dict[str, Attainment],
    good: Goodput,
    costs: UnitCosts,
    busy: BusyShares,
    data: DataState,
    planned: Plan | None,
) -> Evaluation:
    sample = load_sample(loaded.figures, loaded.recent)
    chosen = planned.chosen if planned else None
    evaluation, _ = Evaluation.objects.update_or_create(
        deployment=loaded.deployment,
        at=now,
        defaults={
            "window_end": loaded.figures.at,
            "diagnosis": record,
            "attainment": {
                signal: {
                    "share": a.share.to_json(),
                    "warning": a.warning,
                    "nearest": list(a.nearest),
                }
                for signal, a in attained.items()
            },
            "goodput": {"share": good.share.to_json(), "rate": good.rate.to_json()},
            "costs": accounting.costs_to_json(costs),
            "busy": busy.to_json(),
            "load": accounting.load_to_json(sample),
            "need": planned.need.as_dict() if planned and planned.need else None,
            "wanted": chosen.pair.as_dict() if chosen else {},
            "reason": planned.reason if planned else "not_two_pools",
            "params": dict(planned.params) if planned else {},
            "stale": list(data.stale),
        },
    )
    return evaluation


def _holds(figures: DeploymentFigures, signal: ObjectiveSignal, loaded: Loaded) -> bool | None:
    latency = figures.ttft if signal is ObjectiveSignal.TTFT else figures.tpot
    threshold = loaded.threshold(signal)
    if threshold is None or latency.p95.value is None:
        return None
    over = breached(latency, threshold)
    # At the ladder's end and under the objective: the tail is not seen, so nothing is known.
    return None if latency.p95.state is State.CLAMPED and not over else not over


def _prune(loaded: Loaded, now: datetime) -> None:
    Evaluation.objects.filter(deployment=loaded.deployment, at__lt=now - RETENTION).delete()
    diagnosing.prune(now=now, deployment=loaded.deployment)
