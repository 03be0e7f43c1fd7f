"""Figures as people read them: the table of `design/ui.md` §5 and the states of §7."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.utils import translation

from apps.common.measurement import Measurement, Place, State, Trace, missing
from apps.common.units import Unit
from apps.console.presenters.shown import place_note, range_text, show, trace_lines

from .samples import NOW, SHANGHAI

S, R = Unit.SECONDS, Unit.RATIO


def m(value: Any, unit: Unit, state: State = State.OK, **more: Any) -> Measurement:
    return Measurement(value, unit, state, more.pop("at", NOW - timedelta(seconds=6)), **more)


@pytest.fixture(autouse=True)
def _english() -> Any:
    with translation.override("en"):
        yield


@pytest.mark.parametrize(
    ("code", "value", "unit", "objective", "text"),
    [
        ("ttft_p95", 1.84, S, 1.2, "1.84\u00a0s"),
        ("ttft_p95", 0.31, S, 0.8, "310\u00a0ms"),
        ("ttft_p95", 0.31, S, 1.2, "0.31\u00a0s"),
        ("tpot_p95", 0.024, S, 0.04, "24\u00a0ms"),
        ("tpot_p95", 0.0048, S, 0.04, "4.8\u00a0ms"),
        ("queue_wait", 0.590, S, None, "590\u00a0ms"),
        ("queue_wait", 1.02, S, None, "1,020\u00a0ms"),
        ("waiting", 8430.0, Unit.COUNT, None, "8,430"),
        ("output_rate", 73200.0, Unit.TOKENS_PER_SECOND, None, "73.2k\u00a0tok/s"),
        ("goodput", 8.4, Unit.REQUESTS_PER_SECOND, None, "8.4\u00a0req/s"),
        ("good_share", 0.71, R, None, "71%"),
        ("good_share", 0.994, R, None, "99.4%"),
        ("good_share", 0.006, R, None, "0.6%"),
        ("input_tokens", 0.38, R, None, "+38%"),
        ("budget_burn", 14.5, R, None, "14.5×"),
        ("ttft_budget", 0.61, R, None, "61% left"),
        ("spend_per_hour", Decimal("200.8"), Unit.USD_PER_HOUR, None, "$200.80/h"),
        ("cost_per_million", Decimal("0.94"), Unit.USD_PER_MILLION_TOKENS, None, "$0.94"),
        ("cost_per_million", Decimal("0.158"), Unit.USD_PER_MILLION_TOKENS, None, "$0.158"),
        ("gpus", 412.0, Unit.GPUS, None, "412"),
        ("idle_time", 6 * 3600.0, S, None, "6\u00a0h"),
    ],
)
def test_formats(code: str, value: Any, unit: Unit, objective: Any, text: str) -> None:
    assert show(m(value, unit), code, SHANGHAI, objective=objective).text == text


def test_seconds_are_never_labelled_milliseconds() -> None:
    """The same 24 in two units: 24 ms of a step, 24 s of a wait."""
    assert show(m(0.024, S), "tpot_p95", SHANGHAI).text == "24\u00a0ms"
    assert show(m(24.0, S), "queue_wait", SHANGHAI).text == "24.0\u00a0s"


@pytest.mark.parametrize(
    ("measured", "text", "note", "css"),
    [
        (m(2.5, S, State.CLAMPED), "≥\u00a02.50\u00a0s", "at or above the last bucket bound", ""),
        (missing(S, State.NO_TRAFFIC), "no traffic", "", ""),
        (m(0.78, S, State.PARTIAL, coverage=(8, 10)), "0.78\u00a0s", "8 of 10 workers", ""),
        (
            m(0.78, S, State.CONFLICT, lower=0.78, upper=1.1),
            "0.78\u00a0s",
            "0.78\u00a0s or 1.10\u00a0s: sources disagree",
            "",
        ),
        (
            m(0.78, S, State.STALE, at=NOW - timedelta(minutes=4)),
            "0.78\u00a0s",
            "from 03:04, 4\u00a0min old",
            "is-old",
        ),
        (
            m(0.78, S, State.SOURCE_DOWN, at=NOW - timedelta(minutes=4)),
            "0.78\u00a0s",
            "from 03:04, 4\u00a0min old",
            "is-old",
        ),
        (
            missing(S, trace=Trace("", "vllm:ttft")),
            "–",
            "metric missing: vllm:ttft",
            "is-missing",
        ),
        (
            Measurement(None, S, State.TOO_FEW, NOW, sample_count=12),
            "–",
            "12 requests, percentiles need 200",
            "",
        ),
    ],
)
def test_each_state_has_its_look(measured: Measurement, text: str, note: str, css: str) -> None:
    seen = show(measured, "ttft_p95", SHANGHAI, objective=1.2)
    assert (seen.text, seen.note, seen.css) == (text, note, css)
    assert seen.state == measured.state.value


def test_every_state_of_the_enum_can_be_shown() -> None:
    for state in State:
        value = None if state in (State.NO_DATA, State.NO_TRAFFIC) else 0.5
        assert show(m(value, S, state), "ttft_p95", SHANGHAI, objective=1.2).text


def test_goodput_from_marginals_is_a_range_and_from_requests_is_not() -> None:
    rate = Unit.REQUESTS_PER_SECOND
    ranged = m(7.8, rate, method="marginals", lower=7.8, upper=8.4)
    exact = m(8.4, rate, method="requests", lower=8.4, upper=8.4)
    assert show(ranged, "goodput", SHANGHAI).text == "7.8–8.4\u00a0req/s"
    assert show(exact, "goodput", SHANGHAI).text == "8.4\u00a0req/s"


@pytest.mark.parametrize(
    ("code", "low", "high", "unit", "text"),
    [
        ("ttft_p95", 0.66, 0.96, S, "0.66–0.96"),
        ("tpot_p95", 0.025, 0.031, S, "25–31"),
        ("goodput", 11.0, 11.7, Unit.REQUESTS_PER_SECOND, "11.0–11.7"),
        ("good_share", 0.66, 0.71, R, "66–71%"),
        ("cost_per_million", Decimal("0.67"), Decimal("0.72"), Unit.USD_PER_MILLION_TOKENS,
         "$0.67–0.72"),
    ],
)  # fmt: skip
def test_ranges_use_an_en_dash_and_one_unit(
    code: str, low: Any, high: Any, unit: Unit, text: str
) -> None:
    assert range_text(m(low, unit, lower=low, upper=high), code, 1.2) == text


def test_a_figure_can_be_traced() -> None:
    measured = m(
        1.84, S, place=Place.ROUTER, sample_count=3540, trace=Trace("Prometheus", "rate(x[5m])")
    )
    lines = {line.name: line.value for line in trace_lines(measured, SHANGHAI)}
    assert lines["Query or formula"] == "rate(x[5m])"
    assert lines["Source"] == "Prometheus"
    assert lines["Sample"] == "03:08 (2026-11-29 19:08:00 UTC)"
    assert lines["Measured at"] == "router"
    assert lines["Requests"] == "3,540"


def test_a_ttft_measured_after_the_frontend_says_so() -> None:
    assert place_note(m(1.0, S, place=Place.ROUTER)) == "measured from the router on"
    assert place_note(m(1.0, S, place=Place.FRONTEND)) == ""
