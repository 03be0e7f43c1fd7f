"""Exact money (DESIGN law 11): Decimal in, Decimal out, shown parts add to the shown total."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import ROUND_FLOOR, ROUND_HALF_EVEN, Context, Decimal

#: Enough digits that a fleet-year of fractions of a cent loses none.
PRECISION = 40
CONTEXT = Context(prec=PRECISION)


def exact(number: float | int | Decimal) -> Decimal:
    """A measured float as the shortest decimal that reads back as it; money never starts as one."""
    return number if isinstance(number, Decimal) else Decimal(repr(number))


def shown(amount: Decimal, places: int = 2) -> Decimal:
    """Rounded for display, half to even."""
    return amount.quantize(Decimal(1).scaleb(-places), ROUND_HALF_EVEN, CONTEXT)


def shown_parts(parts: Sequence[Decimal], places: int = 2) -> list[Decimal]:
    """Parts rounded so that they add to the shown total (largest remainder, first part on ties).

    Works for negative parts too (corrections): floors first, then gives out the missing units.
    """
    if not parts:
        return []
    unit = Decimal(1).scaleb(-places)
    total = shown(sum(parts, Decimal(0)), places)
    floors = [part.quantize(unit, ROUND_FLOOR, CONTEXT) for part in parts]
    missing_units = int((total - sum(floors, Decimal(0))) / unit)
    by_remainder = sorted(range(len(parts)), key=lambda i: (-(parts[i] - floors[i]), i))
    for i in by_remainder[:missing_units]:
        floors[i] += unit
    return floors
