"""Roll-ups lose no count, mix no ladders, and pack into bytes that say the same."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.engines import histogram
from apps.engines.window import (
    CounterIncrease,
    GaugeValue,
    HistogramIncrease,
    Signal,
    Window,
)
from apps.telemetry.domain import block, rollup
from apps.telemetry.domain.columns import quantiles
from apps.telemetry.domain.levels import (
    DAY,
    FIVE_MINUTES,
    HOUR,
    MINUTE,
    RAW,
    Span,
    least_step_s,
    level_for,
)
from apps.telemetry.domain.tiling import Candidate, choose_tiles

T0 = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return T0 + timedelta(seconds=seconds)


def window(
    start: float, end: float, bounds: tuple[float, ...] = (0.5, 1.0), **more: float
) -> Window:
    count = more.get("count", 10.0)
    values = {
        Signal.REQUESTS_ARRIVED: CounterIncrease(count, {"a": count}),
        Signal.WAITING: GaugeValue(more.get("waiting", 1.0), {"a": more.get("waiting", 1.0)}),
        Signal.TTFT: HistogramIncrease(
            bounds,
            (count, *(0.0 for _ in bounds)),
            count / 4,
            count,
            {"a": count / 4},
            {"a": count},
        ),
    }
    return Window(
        "router", at(start), at(end), values, ("a", "b"), ("a",), "prom", {Signal.TTFT: "x"}
    )


def test_counters_and_buckets_add_and_gauges_keep_their_range():
    parts = [
        rollup.from_window(window(0, 60, count=10, waiting=4)),
        rollup.from_window(window(60, 90, count=5, waiting=1)),
    ]
    (slot,) = rollup.roll(parts)
    assert (slot.start, slot.end, slot.seconds, slot.histogram_seconds) == (at(0), at(90), 90, 90)
    assert slot.counters[Signal.REQUESTS_ARRIVED] == CounterIncrease(15, {"a": 15})
    gauge = slot.gauges[Signal.WAITING]
    assert (gauge.last, gauge.low, gauge.high, gauge.mean) == (1, 1, 4, 3)  # weighted by time
    hist = slot.histograms[Signal.TTFT]
    assert (hist.counts, hist.total, hist.count) == ((15, 0, 0), 3.75, 15)
    assert (slot.expected_count, slot.reported_count, slot.covered) == (2, 1, ((at(0), at(90)),))
    assert rollup.adds_up([slot], parts)


def test_a_new_ladder_splits_the_slot_and_keeps_both_m19():
    parts = [
        rollup.from_window(window(0, 60)),
        rollup.from_window(window(60, 120, (9.0, 10.0))),
        rollup.from_window(window(120, 180, (9.0, 10.0))),
    ]
    first, second = rollup.roll(parts)
    assert (first.end, first.histograms[Signal.TTFT].bounds) == (at(60), (0.5, 1.0))
    assert (second.start, second.end) == (at(60), at(180))
    assert second.histograms[Signal.TTFT].count == 20
    assert rollup.adds_up([first, second], parts)
    # And one level up: still both, still apart.
    again = rollup.roll([first, second, rollup.from_window(window(180, 240, (9.0, 10.0)))])
    assert [slot.histograms[Signal.TTFT].bounds for slot in again] == [(0.5, 1.0), (9.0, 10.0)]


def test_a_family_that_was_not_there_yet_splits_nothing():
    parts = [
        rollup.from_window(window(0, 60, (), count=0)),
        rollup.from_window(window(60, 120)),
    ]
    (slot,) = rollup.roll(parts)
    assert slot.histograms[Signal.TTFT].counts == (10, 0, 0)


def test_lost_and_moved_counts_are_seen():
    parts = [rollup.from_window(window(0, 60)), rollup.from_window(window(60, 120))]
    (slot,) = rollup.roll(parts)
    assert not rollup.adds_up([slot], parts[:1])
    assert not rollup.adds_up(rollup.roll(parts[:1]), parts)
    other = rollup.roll([rollup.from_window(window(0, 120, (9.0, 10.0), count=20))])
    assert not rollup.adds_up(other, parts)


def test_what_comes_late_fills_holes_and_counts_nothing_twice():
    kept = rollup.roll([rollup.from_window(window(0, 120)), rollup.from_window(window(240, 300))])
    hole = rollup.from_window(window(120, 240, count=7))
    (slot,) = rollup.filled(kept, [hole])
    assert slot.counters[Signal.REQUESTS_ARRIVED].increase == 27
    (same,) = rollup.filled([slot], [hole])  # once more: nothing changes
    assert same.counters[Signal.REQUESTS_ARRIVED].increase == 27
    whole = rollup.from_window(window(0, 300, count=40))
    (replaced,) = rollup.filled([slot], [whole])
    assert replaced.counters[Signal.REQUESTS_ARRIVED].increase == 40


counts = st.lists(st.integers(0, 50), min_size=3, max_size=3)


@given(
    st.lists(st.tuples(counts, st.booleans(), st.booleans()), min_size=1, max_size=8),
    st.booleans(),
)
def test_a_packed_block_says_the_same(rows, with_workers):
    slots = []
    for index, (buckets, has_histogram, other) in enumerate(rows):
        made = window(index * 60, index * 60 + 60, (5.0, 6.0) if other else (0.5, 1.0))
        values = dict(made.values)
        total = float(sum(buckets))
        values[Signal.TTFT] = HistogramIncrease(
            (5.0, 6.0) if other else (0.5, 1.0), tuple(map(float, buckets)), total / 3, total,
            {"http://b": total / 3}, {"http://b": total},
        )  # fmt: skip
        if not has_histogram:
            del values[Signal.TTFT]
        slot = rollup.from_window(
            Window("router", made.start, made.end, values, made.expected, made.reported, "prom")
        )
        slots.append(slot if with_workers else rollup.without_workers(slot))
    found = block.slots_of(block.decode(block.encode(slots, with_workers=with_workers)))
    assert found == slots


def test_holes_survive_packing():
    (slot,) = rollup.roll([rollup.from_window(window(0, 60)), rollup.from_window(window(120, 180))])
    (found,) = block.slots_of(block.decode(block.encode([slot], with_workers=True)))
    assert found.covered == ((at(0), at(60)), (at(120), at(180)))


@given(
    st.lists(st.integers(0, 9), min_size=4, max_size=4),
    st.sampled_from([0.5, 0.95, 0.99, 1.0]),
    st.sampled_from([(0.1, 0.25, 1.0), (-1.0, 0.0, 2.0)]),
)
def test_quantiles_of_many_rows_are_those_of_one(buckets, q, bounds):
    hist = HistogramIncrease(bounds, tuple(map(float, buckets)), 1.0, float(sum(buckets)))
    expected = histogram.quantile(hist, q)
    found = quantiles(bounds, np.array([[hist.total, hist.count, *hist.counts]]), q)[0]
    if expected is None:
        assert np.isnan(found)
    else:
        assert found == pytest.approx(expected.value)


def candidate(key: int, start: float, end: float, *, full: bool = True, tile: int = 0) -> Candidate:
    return Candidate(key, at(start), at(end), full, tile)


def test_tiles_do_not_overlap_each_other_nor_their_neighbours():
    inside = [candidate(i, 15 * i, 15 * i + 60) for i in range(1, 13)]
    before = candidate(100, -30, 30, tile=3)
    assert choose_tiles(inside, [before]) == {2: 3, 6: 3, 10: 3}
    after = candidate(101, 200, 260, tile=3)
    assert choose_tiles(inside, [before, after]) == {2: 3, 6: 3}
    assert choose_tiles([candidate(1, 0, 0)], []) == {}


def test_histograms_that_come_more_rarely_tile_by_themselves():
    inside = [candidate(i, 15 * i, 15 * i + 60, full=i % 4 == 1) for i in range(9)]
    uses = choose_tiles(inside, [])
    assert [key for key, use in uses.items() if use & rollup.COUNTERS] == [0, 4, 8]
    assert [key for key, use in sorted(uses.items()) if use & rollup.HISTOGRAMS] == [1, 5]


def test_levels_answer_steps_and_ages():
    assert [level_for(s) for s in (15, 60, 299, 300, 3600, 7200, 86400)] == [
        RAW, MINUTE, MINUTE, FIVE_MINUTES, HOUR, HOUR, DAY,
    ]  # fmt: skip
    assert least_step_s(timedelta(hours=47)) == 0
    assert least_step_s(timedelta(hours=49)) == 300
    assert least_step_s(timedelta(days=36)) == 3600
    assert least_step_s(timedelta(days=5000)) == 86400


def test_blocks_and_slots_are_cut_in_utc():
    edge = datetime(2026, 12, 1, tzinfo=UTC)
    assert FIVE_MINUTES.block_of(edge) == edge - timedelta(hours=1)
    assert FIVE_MINUTES.slot_end(edge) == edge
    assert HOUR.block_of(edge) == edge - timedelta(days=1)
    assert DAY.block_of(edge) == datetime(2026, 11, 1, tzinfo=UTC)
    assert DAY.block_of(edge + timedelta(seconds=1)) == edge
    assert Span.MONTH.after(edge) == datetime(2027, 1, 1, tzinfo=UTC)
    assert Span.YEAR.floor(edge) == datetime(2026, 1, 1, tzinfo=UTC)
    assert FIVE_MINUTES.complete_before(at(299)) == T0
