"""Which of overlapping windows tile the time, so that each count is rolled up once. Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from .rollup import COUNTERS, HISTOGRAMS


@dataclass(frozen=True, slots=True)
class Candidate:
    """A stored window without its payload."""

    key: int
    start: datetime
    end: datetime
    has_histograms: bool
    tile: int = 0


def choose_tiles(inside: Sequence[Candidate], outside: Iterable[Candidate]) -> Mapping[int, int]:
    """The uses of each window of a block that is part of a tiling, by key.

    Tiles start as early as they can and never overlap each other or those already chosen
    `outside` the block. Where every window has histograms there is one tiling for both uses.
    """
    around = list(outside)
    uses: dict[int, int] = {}
    kinds = [COUNTERS | HISTOGRAMS]
    if not all(window.has_histograms for window in (*inside, *around) if window.end > window.start):
        kinds = [COUNTERS, HISTOGRAMS]
    for kind in kinds:
        fixed = [window for window in around if window.tile & kind]
        fit = [w for w in inside if w.has_histograms or kind == COUNTERS]
        for window in _tiling(fit, fixed):
            uses[window.key] = uses.get(window.key, 0) | kind
    return uses


def _tiling(inside: Iterable[Candidate], fixed: Iterable[Candidate]) -> list[Candidate]:
    taken = sorted((window.start, window.end) for window in fixed)
    starts = [start for start, _ in taken]
    chosen: list[Candidate] = []
    last: datetime | None = None
    for window in sorted(inside, key=lambda w: (w.start, -w.end.timestamp())):
        if window.end <= window.start or (last is not None and window.start < last):
            continue
        index = bisect_right(starts, window.start)
        if index and taken[index - 1][1] > window.start:
            continue
        if index < len(taken) and taken[index][0] < window.end:
            continue
        chosen.append(window)
        last = window.end
    return chosen
