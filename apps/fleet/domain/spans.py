"""Spans `[from, to)` without overlap (DESIGN §2): pure rules over lists of spans."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from typing import Any


@dataclass(frozen=True, slots=True)
class SpanFacts:
    """The value of an attribute from `start` (included) to `end` (excluded; None = still)."""

    value: Any
    start: datetime
    end: datetime | None


def value_at(spans: Iterable[SpanFacts], at: datetime) -> Any | None:
    """The value that held at `at`, or None."""
    for span in spans:
        if span.start <= at and (span.end is None or at < span.end):
            return span.value
    return None


def overlaps(spans: Sequence[SpanFacts]) -> tuple[SpanFacts, SpanFacts] | None:
    """The first two spans that overlap, or None."""
    ordered = sorted(spans, key=lambda span: span.start)
    for left, right in pairwise(ordered):
        if left.end is None or left.end > right.start:
            return left, right
    return None


def cuts(spans: Iterable[SpanFacts], start: datetime, end: datetime) -> list[datetime]:
    """The instants inside `(start, end)` at which a window must be cut."""
    found: set[datetime] = set()
    for span in spans:
        for edge in (span.start, span.end):
            if edge is not None and start < edge < end:
                found.add(edge)
    return sorted(found)
