"""Building blocks of the sample pages: measurements, money, lines."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from apps.common.measurement import Measurement, Place, State, Trace, missing
from apps.common.units import Unit

NOW = datetime(2026, 11, 29, 19, 8, 6, tzinfo=UTC)
SINCE = datetime(2026, 11, 29, 18, 5, tzinfo=UTC)
SAMPLE = NOW - timedelta(seconds=6)


def m(
    value: float | Decimal | None,
    unit: Unit,
    state: State = State.OK,
    *,
    low: float | Decimal | None = None,
    high: float | Decimal | None = None,
    place: Place = Place.FRONTEND,
    method: str = "",
    at: datetime = SAMPLE,
    count: int | None = None,
    coverage: tuple[int, int] | None = None,
    query: str = "",
) -> Measurement:
    return Measurement(
        value, unit, state, at, place, method, low, high, coverage, count,
        Trace("Prometheus cn-east-1", query),
    )  # fmt: skip


def usd_h(text: str) -> Measurement:
    return m(Decimal(text), Unit.USD_PER_HOUR, place=Place.DECLARED)


def usd_m(text: str | None, **more: Any) -> Measurement:
    if text is None:
        return missing(Unit.USD_PER_MILLION_TOKENS)
    return m(Decimal(text), Unit.USD_PER_MILLION_TOKENS, **more)


def wave(base: float, late: float, n: int = 46, rise: int = 27) -> tuple[float, ...]:
    """A quiet line that rises to `late` after `rise` points."""
    points = []
    for i in range(n):
        grown = 1 / (1 + math.exp(-(i - rise - 3) / 1.3))
        noise = 0.012 * math.sin(i * 1.7) + 0.008 * math.sin(i * 0.7)
        points.append(round((base + (late - base) * grown) * (1 + noise), 4))
    return tuple(points)


S, R = Unit.SECONDS, Unit.RATIO
