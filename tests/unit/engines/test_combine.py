"""Windows from parts, longer windows from windows, and their storage form."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from apps.engines import histogram, loader
from apps.engines.codec import window_from_json, window_to_json
from apps.engines.combine import TargetPart, combine, merge_windows
from apps.engines.evaluate import SignalPart, evaluate
from apps.engines.readings import read
from apps.engines.scraped import ScrapedReader
from apps.engines.window import (
    CounterIncrease,
    GaugeValue,
    HistogramIncrease,
    Kind,
    Signal,
    Window,
)

T0 = datetime(2026, 1, 1, tzinfo=UTC)


def counter(value: float) -> SignalPart:
    return SignalPart(Kind.COUNTER, {"": value}, None, "c")


def gauge(value: float) -> SignalPart:
    return SignalPart(Kind.GAUGE, {"": value}, None, "g")


def hist(*counts: float, bounds=(1.0, 2.0), total: float = 1.0) -> HistogramIncrease:
    return HistogramIncrease(bounds, counts, total, sum(counts))


def window(start_s: float, end_s: float, **values: object) -> Window:
    return Window(
        scope="decode",
        start=T0 + timedelta(seconds=start_s),
        end=T0 + timedelta(seconds=end_s),
        values={Signal(name): value for name, value in values.items()},
        expected=("a", "b"),
        reported=("a",),
        source="test",
    )


def made(parts: list[TargetPart]) -> Window:
    return combine(
        scope="decode", start=T0, end=T0 + timedelta(seconds=30), parts=parts,
        expected=["b", "a"], reported=["a"],
    )  # fmt: skip


def test_counters_and_gauges_add_per_worker():
    found = made(
        [
            TargetPart("a", {Signal.OUTPUT_TOKENS: counter(3), Signal.RUNNING: gauge(2)}),
            TargetPart("b", {Signal.OUTPUT_TOKENS: counter(4), Signal.RUNNING: gauge(5)}),
        ]
    )
    assert found.values[Signal.OUTPUT_TOKENS] == CounterIncrease(7, {"a": 3, "b": 4})
    assert found.values[Signal.RUNNING] == GaugeValue(7, {"a": 2, "b": 5})
    assert (found.expected, found.reported) == (("a", "b"), ("a",))


def test_a_part_that_has_left_adds_its_counters_but_no_gauge():
    found = made(
        [
            TargetPart("a", {Signal.OUTPUT_TOKENS: counter(3), Signal.RUNNING: gauge(2)}),
            TargetPart("b", {Signal.OUTPUT_TOKENS: counter(4), Signal.RUNNING: gauge(5)}, False),
        ]
    )
    assert found.values[Signal.OUTPUT_TOKENS].increase == 7
    assert found.values[Signal.RUNNING] == GaugeValue(2, {"a": 2})


def test_a_routers_series_are_keyed_by_worker():
    part = SignalPart(Kind.GAUGE, {"http://w1": 1.0, "http://w2": 0.0}, None, "h")
    found = made([TargetPart("router", {Signal.WORKER_HEALTH: part})])
    assert found.values[Signal.WORKER_HEALTH].by_worker == {"http://w1": 1.0, "http://w2": 0.0}


def test_longer_windows_add_counts_and_keep_the_newest_gauges():
    old = window(0, 30, output_tokens=CounterIncrease(10, {"a": 10}), running=GaugeValue(9, {}),
                 tpot=hist(1, 2, 3))  # fmt: skip
    new = window(30, 60, output_tokens=CounterIncrease(5, {"a": 2, "b": 3}),
                 running=GaugeValue(4, {}), tpot=hist(1, 0, 0))  # fmt: skip
    merged = merge_windows([old, new])
    assert merged.values[Signal.OUTPUT_TOKENS] == CounterIncrease(15, {"a": 12, "b": 3})
    assert merged.values[Signal.RUNNING].total == 4
    assert merged.values[Signal.TPOT].counts == (2, 2, 3)
    assert merged.seconds == 60
    assert (merged.start, merged.end) == (old.start, new.end)


def test_a_gap_between_windows_does_not_dilute_rates():
    merged = merge_windows(
        [
            window(0, 30, output_tokens=CounterIncrease(30, {})),
            window(60, 90, output_tokens=CounterIncrease(30, {})),
        ]
    )
    assert merged.seconds == 60


def test_overlap_is_refused():
    with pytest.raises(ValueError, match="overlap"):
        merge_windows([window(0, 30), window(25, 55)])
    with pytest.raises(ValueError, match="no windows"):
        merge_windows([])


def test_another_ladder_ends_the_history_of_its_signal():
    merged = merge_windows(
        [
            window(0, 30, tpot=hist(7, 7, 7)),
            window(30, 60, tpot=hist(1, 1, bounds=(5.0,))),
            window(60, 90, tpot=hist(1, 0, 0)),
        ]
    )
    assert merged.values[Signal.TPOT].counts == (1, 0, 0)


def test_storage_keeps_everything_and_is_json():
    found = merge_windows(
        [window(0, 30, output_tokens=CounterIncrease(1, {"a": 1}), tpot=hist(1, 2, 3),
                running=GaugeValue(2, {"a": 2}))]
    )  # fmt: skip
    data = json.loads(json.dumps(window_to_json(found), allow_nan=False))
    assert window_from_json(data, scope=found.scope, start=found.start, end=found.end) == found
    torn = replace(found, is_partial=True, is_conflict=True)
    data = json.loads(json.dumps(window_to_json(torn)))
    assert window_from_json(data, scope=torn.scope, start=torn.start, end=torn.end) == torn


def test_a_signal_unknown_to_this_release_is_left_out():
    data = window_to_json(window(0, 30, running=GaugeValue(1, {})))
    data["v"]["from_the_future"] = ["g", 1, {}]
    found = window_from_json(data, scope="decode", start=T0, end=T0)
    assert set(found.values) == {Signal.RUNNING}


# --- signals over several scrapes ---------------------------------------------------------------


def smg(text: str):
    return read(text + "\nsmg_http_requests_total 5\nsmg_worker_pool_size 2", loader.load("smg"))


def evaluated(*readings):
    profile = loader.load("smg")
    return evaluate(profile, "router", ScrapedReader(profile, "router", list(readings)))


def test_a_family_that_does_not_exist_yet_counts_zero():
    found = evaluated(smg(""), smg(""))
    assert found[Signal.REQUESTS_ARRIVED].parts == {"": 0.0}
    assert found[Signal.TTFT].histogram == histogram.EMPTY
    assert "not yet created" in found[Signal.TTFT].names


def test_its_first_event_is_seen():
    found = evaluated(smg(""), smg('smg_router_requests_total{model="a"} 1'))
    assert found[Signal.REQUESTS_ARRIVED].parts == {"": 1.0}


def test_one_scrape_has_gauges_and_no_increases():
    found = evaluated(smg('smg_router_requests_total 9\nsmg_worker_requests_active{worker="w"} 3'))
    assert set(found) == {Signal.RUNNING}


def test_a_target_without_the_exporter_has_nothing():
    profile = loader.load("smg")
    empty = read("node_load1 1", profile)
    assert evaluated(empty, empty) == {}


def test_completed_is_never_negative():
    before = smg("smg_tokio_workers 2")
    after = smg(
        "smg_tokio_workers 2\n"
        'smg_router_request_errors_total{error_type="backend_error"} 4\n'
        'smg_http_responses_total{path="/generate",status_code="200"} 1'
    )
    assert evaluated(before, after)[Signal.REQUESTS_COMPLETED].parts == {"": 0.0}
