"""Times in the reader's zone and durations in words."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from django.utils import translation

from apps.console.reader import Reader, duration, exact_duration

from .samples import NOW, SHANGHAI, UTC_READER


@pytest.mark.parametrize(
    ("before", "language", "shown"),
    [
        (timedelta(minutes=63), "en", "02:05"),
        (timedelta(minutes=63), "zh-hans", "02:05"),
        (timedelta(days=1, hours=9), "en", "Sat 18:08"),
        (timedelta(days=20), "en", "Nov 10 03:08"),
        (timedelta(days=20), "zh-hans", "11月10日 03:08"),
        (timedelta(days=400), "en", "Oct 26, 2025 03:08"),
    ],
)
def test_the_date_is_added_when_it_is_not_today(
    before: timedelta, language: str, shown: str
) -> None:
    with translation.override(language):
        assert SHANGHAI.time(NOW - before) == shown


def test_the_same_moment_in_two_zones() -> None:
    assert UTC_READER.time(NOW) == "19:08"
    assert SHANGHAI.time(NOW) == "03:08"
    assert SHANGHAI.utc(NOW) == "2026-11-29 19:08:06 UTC"


@pytest.mark.parametrize(
    ("zone", "shown"),
    [
        ("Asia/Shanghai", "Asia/Shanghai (UTC+8)"),
        ("Asia/Kolkata", "Asia/Kolkata (UTC+5:30)"),
        ("America/New_York", "America/New_York (UTC−5)"),
        ("UTC", "UTC"),
        ("Africa/Abidjan", "Africa/Abidjan (UTC+0)"),
    ],
)
def test_the_zone_is_always_written(zone: str, shown: str) -> None:
    assert Reader(ZoneInfo(zone), NOW).zone_name() == shown


def test_summer_time_counts() -> None:
    summer = datetime(2026, 7, 1, 12, tzinfo=UTC)
    assert Reader(ZoneInfo("America/New_York"), summer).zone_name() == "America/New_York (UTC−4)"


@pytest.mark.parametrize(
    ("seconds", "english", "chinese"),
    [
        (6, "6 s", "6 秒"),
        (95, "95 s", "95 秒"),
        (3780, "63 min", "63 分钟"),
        (3 * 3600 + 300, "3 h 5 min", "3 小时 5 分钟"),
        (30 * 3600, "30 h", "30 小时"),
        (50 * 3600, "2 days", "2 天"),
        (-3, "0 s", "0 秒"),
        (None, "–", "–"),
    ],
)
def test_durations(seconds: float | None, english: str, chinese: str) -> None:
    with translation.override("en"):
        assert duration(seconds).replace("\u00a0", " ") == english
    with translation.override("zh-hans"):
        assert duration(seconds).replace("\u00a0", " ") == chinese


def test_measured_durations_keep_their_seconds() -> None:
    with translation.override("en"):
        assert exact_duration(228).replace("\u00a0", " ") == "3 min 48 s"
        assert exact_duration(92).replace("\u00a0", " ") == "92 s"
        assert exact_duration(1800).replace("\u00a0", " ") == "30 min"
