"""Hysteresis, memory, and that every code has words."""

from __future__ import annotations

from datetime import timedelta

import pytest

from apps.common.units import Unit
from apps.diagnosis import wording
from apps.diagnosis.domain.calibration import PER_CELL, decode_window, prefill_window, retain
from apps.diagnosis.domain.causes import Cause
from apps.diagnosis.domain.hold import decide, keep_since

from .builders import AT, figures, lost, ok


def test_the_first_finding_stands_at_once() -> None:
    assert decide(["balanced"], None, needed=2, of=2) == "balanced"


def test_one_window_does_not_change_the_cause_and_two_do() -> None:
    assert decide(["prefill_saturated", "balanced"], "balanced", needed=2, of=2) == "balanced"
    two = ["prefill_saturated", "prefill_saturated", "balanced"]
    assert decide(two, "balanced", needed=2, of=2) == "prefill_saturated"


def test_three_of_four_allow_one_dissenter() -> None:
    raw = ["decode_saturated", "decode_saturated", "balanced", "decode_saturated"]
    assert decide(raw, "balanced", needed=3, of=4) == "decode_saturated"
    assert decide([*raw[:3], "balanced"], "balanced", needed=3, of=4) == "balanced"


def test_a_condition_keeps_its_start_while_it_holds_and_forgets_it_then() -> None:
    started = {"idle:decode": AT}
    later = AT + timedelta(minutes=5)
    assert keep_since(started, {"idle:decode": True}, later) == {"idle:decode": AT}
    assert keep_since(started, {"idle:decode": False}, later) == {}
    assert keep_since({}, {"idle:decode": True}, later) == {"idle:decode": later}


def test_prefill_window_is_work_per_prompt() -> None:
    sample = prefill_window(figures())
    assert sample is not None
    assert sample.seconds == pytest.approx(1150 * 0.66 / 6325)
    assert sample.features == (1.0, 1150, pytest.approx(1150**2 * 2))


def test_prefill_work_is_learnt_against_the_tokens_that_were_computed() -> None:
    """40 % of the prompt was cached: the same seconds, of 690 tokens."""
    cached = figures(cached_tokens_per_s=ok(0.4 * 6325, Unit.TOKENS_PER_SECOND))
    sample = prefill_window(cached)
    assert sample is not None
    assert sample.seconds == pytest.approx(1150 * 0.66 / 6325)
    assert sample.features == (1.0, pytest.approx(690), pytest.approx(690**2 * 2))
    assert cached.mean_uncached_tokens.value == pytest.approx(690)
    assert figures().mean_uncached_tokens.value == 1150
    whole = figures(cached_tokens_per_s=ok(6325, Unit.TOKENS_PER_SECOND))
    assert whole.mean_uncached_tokens.value == pytest.approx(0.05 * 1150)


def test_decode_window_uses_littles_law() -> None:
    sample = decode_window(figures())
    assert sample is not None
    batch = 1100 * 0.0135 / 4
    assert sample.features == (1.0, pytest.approx(batch), pytest.approx(batch * 1250))
    assert sample.seconds == 0.0135


def test_a_window_without_its_figures_teaches_nothing() -> None:
    assert prefill_window(figures(mean_input_tokens=lost())) is None
    assert decode_window(figures(mean_output_tokens=lost())) is None


def test_samples_of_one_load_do_not_drown_the_others() -> None:
    rare = [[1.0, 30.0, 90_000.0, 0.02]]
    common = [[1.0, 4.0, 5000.0, 0.0133]] * 500
    kept = retain([*rare, *common])
    assert len(kept) == PER_CELL + 1
    assert rare[0] in kept


@pytest.mark.parametrize("cause", list(Cause))
def test_every_cause_has_words(cause: Cause) -> None:
    for table in (wording.CAUSES, wording.CAUSES_SHORT, wording.CAUSES_PHRASE):
        assert str(table[cause.value])
    assert wording.SENTENCES[f"sentence.{cause.value}"]
    if cause is not Cause.BALANCED:
        assert wording.WONT_HELP[f"wont_help.{cause.value}"]
