"""Which tick reads whose histograms."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from types import SimpleNamespace

from hypothesis import given
from hypothesis import strategies as st

from apps.telemetry.services.through_prometheus import _slot

T0 = datetime(2026, 1, 1, 0, 0, 7, tzinfo=UTC)


def source(due: datetime | None) -> SimpleNamespace:
    return SimpleNamespace(next_due_at=due, interval_s=15.0)


@given(st.lists(st.floats(0, 14.9), min_size=12, max_size=12))
def test_lateness_of_ticks_skips_no_share(late):
    """The claim moved the due time on by one interval before the tick runs."""
    slots = []
    for number, seconds in enumerate(late):
        beat = T0 + timedelta(seconds=15 * number)
        due = beat + timedelta(seconds=15)
        slots.append(_slot(source(due), beat + timedelta(seconds=seconds)))
    assert slots == list(range(slots[0], slots[0] + len(late)))
    for share in range(4):
        mine = [number for number, slot in enumerate(slots) if slot % 4 == share]
        assert [b - a for a, b in pairwise(mine)] == [4] * (len(mine) - 1)


def test_without_a_due_time_the_clock_decides():
    assert _slot(source(None), T0 + timedelta(seconds=15)) == _slot(source(None), T0) + 1
