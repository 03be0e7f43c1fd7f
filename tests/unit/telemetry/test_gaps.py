"""Holes between windows, and what fills them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from apps.telemetry.domain.gaps import Piece, gaps, pieces

T0 = datetime(2026, 1, 1, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return T0 + timedelta(seconds=seconds)


def windows(*ends: float, length: float = 60) -> list[tuple[datetime, datetime]]:
    return [(at(end - length), at(end)) for end in ends]


def test_sliding_windows_and_tiles_leave_no_hole():
    assert gaps(windows(60, 75, 90, 150), since=T0, tolerance_s=22) == ()


def test_a_missed_tick_that_others_cover_is_no_hole():
    assert gaps(windows(60, 120), since=T0, tolerance_s=22) == ()


def test_holes_are_found_oldest_first_and_not_before_since():
    found = gaps(windows(60, 300, 900), since=T0, tolerance_s=22)
    assert found == (Piece(at(60), at(240)), Piece(at(300), at(840)))
    late = gaps(windows(60, 300, 900), since=at(500), tolerance_s=22)
    assert late == (Piece(at(500), at(840)),)


def test_before_the_first_and_after_the_last_window_is_no_hole():
    assert gaps(windows(5000), since=T0, tolerance_s=22) == ()
    assert gaps([], since=T0, tolerance_s=22) == ()


@given(st.floats(1, 5000), st.sampled_from([15.0, 60.0, 300.0]))
def test_pieces_tile_the_gap(length, window_s):
    gap = Piece(at(0), at(length))
    found = pieces(gap, window_s)
    assert (found[0].start, found[-1].end) == (gap.start, gap.end)
    assert all(left.end == right.start for left, right in pairwise(found))
    assert all((piece.end - piece.start).total_seconds() <= window_s for piece in found)
