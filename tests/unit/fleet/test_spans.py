from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from apps.fleet.domain.spans import SpanFacts, cuts, overlaps, value_at

T0 = datetime(2026, 11, 30, tzinfo=UTC)


def at(seconds: int) -> datetime:
    return T0 + timedelta(seconds=seconds)


HISTORY = [
    SpanFacts("decode", at(0), at(100)),
    SpanFacts("prefill", at(100), at(200)),
    SpanFacts("decode", at(200), None),
]


def test_the_end_is_excluded_and_the_start_included() -> None:
    assert value_at(HISTORY, at(99)) == "decode"
    assert value_at(HISTORY, at(100)) == "prefill"
    assert value_at(HISTORY, at(5000)) == "decode"
    assert value_at(HISTORY, at(-1)) is None


def test_windows_are_cut_inside_only() -> None:
    assert cuts(HISTORY, at(50), at(200)) == [at(100)]
    assert cuts(HISTORY, at(100), at(200)) == []


def test_overlap_is_found() -> None:
    assert overlaps(HISTORY) is None
    bad = [*HISTORY, SpanFacts("mixed", at(150), at(160))]
    assert overlaps(bad) is not None
    assert overlaps([SpanFacts(1, at(0), None), SpanFacts(2, at(5), None)]) is not None


@given(st.lists(st.integers(1, 50), min_size=1, max_size=20), st.integers(0, 1200))
def test_at_any_time_at_most_one_value_holds(lengths: list[int], moment: int) -> None:
    spans, start = [], 0
    for index, length in enumerate(lengths):
        spans.append(SpanFacts(index, at(start), at(start + length)))
        start += length
    assert overlaps(spans) is None
    holding = [s for s in spans if s.start <= at(moment) < (s.end or at(10**6))]
    assert len(holding) == (1 if moment < start else 0)
    assert value_at(spans, at(moment)) == (holding[0].value if holding else None)
