"""What a target that was scraped well said before its first sample: nothing, if that is known."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from apps.engines.readings import Reading
from apps.telemetry.collectors.ranges import Span
from apps.telemetry.services.silence import NOTHING, with_silence

SPAN = Span(start=1000.0, end=1030.0, scrape_s=5.0, max_age_s=10.0)
SAID = Reading({"tokens_total": {(): 1456.0}}, {})


def at(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def scrapes(first: float, last: float = 1029.0) -> list[float]:
    return [first + 5 * step for step in range(int((last - first) // 5) + 1)]


def test_what_comes_after_silence_was_born() -> None:
    readings = [(at(1014), SAID), (at(1030), SAID)]
    found = with_silence(readings, 1014.0, scrapes(984), SPAN)
    assert found == [(at(1000), NOTHING), *readings]


def test_a_target_that_never_spoke_answered() -> None:
    assert with_silence([], None, scrapes(984), SPAN) == [(at(1000), NOTHING), (at(1030), NOTHING)]


def test_a_target_that_was_not_there_at_the_start_is_known_from_its_first_scrape() -> None:
    readings = [(at(1024), SAID), (at(1030), SAID)]
    found = with_silence(readings, 1024.0, scrapes(1009), SPAN)
    assert found == [(at(1009), NOTHING), *readings]


@pytest.mark.parametrize(
    "seen",
    [[984.0, 1014.0, 1019.0, 1024.0, 1029.0], [1014.0, 1019.0, 1024.0, 1029.0], []],
    ids=["scrapes were missed before it", "it is new", "pushed data has no up"],
)
def test_nothing_is_born_where_nobody_looked(seen: list[float]) -> None:
    readings = [(at(1014), SAID), (at(1030), SAID)]
    assert with_silence(readings, 1014.0, seen, SPAN) == readings


def test_with_a_base_nothing_is_added() -> None:
    readings = [(at(1000), SAID), (at(1030), SAID)]
    assert with_silence(readings, 999.0, scrapes(984), SPAN) == readings


def test_a_target_that_is_no_longer_seen_says_nothing() -> None:
    assert with_silence([], None, scrapes(984, 1012), SPAN) == []
