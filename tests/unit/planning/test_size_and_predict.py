"""Queueing and predictions: monotone, inside what the demo fleet measured, repeatable."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apps.common.measurement import State
from apps.planning.domain.model import Money, Pair, Targets
from apps.planning.domain.predict import point, predict, spread_from_measured
from apps.planning.domain.size import (
    decode_need,
    decode_state,
    infeasible_share,
    prefill_need,
    prefill_state,
)

from .builders import CALM, ENGINE, LONG, MONEY, NOW, TARGETS, load, with_engine

RATES = st.floats(0.5, 60)
LENGTHS = st.floats(100, 8000)


def need_p(rate: float, length: float) -> int:
    return prefill_need(ENGINE, TARGETS, rate=rate, mean_tokens=length, backlog=0, drain_s=60)


def at(pair: Pair, demand=LONG, **changes):  # type: ignore[no-untyped-def]
    return predict(pair, demand, ENGINE, TARGETS, MONEY, horizon_s=60, seed=7, at=NOW, **changes)


def test_offered_work_of_the_story() -> None:
    """7.5/s of 2,850 tokens is 1.08 of two workers and 0.72 of three (the demo's design)."""
    for workers, rho in ((2, 1.08), (3, 0.72)):
        state, _ = prefill_state(
            ENGINE.prefill,
            rate=7.5,
            mean_tokens=2850,
            cv2=0.9,
            arrival_cv2=1.0,
            workers=workers,
        )
        assert float(state.rho) == pytest.approx(rho, abs=0.015)


def test_decode_fixed_point_by_hand() -> None:
    """B = (g/N) tau(B): 500 (0.012 + 0.000427 B) = B  ->  B = 6 / (1 - 0.2135)."""
    state = decode_state(ENGINE, token_rate=1500, context=2950, workers=3)
    assert float(state.batch) == pytest.approx(6 / (1 - 0.2135), rel=1e-3)
    assert float(state.step_s) == pytest.approx(float(state.batch) / 500)


def test_decode_that_cannot_keep_up_stands_at_its_largest_batch() -> None:
    state = decode_state(ENGINE, token_rate=9000, context=900, workers=2)
    assert float(state.load) > 1
    assert float(state.batch) == pytest.approx(0.94 * 96)


def test_needs_of_the_story() -> None:
    assert need_p(5.5, 1150) == 1
    assert need_p(7.5, 2850) == 3
    assert decode_need(ENGINE, TARGETS, token_rate=1500, context=2950) == 2
    assert decode_need(ENGINE, TARGETS, token_rate=6000, context=900) == 5


def test_a_backlog_that_must_drain_asks_for_more() -> None:
    calm = prefill_need(ENGINE, TARGETS, rate=7.5, mean_tokens=2850, backlog=0, drain_s=60)
    full = prefill_need(ENGINE, TARGETS, rate=7.5, mean_tokens=2850, backlog=400, drain_s=60)
    assert (calm, full) == (3, 5)


def test_prompts_too_long_for_the_objective_do_not_ask_for_workers() -> None:
    tight = Targets(1.0, 0.95, None, 0.95)
    phi = infeasible_share(ENGINE, tight, 2850)
    assert 0.03 < phi < 0.10
    some = prefill_need(ENGINE, tight, rate=7.5, mean_tokens=2850, backlog=0, drain_s=60)
    assert some <= 5


@settings(max_examples=60, deadline=None)
@given(RATES, RATES, LENGTHS)
def test_prefill_need_grows_with_the_rate(a: float, b: float, length: float) -> None:
    low, high = sorted((a, b))
    assert need_p(low, length) <= need_p(high, length)


@settings(max_examples=60, deadline=None)
@given(RATES, LENGTHS, LENGTHS)
def test_prefill_need_settles_and_grows_until_prompts_are_infeasible(
    rate: float, a: float, b: float
) -> None:
    low, high = sorted((a, b))
    if infeasible_share(ENGINE, TARGETS, high) == 0:
        assert need_p(rate, low) <= need_p(rate, high)
    assert need_p(rate, high) > rate * ENGINE.prefill.seconds(high) * 0.99 - 1


@settings(max_examples=60, deadline=None)
@given(st.floats(10, 50_000), st.floats(10, 50_000), st.floats(200, 9000))
def test_decode_need_grows_with_the_token_rate(a: float, b: float, context: float) -> None:
    low, high = sorted((a, b))
    assert decode_need(ENGINE, TARGETS, token_rate=low, context=context) <= decode_need(
        ENGINE, TARGETS, token_rate=high, context=context
    )


@settings(max_examples=40, deadline=None)
@given(RATES, LENGTHS, st.floats(1.0, 2.0), st.integers(1, 12), st.integers(1, 12))
def test_more_load_is_never_faster(
    rate: float, length: float, factor: float, prefill: int, decode: int
) -> None:
    pair = Pair(prefill, decode)
    less, more = (
        point(pair, load(rate * f, length), ENGINE, TARGETS, MONEY, horizon_s=60)
        for f in (1.0, factor)
    )
    assert more.ttft_s >= less.ttft_s - 1e-6
    assert more.tpot_s >= less.tpot_s - 1e-9
    assert more.good_share <= less.good_share + 1e-9


@settings(max_examples=40, deadline=None)
@given(RATES, LENGTHS, st.integers(1, 11), st.integers(1, 11))
def test_one_more_worker_is_never_slower(
    rate: float, length: float, prefill: int, decode: int
) -> None:
    demand = load(rate, length)
    base = point(Pair(prefill, decode), demand, ENGINE, TARGETS, MONEY, horizon_s=60)
    more_p = point(Pair(prefill + 1, decode), demand, ENGINE, TARGETS, MONEY, horizon_s=60)
    more_d = point(Pair(prefill, decode + 1), demand, ENGINE, TARGETS, MONEY, horizon_s=60)
    assert more_p.ttft_s <= base.ttft_s + 1e-6
    assert more_d.tpot_s <= base.tpot_s + 1e-9


def test_the_story_is_predicted_as_it_was_measured() -> None:
    """Measured after the flip: TTFT P95 1.1 to 1.8 s, TPOT 16 to 19 ms; calm 0.52 s, 14.5 ms."""
    after = at(Pair(3, 3))
    assert 1.0 < after.ttft_s < 1.8 and after.meets_all
    assert 0.016 < after.tpot_s < 0.019
    calm = at(Pair(2, 4), CALM)
    assert 0.3 < calm.ttft_s < 0.6
    assert 0.0135 < calm.tpot_s < 0.015


def test_doing_nothing_in_overload_misses_and_says_how_badly() -> None:
    nothing = at(Pair(2, 4), replace(LONG, backlog=40))
    assert not nothing.meets_ttft and nothing.meets_tpot
    assert nothing.ttft_s > 8
    assert nothing.chance_ttft is not None and nothing.chance_ttft < 0.1


def test_ranges_hold_their_value_and_are_not_nothing() -> None:
    for code, figure in at(Pair(3, 3)).figures.items():
        assert figure.lower is not None and figure.upper is not None, code
        assert figure.lower <= figure.value <= figure.upper
        assert figure.state is State.OK
    quiet = replace(LONG, drift=replace(LONG.drift, rate=0.0, input=0.0, output=0.0))
    calm_engine = with_engine(prefill_error=0.0, decode_error=0.0)
    figure = predict(
        Pair(3, 3), quiet, calm_engine, TARGETS, MONEY, horizon_s=60, seed=1, at=NOW
    ).figures["ttft_p95"]
    assert float(figure.upper or 0) / float(figure.value or 1) == pytest.approx(1.0202, abs=1e-3)


def test_the_same_seed_gives_the_same_digits_and_a_scale_widens() -> None:
    once, again, wide = at(Pair(3, 3)), at(Pair(3, 3)), at(Pair(3, 3), width_scale=2.0)
    assert once.figures == again.figures
    assert float(wide.figures["ttft_p95"].upper or 0) > float(once.figures["ttft_p95"].upper or 0)


def test_cost_is_exact_money_over_estimated_tokens() -> None:
    figure = at(Pair(3, 3)).figures["cost_per_million"]
    tokens_per_hour = 7.5 * (2850 + 200) * 3600 * at(Pair(3, 3)).good_share
    assert isinstance(figure.value, Decimal)
    assert float(figure.value) == pytest.approx(6 * 4.59 / tokens_per_hour * 1e6, rel=1e-4)


def test_without_a_price_there_is_no_cost_but_everything_else() -> None:
    found = predict(
        Pair(3, 3), LONG, ENGINE, TARGETS, Money(None, None), horizon_s=60, seed=1, at=NOW
    )
    assert found.figures["cost_per_million"].method == "price_needed"
    assert found.figures["ttft_p95"].value is not None


def test_no_traffic_costs_nothing_per_token_and_breaks_nothing() -> None:
    found = at(Pair(2, 4), load(0.0, 1150))
    assert found.meets_all
    assert found.figures["cost_per_million"].value is None


def test_the_measured_spread_of_tpot_is_used() -> None:
    """600-token answers average over many batches: the demo measured 28 ms at a mean of 27."""
    busy = load(10, 600, 600, output_tokens_per_s=5600.0)
    learnt = spread_from_measured(ENGINE, busy, 3, 0.0285)
    assert learnt.tpot_spread < 1.0
    assert spread_from_measured(ENGINE, busy, 3, None).tpot_spread == 2.0
