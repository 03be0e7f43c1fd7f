"""What of a span no window covers, and the windows that would fill it. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta


@dataclass(frozen=True, slots=True)
class Piece:
    """One window to collect again, `(start, end]`."""

    start: datetime
    end: datetime


def gaps(
    covered: Iterable[tuple[datetime, datetime]], *, since: datetime, tolerance_s: float
) -> tuple[Piece, ...]:
    """The holes longer than `tolerance_s` between windows after `since`, oldest first. What lies
    before the first and after the last window is no hole: nobody collected yet."""
    found: list[Piece] = []
    reached: datetime | None = None
    for start, end in sorted(covered):
        if reached is not None and (start - reached).total_seconds() > tolerance_s:
            begin = max(reached, since)
            if (start - begin).total_seconds() > tolerance_s:
                found.append(Piece(begin, start))
        reached = end if reached is None else max(reached, end)
    return tuple(found)


def pieces(gap: Piece, window_s: float) -> tuple[Piece, ...]:
    """The gap in windows of `window_s` that tile it exactly, oldest first; the last is shorter."""
    found: list[Piece] = []
    begin = gap.start
    while begin < gap.end:
        stop = min(begin + timedelta(seconds=window_s), gap.end)
        found.append(Piece(begin, stop))
        begin = stop
    return tuple(found)
