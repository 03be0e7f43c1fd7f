"""One evaluation as a whole: data rules, guardrails, confidence, fingerprints."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from apps.common.measurement import Measurement, Place, State
from apps.common.units import Unit
from apps.planning.domain.confidence import PhaseBasis, confidence
from apps.planning.domain.data import data_state
from apps.planning.domain.guardrails import check, first_failure, lowest_on_the_way
from apps.planning.domain.model import Pair
from apps.planning.domain.plan import fingerprint, holds, plan
from apps.planning.domain.predict import point
from apps.planning.domain.score import score
from tests.unit.diagnosis.builders import AT, figures, latency, ok, overloaded

from .builders import (
    CALM,
    ENGINE,
    LONG,
    MONEY,
    NOW,
    SIX_GPUS,
    TARGETS,
    circumstances,
    inputs,
)

GROWTH = {
    "cause": "prefill_saturated",
    "grow": ("prefill",),
    "breached_ttft": True,
}


def run(f, **changes):  # type: ignore[no-untyped-def]
    data = data_state(f, NOW, 5)
    return plan(inputs(f, **changes), data)


def test_the_story_is_planned_with_every_term() -> None:
    found = run(overloaded(), **GROWTH)
    assert found.chosen is not None and found.chosen.pair == Pair(3, 3)
    assert found.blocked == "" and all(g.passed for g in found.guardrails)
    assert found.need == Pair(3, 2)
    assert found.terms["decode"]["binding"] == "tpot"
    assert found.terms["demand"]["rate"] >= 7.5
    assert set(found.chosen.figures) == {"ttft_p95", "tpot_p95", "goodput", "cost_per_million"}
    assert found.now is not None and not found.now.meets_ttft


def test_the_calm_phase_gives_none() -> None:
    found = run(figures(), held_need=Pair(1, 2))
    assert (found.chosen, found.reason) == (None, "balanced")


@pytest.mark.parametrize(
    "changes",
    [
        {"ttft": latency(8.0, state=State.STALE)},
        {"tpot": latency(0.02, state=State.NO_DATA)},
        {"mean_input_tokens": Measurement(2850.0, Unit.TOKENS, State.CONFLICT)},
        {"arrivals_per_s": Measurement(7.5, Unit.REQUESTS_PER_SECOND, State.SOURCE_DOWN)},
        {"at": None},
        {"at": AT - timedelta(seconds=15)},
    ],
    ids=["stale", "no data", "conflict", "source down", "no window", "old window"],
)
def test_missing_or_old_data_give_no_plan(changes: dict[str, object]) -> None:
    f = replace(overloaded(), **changes)
    found = run(f, **GROWTH)
    assert (found.chosen, found.reason) == (None, "data_not_fresh")
    assert found.params["signals"]


def test_part_of_the_workers_may_grow_but_never_shrink_the_fleet() -> None:
    partial = figures().mean_input_tokens.with_state(State.PARTIAL)
    data = data_state(figures(mean_input_tokens=partial), NOW, 5)
    assert (data.may_grow, data.may_reduce) == (True, False)
    found = run(
        figures(mean_input_tokens=partial),
        current=Pair(3, 3),
        standing=Pair(2, 4),
        held_need=Pair(1, 2),
    )
    assert (found.chosen, found.reason) == (None, "hold_not_over")


def test_a_clamped_latency_is_evidence_of_growth() -> None:
    f = overloaded(ttft=latency(60.0, state=State.CLAMPED))
    assert data_state(f, NOW, 5).may_reduce is False
    assert run(f, **GROWTH).chosen is not None


def test_too_little_history_gives_no_plan() -> None:
    found = run(overloaded(), **GROWTH, history=[])
    assert (found.chosen, found.reason) == (None, "too_little_history")
    assert found.need == Pair(3, 2)


def test_what_is_not_calibrated_may_flag_not_command() -> None:
    found = run(overloaded(), **GROWTH, circumstances=circumstances(model_only=("decode",)))
    assert found.chosen is not None
    assert found.blocked == "calibrated"


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"active_command": "C-1"}, "no_active_command"),
        ({"last_change_at": NOW - timedelta(seconds=30)}, "cooldown"),
        ({"last_change_at": NOW - timedelta(seconds=90)}, ""),
        ({"last_change_at": NOW - timedelta(seconds=90), "is_growth": False}, "cooldown"),
        ({"frozen_until": NOW + timedelta(minutes=1)}, "flap"),
        ({"reversals": (NOW - timedelta(minutes=2),) * 3}, "flap"),
        ({"reversals": (NOW - timedelta(minutes=20),) * 3}, ""),
        ({"foreign_change_at": NOW}, "no_foreign_change"),
        ({"stale": ("ttft_p95",)}, "data_stale"),
        ({"data_age_s": None}, "data_stale"),
    ],
)
def test_guardrails_of_circumstance(changes: dict[str, object], code: str) -> None:
    assert first_failure(_check(Pair(3, 3), Pair(2, 4), **changes)) == code


def _check(target, current, *, demand=LONG, limits=SIX_GPUS, **changes):  # type: ignore[no-untyped-def]
    def central(pair):  # type: ignore[no-untyped-def]
        return point(pair, demand, ENGINE, TARGETS, MONEY, horizon_s=60)

    return check(
        target,
        current,
        limits,
        circumstances(**changes),
        TARGETS,
        central(current),
        central(lowest_on_the_way(target, current)),
    )


@pytest.mark.parametrize(
    ("target", "limits", "code"),
    [
        (Pair(3, 3), replace(SIX_GPUS, min_decode=4), "min_workers"),
        (Pair(4, 2), SIX_GPUS, "step_limit"),
        (Pair(3, 4), SIX_GPUS, "gpu_budget"),
        (Pair(3, 3), replace(SIX_GPUS, ratio_max=0.8), "ratio_limits"),
        (Pair(3, 3), replace(SIX_GPUS, gpus_prefill=None, can_scale=True), "gpu_budget"),
    ],
)
def test_guardrails_of_limits(target: Pair, limits: object, code: str) -> None:
    assert first_failure(_check(target, Pair(2, 4), limits=limits)) == code


def test_a_passing_state_may_not_breach_what_holds_now() -> None:
    """Back from 3 + 3 in the long phase: 2 prefill workers on the way would miss TTFT."""
    assert first_failure(_check(Pair(2, 4), Pair(3, 3), is_growth=False)) == "passing_state"
    assert first_failure(_check(Pair(2, 4), Pair(3, 3), demand=CALM, is_growth=False)) == ""


def test_the_lowest_capacity_is_the_smaller_of_both_sides() -> None:
    assert lowest_on_the_way(Pair(3, 3), Pair(2, 4)) == Pair(2, 3)


def test_every_guardrail_is_named_once_and_says_why() -> None:
    results = _check(Pair(3, 3), Pair(2, 4))
    assert len({r.code for r in results}) == len(results) == 11
    assert all(r.detail for r in results)


def test_the_fingerprint_is_of_what_would_change() -> None:
    a = fingerprint("d", "rebalance", Pair(3, 3), Pair(2, 4), 1)
    assert a == fingerprint("d", "rebalance", Pair(3, 3), Pair(2, 4), 1)
    assert a != fingerprint("d", "rebalance", Pair(3, 3), Pair(2, 4), 2)
    assert a != fingerprint("d", "rebalance", Pair(4, 2), Pair(2, 4), 1)


def test_the_hold_is_the_largest_need_and_a_hole_ends_it() -> None:
    assert holds([Pair(1, 3), Pair(3, 2), Pair(2, 2)]) == Pair(3, 3)
    assert holds([Pair(1, 3), None]) is None
    assert holds([]) is None


def test_confidence_is_the_weakest_score() -> None:
    good = PhaseBasis("prefill", 30, 0.05, (500, 3000), 2000, "calibrated")
    sure = confidence((good, replace(good, phase="decode")), fresh=True, flow_rebuilt=False)
    assert sure.label == "high"
    beyond = replace(good, phase="decode", at=6000)
    found = confidence((good, beyond), fresh=True, flow_rebuilt=False)
    assert (found.label, found.weakest) == ("medium", "decode_range")
    rebuilt = confidence((good, beyond), fresh=True, flow_rebuilt=True)
    assert rebuilt.label == "low"
    prior = replace(good, phase="decode", basis="model only", error=None)
    assert confidence((good, prior), fresh=True, flow_rebuilt=False).label == "low"


def test_a_prediction_is_scored_on_the_scale_of_its_range() -> None:
    forecast = Measurement(
        1.0, Unit.SECONDS, State.OK, AT, Place.MODEL, "model", lower=0.5, upper=2.0
    )
    share = Measurement(0.9, Unit.RATIO, State.OK, AT, Place.MODEL, "model", lower=0.8, upper=0.95)
    found = score(
        {"ttft_p95": forecast, "goodput": share, "tpot_p95": forecast},
        {"ttft_p95": ok(2.0, Unit.SECONDS), "goodput": ok(0.7, Unit.RATIO)},
    )
    assert found.scores["ttft_p95"] == pytest.approx(1.0)
    assert found.inside == {"ttft_p95": True, "goodput": False}
    assert found.scores["goodput"] > 1.0
    assert found.relative_error["ttft_p95"] == pytest.approx(1.0)
