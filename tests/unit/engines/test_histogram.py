"""Quantiles, shares and merging, against random data whose truth is known."""

from __future__ import annotations

import math
from bisect import bisect_left

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.engines import histogram
from apps.engines.window import HistogramIncrease

LADDER = (0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 2.0, 4.0, 8.0)

values = st.lists(
    st.floats(0.0001, 16, allow_nan=False, allow_infinity=False), min_size=1, max_size=200
)
ladders = st.lists(
    st.floats(0.001, 20, allow_nan=False, allow_infinity=False),
    min_size=1,
    max_size=12,
    unique=True,
).map(lambda bounds: tuple(sorted(bounds)))


def observed(data: list[float], bounds: tuple[float, ...] = LADDER) -> HistogramIncrease:
    counts = [0.0] * (len(bounds) + 1)
    for value in data:
        counts[bisect_left(bounds, value)] += 1
    return HistogramIncrease(bounds, tuple(counts), math.fsum(data), float(len(data)))


@given(values, ladders, st.floats(0.01, 1.0))
def test_the_bounds_hold_the_true_quantile(data, bounds, q):
    found = histogram.quantile(observed(data, bounds), q)
    true = sorted(data)[max(0, math.ceil(q * len(data) - 1e-9) - 1)]
    assert found is not None
    assert found.lower <= found.value
    if found.is_clamped:
        assert found.upper is None
        assert true > found.lower == bounds[-1]
    else:
        assert found.value <= found.upper
        assert found.lower <= true <= found.upper


@given(values, ladders, st.floats(0.001, 20))
def test_shares_hold_the_truth_and_are_exact_at_a_bound(data, bounds, limit):
    found = histogram.share_at_or_below(observed(data, bounds), limit)
    true = sum(value <= limit for value in data) / len(data)
    assert found is not None
    assert found.lower - 1e-9 <= true <= found.upper + 1e-9
    for bound in bounds:
        exact = histogram.share_at_or_below(observed(data, bounds), bound)
        assert exact is not None and exact.is_exact
        assert exact.lower == pytest.approx(sum(v <= bound for v in data) / len(data))


@given(st.lists(values, min_size=3, max_size=3))
def test_merging_is_associative_and_loses_nothing(parts):
    a, b, c = (observed(part) for part in parts)
    left = histogram.merge([histogram.merge([a, b]), c])
    right = histogram.merge([a, histogram.merge([b, c])])
    whole = observed([value for part in parts for value in part])
    for merged in (left, right):
        assert merged.counts == whole.counts
        assert merged.count == whole.count
        assert merged.total == pytest.approx(whole.total)
    assert histogram.merge([b, c, a]).counts == whole.counts


@given(values)
def test_nothing_observed_is_the_neutral_element(data):
    hist = observed(data)
    assert histogram.merge([histogram.EMPTY, hist, histogram.EMPTY]).counts == hist.counts


def test_other_ladders_are_refused():
    with pytest.raises(histogram.MixedLadders):
        histogram.merge([observed([0.3], (0.3, 0.5)), observed([0.3], (0.4,))])


def test_interpolation_is_that_of_prometheus():
    # histogram_quantile(0.5) of 2 in (0, 0.1], 2 in (0.1, 0.2]: exactly the first bound.
    hist = HistogramIncrease((0.1, 0.2), (2.0, 2.0, 0.0), 0.5, 4.0)
    assert histogram.quantile(hist, 0.5).value == pytest.approx(0.1)
    assert histogram.quantile(hist, 0.75).value == pytest.approx(0.15)


def test_the_infinite_bucket_is_clamped_not_measured():
    hist = HistogramIncrease((0.5, 1.0), (10.0, 10.0, 80.0), 500.0, 100.0)
    found = histogram.quantile(hist, 0.95)
    assert (found.value, found.upper, found.is_clamped) == (1.0, None, True)
    assert histogram.share_at_or_below(hist, 2.0) == histogram.Share(0.2, 1.0)


def test_a_bound_of_zero_answers_zero():
    hist = HistogramIncrease((0.0, 1.0), (5.0, 1.0, 0.0), 0.5, 6.0)
    assert histogram.quantile(hist, 0.5) == histogram.Quantile(0.0, 0.0, 0.0, False)


@pytest.mark.parametrize(
    "hist", [histogram.EMPTY, HistogramIncrease((0.1,), (0.0, 0.0), 0.0, 0.0),
             HistogramIncrease((), (3.0,), 1.0, 3.0)]
)  # fmt: skip
def test_no_answer_is_none_and_never_nan(hist):
    assert histogram.quantile(hist, 0.95) is None
    assert histogram.share_at_or_below(hist, 0.1) is None


@pytest.mark.parametrize("q", [0, -0.1, 1.01])
def test_only_real_quantiles(q):
    with pytest.raises(ValueError, match="q must"):
        histogram.quantile(observed([0.3]), q)


def test_an_objective_off_the_ladder_is_told_its_neighbours():
    assert histogram.nearest_bounds(LADDER, 0.5) == (0.4, 0.6)
    assert histogram.nearest_bounds(LADDER, 0.6) == (0.6, 0.6)
    assert histogram.nearest_bounds(LADDER, 0.05) == (None, 0.1)
    assert histogram.nearest_bounds(LADDER, 9.0) == (8.0, None)


def test_milliseconds_become_the_same_bounds_as_seconds():
    hist = HistogramIncrease((1.0, 5.0, 250.0), (1.0, 1.0, 1.0, 0.0), 256.0, 3.0)
    seconds = histogram.scaled(hist, 0.001)
    assert seconds.bounds == (0.001, 0.005, 0.25)
    assert seconds.total == pytest.approx(0.256)


def test_a_step_back_of_extrapolated_buckets_counts_nothing():
    hist = histogram.from_cumulative((1.0, 2.0), (3.0, 2.9999, 4.0), 5.0)
    assert hist.counts == pytest.approx((3.0, 0.0, 1.0))
    assert hist.count == 4.0
