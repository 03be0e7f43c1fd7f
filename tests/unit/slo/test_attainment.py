"""Attainment from a ladder, goodput from marginals (laws 2 and 3a)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.common.measurement import Measurement, Place, State
from apps.common.units import Unit
from apps.engines.window import HistogramIncrease
from apps.slo.domain.attainment import (
    ABOVE_LADDER,
    BOUND_NOT_IN_LADDER,
    attainment,
    goodput,
)
from apps.slo.domain.objective import InvalidObjective, validate
from apps.telemetry.domain.figures import Quantiles

BOUNDS = (0.5, 1.0, 2.5, 5.0)


def latency(counts: tuple[float, ...], state: State = State.OK) -> Quantiles:
    value = None if state in (State.NO_DATA, State.NO_TRAFFIC, State.TOO_FEW) else 1.0
    figure = Measurement(value, Unit.SECONDS, state, None, Place.ROUTER)
    histogram = HistogramIncrease(BOUNDS, counts, 100.0, sum(counts))
    return Quantiles(figure, figure, figure, figure, histogram)


def share(value: float, lower: float | None = None, upper: float | None = None) -> Measurement:
    return Measurement(value, Unit.RATIO, State.OK, None, Place.ROUTER, lower=lower, upper=upper)


RATE = Measurement(8.0, Unit.REQUESTS_PER_SECOND, State.OK, None, Place.ROUTER)


def test_exact_at_a_bound_of_the_ladder() -> None:
    found = attainment(latency((120, 50, 20, 8, 2)), 2.5, min_requests=100, observed_at=None)
    assert found.share.value == pytest.approx(0.95)
    assert found.share.lower == found.share.upper == pytest.approx(0.95)
    assert (found.warning, found.nearest) == ("", ())
    assert found.share.sample_count == 200
    assert found.share.place is Place.ROUTER


def test_a_range_between_bounds_with_a_warning_and_the_exact_neighbours() -> None:
    found = attainment(latency((120, 50, 20, 8, 2)), 2.0, min_requests=100, observed_at=None)
    assert found.share.value == pytest.approx(0.85)
    assert (found.share.lower, found.share.upper) == (pytest.approx(0.85), pytest.approx(0.95))
    assert (found.warning, found.nearest) == (BOUND_NOT_IN_LADDER, (1.0, 2.5))


def test_above_the_ladder_the_upper_end_is_one() -> None:
    found = attainment(latency((120, 50, 20, 8, 2)), 10.0, min_requests=100, observed_at=None)
    assert (found.share.lower, found.share.upper) == (pytest.approx(0.99), 1.0)
    assert found.warning == ABOVE_LADDER


def test_too_few_requests_give_a_count_and_no_share() -> None:
    found = attainment(latency((3, 0, 0, 0, 0)), 2.5, min_requests=100, observed_at=None)
    assert (found.share.value, found.share.state) == (None, State.TOO_FEW)
    assert found.share.sample_count == 3


@pytest.mark.parametrize("state", [State.NO_DATA, State.SOURCE_DOWN, State.NO_TRAFFIC])
def test_a_missing_latency_is_not_attained(state: State) -> None:
    found = attainment(latency((0,) * 5, state), 2.5, min_requests=100, observed_at=None)
    assert (found.share.value, found.share.state) == (None, state)


def test_goodput_is_the_range_of_the_marginals() -> None:
    found = goodput([share(0.9), share(0.8)], RATE)
    assert found.share.lower == pytest.approx(0.7)
    assert found.share.upper == pytest.approx(0.8)
    assert found.share.value == found.share.lower
    assert found.share.method == "marginals"
    assert found.rate.value == pytest.approx(5.6)
    assert found.rate.upper == pytest.approx(6.4)


def test_ranges_of_the_marginals_widen_it() -> None:
    found = goodput([share(0.85, 0.85, 0.95), share(0.9)], RATE)
    assert (found.share.lower, found.share.upper) == (pytest.approx(0.75), pytest.approx(0.9))


def test_the_lower_end_is_never_negative() -> None:
    assert goodput([share(0.3), share(0.4)], RATE).share.lower == 0.0


def test_a_missing_share_is_not_assumed_met() -> None:
    lost = Measurement(None, Unit.RATIO, State.STALE, None, Place.ROUTER)
    found = goodput([share(0.9), lost], RATE)
    assert (found.share.value, found.share.state) == (None, State.STALE)
    assert found.rate.value is None


def test_without_objectives_there_is_no_goodput() -> None:
    assert goodput([], RATE).share.value is None


@given(st.floats(0, 1), st.floats(0, 1))
def test_the_true_joint_share_lies_inside(a: float, b: float) -> None:
    found = goodput([share(a), share(b)], RATE).share
    assert found.lower is not None and found.upper is not None
    # Independent requests are one of the joint distributions that the marginals allow.
    assert float(found.lower) - 1e-9 <= a * b <= float(found.upper) + 1e-9


@pytest.mark.parametrize(
    ("quantile", "threshold", "target"), [(0, 1, 0.9), (0.95, 0, 0.9), (0.95, 1, 1.0)]
)
def test_nonsense_is_refused(quantile: float, threshold: float, target: float) -> None:
    with pytest.raises(InvalidObjective):
        validate(quantile=quantile, threshold_s=threshold, target_share=target)
