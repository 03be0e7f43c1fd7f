"""Every code has whole sentences in both languages, with the parameters it promises."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.utils import translation

from apps.commands.domain.states import CommandState, StepState
from apps.common.measurement import Measurement, Place, State
from apps.common.units import Unit
from apps.console import wording
from apps.console.wording import kinds, labels
from apps.console.wording.sentences import fields_of, template_of
from apps.diagnosis.domain.causes import Cause
from apps.overview.domain.types import DiagnosisView, Phase, Status, Text

from .samples import SHANGHAI, all_params

LANGUAGES = ("en", "zh-hans")
CODES = sorted(wording.TABLE)


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("code", CODES)
def test_every_code_renders_whole(code: str, language: str) -> None:
    with translation.override(language):
        said = wording.say(Text(code, all_params()), SHANGHAI)
    assert said.strip()
    assert "{" not in said and "}" not in said and "None" not in said


@pytest.mark.parametrize("code", CODES)
def test_parameters_are_known_and_equal_in_both_languages(code: str) -> None:
    for variant in wording.TABLE[code]:
        found = []
        for language in LANGUAGES:
            with translation.override(language):
                found.append(fields_of(template_of(variant, {})))
        assert found[0] == found[1]
        assert found[0] <= set(kinds.KINDS), found[0] - set(kinds.KINDS)


def test_the_richest_variant_that_fits_is_chosen() -> None:
    code = "sentence.prefill_saturated"
    with translation.override("en"):
        full = wording.say(
            Text(code, {"ttft": 1.84, "ttft_objective": 1.2, "since": SHANGHAI.now, "for_s": 3780}),
            SHANGHAI,
        )
        short = wording.say(Text(code, {"ttft": 1.84, "ttft_objective": 1.2}), SHANGHAI)
        bare = wording.say(Text(code), SHANGHAI)
    assert full == (
        "TTFT P95 1.84\u00a0s against 1.20\u00a0s, since 03:08 (63\u00a0min). "
        "Requests queue for prefill; decode has room."
    )
    assert short.startswith("TTFT P95 1.84\u00a0s against 1.20\u00a0s. ")
    assert bare == "Requests queue for prefill; decode has room."


def test_chinese_has_its_own_word_order() -> None:
    with translation.override("zh-hans"):
        said = wording.say(
            Text(
                "sentence.prefill_saturated",
                {"ttft": 1.84, "ttft_objective": 1.2, "since": SHANGHAI.now, "for_s": 3780},
            ),
            SHANGHAI,
        )
    assert said.startswith("TTFT P95 1.84\u00a0s，目标 1.20\u00a0s，自 03:08 起已 63\u00a0分钟。")


def test_unknown_codes_and_missing_parameters_raise_in_tests() -> None:
    with pytest.raises(wording.UnknownCode):
        wording.say(Text("sentence.of_nothing"), SHANGHAI)
    with pytest.raises(wording.MissingParameter):
        wording.say(Text("rec.scale"), SHANGHAI)
    with pytest.raises(wording.UnknownCode):
        labels.word(labels.FIGURES, "nonsense")


def test_production_shows_an_unknown_code_instead_of_failing(settings: Any) -> None:
    settings.FULCRUM_STRICT_WORDING = False
    assert wording.say(Text("note.brand_new_thing"), SHANGHAI) == "note: brand new thing"
    assert labels.word(labels.FIGURES, "brand_new") == "brand new"


def test_html_marks_figures_and_escapes_names() -> None:
    text = Text("sentence.bad_worker", {"worker": "<b>x", "times": 2.4, "role": "decode"})
    with translation.override("en"):
        said = wording.say_html(text, SHANGHAI)
    assert '<b class="num">&lt;b&gt;x</b>' in said
    assert '<b class="num">2.4×</b>' in said


@pytest.mark.parametrize(("count", "said"), [(1, "1 request waiting"), (38, "38 requests waiting")])
def test_plurals(count: int, said: str) -> None:
    with translation.override("en"):
        assert wording.say(Text("stage.waiting", {"waiting": count}), SHANGHAI) == said


@pytest.mark.parametrize(
    ("table", "codes"),
    [
        (labels.CAUSES, [cause.value for cause in Cause]),
        (labels.CAUSES_SHORT, [cause.value for cause in Cause]),
        (labels.CAUSES_PHRASE, [cause.value for cause in Cause]),
        (labels.COMMAND_STATES, [state.value for state in CommandState]),
        (labels.STEP_STATES, [state.value for state in StepState]),
        (labels.FIGURE_STATES, [state.value for state in State]),
        (labels.PLACES, [place.value for place in Place]),
        (labels.STATUSES, [status.value for status in Status]),
        (labels.PHASES, [phase.value for phase in Phase]),
    ],
)
def test_each_enum_has_exactly_its_words(table: Any, codes: list[str]) -> None:
    assert set(table) == set(codes)


@pytest.mark.parametrize("cause", [cause.value for cause in Cause])
def test_each_cause_has_heading_sentence_and_warning(cause: str) -> None:
    assert f"sentence.{cause}" in wording.TABLE
    assert cause == "balanced" or f"wont_help.{cause}" in wording.TABLE


@pytest.mark.parametrize("state", [state.value for state in CommandState])
def test_each_command_state_has_a_sentence(state: str) -> None:
    assert f"state.{state}" in wording.TABLE


FORBIDDEN = {
    "prefill_saturated": r"decode workers will not help",
    "decode_saturated": r"prefill workers make it worse",
    "kv_transfer_slow": r"workers will not help",
    "router_queue": r"scaling will not help",
    "both_saturated": r"moving GPUs between the pools will not help",
    "host_bound": r"more GPUs will not help",
}


@pytest.mark.parametrize(("cause", "words"), FORBIDDEN.items())
def test_what_will_not_help_is_said(cause: str, words: str) -> None:
    with translation.override("en"):
        said = wording.say(Text(f"wont_help.{cause}"), SHANGHAI)
    assert re.search(words, said, re.IGNORECASE)


def view(cause: str, worker: str = "", **params: Any) -> DiagnosisView:
    sentence = Text(f"sentence.{cause}", params)
    return DiagnosisView(cause, Status.CRIT, sentence, None, None, (), None, worker)


def test_headings_name_worker_and_counts_where_known() -> None:
    with translation.override("en"):
        assert wording.heading(view("bad_worker", "d-3"), SHANGHAI) == "d-3 is slow"
        assert wording.heading(view("bad_worker"), SHANGHAI) == "One worker is slow"
        lost = view("replica_lost", ready=5, wanted=6, role="decode")
        assert wording.heading(lost, SHANGHAI) == "1 of 6 decode worker is down"
        assert wording.heading(view("idle_prefill"), SHANGHAI) == "Prefill is idle"


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        ("share", 0.711, "71%"),
        ("share", 0.994, "99.4%"),
        ("share", 0.004, "0.4%"),
        ("gap", 0.47, "47"),
        ("change", 0.38, "+38%"),
        ("change", -0.12, "−12%"),
        ("burn", 14.5, "14.5×"),
        ("tokens", 6200, "6,200"),
        ("tokens", 73200, "73.2k"),
        ("tpot", 0.024, "24\u00a0ms"),
        ("tpot", 0.0048, "4.8\u00a0ms"),
        ("size", Measurement(1.1e9, Unit.BYTES, State.OK), "1.1\u00a0GB"),
        ("speed", Measurement(27e9, Unit.BYTES_PER_SECOND, State.OK), "27\u00a0GB/s"),
        ("rate", Measurement(73200.0, Unit.TOKENS_PER_SECOND, State.OK), "73.2k\u00a0tok/s"),
        ("targets", {"decode": 5, "prefill": 6}, "prefill 6, decode 5"),
        ("changes", {"decode": (6, 5), "prefill": (4, 6)}, "prefill 4 → 6, decode 6 → 5"),
        ("share", None, "–"),
    ],
)
def test_parameters_are_formatted_by_their_kind(name: str, value: Any, shown: str) -> None:
    with translation.override("en"):
        assert kinds.show(name, value, {}, SHANGHAI) == shown


def test_ttft_keeps_the_unit_of_its_objective() -> None:
    assert kinds.show("ttft", 0.31, {"ttft_objective": 1.2}, SHANGHAI) == "0.31\u00a0s"
    assert kinds.show("ttft", 0.31, {"ttft_objective": 0.8}, SHANGHAI) == "310\u00a0ms"
