"""Hysteresis, memory, and that every code has words."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import translation

from apps.diagnosis import wording
from apps.diagnosis.domain.calibration import PER_CELL, decode_window, prefill_window, retain
from apps.diagnosis.domain.causes import Cause
from apps.diagnosis.domain.hold import decide, keep_since
from apps.diagnosis.domain.rules import diagnose

from .builders import AT, figures, lost
from .test_rules import TABLE, symptoms


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
    with translation.override("en"):
        assert wording.heading(cause)
        assert wording.advice(cause).endswith(".")
        assert wording.limited_by(cause) != ""


@pytest.mark.parametrize("row", TABLE, ids=[row[0] for row in TABLE])
def test_every_finding_can_be_said(row: tuple[object, ...]) -> None:
    _, f, changes, _ = row
    found = diagnose(symptoms(f, **changes))  # type: ignore[arg-type]
    with translation.override("en"):
        sentence = wording.sentence(found.sentence, found.params)
        heading = wording.heading(found.cause, found.params)
        assert sentence.endswith(".") and "%(" not in sentence + heading and "–" not in heading
        assert not found.wont_help or wording.wont_help(found.wont_help).endswith(".")
        for tile in found.evidence:
            assert wording.evidence_name(tile.code) != tile.code
            assert not tile.comparison or wording.comparison(tile.comparison, "1")


def test_the_sentence_of_a_saturated_prefill_pool() -> None:
    params = {"queue_share": 0.87, "prefill": 0.995, "backlog_s": 4.0}
    with translation.override("en"):
        assert wording.sentence("prefill_saturated", params) == (
            "Prompts wait before prefill: queueing is 87% of TTFT and the prefill workers are "
            "99.5% busy."
        )
        assert wording.heading("bad_worker", {"worker": "d-3"}) == "d-3 is slow"
