"""Windows through the levels: made once, corrected once, dropped only when they are in."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from django.db import connection

from apps.engines.window import (
    CounterIncrease,
    GaugeValue,
    HistogramIncrease,
    Signal,
    Window,
)
from apps.telemetry import selectors, services
from apps.telemetry.domain import block as blocks
from apps.telemetry.domain.levels import BY_NAME
from apps.telemetry.models import (
    RollUp1d,
    RollUp1h,
    RollUp5m,
    RollUpMark,
    StoredWindow,
)
from apps.telemetry.services import partitions
from apps.telemetry.services.store import store_windows

from .conftest import T0, Fleet

pytestmark = pytest.mark.django_db

DAY0 = datetime(2026, 11, 2, tzinfo=UTC)
LADDER = (0.5, 1.0, 2.0)


def window(
    start: datetime,
    end: datetime,
    scope: str = "router",
    *,
    count: float = 60.0,
    bucket: int = 1,
    bounds: tuple[float, ...] = LADDER,
    histograms: bool = True,
    waiting: float = 1.0,
) -> Window:
    counts = [0.0] * (len(bounds) + 1)
    counts[bucket] = count
    values = {
        Signal.REQUESTS_ARRIVED: CounterIncrease(count, {"a": count}),
        Signal.WAITING: GaugeValue(waiting, {"a": waiting}),
    }
    if histograms:
        values[Signal.TTFT] = HistogramIncrease(bounds, tuple(counts), count * 0.7, count)
    return Window(scope, start, end, values, ("a",), ("a",), "test", {Signal.TTFT: "ttft"})


def store(fleet: Fleet, *windows: Window) -> None:
    store_windows((fleet.deployment.pk, found) for found in windows)


def minutes(start: datetime, count: int, step_s: float = 60, **more: object) -> list[Window]:
    times = [start + timedelta(seconds=step_s * i) for i in range(count + 1)]
    return [window(a, b, **more) for a, b in pairwise(times)]


def slots(table, **where: object):
    rows = table.objects.filter(**where).order_by("start")
    return [slot for row in rows for slot in blocks.slots_of(blocks.decode(row.payload))]


def arrived(table, **where: object) -> float:
    return sum(s.counters[Signal.REQUESTS_ARRIVED].increase for s in slots(table, **where))


def test_counts_go_through_all_levels_and_percentiles_stay_exact(metric_fleet):
    quick, slow = minutes(DAY0, 1400), minutes(DAY0 + timedelta(minutes=1400), 40, bucket=2)
    store(metric_fleet, *quick, *slow)
    now = DAY0 + timedelta(days=32)
    services.roll_up(now=now)
    assert not RollUpMark.objects.exists()
    total = 1440 * 60
    assert [arrived(table) for table in (RollUp5m, RollUp1h, RollUp1d)] == [total] * 3
    assert [len(slots(table)) for table in (RollUp5m, RollUp1h, RollUp1d)] == [288, 24, 1]
    (day,) = slots(RollUp1d)
    assert (day.start, day.end, day.seconds) == (DAY0, DAY0 + timedelta(days=1), 86400)
    assert day.histograms[Signal.TTFT].counts == (0, 1400 * 60, 40 * 60, 0)
    assert day.histograms[Signal.TTFT].total == pytest.approx(total * 0.7)
    assert not day.counters[Signal.REQUESTS_ARRIVED].by_worker  # totals only above 5 min
    assert slots(RollUp5m)[0].counters[Signal.REQUESTS_ARRIVED].by_worker == {"a": 300}
    (point,) = selectors.series(metric_fleet.deployment, DAY0, DAY0 + timedelta(days=1), 86400)
    assert point.arrivals_per_s == 1
    assert point.ttft_p95 == pytest.approx(0.5 + 0.5 * (0.95 * 1440 / 1400))
    assert point.ttft_p99 == pytest.approx(1 + (0.99 * 1440 - 1400) / 40)


def test_a_second_run_makes_nothing(metric_fleet):
    store(metric_fleet, *minutes(T0, 10))
    later = T0 + timedelta(days=40)
    assert services.roll_up(now=later).blocks == 3
    before = slots(RollUp5m)
    assert services.roll_up(now=later).blocks == 0
    assert slots(RollUp5m) == before


def test_only_complete_slots_are_made(metric_fleet):
    store(metric_fleet, *minutes(T0, 7))
    assert services.roll_up(now=T0 + timedelta(seconds=299)).blocks == 0
    services.roll_up(now=T0 + timedelta(minutes=7))
    assert [slot.end for slot in slots(RollUp5m)] == [T0 + timedelta(minutes=5)]
    store(metric_fleet, *minutes(T0 + timedelta(minutes=7), 4))
    services.roll_up(now=T0 + timedelta(minutes=11))
    assert arrived(RollUp5m) == 10 * 60
    assert not RollUp1h.objects.exists()
    services.roll_up(now=T0 + timedelta(minutes=60))
    assert (arrived(RollUp5m), arrived(RollUp1h)) == (11 * 60, 11 * 60)


def test_overlapping_windows_are_counted_once(metric_fleet):
    """Windows of a minute that slide by 15 s, as the collectors store them."""
    store(
        metric_fleet,
        *(
            window(T0 + timedelta(seconds=15 * i), T0 + timedelta(seconds=15 * i + 60))
            for i in range(117)
        ),
    )
    for minute in (5, 10, 15, 20, 25, 30):
        services.roll_up(now=T0 + timedelta(minutes=minute))
    assert arrived(RollUp5m) == 30 * 60
    assert StoredWindow.objects.filter(end__gt=T0 + timedelta(minutes=15)).count() > 50
    services.roll_up(now=T0 + timedelta(minutes=61))
    assert arrived(RollUp5m) == 30 * 60
    assert StoredWindow.objects.count() == 30  # what lies between the tiles is gone


def test_a_late_window_corrects_every_level_once(metric_fleet):
    found = minutes(DAY0, 60)
    store(metric_fleet, *found[:30], *found[35:])
    now = DAY0 + timedelta(hours=26)
    services.roll_up(now=now)
    assert arrived(RollUp1h) == 55 * 60
    store(metric_fleet, *found[30:35])
    store(metric_fleet, *found[30:35])  # collected again: the same rows
    again = services.roll_up(now=now)
    assert again.blocks == 3  # the hour, its day, and its month
    assert (arrived(RollUp5m), arrived(RollUp1h)) == (3600, 3600)
    assert services.roll_up(now=now).blocks == 0


def test_a_window_stored_again_replaces_what_it_said(metric_fleet):
    store(metric_fleet, *minutes(T0, 5))
    services.roll_up(now=T0 + timedelta(hours=2))
    at = T0 + timedelta(minutes=2)
    store(metric_fleet, window(at, at + timedelta(minutes=1), count=90))
    services.roll_up(now=T0 + timedelta(hours=2))
    assert arrived(RollUp5m) == 4 * 60 + 90


def test_what_comes_while_a_block_is_made_is_not_lost(metric_fleet, monkeypatch):
    """A window that is stored after the block was read, before its mark is removed."""
    store(metric_fleet, *minutes(T0, 4))
    from apps.telemetry.services import rollup

    real = rollup._write

    def write(*args: object) -> None:
        real(*args)
        store(metric_fleet, window(T0 + timedelta(minutes=4), T0 + timedelta(minutes=5)))
        monkeypatch.setattr(rollup, "_write", real)

    monkeypatch.setattr(rollup, "_write", write)
    now = T0 + timedelta(minutes=30)
    services.roll_up(now=now)
    assert arrived(RollUp5m) == 240
    assert RollUpMark.objects.filter(level="5m").exists()
    services.roll_up(now=now)
    assert arrived(RollUp5m) == 300


def test_both_ladders_are_kept_apart_m19(metric_fleet):
    store(metric_fleet, *minutes(T0, 3))
    store(metric_fleet, *minutes(T0 + timedelta(minutes=3), 2, bounds=(8.0, 9.0)))
    services.roll_up(now=T0 + timedelta(days=40))
    for table in (RollUp5m, RollUp1h, RollUp1d):
        first, second = slots(table)
        assert (first.histograms[Signal.TTFT].bounds, first.end) == (LADDER, second.start)
        assert first.histograms[Signal.TTFT].count == 180
        assert second.histograms[Signal.TTFT].bounds == (8.0, 9.0)
        assert second.histograms[Signal.TTFT].count == 120
    (point,) = selectors.series(metric_fleet.deployment, T0, T0 + timedelta(hours=1), 3600)
    assert point.is_split and point.ttft_histogram.count == 120  # the newest, never a mixture
    assert point.arrivals_per_s == 1
    store(metric_fleet, *minutes(T0 + timedelta(minutes=5), 5, bounds=(8.0, 9.0)))
    services.roll_up(now=T0 + timedelta(days=40))
    points = selectors.series(metric_fleet.deployment, T0, T0 + timedelta(minutes=10), 300)
    assert [p.is_split for p in points] == [True, False]


def test_a_block_that_would_lose_counts_is_refused_and_nothing_is_dropped(
    metric_fleet, monkeypatch, caplog
):
    from apps.telemetry.services import rollup

    store(metric_fleet, *minutes(T0, 5))
    monkeypatch.setattr(rollup, "roll", lambda parts: (next(iter(parts)),))
    later = T0 + timedelta(days=4)
    result = services.prune(now=later)
    assert result.rolled_up == 0 and result.refused >= 2  # an empty partition may go
    assert "refused" in caplog.text
    assert StoredWindow.objects.count() == 5 and not RollUp5m.objects.exists()
    monkeypatch.undo()
    result = services.prune(now=later)
    assert (result.refused, StoredWindow.objects.count(), arrived(RollUp5m)) == (0, 0, 300)


def test_windows_that_were_never_rolled_up_are_not_dropped(metric_fleet):
    store(metric_fleet, *minutes(T0, 5))
    RollUpMark.objects.all().delete()  # as if a mark had been lost
    later = T0 + timedelta(days=4)
    assert services.prune(now=later).refused == 1
    assert StoredWindow.objects.count() == 5
    services.prune(now=later)
    assert (StoredWindow.objects.count(), arrived(RollUp5m)) == (0, 300)


def test_retention_drops_each_level_in_its_time(metric_fleet):
    store(metric_fleet, *minutes(DAY0, 120))
    tables = (StoredWindow, RollUp5m, RollUp1h, RollUp1d)

    def rows(after_days: float) -> list[bool]:
        services.prune(now=DAY0 + timedelta(days=after_days))
        return [table.objects.exists() for table in tables]

    assert rows(1) == [True, True, True, True]
    assert rows(3.1) == [False, True, True, True]

    assert rows(70) == [False, False, True, True]
    assert rows(465) == [False, False, False, True]
    assert rows(2300) == [False] * 4


def test_a_gap_is_filled_after_its_windows_were_dropped(metric_fleet):
    """Back-fill of an old outage: three minutes in the middle of a slot."""
    found = minutes(DAY0, 60)
    store(metric_fleet, *found[:31], *found[34:])
    now = DAY0 + timedelta(days=6)
    services.prune(now=now)
    assert (StoredWindow.objects.count(), arrived(RollUp5m), arrived(RollUp1h)) == (
        0, 57 * 60, 57 * 60,
    )  # fmt: skip
    store(metric_fleet, *found[31:34])
    services.prune(now=now)
    assert (StoredWindow.objects.count(), arrived(RollUp5m), arrived(RollUp1h)) == (0, 3600, 3600)
    store(metric_fleet, *found[20:40])  # and again, over what is there: nothing is counted twice
    services.prune(now=now)
    assert (arrived(RollUp5m), arrived(RollUp1h)) == (3600, 3600)
    assert services.prune(now=now).rolled_up == 0


def test_windows_of_any_age_can_be_stored(metric_fleet):
    long_ago = DAY0 - timedelta(days=300)
    store(metric_fleet, *minutes(long_ago, 24, step_s=3600))
    services.prune(now=DAY0)
    assert arrived(RollUp1d) == 0 or len(slots(RollUp1d)) == 1
    found = selectors.series(metric_fleet.deployment, long_ago, long_ago + timedelta(days=1), 7200)
    assert [point.arrivals_per_s for point in found] == [pytest.approx(60 / 3600)] * 12


def test_gauges_show_their_mean_over_a_long_step(metric_fleet):
    store(metric_fleet, *minutes(T0, 30, scope="prefill", waiting=4))
    store(metric_fleet, *minutes(T0 + timedelta(minutes=30), 30, scope="prefill", waiting=0))
    services.roll_up(now=T0 + timedelta(hours=3))
    (point,) = selectors.series(metric_fleet.deployment, T0, T0 + timedelta(hours=1), 3600)
    assert point.prefill.waiting == pytest.approx(2)
    (slot,) = slots(RollUp1h)
    gauge = slot.gauges[Signal.WAITING]
    assert (gauge.last, gauge.low, gauge.high) == (0, 0, 4)


@pytest.mark.parametrize("step_s", [60, 300, 3600])
def test_a_series_says_the_same_before_and_after_the_roll_up(metric_fleet, step_s):
    store(metric_fleet, *minutes(T0, 100), *minutes(T0 + timedelta(minutes=130), 50, bucket=2))
    end = T0 + timedelta(hours=3)
    before = selectors.series(metric_fleet.deployment, T0, end, step_s)
    services.roll_up(now=end + timedelta(minutes=20))
    after = selectors.series(metric_fleet.deployment, T0, end, step_s)
    assert [p.ttft_p95 for p in after] == [
        None if p.ttft_p95 is None else pytest.approx(p.ttft_p95) for p in before
    ]
    assert [p.arrivals_per_s for p in after] == [p.arrivals_per_s for p in before]
    if step_s == 300:
        assert [p.at for p in after if p.arrivals_per_s is None] == [
            T0 + timedelta(minutes=m) for m in (105, 110, 115, 120, 125, 130)
        ]  # the gap stays a gap


def test_the_tail_that_is_not_rolled_up_yet_comes_from_the_windows(
    metric_fleet, django_assert_num_queries
):
    store(metric_fleet, *minutes(T0, 128))
    services.roll_up(now=T0 + timedelta(minutes=128))
    with django_assert_num_queries(4):  # 1 h, 5 min, and windows: which, and what they say
        points = selectors.series(metric_fleet.deployment, T0, T0 + timedelta(hours=3), 3600)
    counts = [p.ttft_histogram.count if p.ttft_histogram else None for p in points]
    assert counts == [3600, 3600, 480]


def test_history_beyond_the_windows_is_read_from_the_slots(metric_fleet):
    found = [
        window(a.start, a.end, scope, count=600)
        for scope in ("router", "decode")
        for a in minutes(DAY0, 120)
    ]
    store(metric_fleet, *found)
    end = DAY0 + timedelta(hours=2)
    before = selectors.figures_over(metric_fleet.deployment, end, 3600)
    services.prune(now=DAY0 + timedelta(days=4))
    assert not StoredWindow.objects.exists()
    after = selectors.figures_over(metric_fleet.deployment, end, 3600)
    assert after.ttft.p95.number() == pytest.approx(before.ttft.p95.number())
    assert after.arrivals_per_s.number() == before.arrivals_per_s.number() == 10
    assert after.ttft.p95.sample_count == 36_000
    assert after.ttft.p95.coverage == before.ttft.p95.coverage == (1, 1)


def test_histograms_of_their_own_beat_make_their_own_chain(metric_fleet):
    """Counters and gauges every 15 s, histograms every 60 s: each is counted once, each is judged
    by its own age."""
    ticks = [T0 + timedelta(seconds=15 * i) for i in range(1, 41)]
    for index, end in enumerate(ticks):
        store(
            metric_fleet,
            window(end - timedelta(seconds=60), end, histograms=index % 4 == 0, waiting=index),
        )
    now = ticks[-1] + timedelta(seconds=5)
    deployment = metric_fleet.deployment
    deployment.preset = "production"
    found = selectors.figures(deployment, now)
    assert found.arrivals_per_s.number() == pytest.approx(1)
    assert found.arrivals_per_s.observed_at == ticks[-1]
    assert found.ttft.p95.observed_at == ticks[36]
    assert found.ttft.p95.state.value == "ok"  # 50 s old, due every 60 s
    assert found.ttft.p95.sample_count == pytest.approx(300)
    aged = selectors.figures(deployment, ticks[36] + timedelta(seconds=121))
    assert aged.ttft.p95.state.value == "stale"
    services.roll_up(now=T0 + timedelta(hours=3))
    assert len(slots(RollUp5m)) == 2
    assert arrived(RollUp5m) == 10 * 60
    hist = [s.histograms[Signal.TTFT].count for s in slots(RollUp5m)]
    assert sum(hist) == 10 * 60


def test_levels_have_partitions_on_postgresql(metric_fleet):
    if connection.vendor != "postgresql":
        assert partitions.ensure_ahead(T0) == 0
        pytest.skip("SQLite has no partitions")
    store(metric_fleet, *minutes(DAY0, 60))
    services.roll_up(now=DAY0 + timedelta(days=40))
    names = {
        level: [found.name for found in partitions.existing(BY_NAME[level])]
        for level in ("raw", "5m", "1h", "1d")
    }
    assert "telemetry_storedwindow_20261102" in names["raw"]
    assert "telemetry_rollup5m_202611" in names["5m"]
    assert "telemetry_rollup1h_202611" in names["1h"]
    assert "telemetry_rollup1d_2026" in names["1d"]
    services.prune(now=DAY0 + timedelta(days=40))
    assert not any(p.end <= DAY0 + timedelta(days=38) for p in partitions.existing(BY_NAME["raw"]))
    assert partitions.ensure_ahead(DAY0 + timedelta(days=40)) == 0  # prune made them
