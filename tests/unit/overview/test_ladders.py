"""A change of bucket bounds is an event of the chart, once and where it happens (M19, case 9)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from apps.engines.window import HistogramIncrease
from apps.overview.domain.ladders import ladder_changes
from apps.telemetry.domain.series import Point

T0 = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)
OLD, NEW = (0.5, 1.0), (0.4, 0.9)


def hist(bounds: tuple[float, ...]) -> HistogramIncrease:
    return HistogramIncrease(bounds, (1.0,) * (len(bounds) + 1), 1.0, len(bounds) + 1)


def point(minute: int, ttft=None, tpot=None, is_split: bool = False) -> Point:
    return Point(
        T0 + timedelta(minutes=minute),
        ttft_histogram=hist(ttft) if ttft is not None else None,
        tpot_histogram=hist(tpot) if tpot is not None else None,
        is_split=is_split,
    )


@pytest.mark.parametrize(
    ("points", "expected"),
    [
        ([point(0, OLD, OLD), point(1, OLD, OLD)], []),
        ([point(0, OLD, OLD), point(1, NEW, OLD), point(2, NEW, OLD)], [(1, ("ttft",))]),
        ([point(0, OLD, OLD), point(1, NEW, NEW, True)], [(1, ("ttft", "tpot"))]),
        # A gap, and a step in which nothing was observed, hide no change and are none.
        ([point(0, OLD), None, point(2), point(3, ())], []),
        ([point(0, OLD), None, point(2, ()), point(3, NEW)], [(3, ("ttft",))]),
        # A latency that appears later has changed nothing.
        ([point(0, OLD), point(1, OLD, NEW)], []),
        # The change is inside the first step: what came before it is not in the range.
        ([point(0, NEW, OLD, True), point(1, NEW, OLD)], [(0, ("ttft", "tpot"))]),
        # There and back are two.
        ([point(0, OLD), point(1, NEW), point(2, OLD)], [(1, ("ttft",)), (2, ("ttft",))]),
    ],
)
def test_changes_are_found_where_they_are(points, expected) -> None:
    found = [
        (round((change.at - T0).total_seconds() / 60), change.latencies)
        for change in ladder_changes(points)
    ]
    assert found == expected
