"""Choosing a pair: the story, its reverse, and everything that must not happen."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apps.planning.domain.choose import Choice, Limits, Situation, choose, lattice, refusal
from apps.planning.domain.demand import Demand
from apps.planning.domain.model import Pair
from apps.planning.domain.predict import Prediction, point, predict

from .builders import CALM, ENGINE, LONG, MONEY, NOW, SIX_GPUS, TARGETS, load

CALM_SITUATION = Situation("balanced", (), True, False, Pair(1, 2))
PREFILL = Situation("prefill_saturated", ("prefill",), True, True, None)


def decide(
    current: Pair, demand: Demand, situation: Situation, limits: Limits = SIX_GPUS
) -> Choice:
    def central(pair: Pair) -> Prediction:
        return point(pair, demand, ENGINE, TARGETS, MONEY, horizon_s=60)

    def full(pair: Pair) -> Prediction:
        return predict(pair, demand, ENGINE, TARGETS, MONEY, horizon_s=60, seed=3, at=NOW)

    return choose(current, situation, limits, central, full)


def chosen(choice: Choice) -> Pair | None:
    return choice.chosen.pair if choice.chosen else None


def test_the_story_moves_one_worker() -> None:
    found = decide(Pair(2, 4), LONG, PREFILL)
    assert chosen(found) == Pair(3, 3)
    assert (found.kind, found.reason) == ("rebalance", "prefill_saturated")


def test_the_story_also_at_its_full_length() -> None:
    assert chosen(decide(Pair(2, 4), load(7.5, 3000), PREFILL)) == Pair(3, 3)


def test_a_decode_bound_fleet_gives_decode_a_worker() -> None:
    situation = Situation("decode_saturated", ("decode",), True, True, None)
    found = decide(Pair(3, 3), load(10, 600, 600), situation)
    assert chosen(found) == Pair(2, 4)


@pytest.mark.parametrize("rate", [10.0, 11.0, 12.0])
def test_a_step_that_is_not_enough_is_still_taken(rate: float) -> None:
    """Seen live: no request is good before or after, and the advice came and went with noise."""
    situation = Situation("decode_saturated", ("decode",), True, True, None)
    found = decide(Pair(3, 3), load(rate, 600, 600), situation)
    assert chosen(found) == Pair(2, 4)
    assert found.chosen is not None and found.chosen.meets_ttft


def test_the_calm_phase_asks_for_nothing() -> None:
    found = decide(Pair(2, 4), CALM, CALM_SITUATION)
    assert (chosen(found), found.reason) == (None, "balanced")


def test_when_the_load_has_gone_the_fleet_may_go_back() -> None:
    found = decide(Pair(3, 3), CALM, replace(CALM_SITUATION, standing=Pair(2, 4)))
    assert (chosen(found), found.reason) == (Pair(2, 4), "load_returned")


def test_but_not_while_the_load_is_still_there() -> None:
    held = replace(CALM_SITUATION, standing=Pair(2, 4), held_need=Pair(3, 2))
    assert chosen(decide(Pair(3, 3), LONG, held)) is None
    # Calm now, but the hold time has seen the long phase.
    assert chosen(decide(Pair(3, 3), CALM, held)) is None


def test_nor_before_the_hold_time_is_over() -> None:
    early = replace(CALM_SITUATION, standing=Pair(2, 4), held_need=None)
    assert decide(Pair(3, 3), CALM, early).reason == "hold_not_over"


def test_a_pool_that_drains_after_a_change_is_left_alone() -> None:
    """Right after the move prefill is still full of backlog; the model knows it is enough."""
    found = decide(Pair(3, 3), replace(LONG, backlog=30), PREFILL)
    assert (chosen(found), found.reason) == (None, "model_expects_recovery")


@pytest.mark.parametrize("cause", ["bad_worker", "kv_transfer_slow", "not_enough_signal"])
def test_causes_that_scaling_cannot_cure_get_no_plan(cause: str) -> None:
    found = decide(Pair(2, 4), LONG, Situation(cause, (), False, True, None))
    assert (chosen(found), found.reason) == (None, "cause_forbids_scaling")


def test_demand_above_capacity_is_not_answered_by_moving() -> None:
    both = Situation("both_saturated", ("prefill", "decode"), True, True, None)
    found = decide(Pair(2, 4), load(20, 3000, 600), both)
    assert (chosen(found), found.reason) == (None, "no_room_to_grow")


def test_with_free_gpus_and_a_backend_that_provisions_it_grows() -> None:
    limits = replace(SIX_GPUS, can_scale=True, gpu_budget=Decimal(8))
    both = Situation("both_saturated", ("prefill", "decode"), True, True, None)
    found = decide(Pair(2, 4), load(9, 3000, 900), both, limits)
    assert found.chosen is not None and found.kind == "scale"
    assert 6 < found.chosen.pair.total <= 8


def test_a_saving_needs_a_backend_that_frees_gpus() -> None:
    limits = replace(SIX_GPUS, can_scale=True)
    found = decide(Pair(2, 4), CALM, CALM_SITUATION, limits)
    assert (chosen(found), found.reason, found.kind) == (Pair(1, 3), "spare_capacity", "scale")


def test_alternatives_are_kept_with_their_reason() -> None:
    limits = replace(SIX_GPUS, can_scale=True, gpu_budget=Decimal(8))
    found = decide(Pair(2, 4), LONG, PREFILL, limits)
    assert found.chosen is not None and len(found.alternatives) == 2
    assert all(option.reason for option in found.alternatives)
    assert all(option.prediction.pair != found.chosen.pair for option in found.alternatives)


def test_the_donor_is_not_pushed_over_its_own_objective() -> None:
    """10/s of 3,000 in and 400 out: 3P would cure prefill, but decode could not spare a worker."""
    found = decide(Pair(2, 4), load(9, 2500, 560), PREFILL)
    assert found.chosen is None or found.chosen.meets_tpot


@pytest.mark.parametrize(
    ("limits", "pair", "code"),
    [
        (replace(SIX_GPUS, min_decode=4), Pair(3, 3), "min_workers"),
        (replace(SIX_GPUS, max_prefill=2), Pair(3, 3), "max_workers"),
        (SIX_GPUS, Pair(4, 2), "step_limit"),
        (SIX_GPUS, Pair(3, 4), "moves"),
        (replace(SIX_GPUS, can_flip=False), Pair(3, 3), "moves"),
        (replace(SIX_GPUS, can_scale=True), Pair(3, 4), "gpu_budget"),
        (replace(SIX_GPUS, ratio_max=0.8), Pair(3, 3), "ratio_limits"),
        (replace(SIX_GPUS, gpus_decode=Decimal(2)), Pair(3, 3), "moves"),
        (SIX_GPUS, Pair(3, 3), ""),
    ],
)
def test_what_forbids_a_pair(limits: Limits, pair: Pair, code: str) -> None:
    assert refusal(pair, Pair(2, 4), limits) == code


@settings(max_examples=80, deadline=None)
@given(
    st.integers(1, 12),
    st.integers(1, 12),
    st.integers(1, 3),
    st.integers(1, 3),
    st.integers(0, 6),
    st.booleans(),
)
def test_never_below_a_floor_never_above_the_budget(
    prefill: int, decode: int, floor_p: int, floor_d: int, free: int, scale: bool
) -> None:
    current = Pair(prefill, decode)
    budget = Decimal(current.total + free)
    limits = Limits(min_prefill=floor_p, min_decode=floor_d, gpu_budget=budget, can_scale=scale)
    for pair in lattice(current, limits):
        assert pair.prefill >= floor_p and pair.decode >= floor_d
        assert pair.total <= budget
        assert pair != current


@settings(max_examples=40, deadline=None)
@given(st.floats(2, 14), st.floats(300, 4000), st.floats(50, 600))
def test_under_a_constant_load_one_move_is_followed_by_none(
    rate: float, prompt: float, answer: float
) -> None:
    """Whatever is chosen for a load, the pair it leads to gets no plan for the same load."""
    demand = load(rate, prompt, answer)
    held = Situation("balanced", (), True, False, Pair(1, 1), standing=Pair(2, 4))
    first = decide(Pair(2, 4), demand, PREFILL)
    if first.chosen is None:
        return
    if first.chosen.meets_all:
        assert decide(first.chosen.pair, demand, PREFILL).chosen is None
    back = decide(first.chosen.pair, demand, held)
    assert back.chosen is None
