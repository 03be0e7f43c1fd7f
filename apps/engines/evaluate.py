"""From a profile and a way to read metrics to the canonical signals of one target.

Both collectors go through here, so they choose the same fall-back names, the same role rules and
the same sums; they differ only in the `Reader`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final, Protocol

from apps.common.units import Unit

from . import histogram
from .exposition import LARGEST
from .plans import plan_of
from .schema import Profile, Ref, Row, Term
from .window import HistogramIncrease, Kind, Signal

#: Key of the target's own part beside parts per worker (router series).
SELF = ""

Parts = Mapping[str, float]


class Reader(Protocol):
    """What a collector knows about one target in one role, filters already applied.

    Each read returns None when the metric was not found; counters and gauges are split by the
    row's worker label (key `SELF` when it has none).
    """

    @property
    def has_interval(self) -> bool:
        """False when only one sample exists, so that increases are unknown (not 0)."""

    def has_sibling(self, name: str) -> bool: ...

    def counter(self, ref: Ref, row: Row) -> Parts | None: ...

    def gauge(self, ref: Ref, row: Row) -> Parts | None: ...

    def histogram(self, ref: Ref, row: Row) -> HistogramIncrease | None: ...


@dataclass(frozen=True, slots=True)
class SignalPart:
    """One signal of one target: increase or last value per part, or a histogram, and the names
    that answered."""

    kind: Kind
    parts: Parts | None
    histogram: HistogramIncrease | None
    names: str


TargetSignals = Mapping[Signal, SignalPart]

#: A ratio above this is no ratio (usually a percentage); rounding and races make 1.0 a little more.
RATIO_LIMIT: Final = 1.05


@dataclass(frozen=True, slots=True)
class Defect:
    """A figure that was found and not used. `names` are the metrics, `reason` is safe to show."""

    signal: Signal
    names: str
    reason: str


def evaluate(
    profile: Profile,
    role: str,
    reader: Reader,
    defects: list[Defect] | None = None,
    *,
    with_histograms: bool = True,
) -> dict[Signal, SignalPart]:
    """All signals of a target in a role; a signal that was not found is left out.

    A figure that cannot be (a ratio outside 0..1, no finite number) is left out as well and the
    next row is tried; `defects`, if given, receives what was refused and why.
    """
    found: dict[Signal, SignalPart] = {}
    has_interval = reader.has_interval
    for signal, (kind, unit, rows) in plan_of(profile, role).rows.items():
        if kind is not Kind.GAUGE and not has_interval:
            continue
        if kind is Kind.HISTOGRAM and not with_histograms:
            continue
        for row in rows:
            part = _row(kind, row, reader)
            if part is not None:
                names = part.names
                part, reason = _checked(part, unit)
                if reason and defects is not None:
                    defects.append(Defect(signal, names, reason))
                if part is None:
                    continue
            else:
                part = _zero(kind, row, reader)
            if part is not None:
                found[signal] = part
                break
    return found


def _checked(part: SignalPart, unit: Unit) -> tuple[SignalPart | None, str]:
    """The part without the values that cannot be, and why some were left out."""
    if part.histogram is not None:
        numbers = (part.histogram.total, part.histogram.count)
        if all(map(_is_possible, numbers)):
            return part, ""
        return None, "its sum or its count is no finite number"
    parts = part.parts or {}
    highest = RATIO_LIMIT if unit is Unit.RATIO else LARGEST
    lowest = 0.0 if unit is Unit.RATIO else -LARGEST
    if parts and all(lowest <= value <= highest for value in parts.values()):  # never for NaN
        return part, ""
    kept = {key: value for key, value in parts.items() if _is_possible(value)}
    reason = "a value is no finite number or impossibly large" if len(kept) < len(parts) else ""
    if unit is Unit.RATIO:
        in_range = {key: value for key, value in kept.items() if 0 <= value <= RATIO_LIMIT}
        if len(in_range) < len(kept):
            worst = max(kept.values(), key=abs)
            reason = (
                f"{worst:g} is no ratio between 0 and 1; if it is a percentage, this release needs "
                "a row with scale 0.01"
            )
        kept = in_range
    if not kept:
        return None, reason
    return (part if len(kept) == len(parts) else replace(part, parts=kept)), reason


def _is_possible(value: float) -> bool:
    return math.isfinite(value) and abs(value) <= LARGEST


def _row(kind: Kind, row: Row, reader: Reader) -> SignalPart | None:
    if kind is Kind.HISTOGRAM:
        return _histogram_row(row, reader)
    if len(row.terms) == 1 and row.terms[0].sign > 0:
        answer = _first(kind, row.terms[0], row, reader)
        if answer is None:
            return None
        ref, parts = answer
        return SignalPart(kind, {k: v * ref.scale for k, v in parts.items()}, None, ref.key)
    total: dict[str, float] = {}
    names: list[str] = []
    for term in row.terms:
        answer = _first(kind, term, row, reader)
        if answer is None:
            if term.optional:
                continue
            return None
        ref, parts = answer
        names.append(f"{'-' if term.sign < 0 else ''}{ref.key}")
        for key, value in parts.items():
            total[key] = total.get(key, 0.0) + term.sign * value * ref.scale
    if not names:
        return None
    if any(term.sign < 0 for term in row.terms):
        total = {key: max(0.0, value) for key, value in total.items()}
    return SignalPart(kind, total, None, " + ".join(names).replace("+ -", "- "))


def _first(kind: Kind, term: Term, row: Row, reader: Reader) -> tuple[Ref, Parts] | None:
    read = reader.counter if kind is Kind.COUNTER else reader.gauge
    for ref in term.any_of:
        parts = read(ref, row)
        if parts is not None:
            return ref, parts
    return None


def _histogram_row(row: Row, reader: Reader) -> SignalPart | None:
    for term in row.terms:
        for ref in term.any_of:
            found = reader.histogram(ref, row)
            if found is not None:
                return SignalPart(Kind.HISTOGRAM, None, histogram.scaled(found, ref.scale), ref.key)
    return None


def _zero(kind: Kind, row: Row, reader: Reader) -> SignalPart | None:
    """A family that its exporter creates with the first event counts 0 before it."""
    if not any(reader.has_sibling(name) for name in row.siblings):
        return None
    names = f"{row.terms[0].any_of[0].key} (not yet created)"
    if kind is Kind.HISTOGRAM:
        return SignalPart(kind, None, histogram.EMPTY, names)
    return SignalPart(kind, {SELF: 0.0}, None, names)
