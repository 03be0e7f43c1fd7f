"""Presenters of pages, on the scenario of the pictures and on what can go wrong."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.utils import translation

from apps.common.measurement import Measurement, Place, State, missing
from apps.common.units import Unit
from apps.console.presenters import command, deployment, fleet, pools, recommendation
from apps.overview.domain import types as t
from apps.overview.domain.types import Status, Text
from tests.support import pages

from .samples import SHANGHAI


@pytest.fixture(autouse=True)
def _english() -> Any:
    with translation.override("en"):
        yield


# --- deployment


def test_the_first_screen_of_the_pictures() -> None:
    shown = deployment.present(pages.deployment(), SHANGHAI)
    assert shown.diagnosis.heading == "Prefill is the bottleneck"
    assert shown.diagnosis.wont_help == "More decode workers will not help."
    assert [tile.shown.text.replace("\u00a0", " ") for tile in shown.diagnosis.tiles] == [
        "590 ms", "94%", "47%", "41 ms", "6,200 tok",
    ]  # fmt: skip
    assert [item.shown.value for item in shown.figures] == [
        "1.84", "24", "8.4", "10.6k", "$0.94", "61%",
    ]  # fmt: skip
    assert [chip.text for chip in shown.chips] == ["Paging · TTFT", "In sync · rev 41"]
    assert shown.coverage == "6 of 6 required signals found"


def test_the_path_uses_one_scale_for_now_and_usual() -> None:
    shown = deployment.present(pages.deployment(), SHANGHAI).path
    now = sum(float(part.width.rstrip("%")) for part in shown.now)
    usual = sum(float(part.width.rstrip("%")) for part in shown.usual)
    assert now == pytest.approx(99, abs=0.2)
    assert usual / now == pytest.approx(475 / 1020, abs=0.01)
    assert shown.total.replace("\u00a0", " ") == "1,020 ms"
    assert [stage.small for stage in shown.stages] == [
        "usual 62", "usual 338", "usual 39", "first step",
    ]  # fmt: skip
    assert [stage.is_hot for stage in shown.stages] == [True, False, False, False]


def test_transfer_that_is_not_measured_apart_is_one_hatched_box_without_a_number() -> None:
    joint = t.Stage(t.Phase.PREFILL_AND_KV, pages.m(0.4, Unit.SECONDS), 0.4, None, False, None)
    page = replace(pages.deployment(), path=replace(pages.path(), stages=(joint,)))
    stage = deployment.present(page, SHANGHAI).path.stages[0]
    assert stage.is_hatched
    assert stage.detail == "not measured apart"
    assert stage.label == "Prefill + transfer"


def test_a_latency_without_an_objective_is_not_judged() -> None:
    row = t.PredictedRow(
        "ttft_p95", pages.m(9.0, Unit.SECONDS), pages.m(8.0, Unit.SECONDS), None, None
    )
    shown = deployment.parts.predicted((row,), SHANGHAI)[0]
    assert (shown.now_tone, shown.tick) == ("", "")


def test_a_ttft_from_the_router_says_so() -> None:
    path = replace(pages.path(), total=pages.m(1.02, Unit.SECONDS, place=Place.ROUTER))
    shown = deployment.present(pages.deployment(path=path), SHANGHAI)
    assert shown.path.place == "measured from the router on"


def test_old_data_looks_old_everywhere_and_stops_the_recommendation() -> None:
    shown = deployment.present(pages.stale(), SHANGHAI)
    assert all(item.shown.is_old for item in shown.figures)
    assert all(item.status == "unknown" for item in shown.diagnosis.tiles)
    assert all("from 03:04" in item.shown.note for item in shown.figures)
    assert all(item.tone == "" for item in shown.figures)
    assert shown.recommendation is not None
    assert not shown.recommendation.primary_enabled
    assert shown.recommendation.primary_reason == "Paused: data is 4\u00a0min old."


def test_the_total_of_cost_is_the_sum_of_its_lines() -> None:
    page = pages.deployment()
    total = sum(Decimal(str(line.per_hour.value)) for line in page.cost.lines)
    assert total == page.cost.total_per_hour.value
    assert deployment.present(page, SHANGHAI).cost.total == "$200.80"


@pytest.mark.parametrize(
    ("kind", "text", "status"),
    [
        ("in_sync", "In sync · rev 41", "ok"),
        ("out_of_sync", "Out of sync", "warn"),
        ("applying", "Applying C-0914", "info"),
        ("unknown", "Sync unknown", "unknown"),
    ],
)
def test_sync_chips(kind: str, text: str, status: str) -> None:
    sync = t.Sync(kind, 41, "C-0914", {"decode": 6}, {"decode": 5})
    chip = deployment.present(pages.deployment(sync=sync), SHANGHAI).chips[1]
    assert (chip.text, chip.status) == (text, status)
    assert kind == "in_sync" or chip.title == "wanted decode 6, serving decode 5"


# --- recommendation


def test_the_card_of_the_pictures() -> None:
    card = recommendation.present(pages.recommendation(), SHANGHAI)
    assert card.title == "Turn 1 decode worker into 2 prefill"
    assert card.revision == "rev 41 → 42"
    assert [(line.sign, line.text, line.gpus) for line in card.diff] == [
        ("−", "prefill workers: 4", "16 GPUs"),
        ("+", "prefill workers: 6", "24 GPUs"),
        ("−", "decode workers: 6", "48 GPUs"),
        ("+", "decode workers: 5", "40 GPUs"),
    ]
    assert [row.range for row in card.predicted] == [
        "0.66–0.96", "25–31", "11.0–11.7", "0.67–0.72", "same",
    ]  # fmt: skip
    assert [row.tick for row in card.predicted] == ["ok", "ok", "", "", ""]
    assert card.basis == "14 similar changes, median error 9%"
    assert card.guardrails_text == "5 of 5 guardrails pass"
    assert card.primary_enabled


@pytest.mark.parametrize(
    ("similar", "words"), [(14, "High confidence"), (4, "Low confidence, model only")]
)
def test_no_confidence_without_its_basis(similar: int, words: str) -> None:
    card = recommendation.present(pages.recommendation(similar_changes=similar), SHANGHAI)
    assert card.confidence == words


def test_a_failing_guardrail_is_named_first() -> None:
    rails = (t.Guardrail("cooldown", True), t.Guardrail("min_workers", False))
    card = recommendation.present(
        pages.recommendation(
            guardrails=rails, blocked=Text("blocked.guardrail", {"guardrail": "min_workers"})
        ),
        SHANGHAI,
    )
    assert card.guardrails_text == "1 of 2 guardrail does not pass"
    assert card.guardrails_names == "floor of each role kept"
    assert card.state == "blocked" and not card.primary_enabled
    assert card.primary_reason == "Blocked by a guardrail: floor of each role kept."


def test_a_viewer_sees_the_button_with_the_reason() -> None:
    page = pages.for_viewer(pages.deployment())
    card = deployment.present(page, SHANGHAI).recommendation
    assert card is not None
    assert not card.primary_enabled and not card.may_dismiss
    assert card.primary_reason == "You need the permission to propose here."


@pytest.mark.parametrize(
    ("state", "blocked", "shown"),
    [
        ("open", None, "fresh"),
        ("open", Text("blocked.stale", {"age_s": 240.0}), "stale"),
        ("open", Text("blocked.kill_switch"), "blocked"),
        ("expired", Text("blocked.expired", {"at": pages.NOW}), "expired"),
        ("dismissed", None, "dismissed"),
        ("applied", None, "applied"),
        ("superseded", None, "superseded"),
    ],
)
def test_states_of_a_recommendation(state: str, blocked: Text | None, shown: str) -> None:
    card = recommendation.present(pages.recommendation(state=state, blocked=blocked), SHANGHAI)
    assert card.state == shown
    assert card.is_open == (state == "open")
    assert card.primary_enabled == (shown == "fresh")


# --- pools


def test_a_missing_meter_has_no_invented_number() -> None:
    pool = replace(pages.pools()[0], meters=(t.Meter("kv_used", missing(Unit.RATIO)),))
    meter = pools.present(pool, SHANGHAI).meters[0]
    assert meter.is_missing and meter.text == "–"


def test_a_worker_that_does_not_serve_says_so() -> None:
    pool = replace(pages.pools()[1], cells=pages.cells("d", [0.4, 0.5], 8, d_1="draining"))
    first, second = pools.present(pool, SHANGHAI).cells
    assert (first.is_serving, first.state_word, first.text) == (True, "", "40%")
    assert (second.is_serving, second.state_word) == (False, "draining")


# --- fleet


def test_rows_compare_latencies_with_their_objectives() -> None:
    shown = fleet.present(pages.fleet(), SHANGHAI)
    rows = {row.slug: row for row in shown.rows}
    assert rows["assist-chat-prod"].ttft_tone == "c-crit"
    assert rows["code-assist"].tpot_tone == "c-warn"
    assert rows["chat-mini"].ttft_tone == ""
    assert rows["assist-chat-prod"].limited_by == "Prefill"
    assert rows["assist-chat-prod"].gpus == "16 : 48 GPUs"


def test_a_single_pool_has_one_bar_and_no_ratio() -> None:
    row = fleet.present(pages.fleet(), SHANGHAI).rows[-1]
    assert len(row.split) == 1 and len(row.busy) == 1
    assert row.gpus == "8 GPUs" and row.busy_text == "70%"
    assert row.ttft == "–" and row.budget == "–"


@pytest.mark.parametrize(
    ("filters", "left"),
    [
        ({"query": "eu-1"}, 3),
        ({"query": "qwen3 cn-east"}, 3),
        ({"status": "crit"}, 2),
        ({"cluster": "cn-north-2"}, 2),
        ({"query": "nothing like it"}, 0),
    ],
)
def test_filters(filters: dict[str, str], left: int) -> None:
    assert len(fleet.present(pages.fleet(), SHANGHAI, **filters).rows) == left


def test_nothing_wrong_is_one_green_line() -> None:
    shown = fleet.present(pages.fleet(cards=()), SHANGHAI)
    assert shown.cards == ()
    assert shown.all_good == "All 8 deployments within objectives."


def test_totals_say_what_they_are_over() -> None:
    assert (
        fleet.present(pages.fleet(visible=14), SHANGHAI).meta == "8 of 14 deployments · 3 clusters"
    )


# --- commands


def test_a_command_while_it_verifies() -> None:
    shown = command.present(pages.command(), SHANGHAI)
    assert shown.title == "prefill 4 → 6, decode 6 → 5"
    assert shown.state_word == "Verifying"
    assert shown.soak == "Verifying 4\u00a0min of 10\u00a0min"
    assert shown.soak_width == "40%"
    assert shown.verdict == "5 of 5 inside the range"
    assert shown.steps[0].time == "92\u00a0s (about 95\u00a0s)"
    assert shown.recovered == "recovered after 5\u00a0min\u00a018\u00a0s"


def test_a_partial_command_says_what_is_true_now() -> None:
    shown = command.present(pages.failed_command(), SHANGHAI)
    assert shown.state_text == "Only a part was carried out. Now: prefill 5, decode 6."
    assert shown.next_action == "Nothing happens by itself. Retry or roll back."
    assert [step.mark for step in shown.steps] == ["ok", "crit", "info", "info"]


def test_a_prediction_that_missed_is_marked() -> None:
    rows = (replace(pages.compared()[0], inside_range=False),)
    shown = command.present(pages.command(compared=rows), SHANGHAI)
    assert (shown.verdict, shown.verdict_status) == ("0 of 1 inside the range", "warn")
    assert shown.compared[0].verdict_word == "outside the range"


def test_the_footer_of_the_list_tells_how_good_predictions_are() -> None:
    shown = command.present_list(pages.command_list(), SHANGHAI)
    assert shown.footer == "15 of 17 predictions inside their range, median error 9%"
    empty = replace(pages.command_list(), predictions=0, inside_range=0, median_error=None)
    assert command.present_list(empty, SHANGHAI).footer == "No prediction has been scored yet."


def test_a_failing_check_turns_apply_off() -> None:
    checks = (t.Check("revision", True), t.Check("kill_switch", False))
    shown = command.present_review(pages.review(checks=checks), SHANGHAI)
    assert not shown.enabled
    assert shown.checks_text == "1 check does not pass"
    assert shown.why_not == "A check does not pass."


@pytest.mark.parametrize(("one", "words"), [(True, "Apply now"), (False, "Ask for approval")])
def test_one_person_applies_two_people_ask(one: bool, words: str) -> None:
    shown = command.present_review(pages.review(one_person_may=one), SHANGHAI)
    assert (shown.primary, shown.enabled) == (words, True)


def test_many_guardrails_are_counted_and_some_named() -> None:
    codes = ("cooldown", "min_workers", "step_limit", "flap", "gpu_budget", "ratio_limits",
             "calibrated")  # fmt: skip
    rails = tuple(t.Guardrail(code, True) for code in codes)
    card = recommendation.present(pages.recommendation(guardrails=rails), SHANGHAI)
    assert card.guardrails_text == "7 of 7 guardrails pass"
    assert card.guardrails_names.endswith("GPU budget and 2 more")
    assert len(card.guardrails) == 7


def test_a_range_with_equal_ends_reads_as_one_value() -> None:
    ratio = Unit.RATIO
    detail = Text(
        "figure.share_range_of_demand",
        {
            "first": pages.m(0.0101, ratio),
            "second": pages.m(0.0104, ratio),
            "demand": pages.m(7.36, Unit.REQUESTS_PER_SECOND),
        },
    )
    shown = deployment.parts.figure(
        t.Figure("goodput", pages.m(0.07, Unit.REQUESTS_PER_SECOND), None, None, detail),
        SHANGHAI,
        "x",
    )
    assert shown.detail.replace("\u00a0", " ") == "1% of 7.36 req/s"


@pytest.mark.parametrize(
    ("given", "shown"),
    [("h200-sxm", "H200 SXM"), ("H200", "H200"), ("", ""), ("my GPU", "my GPU")],
)
def test_accelerators_are_written_as_people_write_them(given: str, shown: str) -> None:
    assert deployment.parts.accelerator_title(given) == shown


@pytest.mark.parametrize(
    ("given", "shown"),
    [("sglang 0.5.23", "SGLang 0.5.23"), ("vllm", "vLLM"), ("vLLM on Dynamo", "vLLM on Dynamo")],
)
def test_engines_keep_their_own_spelling(given: str, shown: str) -> None:
    assert deployment.parts.engine_title(given) == shown


def test_a_card_names_the_problem_even_without_a_cause_of_its_own() -> None:
    first = replace(pages.fleet_rows()[0], cause="")
    shown = fleet.present(pages.fleet(cards=(first,)), SHANGHAI)
    assert shown.cards[0].title == "assist-chat-prod: prefill saturated"


def test_no_traffic_is_said_in_words() -> None:
    idle = t.Figure("ttft_p95", missing(Unit.SECONDS, State.NO_TRAFFIC), None, 1.2, None)
    shown = deployment.parts.figure(idle, SHANGHAI, "x")
    assert shown.shown.text == "no traffic"
    assert shown.status == ""


def test_a_gap_in_a_series_is_not_bridged() -> None:
    gap = t.Figure("ttft_p95", pages.m(1.0, Unit.SECONDS), Status.OK, 1.2, None, (1, None, 1, 1))
    drawn = deployment.parts.figure(gap, SHANGHAI, "x").spark
    assert drawn is not None and len(drawn.lines) == 1 and len(drawn.dots) == 1


def test_times_of_changes_are_local_with_utc_on_hover() -> None:
    change = deployment.present(pages.deployment(), SHANGHAI).changes[2]
    assert (change.time, change.utc) == ("02:05", "2026-11-29 18:05:00 UTC")


def test_a_measurement_without_bounds_has_no_range() -> None:
    row = t.PredictedRow(
        "tpot_p95",
        pages.m(0.02, Unit.SECONDS),
        Measurement(0.021, Unit.SECONDS, State.OK, pages.NOW - timedelta(seconds=5)),
        0.04,
        True,
    )
    assert deployment.parts.predicted((row,), SHANGHAI)[0].range == "–"
