"""A figure read from a histogram is known to its bucket: the ranges must meet."""

from __future__ import annotations

import pytest

from apps.commands.domain.scoring import is_inside
from apps.common.measurement import Measurement, State
from apps.common.units import Unit


def figure(value: float | None, low: float | None = None, high: float | None = None) -> Measurement:
    state = State.OK if value is not None else State.NO_DATA
    return Measurement(value, Unit.SECONDS, state, lower=low, upper=high)


@pytest.mark.parametrize(
    ("predicted", "measured", "inside"),
    [
        (figure(1.2, 0.9, 1.6), figure(1.3), True),
        (figure(1.2, 0.9, 1.6), figure(1.7, 1.5, 2.0), True),
        (figure(1.2, 0.9, 1.4), figure(1.7, 1.5, 2.0), False),
        (figure(1.2, 0.9, 1.6), figure(0.4, 0.3, 0.5), False),
        (figure(1.2), figure(1.3), None),
        (figure(1.2, 0.9, 1.6), figure(None), None),
    ],
)
def test_inside(predicted: Measurement, measured: Measurement, inside: bool | None) -> None:
    assert is_inside(predicted, measured) is inside
