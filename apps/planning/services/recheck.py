"""The guardrails of a recommendation, asked again: when it is reviewed and at dispatch."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from apps.diagnosis import selectors as diagnosis
from apps.fleet import selectors as fleet

from .. import inputs as reading
from ..domain.choose import REDUCTIONS
from ..domain.data import data_state
from ..domain.floors import BELOW_FLOOR, unpredicted
from ..domain.guardrails import DATA_FRESH, Guardrail, check, lowest_on_the_way
from ..domain.model import Pair
from ..domain.predict import point
from ..models import Recommendation
from .evaluate import circumstances, demand_now

REVISION = "revision"


def recheck(
    recommendation: Recommendation, now: datetime, *, ignore_command: str = ""
) -> tuple[Guardrail, ...]:
    """All guardrails as of `now`, from stored windows; reads only, changes nothing.

    `ignore_command` is the label of the command that asks, which is active itself at dispatch.
    """
    deployment = fleet.deployment_by_id(recommendation.deployment_id)
    loaded = reading.load(deployment, now)
    current = loaded.current
    same_revision = recommendation.expected_revision == loaded.topology.revision
    revision = Guardrail(
        REVISION,
        same_revision,
        "revision",
        {"expected": recommendation.expected_revision, "now": loaded.topology.revision},
    )
    stored = dict(diagnosis.calibrations(deployment))
    data = data_state(loaded.figures, now, loaded.defaults.collect_interval_s)
    if current is None or not {"prefill", "decode"} <= stored.keys():
        return (revision, Guardrail(DATA_FRESH, False, "no_data"))
    engine, targets = reading.engine(loaded, stored), reading.targets(loaded)
    _, model_only = reading.bases(loaded, stored)
    facts = circumstances(loaded, data, model_only, now)
    if ignore_command and facts.active_command == ignore_command:
        facts = replace(facts, active_command="")
    restores = recommendation.reason == BELOW_FLOOR
    facts = replace(
        facts, is_growth=recommendation.reason not in REDUCTIONS, restores_floor=restores
    )
    target = Pair(int(recommendation.targets["prefill"]), int(recommendation.targets["decode"]))
    cost, horizon = reading.money(loaded), float(recommendation.terms.get("horizon_s", 120.0))
    load = None if restores else demand_now(loaded, now)
    if restores:
        now_prediction = passing = unpredicted(current, cost)
    elif load is None:
        return (revision, Guardrail(DATA_FRESH, False, "demand_unknown"))
    else:
        now_prediction = point(current, load, engine, targets, cost, horizon_s=horizon)
        passing = point(
            lowest_on_the_way(target, current), load, engine, targets, cost, horizon_s=horizon
        )
    results = check(
        target,
        current,
        reading.limits(loaded, current, now),
        facts,
        targets,
        now_prediction,
        passing,
    )
    return (revision, *results)
