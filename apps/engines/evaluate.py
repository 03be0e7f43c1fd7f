"""From a profile and a way to read metrics to the canonical signals of one target.

Both collectors go through here, so they choose the same fall-back names, the same role rules and
the same sums; they differ only in the `Reader`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from . import histogram
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


def evaluate(profile: Profile, role: str, reader: Reader) -> dict[Signal, SignalPart]:
    """All signals of a target in a role; a signal that was not found is left out."""
    found: dict[Signal, SignalPart] = {}
    for signal, rows in profile.signals.items():
        if rows.kind is not Kind.GAUGE and not reader.has_interval:
            continue
        for row in profile.rows(signal, role):
            part = _row(rows.kind, row, reader) or _zero(rows.kind, row, reader)
            if part is not None:
                found[signal] = part
                break
    return found


def _row(kind: Kind, row: Row, reader: Reader) -> SignalPart | None:
    if kind is Kind.HISTOGRAM:
        return _histogram_row(row, reader)
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
