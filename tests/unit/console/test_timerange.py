"""The time range of an address."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from apps.console import timerange
from apps.overview.series import LONGEST

from .samples import NOW, SHANGHAI


def test_the_default_is_three_hours_live() -> None:
    span = timerange.parse({}, SHANGHAI)
    assert (span.seconds, span.is_live, span.end) == (3 * 3600, True, NOW)


def test_a_fast_collection_starts_with_a_short_range() -> None:
    assert timerange.parse({}, SHANGHAI, timerange.DEFAULT_FAST).seconds == 900
    assert timerange.parse({"from": "?"}, SHANGHAI, timerange.DEFAULT_FAST).seconds == 900


@pytest.mark.parametrize(
    ("given", "seconds"), [("-15m", 900), ("-1h", 3600), ("-24h", 86400), ("-7d", 7 * 86400)]
)
def test_relative_ranges_end_now(given: str, seconds: int) -> None:
    span = timerange.parse({"from": given}, SHANGHAI)
    assert span.seconds == seconds and span.is_live


def test_absolute_ranges_are_utc_and_stand_still() -> None:
    span = timerange.parse({"from": "2026-11-29T16:08Z", "to": "2026-11-29T17:08:00Z"}, SHANGHAI)
    assert span.start == datetime(2026, 11, 29, 16, 8, tzinfo=UTC)
    assert not span.is_live and span.live_interval_s(15) == 0
    assert span.start_iso == "2026-11-29T16:08:00Z"


def test_fields_of_the_page_are_local_times() -> None:
    span = timerange.parse({"from": "2026-11-30T00:08", "to": "2026-11-30T01:08"}, SHANGHAI)
    assert span.start == datetime(2026, 11, 29, 16, 8, tzinfo=UTC)
    assert span.start_local == "2026-11-30T00:08"


@pytest.mark.parametrize(
    "params",
    [
        {"from": "yesterday"},
        {"from": "2026-11-29T18:00Z", "to": "2026-11-29T17:00Z"},
        {"from": "2026-07-01T00:00Z", "to": "2026-11-02T00:00Z"},
        {"from": "-9999999d"},
        {"from": "", "to": "x"},
    ],
)
def test_nonsense_falls_back_to_the_default(params: dict[str, str]) -> None:
    assert timerange.parse(params, SHANGHAI).seconds == 3 * 3600


def test_no_range_is_longer_than_its_charts_are_answered() -> None:
    assert timerange.parse({"from": "-90d"}, SHANGHAI).seconds == LONGEST.total_seconds()


@pytest.mark.parametrize(
    ("given", "collect_s", "interval"),
    [
        ("-15m", 15, 15),
        ("-1h", 15, 15),
        ("-12h", 15, 30),
        ("-24h", 15, 60),
        ("-7d", 15, 0),
        ("-3h", 5, 5),
        ("-3h", 1, 5),
    ],
)
def test_live_intervals(given: str, collect_s: float, interval: int) -> None:
    span = timerange.parse({"from": given}, SHANGHAI)
    assert span.live_interval_s(collect_s) == interval


def test_a_relative_range_is_frozen_for_copying() -> None:
    span = timerange.parse({"from": "-1h"}, SHANGHAI)
    assert span.start_iso == f"{NOW - timedelta(hours=1):%Y-%m-%dT%H:%M:%SZ}"
