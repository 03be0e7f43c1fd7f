"""Normalising the trace: exact means and rates, kept shape, the load the story needs."""

from __future__ import annotations

import numpy as np
import pytest

from apps.simulation.service_time import load_profile
from apps.simulation.stories import LONG_PROMPTS, SCENARIOS, scenario
from apps.simulation.trace import (
    INPUT_CAP,
    Arrival,
    Phase,
    load_trace,
    replay,
    replay_story,
    scale_gaps,
    scale_lengths,
)

TRACE = load_trace()


def arrivals(phase: Phase, seed: int) -> list[Arrival]:
    return list(replay(TRACE, phase, 0.0, np.random.default_rng(seed)))


def test_trace_is_the_published_one() -> None:
    assert len(TRACE) == 19_366
    assert TRACE.inputs.mean() == pytest.approx(1155, abs=1)
    assert TRACE.outputs.mean() == pytest.approx(211, abs=1)
    assert len(TRACE) / TRACE.gaps_s.sum() == pytest.approx(5.53, abs=0.05)


@pytest.mark.parametrize("seed", range(5))
def test_phase_has_the_wanted_rate_and_means(seed: int) -> None:
    phase = Phase("x", 90.0, 7.5, 2850, 200)
    found = arrivals(phase, seed)
    assert len(found) == 675
    assert np.mean([a.input_tokens for a in found]) == pytest.approx(2850, rel=0.002)
    assert np.mean([a.output_tokens for a in found]) == pytest.approx(200, rel=0.01)
    assert max(a.input_tokens for a in found) <= INPUT_CAP
    assert max(a.output_tokens for a in found) <= 600
    times = [a.at_s for a in found]
    assert times == sorted(times)
    assert times[0] >= 0
    assert times[-1] < 90


def test_rate_is_exact_even_where_a_block_holds_no_whole_request() -> None:
    assert len(arrivals(Phase("x", 300.0, 0.03, 1000, 100), 1)) == 9


def test_scaling_keeps_order_and_proportions_below_the_cap() -> None:
    lengths = np.array([100.0, 400.0, 200.0, 1000.0])
    scaled = scale_lengths(lengths, 850, floor=1, cap=10_000)
    assert scaled.tolist() == [200, 800, 400, 2000]
    capped = scale_lengths(lengths, 850, floor=1, cap=1500)
    assert capped.max() == 1500
    assert capped.mean() == pytest.approx(850, abs=1)
    with pytest.raises(ValueError, match="outside"):
        scale_lengths(lengths, 2000, floor=1, cap=1500)


def test_gaps_stay_bursty() -> None:
    rng = np.random.default_rng(3)
    gaps = np.array([5.0, 0.01, 0.01, 0.01, 5.0, 0.01, 0.01])
    offsets = scale_gaps(gaps, 10.0, rng)
    found = np.diff(offsets)
    assert found[[0, 1, 2, 4, 5]].max() < 0.1 < 3 < found[3]


def test_the_seed_decides_everything() -> None:
    phase = Phase("x", 30.0, 5.0, 1000, 100)
    assert arrivals(phase, 4) == arrivals(phase, 4)
    assert arrivals(phase, 4) != arrivals(phase, 5)


def test_story_repeats_its_phases_without_a_gap() -> None:
    phases = (Phase("a", 30.0, 2.0, 500, 50), Phase("b", 30.0, 2.0, 500, 50))
    stream = replay_story(TRACE, phases, np.random.default_rng(1))
    found = [next(stream) for _ in range(240)]
    assert [found[i].phase for i in (0, 59, 60, 119, 120, 239)] == ["a", "a", "b", "b", "a", "b"]
    assert found[239].at_s < 120


@pytest.mark.parametrize("seed", range(10))
def test_long_prompts_overload_two_prefill_workers_and_not_three(seed: int) -> None:
    story = scenario("story", 75)
    phase = next(p for p in story.phases if p.name == LONG_PROMPTS)
    assert phase.seconds >= 360
    times = load_profile().prefill
    found = arrivals(phase, seed)
    # About two and a half prompts share a pass, so each pays 0.4 of its base.
    work = (
        sum(times.seconds([(0, a.input_tokens)]) - 0.6 * times.base_s for a in found)
        / phase.seconds
    )
    assert 1.0 < work / 2 < 1.1
    assert work / 3 < 0.75


@pytest.mark.parametrize("name", SCENARIOS)
def test_every_scenario_can_be_replayed(name: str) -> None:
    built = scenario(name, 60).scaled(2.0)
    for phase in built.phases:
        assert len(arrivals(phase, 1)) == pytest.approx(phase.rate * phase.seconds, abs=1)


def test_unknown_scenario_is_refused() -> None:
    with pytest.raises(ValueError, match="unknown scenario"):
        scenario("storm", 60)
