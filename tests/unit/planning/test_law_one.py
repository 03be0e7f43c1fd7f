"""DESIGN law 1, end to end through the planner: every state of every required figure against what
it may drive. The table below is written from the text of the law, not from the code."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from apps.common.measurement import Measurement, State
from apps.planning.domain.data import data_state, required_figures
from apps.planning.domain.demand import whole
from apps.planning.domain.guardrails import check, first_failure, lowest_on_the_way
from apps.planning.domain.model import Pair
from apps.planning.domain.plan import plan
from apps.planning.domain.predict import point
from apps.telemetry.domain.figures import DeploymentFigures, Quantiles
from tests.unit.diagnosis.builders import figures, overloaded

from .builders import CALM, ENGINE, LONG, MONEY, NOW, SIX_GPUS, TARGETS, circumstances, inputs

#: State -> (growth, taking a worker from the pool it tells of). "hold" is neither.
TABLE = {
    State.OK: (True, True),
    State.CLAMPED: (True, False),  # evidence of a breach: growth only
    State.TOO_FEW: (True, True),  # voids percentiles; load, queue and memory rules still apply
    State.PARTIAL: (True, False),  # growth only, never a reduction
    State.STALE: (False, False),
    State.NO_DATA: (False, False),
    State.SOURCE_DOWN: (False, False),
    State.CONFLICT: (False, False),
}
#: Required figures that tell of one pool; the others tell of both.
OF_POOL = {
    "ttft_p95": "prefill",
    "prefill_waiting": "prefill",
    "tpot_p95": "decode",
    "kv_used": "decode",
}
FIGURES = sorted(required_figures(figures()))
EIGHT_GPUS = replace(SIX_GPUS, gpu_budget=SIX_GPUS.gpu_budget + 2, can_scale=True, can_flip=False)  # type: ignore[operator]
GROWTH: dict[str, Any] = {
    "cause": "prefill_saturated",
    "grow": ("prefill",),
    "breached_ttft": True,
}
SPARE: dict[str, Any] = {"current": Pair(3, 5), "held_need": Pair(1, 2)}


def with_state(found: DeploymentFigures, name: str, state: State) -> DeploymentFigures:
    """The figures, with one of the required ones in this state."""

    def changed(figure: Measurement) -> Measurement:
        return figure.with_state(state)

    def percentiles(latency: Quantiles) -> Quantiles:
        return replace(latency, p95=changed(latency.p95))

    if name in ("ttft_p95", "tpot_p95"):
        signal = name.removesuffix("_p95")
        return replace(found, **{signal: percentiles(getattr(found, signal))})
    if name == "prefill_waiting":
        assert found.prefill is not None
        return replace(
            found, prefill=replace(found.prefill, waiting=changed(found.prefill.waiting))
        )
    if name == "kv_used":
        assert found.decode is not None
        return replace(found, decode=replace(found.decode, kv_used=changed(found.decode.kv_used)))
    field = {
        "arrivals": "arrivals_per_s",
        "input_tokens": "mean_input_tokens",
        "output_tokens": "mean_output_tokens",
    }[name]
    return replace(found, **{field: changed(getattr(found, field))})


def wanted(found: DeploymentFigures, **changes: Any) -> Pair | None:
    """What the planner wants, with every guardrail asked on the same data."""
    data = data_state(found, NOW, 5)
    facts = circumstances(
        stale=data.stale,
        may_reduce=data.may_reduce,
        donors=data.donors,
        incomplete=data.incomplete,
    )
    planned = plan(inputs(found, circumstances=facts, **changes), data)
    if planned.chosen is None:
        return None
    assert planned.blocked == "", planned.guardrails
    return planned.chosen.pair


def test_the_table_names_every_state() -> None:
    assert {*TABLE, State.NO_TRAFFIC} == set(State)


@pytest.mark.parametrize("state", TABLE)
@pytest.mark.parametrize("name", FIGURES)
def test_growth(name: str, state: State) -> None:
    keeps_decode = replace(EIGHT_GPUS, min_decode=4)
    pair = wanted(with_state(overloaded(), name, state), limits=keeps_decode, **GROWTH)
    assert pair == (Pair(3, 4) if TABLE[state][0] else None)


@pytest.mark.parametrize("state", TABLE)
@pytest.mark.parametrize("name", FIGURES)
def test_a_flip_takes_from_decode(name: str, state: State) -> None:
    """A figure that tells of prefill alone does not keep a decode worker."""
    grows, takes = TABLE[state]
    pair = wanted(with_state(overloaded(), name, state), **GROWTH)
    allowed = grows and (takes or OF_POOL.get(name) == "prefill")
    assert pair == (Pair(3, 3) if allowed else None)


@pytest.mark.parametrize("state", TABLE)
@pytest.mark.parametrize("name", FIGURES)
def test_reduction_needs_every_figure(name: str, state: State) -> None:
    pair = wanted(with_state(figures(), name, state), limits=EIGHT_GPUS, **SPARE)
    assert (pair is not None and pair.total < 8) is TABLE[state][1]


@pytest.mark.parametrize("state", TABLE)
@pytest.mark.parametrize("name", FIGURES)
def test_the_guardrail_says_the_same_when_it_is_asked_again(name: str, state: State) -> None:
    """A recommendation made on good data is not carried out on data that forbid it."""
    grows, takes = TABLE[state]

    def refusal(target: Pair, current: Pair, found: DeploymentFigures, demand: Any) -> str:
        data = data_state(with_state(found, name, state), NOW, 5)
        facts = circumstances(
            stale=data.stale,
            may_reduce=data.may_reduce,
            donors=data.donors,
            incomplete=data.incomplete,
        )

        def central(pair: Pair) -> Any:
            return point(pair, demand, ENGINE, TARGETS, MONEY, horizon_s=60)

        passing = central(lowest_on_the_way(target, current))
        found_limits = replace(EIGHT_GPUS, can_flip=True)
        return first_failure(
            check(target, current, found_limits, facts, TARGETS, central(current), passing)
        )

    takes_decode = grows and (takes or OF_POOL.get(name) == "prefill")
    assert refusal(Pair(3, 4), Pair(2, 4), overloaded(), LONG) == ("" if grows else "data_stale")
    flip = refusal(Pair(3, 3), Pair(2, 4), overloaded(), LONG)
    assert flip == ("" if takes_decode else "data_stale")
    assert refusal(Pair(2, 4), Pair(3, 4), figures(), CALM) == ("" if takes else "data_stale")


def quiet(found: DeploymentFigures) -> DeploymentFigures:
    """No traffic: rates stand still, lengths and percentiles of now do not exist."""
    for name in ("arrivals", "input_tokens", "output_tokens", "ttft_p95", "tpot_p95"):
        found = with_state(found, name, State.NO_TRAFFIC)
    return found


def test_no_traffic_leaves_the_idle_rule_only() -> None:
    """Step by step down (a quarter, at least one), whatever was said of saturation before."""
    pair = wanted(quiet(figures()), limits=EIGHT_GPUS, **SPARE)
    assert pair == Pair(2, 4)
    assert wanted(quiet(overloaded()), limits=EIGHT_GPUS, **GROWTH) is None
    assert wanted(quiet(overloaded()), **GROWTH) is None


@pytest.mark.parametrize("state", [State.OK, State.CLAMPED, State.TOO_FEW, State.PARTIAL])
def test_percentiles_of_requests_long_gone_do_not_keep_idle_workers(state: State) -> None:
    """They reach back up to an hour; they may even show a breach."""
    found = quiet(figures())
    late = overloaded()
    found = replace(found, ttft=with_state(late, "ttft_p95", state).ttft, tpot=late.tpot)
    assert wanted(found, limits=EIGHT_GPUS, breached_ttft=True, **SPARE) == Pair(2, 4)


def test_the_idle_rule_ends_at_the_floors() -> None:
    floors = replace(EIGHT_GPUS, min_prefill=2, min_decode=2)
    held = {"held_need": Pair(1, 1)}
    assert wanted(quiet(figures()), limits=floors, current=Pair(3, 3), **held) == Pair(2, 2)
    assert wanted(quiet(figures()), limits=floors, current=Pair(2, 2), **held) is None


def test_part_of_the_workers_is_scaled_by_coverage() -> None:
    arrivals = replace(overloaded().arrivals_per_s, coverage=(1, 2))
    assert whole(arrivals) == 7.5
    assert whole(arrivals.with_state(State.PARTIAL)) == 15.0


def test_a_clamped_value_sizes_nothing() -> None:
    """The plan is the same wherever the ladder ends."""
    plans = []
    for seconds in (4.0, 60.0):
        found = overloaded()
        p95 = replace(found.ttft.p95, value=seconds, state=State.CLAMPED)
        found = replace(found, ttft=replace(found.ttft, p95=p95))
        plans.append(wanted(found, limits=EIGHT_GPUS, **GROWTH))
    assert plans[0] == plans[1] is not None
