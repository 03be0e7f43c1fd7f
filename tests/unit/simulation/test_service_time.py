"""The prefill fit against the table it comes from, and what the passes of it add up to."""

from __future__ import annotations

import pytest

from apps.simulation.service_time import (
    DecodeTimes,
    PrefillTimes,
    fit_prefill,
    load_profile,
    prefill_points,
)


def test_fit_finds_the_coefficients_of_made_up_points() -> None:
    truth = PrefillTimes(0.012, 9e-5, 1.5e-9)
    points = [(n, truth.seconds([(0, n)])) for n in (128, 512, 2048, 8192, 32768)]
    fitted = fit_prefill(points)
    assert fitted.base_s == pytest.approx(0.012, rel=1e-6)
    assert fitted.per_token_s == pytest.approx(9e-5, rel=1e-6)
    assert fitted.per_square_s == pytest.approx(1.5e-9, rel=1e-6)


def test_fit_is_near_every_row_of_the_table() -> None:
    points = prefill_points()
    assert len(points) == 8
    fitted = fit_prefill(points)
    for tokens, seconds in points:
        allowed = 0.15 if tokens < 1024 else 0.08
        assert fitted.seconds([(0, tokens)]) == pytest.approx(seconds, rel=allowed)


def test_fit_refuses_what_would_make_more_work_faster() -> None:
    with pytest.raises(ValueError, match="negative"):
        fit_prefill([(1000, 0.1), (2000, 0.3), (4000, 0.2)])
    with pytest.raises(ValueError, match="at least 3"):
        fit_prefill([(1000, 0.1), (2000, 0.3)])


def test_chunks_of_a_prompt_cost_the_whole_plus_one_base_a_pass() -> None:
    times = load_profile().prefill
    whole = times.seconds([(0, 12_000)])
    parts = times.seconds([(0, 8192)]) + times.seconds([(8192, 12_000)])
    assert parts == pytest.approx(whole + times.base_s)


def test_decode_profile_is_steep_enough_to_show_in_tpot() -> None:
    decode = load_profile().decode
    assert decode == DecodeTimes(0.012, 0.00025, 6e-8)
    # Inside the 25 ms objective at 30 requests of 3,000 tokens, outside at 60.
    assert decode.seconds(30, 90_000) < 0.025 < decode.seconds(60, 180_000)
