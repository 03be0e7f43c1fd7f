"""Increases: restarts, births, disappearances, role changes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.engines.deltas import Buckets, bucket_increase, increase


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([10, 40, 100], 90),
        ([200, 230, 10, 40], 30 + 10 + 30),  # a restart counts its new value whole
        ([None, 7, 9], 9),  # born on a target that answered before: from 0
        ([None, None, 7], 7),
        ([5, None, 8], 3),
        ([5, None, 2], 2),
        ([5, 5, None], 0),
        ([0, 0], 0),
        ([5], None),  # one sample has no increase
        ([None, None], None),
        ([], None),
    ],
)
def test_increase(values, expected):
    assert increase(values) == expected


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([100, 130, 150], 20),  # the first interval belongs to the role before
        ([None, 30, 50], 50),  # born in it: all of it is the new role's
        ([100, 4, 9], 9),  # restarted in it
        ([100, 130], 0),
    ],
)
def test_increase_after_a_role_change(values, expected):
    assert increase(values, starts_only_first=True) == expected


steps = st.lists(st.tuples(st.integers(0, 100), st.booleans()), min_size=1, max_size=30)


@given(steps)
def test_totals_never_fall_and_restarts_lose_nothing_seen(moves):
    """A counter that restarts at scrapes: what it counted in sight is what we count."""
    value, seen, truth = 0, [0], 0
    for step, restarts in moves:
        # A value equal to or above the old one after a restart cannot be told from progress.
        if restarts and step < value:
            value = step
            truth += step
        else:
            value += step
            truth += step
        seen.append(value)
    assert increase(seen) == truth
    totals = [increase(seen[: n + 1]) for n in range(1, len(seen))]
    assert totals == sorted(totals)


@given(steps, st.integers(1, 29))
def test_windows_that_tile_add_up(moves, cut):
    value, seen = 0, [0]
    for step, restarts in moves:
        value = step if restarts else value + step
        seen.append(value)
    cut = min(cut, len(seen) - 1)
    parts = [part for part in (increase(seen[: cut + 1]), increase(seen[cut:])) if part is not None]
    assert sum(parts) == increase(seen)


def state(*cumulative: float, total: float = 0.0, bounds=(1.0, 2.0)) -> Buckets:
    return Buckets(bounds, cumulative, total)


def test_bucket_increase():
    found = bucket_increase([state(1, 2, 3, total=4), state(2, 4, 6, total=9)])
    assert found == state(1, 2, 3, total=5)


def test_bucket_restart_and_birth():
    found = bucket_increase([state(10, 20, 30), state(1, 1, 2, total=3), state(2, 3, 4, total=8)])
    assert found == state(2, 3, 4, total=8)
    assert bucket_increase([None, state(1, 1, 2, total=3)]) == state(1, 1, 2, total=3)
    assert bucket_increase([state(1, 1, 2)]) is None


def test_another_ladder_is_a_restart_and_is_not_mixed_in():
    new = state(1, 2, total=3, bounds=(5.0,))
    assert bucket_increase([state(1, 2, 3), state(2, 3, 4), new]) == new


def test_nothing_new_is_zero_not_missing():
    assert bucket_increase([state(1, 2, 3), state(1, 2, 3)]) == state(0, 0, 0)
    after_change = bucket_increase([state(1, 2, 3), state(4, 5, 6)], starts_only_first=True)
    assert after_change == state(0, 0, 0)
