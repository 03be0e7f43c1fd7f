"""Law 1: missing is not zero is not NaN."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest

from apps.common.measurement import (
    MAY_DRIVE,
    Drive,
    Measurement,
    Place,
    State,
    Trace,
    freshness,
    missing,
    worst,
)
from apps.common.units import Unit

AT = datetime(2026, 11, 30, 3, 0, tzinfo=UTC)


def ok(value: float | Decimal) -> Measurement:
    return Measurement(value, Unit.SECONDS, State.OK, AT, Place.ROUTER)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("field", ["value", "lower", "upper"])
def test_nan_and_infinity_are_refused(bad: float, field: str) -> None:
    fields = {"value": 1.0, "lower": 0.5, "upper": 2.0, field: bad}
    with pytest.raises(ValueError, match=field):
        Measurement(fields["value"], Unit.SECONDS, State.OK, AT, Place.ROUTER, "",
                    fields["lower"], fields["upper"])  # fmt: skip


@pytest.mark.parametrize("state", [State.NO_DATA, State.NO_TRAFFIC])
def test_a_missing_figure_cannot_carry_a_value(state: State) -> None:
    with pytest.raises(ValueError, match="no value"):
        Measurement(0.0, Unit.SECONDS, state)


def test_ok_needs_a_value() -> None:
    with pytest.raises(ValueError, match="ok figure"):
        Measurement(None, Unit.SECONDS, State.OK)


def test_every_state_says_what_it_may_drive() -> None:
    assert set(MAY_DRIVE) == set(State)
    assert ok(1.0).may_drive(Drive.REDUCTION)
    partial = Measurement(1.0, Unit.SECONDS, State.PARTIAL, AT)
    assert partial.may_drive(Drive.GROWTH)
    assert not partial.may_drive(Drive.REDUCTION)
    for state in (State.STALE, State.NO_DATA, State.SOURCE_DOWN, State.CONFLICT):
        assert not any(missing(Unit.SECONDS, state).may_drive(drive) for drive in Drive)
    assert not missing(Unit.SECONDS, State.TOO_FEW).may_drive(Drive.PERCENTILE)
    assert missing(Unit.SECONDS, State.TOO_FEW).may_drive(Drive.LOAD_RULE)
    assert missing(Unit.SECONDS, State.NO_TRAFFIC).may_drive(Drive.IDLE_RULE)


def test_the_worst_state_wins() -> None:
    assert worst([State.OK, State.PARTIAL, State.CLAMPED]) is State.PARTIAL
    assert worst([State.OK, State.SOURCE_DOWN, State.STALE]) is State.SOURCE_DOWN
    assert worst([]) is State.NO_DATA


def test_json_round_trip_keeps_decimals_exact_and_bounds() -> None:
    figure = Measurement(
        Decimal("0.940"), Unit.USD_PER_MILLION_TOKENS, State.PARTIAL, AT, Place.DECLARED,
        "marginals", Decimal("0.91"), Decimal("1.20"), (8, 10), 240, Trace("price book", "a / b"),
    )  # fmt: skip
    assert Measurement.from_json(figure.to_json()) == figure
    assert figure.to_json()["value"] == "0.940"


@pytest.mark.parametrize(
    ("age_s", "expected"),
    [(0, State.OK), (9.9, State.OK), (10, State.STALE), (25, State.STALE), (25.1, State.NO_DATA)],
)
def test_age_in_collect_intervals_decides_freshness(age_s: float, expected: State) -> None:
    assert freshness(AT, AT + timedelta(seconds=age_s), interval_s=5) is expected


def test_never_observed_is_no_data() -> None:
    assert freshness(None, AT, 5) is State.NO_DATA
