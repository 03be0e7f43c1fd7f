"""Demand: accepted arrivals, flow check, trend; and never from nothing."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from apps.common.measurement import State
from apps.planning.domain.demand import (
    LoadSample,
    NoDemand,
    demand,
    drift,
    in_flight,
    load_sample,
)
from tests.unit.diagnosis.builders import AT, figures, lost, ok, overloaded

from .builders import history


def found(f, past=(), horizon_s=20.0):  # type: ignore[no-untyped-def]
    return demand(f, f, past, horizon_s=horizon_s, slow_s=300)


def test_arrivals_and_lengths_are_taken_as_they_are() -> None:
    d = found(figures())
    assert (d.rate, d.fast, d.slow, d.trend) == (5.5, 5.5, 5.5, 0.0)
    assert (d.mean_input, d.mean_output) == (1150, 200)
    assert d.token_rate == pytest.approx(1100)


def test_under_overload_demand_is_arrivals_not_completions() -> None:
    d = found(overloaded())
    assert d.rate == 7.5
    assert d.backlog == 30
    assert d.token_rate == pytest.approx(1500)


def test_the_slower_mean_counts_while_it_is_higher() -> None:
    d = found(figures(), history(rate=8.0))
    assert d.slow == pytest.approx((8.0 * 10 + 5.5) / 11)
    assert d.rate == d.slow


def test_a_rising_load_is_carried_ahead_and_a_falling_one_is_not() -> None:
    rising = [
        LoadSample(AT - timedelta(seconds=30 * i), 5.5 - 0.25 * i, 1150, 200)
        for i in (5, 4, 3, 2, 1)
    ]
    up = found(figures(), rising, horizon_s=60)
    # 0.25 per 30 s, exactly on a line: no error to shrink by, three quarters of it.
    assert up.trend == pytest.approx(0.75 * 0.25 / 30 * 60)
    falling = [
        LoadSample(AT - timedelta(seconds=30 * i), 5.5 + 0.25 * i, 1150, 200)
        for i in (5, 4, 3, 2, 1)
    ]
    assert found(figures(), falling).trend == 0.0


def test_a_prediction_rests_on_the_measured_rate() -> None:
    d = found(figures(), history(rate=8.0))
    assert d.rate > d.fast == 5.5
    assert d.as_measured() == replace(d, rate=5.5)


def test_cached_input_is_no_prefill_work_but_is_context() -> None:
    d = found(figures(cached_tokens_per_s=ok(6325 * 0.4)))
    assert d.mean_input == pytest.approx(1150 * 0.6)
    assert d.context_tokens == pytest.approx(1250)


def test_flow_check_rebuilds_arrivals_that_contradict_the_queues() -> None:
    inside = in_flight(overloaded(backlog=30)) or 0
    before = LoadSample(AT - timedelta(seconds=30), 7.5, 2850, 200, in_flight=inside - 120)
    f = overloaded(arrivals_per_s=ok(6.9))
    d = found(f, [before])
    # finished 6.85/s and 120 more inside in 30 s: 10.85/s must have come.
    assert d.rebuilt and d.fast == pytest.approx(6.85 + 120 / 30)
    assert d.flow_error is not None and d.flow_error > 0.5


def test_a_small_gap_is_chance() -> None:
    inside = in_flight(figures()) or 0
    before = LoadSample(AT - timedelta(seconds=30), 5.5, 1150, 200, in_flight=inside - 6)
    d = found(figures(), [before])
    assert not d.rebuilt and d.flow_error == pytest.approx(0.2 / 5.5)


def test_arrivals_that_nobody_exports_are_rebuilt_or_refused() -> None:
    f = figures(arrivals_per_s=lost())
    with pytest.raises(NoDemand) as error:
        found(f)
    assert error.value.code == "arrivals"
    before = LoadSample(AT - timedelta(seconds=30), 5.5, 1150, 200, in_flight=in_flight(f))
    assert found(f, [before]).rate == pytest.approx(5.5)


def test_stale_arrivals_are_not_arrivals() -> None:
    stale = replace(figures().arrivals_per_s, state=State.STALE)
    with pytest.raises(NoDemand):
        found(figures(arrivals_per_s=stale))


def test_no_traffic_is_a_demand_of_zero_with_the_last_lengths() -> None:
    idle = lost(state=State.NO_TRAFFIC)
    f = figures(
        arrivals_per_s=idle,
        completions_per_s=idle,
        output_tokens_per_s=idle,
        mean_input_tokens=idle,
        mean_output_tokens=idle,
    )
    d = found(f, history(rate=0.0))
    assert d.rate == 0 and d.mean_input == 1150
    with pytest.raises(NoDemand):
        found(f)


def test_unknown_lengths_give_no_demand() -> None:
    with pytest.raises(NoDemand) as error:
        found(figures(mean_input_tokens=lost()), history())
    assert error.value.code == "input_length"


def test_requests_inside_are_counted_once() -> None:
    """The backlog stands in the prefill queue and in decode's transfer queue at once."""
    f = overloaded(backlog=30)
    assert in_flight(f) == (30 + 2 + 4) + 21


def test_one_step_does_not_decide_the_spread() -> None:
    calm = [LoadSample(AT + timedelta(seconds=30 * i), 5.5, 1150, 200) for i in range(5)]
    step = [LoadSample(AT + timedelta(seconds=30 * (5 + i)), 7.5, 2850, 200) for i in range(5)]
    spread = drift([*calm, *step], 30)
    # the step itself is left out; eight calm changes and the prior of weight 6 stay
    assert spread.input == pytest.approx((6 * 0.12**2 / 14) ** 0.5)
    assert spread.output == pytest.approx(spread.input)


def test_lasting_drift_is_seen() -> None:
    restless = [
        LoadSample(AT + timedelta(seconds=30 * i), 5.5 * (1.2 if i % 2 else 1.0), 1150, 200)
        for i in range(12)
    ]
    assert drift(restless, 30).rate == pytest.approx(0.162, abs=0.01)


def test_a_window_becomes_history_only_when_it_is_known() -> None:
    f = figures()
    sample = load_sample(f, f)
    assert sample is not None and sample.arrivals_per_s == 5.5
    stale = figures(arrivals_per_s=replace(f.arrivals_per_s, state=State.STALE))
    assert load_sample(stale, stale) is None
