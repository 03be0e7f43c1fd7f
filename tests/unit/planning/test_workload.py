"""Workload profiles: each quantity once at its place, parts that add up, drift and splits."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.engines.window import (
    CounterIncrease,
    GaugeValue,
    HistogramIncrease,
    Signal,
    SignalValue,
    Window,
)
from apps.planning.domain.workload import (
    Grown,
    HourLoad,
    Lengths,
    Part,
    RoleSpan,
    drifted,
    grow,
    hour_of_week,
    part_of,
    places_of,
    splits,
    stability_index,
)

#: A Monday, 12:00 UTC.
NOON = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)
LADDER = (500.0, 1000.0, 2000.0)
PLANNED = frozenset({"prefill", "decode", "mixed"})


def count(value: float) -> CounterIncrease:
    return CounterIncrease(value, {"a": value})


def hist(*counts: float, mean: float, bounds: tuple[float, ...] = LADDER) -> HistogramIncrease:
    return HistogramIncrease(bounds, counts, mean * sum(counts), sum(counts))


def window(scope: str, values: dict[Signal, SignalValue], at: datetime = NOON) -> Window:
    return Window(scope, at - timedelta(seconds=60), at, values, ("a",), ("a",))


ROUTER = window(
    "router",
    {
        Signal.REQUESTS_ARRIVED: count(120),
        Signal.E2E: hist(120, 0, mean=5, bounds=(60.0,)),
    },
)
PREFILL = window(
    "prefill",
    {
        Signal.INPUT_LENGTH: hist(60, 40, 20, 0, mean=700),
        Signal.UNCACHED_LENGTH: hist(90, 20, 10, 0, mean=450),
        Signal.INPUT_TOKENS: count(84_000), Signal.CACHED_TOKENS: count(30_000),
        Signal.REQUESTS_COMPLETED: count(120), Signal.OUTPUT_LENGTH: hist(120, 0, 0, 0, mean=1),
        Signal.RUNNING: GaugeValue(2, {"a": 2}),
    },
)  # fmt: skip
DECODE = window(
    "decode",
    {
        Signal.OUTPUT_LENGTH: hist(110, 10, 0, 0, mean=200),
        Signal.OUTPUT_TOKENS: count(24_000), Signal.REQUESTS_COMPLETED: count(118),
        Signal.INPUT_TOKENS: count(84_000), Signal.CACHED_TOKENS: count(84_000),
        Signal.RUNNING: GaugeValue(40, {"a": 40}),
    },
)  # fmt: skip


def part(*windows: Window, zone: str = "UTC") -> Part:
    by_scope = {one.scope: one for one in windows}
    return part_of(by_scope, places_of([by_scope]), zone)


def test_each_quantity_is_taken_once_at_its_place() -> None:
    found = part(ROUTER, PREFILL, DECODE)
    assert found.requests == 120
    assert found.lengths["input"].counts == (60, 40, 20, 0)
    assert found.lengths["output"].mean == pytest.approx(200)
    assert found.lengths["uncached"].mean == pytest.approx(450)
    assert {one.method for one in found.lengths.values()} == {"histogram"}
    assert found.cached_share == pytest.approx(30 / 84)


def test_concurrency_is_by_littles_law_where_whole_requests_are_seen() -> None:
    """120 requests of 5 s in 60 s: ten at a time."""
    found = part(ROUTER, PREFILL, DECODE)
    load = found.hours[11]
    assert found.flight_method == "little"
    assert (load.arrivals_per_s, load.concurrency) == (2, 10)


def test_without_an_edge_the_pools_say_what_runs() -> None:
    found = part(PREFILL, DECODE)
    assert found.requests == 118
    assert (found.flight_method, found.hours[11].concurrency) == ("running", 42)


def test_without_token_histograms_there_is_a_mean_and_it_says_so() -> None:
    counters = (Signal.INPUT_TOKENS, Signal.CACHED_TOKENS, Signal.REQUESTS_COMPLETED)
    prefill = window("prefill", {s: PREFILL.values[s] for s in counters})
    decode = window(
        "decode", {s: DECODE.values[s] for s in (Signal.OUTPUT_TOKENS, Signal.REQUESTS_COMPLETED)}
    )
    found = part(ROUTER, prefill, decode)
    assert {name: one.method for name, one in found.lengths.items()} == {
        "input": "mean_only", "output": "mean_only", "uncached": "mean_only",
    }  # fmt: skip
    assert found.lengths["input"].mean == pytest.approx(700)
    assert found.lengths["uncached"].mean == pytest.approx(450)
    assert found.lengths["output"].mean == pytest.approx(24_000 / 118)
    assert found.lengths["input"].histogram is None


def test_uncached_lengths_are_unknown_where_nobody_reports_cached_tokens() -> None:
    prefill = window(
        "prefill", {Signal.INPUT_TOKENS: count(84_000), Signal.REQUESTS_COMPLETED: count(120)}
    )
    found = part(ROUTER, prefill)
    assert "uncached" not in found.lengths
    assert found.cached_share is None


def test_a_router_that_misses_a_tick_does_not_hand_its_requests_to_decode() -> None:
    first = {"router": ROUTER, "prefill": PREFILL, "decode": DECODE}
    second = {"prefill": PREFILL, "decode": DECODE}
    places = places_of([first, second])
    assert part_of(second, places, "UTC").requests == 0
    assert part_of(first, places, "UTC").requests == 120


def test_hours_are_those_of_the_site() -> None:
    assert hour_of_week(NOON, "UTC") == 12
    assert hour_of_week(NOON, "Asia/Shanghai") == 20
    assert hour_of_week(NOON, "Pacific/Auckland") == 24 + 1
    assert hour_of_week(NOON - timedelta(hours=13), "UTC") == 6 * 24 + 23
    # Summer time: the same instant of UTC is another hour of the wall clock.
    assert hour_of_week(NOON, "Europe/Berlin") == 13
    assert hour_of_week(NOON - timedelta(weeks=10), "Europe/Berlin") == 14


lengths = st.builds(
    lambda counts, mean: Lengths(sum(counts), mean * sum(counts), LADDER, tuple(counts)),
    st.lists(st.integers(0, 50).map(float), min_size=4, max_size=4),
    st.floats(1, 3000),
)
parts = st.builds(
    lambda requests, one, hour, cached: Part(
        float(requests), 1000.0 * requests, cached, {"input": one},
        {hour: HourLoad(60, float(requests), 60, 120)},
    ),
    st.integers(0, 100), lengths, st.integers(0, 167), st.none() | st.floats(0, 1000),
)  # fmt: skip


@given(st.lists(parts, max_size=6), st.integers(0, 6))
def test_parts_add_up_however_they_are_grouped(found: list[Part], cut: int) -> None:
    def add(items: list[Part]) -> Part:
        result = Part()
        for item in items:
            result = result.plus(item)
        return result

    whole, grouped = add(found), add(found[:cut]).plus(add(found[cut:]))
    assert grouped.requests == whole.requests == sum(item.requests for item in found)
    assert grouped.hours == whole.hours
    assert (
        grouped.lengths.get("input", Lengths()).counts
        == whole.lengths.get("input", Lengths()).counts
    )
    assert Part.from_json(whole.to_json()) == whole


def test_another_ladder_replaces_and_never_mixes() -> None:
    old = Lengths(10, 5000, LADDER, (10, 0, 0, 0))
    new = Lengths(3, 9000, (1000.0, 4000.0), (0, 3, 0))
    assert old.plus(new) == new
    assert old.plus(Lengths(5, 100)) == old
    assert Lengths(5, 100).plus(old) == old


def grown(before: Mapping[str, Lengths], last: Mapping[str, Lengths]) -> Grown:
    return Grown(Part(lengths=before), ((NOON, Part(lengths=last)),))


SHORT = Lengths(4000, 2_000_000, LADDER, (2000, 1500, 500, 0))


@pytest.mark.parametrize(
    ("counts", "name"),
    [((2000, 1500, 500, 0), ""), ((1900, 1550, 550, 0), ""), ((500, 1500, 2000, 0), "input"),
     ((0, 0, 100, 3900), "input")],
)  # fmt: skip
def test_drift_is_another_distribution_of_the_last_day(
    counts: tuple[float, ...], name: str
) -> None:
    last = Lengths(sum(counts), 1.0, LADDER, counts)
    assert drifted(grown({"input": SHORT}, {"input": last})) == name


def test_drift_needs_a_thousand_requests_on_both_sides() -> None:
    few = Lengths(999, 1.0, LADDER, (0, 0, 0, 999))
    assert drifted(grown({"input": SHORT}, {"input": few})) == ""
    assert drifted(grown({"input": few}, {"input": SHORT})) == ""


@pytest.mark.parametrize(("mean", "name"), [(700, ""), (760, "output"), (300, "output")])
def test_drift_of_means_is_more_than_half(mean: float, name: str) -> None:
    before, now = Lengths(2000, 2000 * 500), Lengths(2000, 2000 * mean)
    assert drifted(grown({"output": before}, {"output": now})) == name


def test_the_stability_index_of_a_textbook_shift() -> None:
    """Halves become 30 and 70 %: 0.2 ln(0.7/0.5) + 0.2 ln(0.5/0.3)."""
    found = stability_index((500, 500), (300, 700))
    assert found == pytest.approx(0.2 * 0.336472 + 0.2 * 0.510826, abs=1e-5)
    assert stability_index((5, 5), (500, 500)) == pytest.approx(0)


def test_hours_older_than_a_day_join_the_base() -> None:
    found = Grown(Part(), ())
    for hour in range(30):
        found = grow(found, NOON + timedelta(hours=hour, minutes=10), Part(requests=1))
        found = grow(found, NOON + timedelta(hours=hour, minutes=40), Part(requests=1))
    assert len(found.recent) == 24
    assert found.base.requests == 12
    assert found.whole.requests == 60
    assert found.recent[0][0] == NOON + timedelta(hours=6)


def test_splits_are_sets_of_roles_not_their_sizes() -> None:
    def span(role: str, start: int, end: int | None = None) -> RoleSpan:
        stop = None if end is None else NOON + timedelta(hours=end)
        return RoleSpan(role, NOON + timedelta(hours=start), stop)

    spans = [span("mixed", 0, 5), span("prefill", 5, 8), span("prefill", 5), span("decode", 5),
             span("decode", 8), span("encode", 1)]  # fmt: skip
    assert splits(spans, PLANNED) == [
        (NOON, "mixed"), (NOON + timedelta(hours=5), "decode+prefill"),
    ]  # fmt: skip
