"""Series, the usual, pruning, coverage: reads over stored windows."""

from __future__ import annotations

from datetime import timedelta

import pytest

from apps.common.measurement import State
from apps.engines.window import (
    CounterIncrease,
    GaugeValue,
    HistogramIncrease,
    Signal,
    Window,
)
from apps.telemetry import coverage, selectors, services
from apps.telemetry.models import Sample, StoredWindow
from apps.telemetry.services.store import store_windows

from .conftest import T0, Fleet

pytestmark = pytest.mark.django_db


def store(fleet: Fleet, end, seconds: float = 30, rate: float = 2.0, ttft: float = 0.5) -> None:
    """A router, a prefill and a decode window that end at `end`."""
    count = rate * seconds
    hist = HistogramIncrease((0.5, 1.0), (0.0, count, 0.0), ttft * count, count)
    start = end - timedelta(seconds=seconds)
    for scope, values in (
        ("router", {Signal.REQUESTS_ARRIVED: CounterIncrease(count), Signal.TTFT: hist}),
        ("prefill", {Signal.QUEUE_TIME: hist, Signal.INPUT_TOKENS: CounterIncrease(count * 1000),
                     Signal.REQUESTS_COMPLETED: CounterIncrease(count),
                     Signal.FORWARD_SECONDS: CounterIncrease(seconds, {"a": 0.5, "b": 0.5})}),
        ("decode", {Signal.OUTPUT_TOKENS: CounterIncrease(count * 200), Signal.TPOT: hist,
                    Signal.RUNNING: GaugeValue(rate, {"a": rate})}),
    ):  # fmt: skip
        window = Window(scope, start, end, values, ("a",), ("a",))
        store_windows([(fleet.deployment.pk, window)])


def seconds(value: float) -> timedelta:
    return timedelta(seconds=value)


def test_series_has_gaps_where_nothing_was_stored(metric_fleet, django_assert_num_queries):
    for at in (30, 60, 120):
        store(metric_fleet, T0 + seconds(at), rate=at / 30)
    with django_assert_num_queries(2):
        found = selectors.series(metric_fleet.deployment, T0, T0 + seconds(120), 30)
    assert [point.at for point in found] == [T0 + seconds(at) for at in (30, 60, 90, 120)]
    assert [point.arrivals_per_s for point in found] == [1, 2, None, 4]
    assert found[2].ttft_p95 is None and found[2].decode.running is None
    assert found[3].decode.running == 4
    assert found[0].ttft_p95 == pytest.approx(0.975)
    assert found[0].ttft_histogram.count == 30
    assert found[0].prefill.forward_seconds_per_s == pytest.approx(1)


def test_series_merges_windows_into_longer_steps(metric_fleet):
    for at in (30, 60, 90, 120):
        store(metric_fleet, T0 + seconds(at), rate=at / 30)
    (first, second) = selectors.series(metric_fleet.deployment, T0, T0 + seconds(120), 60)
    assert first.arrivals_per_s == pytest.approx(1.5)
    assert second.arrivals_per_s == pytest.approx(3.5)
    assert second.tpot_histogram.count == 210


def test_series_of_short_steps_shows_the_sliding_window(metric_fleet):
    for at in (30, 35, 40):
        store(metric_fleet, T0 + seconds(at), rate=at)
    found = selectors.series(metric_fleet.deployment, T0 + seconds(25), T0 + seconds(40), 5)
    assert [point.arrivals_per_s for point in found] == [30, 35, 40]


def test_series_of_nothing(metric_fleet):
    assert selectors.series(metric_fleet.deployment, T0, T0, 5) == []
    (point,) = selectors.series(metric_fleet.deployment, T0, T0 + seconds(5), 5)
    assert point.arrivals_per_s is None


def test_usual_needs_three_windows(metric_fleet):
    now = T0 + timedelta(minutes=10)
    for minute in (1, 2):
        store(metric_fleet, T0 + timedelta(minutes=minute))
    assert selectors.usual(metric_fleet.deployment, now).arrivals_per_s is None
    store(metric_fleet, T0 + timedelta(minutes=3), rate=10, ttft=0.9)
    found = selectors.usual(metric_fleet.deployment, now)
    assert found.basis == "since_start"
    assert found.arrivals_per_s == 2  # the median, not the mean
    assert found.ttft_mean_s == 0.5
    assert found.queue_time_s == 0.5
    assert (found.mean_input_tokens, found.mean_output_tokens) == (1000, None)
    assert found.prefill_busy == pytest.approx(0.5)
    assert found.decode_busy is None


def test_usual_leaves_out_what_it_is_compared_with(metric_fleet):
    now = T0 + timedelta(minutes=10)
    for minute in (1, 2, 3):
        store(metric_fleet, T0 + timedelta(minutes=minute), rate=2)
    for minute in (6, 7, 8, 9):
        store(metric_fleet, T0 + timedelta(minutes=minute), rate=50)
    assert selectors.usual(metric_fleet.deployment, now).arrivals_per_s == 2


def test_usual_prefers_more_history(metric_fleet):
    for minute in range(0, 60, 10):
        store(metric_fleet, T0 + timedelta(minutes=minute), rate=5)
    day_later = T0 + timedelta(hours=24, minutes=30)
    for minute in (1, 2, 3):
        store(metric_fleet, day_later - timedelta(hours=3, minutes=minute), rate=7)
    assert selectors.usual(metric_fleet.deployment, day_later).basis == "last_24_h"
    week_later = T0 + timedelta(days=7, minutes=20)
    found = selectors.usual(metric_fleet.deployment, week_later)
    assert (found.basis, found.arrivals_per_s) == ("same_hour_4_weeks", 5)


def test_figures_over_a_past_hour_are_judged_as_of_then(metric_fleet):
    for at in range(30, 3601, 30):
        store(metric_fleet, T0 + seconds(at), rate=3)
    end = T0 + seconds(1800)
    found = selectors.figures_over(metric_fleet.deployment, end, 600)
    assert (found.at, found.span_s) == (end, 600)
    assert found.arrivals_per_s.number() == pytest.approx(3)
    assert found.ttft.p95.sample_count == 1800
    late = selectors.figures_over(metric_fleet.deployment, T0 + seconds(3620), 600)
    assert late.arrivals_per_s.state is State.STALE
    assert selectors.latest_end(metric_fleet.deployment) == T0 + seconds(3600)


def test_pruning_keeps_tiles_and_every_count(metric_fleet):
    metric_fleet.collect()
    for _ in range(24):
        metric_fleet.serve()
        metric_fleet.collect()
    end = metric_fleet.at
    before = selectors.figures_over(metric_fleet.deployment, end, 120)
    assert StoredWindow.objects.filter(scope="router").count() == 25
    services.prune(now=T0 + timedelta(minutes=14))
    assert StoredWindow.objects.filter(scope="router").count() == 25
    assert Sample.objects.exists()

    result = services.prune(now=end + timedelta(minutes=16))
    assert (result.samples, Sample.objects.count()) == (125, 0)
    assert StoredWindow.objects.filter(scope="router", end__gt=T0 + seconds(5)).count() == 4
    after = selectors.figures_over(metric_fleet.deployment, end, 120)
    assert before.arrivals_per_s.number() * before.span_s == pytest.approx(24)
    assert after.arrivals_per_s.number() * after.span_s == pytest.approx(24)
    again = services.prune(now=end + timedelta(minutes=17))
    assert (again.sliding, again.samples) == (0, 0)


def test_coverage_says_what_is_missing_and_why(metric_fleet):
    metric_fleet.collect()
    metric_fleet.serve()
    metric_fleet.collect()
    found = {(c.scope, c.signal): c for c in coverage.signals(metric_fleet.deployment)}
    assert found[("router", "ttft")].state == "found"
    assert found[("router", "ttft")].name == "smg_pd_ttft_seconds"
    assert found[("router", "kv_used")].state == "absent"
    assert "read directly" in found[("router", "kv_used")].reason
    assert found[("router", "tpot")].state == "missing"
    assert found[("prefill", "tpot")].state == "absent"
    assert found[("decode", "tpot")].state == "found"
