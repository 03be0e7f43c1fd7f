"""Where the bucket bounds under a chart's percentiles change (fault M19). Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from apps.engines.window import HistogramIncrease
from apps.telemetry.domain.series import Point


@dataclass(frozen=True, slots=True)
class LadderChange:
    """At `at` (the end of a step) the percentiles of `latencies` ("ttft", "tpot") begin to rest on
    other bounds than those of the points before it."""

    at: datetime
    latencies: tuple[str, ...]


def ladder_changes(points: Sequence[Point | None]) -> list[LadderChange]:
    """Every point whose bounds are not those of the last point that had any, oldest first. A step
    without observations has no bounds and changes nothing; a first step that holds two ladders is
    a change of both latencies, because nothing says which."""
    found: list[LadderChange] = []
    last: dict[str, tuple[float, ...]] = {}
    for point in points:
        if point is None:
            continue
        bounds = {
            "ttft": _bounds(point.ttft_histogram),
            "tpot": _bounds(point.tpot_histogram),
        }
        known = {name: value for name, value in bounds.items() if value}
        changed = tuple(name for name, value in known.items() if last.get(name, value) != value)
        if point.is_split and not changed and not last.keys() & known.keys():
            changed = tuple(known)
        if changed:
            found.append(LadderChange(point.at, changed))
        last |= known
    return found


def _bounds(histogram: HistogramIncrease | None) -> tuple[float, ...]:
    return histogram.bounds if histogram is not None else ()
