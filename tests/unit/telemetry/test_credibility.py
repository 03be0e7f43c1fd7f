"""Figures that cannot be true are found, and drive nothing. Windows are made by hand."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from apps.common.measurement import Drive, State
from apps.engines.window import CounterIncrease, HistogramIncrease, Signal, SignalValue, Window
from apps.telemetry.domain import credibility, cross_checks
from apps.telemetry.domain.credibility import Finding, Severity
from apps.telemetry.domain.cross_checks import TargetState

from .test_build import DECODE, NOW, PREFILL, ROUTER, count, figures, gauge, hist, window

Values = dict[Signal, SignalValue]


def seconds(total: float, observed: float = 1000.0) -> HistogramIncrease:
    return HistogramIncrease((1.0,), (observed, 0), total, observed)


def chain(scope: str, *values: Values, urls: tuple[str, ...] = ("a",), **options) -> list[Window]:
    """Consecutive windows of a minute, oldest first."""
    found = []
    for index, part in enumerate(values):
        end = NOW - timedelta(seconds=60 * (len(values) - 1 - index))
        found.append(
            Window(scope, end - timedelta(seconds=60), end, part, urls,
                   options.get("reported", urls))
        )  # fmt: skip
    return found


def codes(found: tuple[Finding, ...]) -> list[tuple[str, str, str]]:
    return [(item.code, item.scope, item.signal.value) for item in found]


# --- one window


@pytest.mark.parametrize(
    ("value", "code"),
    [(87.0, "looks_like_percent"), (-0.2, "ratio_out_of_range"), (1.2, "ratio_out_of_range")],
)
def test_a_ratio_outside_its_range(value: float, code: str) -> None:
    found = credibility.instant(
        {"decode": window("decode", {Signal.KV_USED: gauge(a=value, b=0.5)})}
    )
    assert codes(found) == [(code, "decode", "kv_used")]
    assert found[0].worker == "a"


@pytest.mark.parametrize("value", [0.0, 0.5, 1.0, 1.04])
def test_a_ratio_inside_its_range_is_believed(value: float) -> None:
    assert not credibility.instant({"d": window("d", {Signal.KV_USED: gauge(a=value)})})


def test_more_cached_than_prompt_tokens() -> None:
    values = {Signal.INPUT_TOKENS: count(20_000), Signal.CACHED_TOKENS: count(25_000)}
    found = credibility.instant({"prefill": window("prefill", values)})
    assert codes(found) == [("cached_above_prompt", "prefill", "cached_tokens")]
    # A decode worker counts all but one prompt token as cached (vLLM #43370): never read there.
    assert not credibility.instant({"decode": window("decode", values)})


def test_a_first_token_after_the_last() -> None:
    slow = {Signal.TTFT: hist(0, 0, 0, 400, mean=4.0), Signal.E2E: hist(0, 0, 0, 400, mean=3.0)}
    found = credibility.instant({"router": window("router", slow)})
    assert codes(found) == [("ttft_above_e2e", "router", "ttft")]
    # Not the same requests: no judgement.
    other = {**slow, Signal.E2E: hist(0, 0, 0, 100, mean=3.0)}
    assert not credibility.instant({"router": window("router", other)})


# --- several windows

LOADED: Values = {
    Signal.WAITING: gauge(a=0), Signal.RUNNING: gauge(a=0), Signal.KV_USED: gauge(a=0),
    Signal.QUEUE_TIME: seconds(240), Signal.ITL: seconds(600),
}  # fmt: skip


def test_queues_that_read_zero_under_load() -> None:
    """Open case 13: SGLang #8627, #7317. 240 s of waiting a minute are 4 requests waiting."""
    found = cross_checks.over_time({"decode": chain("decode", *[LOADED] * 4)})
    assert codes(found) == [
        ("zero_under_load", "decode", "waiting"),
        ("zero_under_load", "decode", "running"),
        ("zero_under_load", "decode", "kv_used"),
    ]
    assert found[0].params == {"windows": 4, "implied": pytest.approx(4.0)}


@pytest.mark.parametrize(
    "change",
    [
        {Signal.QUEUE_TIME: seconds(60)},  # one waiting on average may be missed four times
        {Signal.WAITING: gauge(a=1)},
    ],
)
def test_one_window_that_explains_it_clears_the_queue(change: Values) -> None:
    windows = chain("decode", LOADED, LOADED, {**LOADED, **change}, LOADED)
    found = cross_checks.over_time({"decode": windows})
    assert ("zero_under_load", "decode", "waiting") not in codes(found)


@pytest.mark.parametrize(
    ("readings", "implied_s", "is_frozen"),
    [
        ((2, 2, 2, 2), 600.0, True),  # 10 at any time, and the gauge stopped at 2
        ((2, 2, 2, 3), 600.0, False),  # it moves
        ((2, 2, 2, 2), 500.0, False),  # 8.3 on average: 2 in four samples is odd, not impossible
        ((40, 40, 40, 40), 600.0, False),  # long requests are not in the times yet
    ],
)
def test_a_count_that_stands_while_far_more_run(readings, implied_s, is_frozen) -> None:
    """M21 for counts: `running` stuck above 0 (Little's law, as for 0)."""
    windows = [{Signal.RUNNING: gauge(a=value), Signal.ITL: seconds(implied_s)}
               for value in readings]  # fmt: skip
    found = cross_checks.over_time({"decode": chain("decode", *windows)})
    assert codes(found) == ([("frozen", "decode", "running")] if is_frozen else [])


def test_an_idle_pool_is_believed() -> None:
    idle = {**LOADED, Signal.QUEUE_TIME: seconds(0, 0), Signal.ITL: seconds(0, 0)}
    assert not cross_checks.over_time({"decode": chain("decode", *[idle] * 6)})


def test_three_windows_are_not_enough() -> None:
    assert not cross_checks.over_time({"decode": chain("decode", *[LOADED] * 3)})


def test_a_gauge_that_stands_still_while_tokens_are_made() -> None:
    """M21."""
    values = {
        Signal.KV_USED: gauge(a=0.613, b=0.5), Signal.OUTPUT_TOKENS: count(5000),
    }  # fmt: skip
    found = cross_checks.over_time({"decode": chain("decode", *[values] * 4)})
    assert codes(found) == [("frozen", "decode", "kv_used")]
    assert found[0].worker == "a", "b made no token: its gauge may stand still"


@pytest.mark.parametrize("last", [0.614, 0.6130001])
def test_a_gauge_that_moves_is_believed(last: float) -> None:
    values = {Signal.KV_USED: gauge(a=0.613), Signal.OUTPUT_TOKENS: count(5000)}
    moved = {**values, Signal.KV_USED: gauge(a=last)}
    assert not cross_checks.over_time({"decode": chain("decode", values, values, values, moved)})


def test_a_full_pool_may_stand_still() -> None:
    values = {Signal.KV_USED: gauge(a=1.0), Signal.OUTPUT_TOKENS: count(5000)}
    assert not cross_checks.over_time({"decode": chain("decode", *[values] * 6)})


def edge(arrived: float, completed: float, running: float, failed: float = 0) -> Values:
    return {
        Signal.REQUESTS_ARRIVED: count(arrived), Signal.REQUESTS_COMPLETED: count(completed),
        Signal.REQUESTS_FAILED: count(failed), Signal.RUNNING: gauge(a=running),
    }  # fmt: skip


def test_accepted_requests_that_never_end() -> None:
    found = cross_checks.over_time({"router": chain("router", *[edge(200, 100, 10)] * 4)})
    assert codes(found) == [("accepted_not_ended", "router", "requests_completed")]


def test_books_that_close_through_what_is_in_flight_are_believed() -> None:
    missed = [edge(200, 100, 10)] * 5
    with_a_gap = chain("router", *missed)
    del with_a_gap[2]
    assert not cross_checks.over_time({"router": with_a_gap}), "what passed in the gap is unknown"
    growing = [edge(200, 150, 50 * index) for index in range(1, 5)]
    assert not cross_checks.over_time({"router": chain("router", *growing)})
    two_legs = [edge(200, 150, 100 * index) for index in range(1, 5)]
    assert not cross_checks.over_time({"router": chain("router", *two_legs)})
    draining = [edge(100, 200, 400 - 100 * index) for index in range(4)]
    assert not cross_checks.over_time({"router": chain("router", *draining)})
    failing = [edge(200, 100, 10, failed=100)] * 4
    assert not cross_checks.over_time({"router": chain("router", *failing)})


def pair(decoded: float, **options) -> dict[str, list[Window]]:
    legs = {Signal.REQUESTS_COMPLETED: count(decoded)}
    return {
        "router": chain("router", *[edge(100, 100, 5)] * 4),
        "decode": chain("decode", *[legs] * 4, **options),
    }


def test_router_and_decode_count_different_requests() -> None:
    assert codes(cross_checks.over_time(pair(70))) == [
        ("completions_disagree", "router", "requests_completed")
    ]
    assert not cross_checks.over_time(pair(95))


def test_a_pool_of_which_a_part_is_silent_is_not_compared() -> None:
    assert not cross_checks.over_time(pair(70, urls=("a", "b"), reported=("a",)))


def test_a_pool_that_changed_its_workers_is_not_compared() -> None:
    windows = pair(70)
    windows["decode"][0] = replace(windows["decode"][0], expected=("a", "b"), reported=("a", "b"))
    assert not cross_checks.over_time(windows)


def prompts(prefilled: float, computed: float | None) -> dict[str, list[Window]]:
    front = {Signal.REQUESTS_COMPLETED: count(100), Signal.INPUT_TOKENS: count(100_000)}
    decode: Values = {} if computed is None else {Signal.COMPUTED_TOKENS: count(computed)}
    return {
        "frontend": chain("frontend", *[front] * 4),
        "prefill": chain("prefill", *[{Signal.INPUT_TOKENS: count(prefilled)}] * 4),
        "decode": chain("decode", *[decode] * 4),
    }


def test_prompt_tokens_of_frontend_and_prefill() -> None:
    wrong = [("prompt_tokens_disagree", "frontend", "input_tokens")]
    assert codes(cross_checks.over_time(prompts(130_000, None))) == wrong
    assert not cross_checks.over_time(prompts(100_000, None))
    # Short prompts may skip prefill: less there is only wrong where decode did not compute them.
    assert not cross_checks.over_time(prompts(60_000, None))
    assert not cross_checks.over_time(prompts(60_000, 40_000))
    assert codes(cross_checks.over_time(prompts(60_000, 0))) == wrong


def test_a_token_counter_that_stands_while_requests_end() -> None:
    windows = {
        "router": chain("router", *[edge(100, 100, 5)] * 4),
        "decode": chain("decode", *[{Signal.OUTPUT_TOKENS: count(0)}] * 4),
    }
    assert codes(cross_checks.over_time(windows)) == [("counter_stands", "decode", "output_tokens")]


def test_metrics_that_are_down_while_the_worker_serves() -> None:
    """vLLM #49983: `/metrics` answers 500 while requests pass."""
    states = [
        TargetState("a", "decode", is_up=False, is_serving=True),
        TargetState("b", "decode", is_up=False, is_serving=False),
        TargetState("c", "decode", is_up=True, is_serving=True),
    ]
    (found,) = cross_checks.over_time({}, states)
    assert (found.code, found.worker, found.voids) == ("down_while_serving", "a", False)


def test_kv_read_after_its_lease_is_told_at_once_and_voids_nothing() -> None:
    """vLLM's notices after expiry: the client got HTTP 200, nothing else shows it."""
    quiet: Values = {Signal.STALE_KV_SERVED: CounterIncrease(0, {"a": 0, "b": 0})}
    once: Values = {Signal.STALE_KV_SERVED: CounterIncrease(3, {"a": 3, "b": 0})}
    assert not cross_checks.over_time({"prefill": chain("prefill", quiet, quiet)})
    (found,) = cross_checks.over_time({"prefill": chain("prefill", once, quiet, once)})
    assert (found.code, found.worker, found.params) == ("stale_kv_served", "a", {"count": 6})
    assert (found.severity, found.voids) == (Severity.CRITICAL, False)
    before = figures(window("router", ROUTER), {"prefill": window("prefill", PREFILL, urls=("a",))})
    assert credibility.apply(before, [found]) == before


# --- what findings do


def shown(*findings: Finding):
    windows = {
        "prefill": window("prefill", PREFILL, urls=("p",)),
        "decode": window("decode", DECODE),
    }
    found = figures(window("router", ROUTER), windows)
    return found, credibility.apply(found, findings)


def finding(signal: Signal, scope: str = "decode", worker: str = "", voids: bool = True) -> Finding:
    return Finding("x", credibility.Severity.CRITICAL, scope, signal, worker, voids=voids)


def test_a_figure_that_is_not_credible_drives_nothing() -> None:
    before, after = shown(finding(Signal.KV_USED))
    assert before.decode.kv_used.state is State.OK
    assert after.decode.kv_used.state is State.CONFLICT
    assert after.decode.kv_used.value == before.decode.kv_used.value, "kept to look at"
    assert not any(after.decode.kv_used.may_drive(drive) for drive in Drive)
    assert after.decode.workers[0].kv_used.state is State.CONFLICT
    assert after.prefill == before.prefill, "the other pool is untouched"
    assert after.ttft == before.ttft


def test_only_the_worker_concerned_is_doubted_and_its_pool() -> None:
    _, after = shown(finding(Signal.KV_USED, worker="http://other"))
    assert after.decode.kv_used.state is State.CONFLICT
    assert after.decode.workers[0].kv_used.state is State.OK


def test_all_percentiles_of_a_latency_are_doubted() -> None:
    _, after = shown(finding(Signal.TTFT, "router"))
    assert {after.ttft.p50.state, after.ttft.p95.state, after.ttft.mean.state} == {State.CONFLICT}


def test_a_doubted_cached_count_taints_what_is_left() -> None:
    before, after = shown(finding(Signal.CACHED_TOKENS, "prefill"))
    assert before.uncached_input_tokens_per_s.state is State.OK
    assert after.uncached_input_tokens_per_s.state is State.CONFLICT
    assert after.input_tokens_per_s.state is State.OK


def test_what_is_only_told_changes_nothing() -> None:
    before, after = shown(finding(Signal.WORKER_HEALTH, voids=False))
    assert after == before


def test_a_figure_without_a_value_stays_as_it_is() -> None:
    found = figures(None, {})
    assert credibility.apply(found, [finding(Signal.REQUESTS_COMPLETED, "router")]) == found
