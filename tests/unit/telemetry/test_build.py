"""Figures from windows: places, counting once, states. Windows are made by hand."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from uuid import uuid4

import pytest

from apps.common.measurement import Place, State
from apps.engines.window import (
    CounterIncrease,
    GaugeValue,
    HistogramIncrease,
    Signal,
    SignalValue,
    Window,
)
from apps.fleet.domain.defaults import PRODUCTION
from apps.fleet.domain.topology import PoolFacts, Topology, WorkerFacts
from apps.telemetry.domain.build import figures_from_windows

NOW = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)
LADDER = (0.5, 1.0, 2.5)


def hist(*counts: float, mean: float = 0.4, url: str = "a") -> HistogramIncrease:
    count = sum(counts)
    return HistogramIncrease(LADDER, counts, mean * count, count, {url: mean * count}, {url: count})


def count(value: float, url: str = "a") -> CounterIncrease:
    return CounterIncrease(value, {url: value})


def gauge(**by_worker: float) -> GaugeValue:
    return GaugeValue(sum(by_worker.values()), by_worker)


def window(scope: str, values: dict[Signal, SignalValue], *, age_s: float = 0, **options) -> Window:
    end = NOW - timedelta(seconds=age_s)
    urls = options.pop("urls", ("a",))
    return Window(
        scope=scope,
        start=end - timedelta(seconds=300),
        end=end,
        values=values,
        expected=options.pop("expected", urls),
        reported=urls,
        source="test",
        names={signal: f"metric_{signal.value}" for signal in values},
        **options,
    )


def pool(role: str, engine: str = "sglang", **facts) -> PoolFacts:
    base = {
        "id": uuid4(), "role": role, "accelerator": None, "devices_per_worker": Decimal(1),
        "wanted": 1, "min_workers": 1, "max_workers": None, "kv_capacity_tokens": None,
        "max_sequences": None, "prefill_tokens_per_step": None, "engine": engine,
        "engine_version": "", "ratio_target": None,
    }  # fmt: skip
    return PoolFacts(**{**base, **facts})


def topology(*roles: str, **facts) -> Topology:
    workers = tuple(
        WorkerFacts(uuid4(), "a" if role != "prefill" else "p", role, role, "declared", "serving",
                    None, "http://x/metrics", "")
        for role in roles
    )  # fmt: skip
    pools = {role: pool(role, **facts) for role in roles}
    return Topology(uuid4(), "chat", uuid4(), 1, "production", "observe", pools, workers)


PD = topology("prefill", "decode")


def figures(router=None, pools=None, where=PD, **options):
    return figures_from_windows(router, pools or {}, where, NOW, PRODUCTION, **options)


ROUTER = {
    Signal.REQUESTS_ARRIVED: count(600), Signal.REQUESTS_COMPLETED: count(540),
    Signal.REQUESTS_FAILED: count(0), Signal.TTFT: hist(500, 50, 45, 5),
}  # fmt: skip
PREFILL = {
    Signal.INPUT_TOKENS: count(600_000, "p"), Signal.CACHED_TOKENS: count(60_000, "p"),
    Signal.REQUESTS_COMPLETED: count(600, "p"), Signal.OUTPUT_TOKENS: count(600, "p"),
}  # fmt: skip
DECODE = {
    Signal.OUTPUT_TOKENS: count(90_000), Signal.REQUESTS_COMPLETED: count(450),
    Signal.TPOT: hist(600, 0, 0, 0, mean=0.02), Signal.TTFT: hist(0, 0, 0, 600),
    Signal.INPUT_TOKENS: count(600_000), Signal.CACHED_TOKENS: count(600_000),
    Signal.RUNNING: gauge(a=7), Signal.KV_USED: gauge(a=0.5),
}  # fmt: skip


def pd(router=ROUTER, prefill=PREFILL, decode=DECODE, **options):
    return figures(
        window("router", router, urls=("r",)) if router else None,
        {"prefill": window("prefill", prefill, urls=("p",)), "decode": window("decode", decode)},
        **options,
    )


def test_each_quantity_is_counted_once_at_its_best_place():
    found = pd()
    assert (found.arrivals_per_s.value, found.arrivals_per_s.place) == (2, Place.ROUTER)
    assert found.completions_per_s.value == pytest.approx(1.8)
    assert (found.input_tokens_per_s.value, found.input_tokens_per_s.place) == (2000, Place.ENGINE)
    assert found.output_tokens_per_s.value == 300
    assert found.cached_tokens_per_s.value == 200
    assert found.uncached_input_tokens_per_s.value == 1800
    assert found.mean_input_tokens.value == 1000
    assert found.mean_output_tokens.value == 200
    assert (found.failures_per_s.value, found.failures_per_s.state) == (0, State.OK)


def test_ttft_is_the_routers_and_never_the_decode_workers_when_there_is_one():
    found = pd().ttft
    assert (found.p95.place, found.p95.state) == (Place.ROUTER, State.OK)
    assert (found.p95.lower, found.p95.upper) == (1.0, 2.5)
    assert found.p95.sample_count == 600
    assert found.histogram.count == 600


def test_the_frontend_wins_where_there_is_one():
    frontend = window(
        "frontend",
        {Signal.TTFT: hist(0, 600, 0, 0), Signal.TPOT: hist(0, 600, 0, 0),
         Signal.REQUESTS_ARRIVED: count(300), Signal.REQUESTS_COMPLETED: count(300),
         Signal.INPUT_TOKENS: count(150_000), Signal.OUTPUT_TOKENS: count(30_000)},
        urls=("f",),
    )  # fmt: skip
    found = pd(frontend=frontend)
    assert found.ttft.p95.place is found.tpot.p95.place is Place.FRONTEND
    assert found.arrivals_per_s.value == 1
    assert (found.input_tokens_per_s.value, found.output_tokens_per_s.value) == (500, 100)
    assert found.mean_input_tokens.value == 500


def test_without_a_router_the_decode_engines_answer():
    found = pd(router=None)
    assert (found.ttft.p95.place, found.ttft.p95.state) == (Place.ENGINE, State.CLAMPED)
    assert found.completions_per_s.value == pytest.approx(1.5)
    assert found.arrivals_per_s.state is State.NO_DATA


def test_tpot_comes_from_decode_and_falls_back_to_the_gap_between_tokens():
    assert pd().tpot.p95.place is Place.ENGINE
    itl = {k: v for k, v in DECODE.items() if k is not Signal.TPOT}
    itl[Signal.ITL] = hist(900, 0, 0, 0)
    found = pd(decode=itl).tpot.p95
    assert found.sample_count == 900
    assert "metric_itl" in found.trace.query


def test_too_few_requests_give_no_percentile_but_a_mean():
    found = pd(router={**ROUTER, Signal.TTFT: hist(17, 0, 0, 0)})
    assert (found.ttft.p95.state, found.ttft.p95.value) == (State.TOO_FEW, None)
    assert found.ttft.p95.sample_count == 17
    assert (found.ttft.mean.state, found.ttft.mean.value) == (State.OK, pytest.approx(0.4))
    assert found.decode.running.state is State.OK


def test_a_grown_window_serves_percentiles_only():
    small = {**ROUTER, Signal.TTFT: hist(17, 0, 0, 0)}
    long = replace(
        window("router", {Signal.TTFT: hist(250, 0, 0, 0)}, urls=("r",)), covered_s=3600.0
    )
    found = pd(router=small, grown={Signal.TTFT: long})
    assert (found.ttft.p95.state, found.ttft.p95.sample_count) == (State.OK, 250)
    assert "3600s" in found.ttft.p95.trace.query
    assert found.ttft.mean.sample_count == 17


def test_a_grown_window_of_another_place_is_not_mixed_in():
    long = window("decode", {Signal.TTFT: hist(250, 0, 0, 0)})
    found = pd(router={**ROUTER, Signal.TTFT: hist(17, 0, 0, 0)}, grown={Signal.TTFT: long})
    assert found.ttft.p95.state is State.TOO_FEW


@pytest.mark.parametrize(
    ("age_s", "down", "state", "has_value"),
    [
        (29, False, State.OK, True),
        (31, False, State.STALE, True),
        (75, True, State.STALE, True),
        (76, False, State.NO_DATA, False),
        (76, True, State.SOURCE_DOWN, True),
        (86_400, True, State.SOURCE_DOWN, True),
    ],
)
def test_age(age_s, down, state, has_value):
    found = figures(
        window("router", ROUTER, age_s=age_s, urls=("r",)),
        down_scopes=frozenset({"router"} if down else ()),
    )
    for figure in (found.ttft.p95, found.ttft.mean, found.arrivals_per_s):
        assert figure.state is state
        assert (figure.value is not None) == has_value
        assert figure.observed_at == NOW - timedelta(seconds=age_s)


def test_nothing_at_all():
    found = figures()
    assert found.at is None
    assert found.ttft.p95.state is found.arrivals_per_s.state is State.NO_DATA
    assert found.decode.running.state is State.NO_DATA
    assert figures(down_scopes=frozenset({"router", "decode"})).ttft.p95.state is State.SOURCE_DOWN


def test_part_of_the_workers_is_partial():
    found = figures(None, {"decode": window("decode", DECODE, expected=("a", "b"))})
    assert found.decode.running.state is found.tpot.p95.state is State.PARTIAL
    assert (found.decode.running.coverage, found.decode.running.value) == ((1, 2), 7)


def test_a_worker_that_lacks_one_signal_makes_only_that_partial():
    values = {**DECODE, Signal.RUNNING: gauge(a=7, b=1)}
    found = figures(None, {"decode": window("decode", values, urls=("a", "b"))})
    assert found.decode.running.state is State.OK
    assert (found.tpot.p95.state, found.tpot.p95.coverage) == (State.PARTIAL, (1, 2))


def test_an_incomplete_answer_of_the_source_is_partial():
    found = figures(window("router", ROUTER, urls=("r",), is_partial=True))
    assert found.ttft.p95.state is found.arrivals_per_s.state is State.PARTIAL


IDLE = {
    Signal.REQUESTS_ARRIVED: count(0), Signal.REQUESTS_COMPLETED: count(0),
    Signal.TTFT: hist(0, 0, 0, 0),
}  # fmt: skip


def test_idle_is_not_missing():
    idle = {Signal.OUTPUT_TOKENS: count(0), Signal.TPOT: hist(0, 0, 0, 0),
            Signal.RUNNING: gauge(a=0)}  # fmt: skip
    found = figures(window("router", IDLE, urls=("r",)), {"decode": window("decode", idle)})
    for figure in (found.arrivals_per_s, found.ttft.p95, found.tpot.p95, found.output_tokens_per_s):
        assert (figure.state, figure.value) == (State.NO_TRAFFIC, None)
    assert (found.decode.running.state, found.decode.running.value) == (State.OK, 0)


def test_zero_output_while_requests_arrive_is_an_answer():
    stuck = {Signal.OUTPUT_TOKENS: count(0), Signal.TPOT: hist(0, 0, 0, 0)}
    found = figures(window("router", ROUTER, urls=("r",)), {"decode": window("decode", stuck)})
    assert (found.output_tokens_per_s.state, found.output_tokens_per_s.value) == (State.OK, 0)
    assert found.tpot.p95.state is State.NO_DATA


def test_vllm_prefill_busy_is_request_time_and_an_upper_bound():
    values = {Signal.PREFILL_TIME: hist(600, 0, 0, 0, mean=0.2, url="p"),
              Signal.INPUT_TOKENS: count(600_000, "p")}  # fmt: skip
    found = figures(None, {"prefill": window("prefill", values, urls=("p",))}).prefill
    forward = found.forward_seconds_per_s
    assert (forward.value, forward.upper, forward.method) == (
        pytest.approx(0.4), pytest.approx(0.4), "request_time"
    )  # fmt: skip
    worker = found.workers[0].seconds_per_token
    assert (worker.value, worker.method) == (pytest.approx(0.2 / 1000), "request_time")


def test_capacity_is_measured_else_declared():
    declared = topology("decode", kv_capacity_tokens=60_000, max_sequences=48)
    found = figures(None, {"decode": window("decode", DECODE)}, declared).decode
    assert (found.kv_capacity_tokens.value, found.kv_capacity_tokens.place) == (
        60_000, Place.DECLARED
    )  # fmt: skip
    assert found.max_running.value == 48
    measured = {**DECODE, Signal.KV_CAPACITY_TOKENS: gauge(a=55_000)}
    found = figures(None, {"decode": window("decode", measured)}, declared).decode
    assert (found.kv_capacity_tokens.value, found.kv_capacity_tokens.place) == (
        55_000, Place.ENGINE
    )  # fmt: skip


def test_a_mixed_pool_beside_a_split_adds_its_own_requests():
    where = topology("prefill", "decode", "mixed")
    mixed = {Signal.INPUT_TOKENS: count(300_000), Signal.OUTPUT_TOKENS: count(30_000)}
    found = figures(
        None,
        {"prefill": window("prefill", PREFILL, urls=("p",)), "decode": window("decode", DECODE),
         "mixed": window("mixed", mixed)},
        where,
    )  # fmt: skip
    assert found.input_tokens_per_s.value == 3000
    assert found.output_tokens_per_s.value == 400
    assert found.phase("mixed") is found.mixed
    assert found.phase("encode") is None


def test_no_figure_leaves_with_nan_or_without_a_trace():
    found = pd()
    for figure in (found.ttft.p50, found.ttft.p99, found.tpot.p95, found.arrivals_per_s,
                   found.decode.running, found.prefill.tokens_per_s):  # fmt: skip
        assert figure.trace.source == "test"
        assert "metric_" in figure.trace.query
        assert figure.to_json()["value"] is not None
