"""Series of the charts and sparklines, from stored windows and evaluations only.

Columns, not figures: one array per line, `None` for a gap, never a bridged or averaged percentile.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from math import ceil
from typing import Any, Final

from django.utils.translation import gettext as _

from apps.commands.models import Command
from apps.planning import selectors as planning
from apps.telemetry import selectors as telemetry
from apps.telemetry.domain.series import Point

from .domain.ladders import LadderChange, ladder_changes
from .labels import changes
from .loaded import Loaded

PANELS: Final = ("ttft", "tpot", "busy", "flow", "tokens", "queue")
MAX_POINTS: Final = 400
#: The longest range that is answered.
LONGEST: Final = timedelta(days=90)
#: Steps offered, in seconds: the stored window, then 2, 5, 10, 30 min, 1, 2, 6, 12 h, 1 d.
STEPS: Final = (5, 15, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21600, 43200, 86400)
#: Most changes of bucket bounds that a chart marks, the newest: while releases of an engine are
#: mixed, the ladder with most requests may alternate.
MAX_LADDER_CHANGES: Final = 8
#: From this step on, a chart's last point is the step that still runs.
LONG_STEP_S: Final = 300


@dataclass(frozen=True, slots=True)
class Range:
    start: datetime
    end: datetime
    step_s: float

    @property
    def times(self) -> list[datetime]:
        """The ends of the steps. Where steps are long, the one that still runs is shown too: its
        rates and percentiles are those of the time that it has covered."""
        seconds = (self.end - self.start).total_seconds()
        steps = seconds / self.step_s
        count = ceil(steps) if self.step_s >= LONG_STEP_S else int(steps)
        return [self.start + timedelta(seconds=self.step_s * (index + 1)) for index in range(count)]


def choose_range(loaded: Loaded, start: datetime, end: datetime) -> Range:
    """A step that keeps at most 360 points; two collections long, so that jitter makes no gaps, and
    as long as what is still stored of the start: only the newest windows slide."""
    span = max(1.0, (end - start).total_seconds())
    age = loaded.now - start
    least = max(2 * loaded.defaults.collect_interval_s, telemetry.least_step_s(age))
    if age > telemetry.SLIDING:
        least = max(least, loaded.defaults.window_s)
    step = next((s for s in STEPS if s >= least and span / s <= 360), STEPS[-1])
    edge = start.timestamp() - start.timestamp() % step
    aligned = start - timedelta(seconds=start.timestamp() - edge)
    return Range(aligned, end, float(step))


def sparks(loaded: Loaded, points: int) -> dict[str, tuple[float | None, ...]]:
    """The sparklines of the six figures; `points` steps of two collections."""
    step = 2 * loaded.defaults.collect_interval_s
    end = loaded.as_of or loaded.now
    start = end - timedelta(seconds=step * points)
    # Latencies and output are nowhere counted at the prefill pool.
    rows = telemetry.series(loaded.deployment, start, end, step, without=("prefill",))
    evaluations = planning.newest_evaluations(loaded.deployment, start, loaded.now, points)
    return {
        "ttft": tuple(row.ttft_p95 for row in rows),
        "tpot": tuple(row.tpot_p95 for row in rows),
        "output": tuple(row.output_tokens_per_s for row in rows),
        "good": tuple(_number(e.goodput.get("rate")) for e in evaluations),
        "cost": tuple(_number(e.costs.get("good_per_million")) for e in evaluations),
    }


def columns(loaded: Loaded, wanted: Iterable[str], span: Range) -> dict[str, Any]:
    """The answer of the series endpoint (format of design/ui.md §11)."""
    times = span.times[-MAX_POINTS:]
    rows: list[Point] = []
    if times:
        start = times[0] - timedelta(seconds=span.step_s)
        rows = telemetry.series(loaded.deployment, start, times[-1], span.step_s)
    by_time = {row.at: row for row in rows}
    points = [by_time.get(at) for at in times]
    panels: dict[str, Any] = {}
    for name in wanted:
        if name in ("busy", "flow"):
            continue
        panels[name] = _panel(loaded, name, points)
    wanted = set(wanted)
    if wanted & {"busy", "flow"}:
        busy, good = _evaluated(loaded, times, span.step_s)
        if "busy" in wanted:
            panels["busy"] = {"unit": "ratio", "limit": 0.85, "place": "engine", **busy}
        if "flow" in wanted:
            panels["flow"] = {
                "unit": "req/s",
                "place": "router",
                "demand": [None if p is None else _round(p.arrivals_per_s) for p in points],
                "good": good,
            }
    return {
        "as_of": loaded.as_of.isoformat() if loaded.as_of else None,
        "t0": times[0].isoformat() if times else None,
        "step": span.step_s,
        "n": len(times),
        "panels": panels,
        "events": _events(loaded, span, points),
    }


def _panel(loaded: Loaded, name: str, points: list[Point | None]) -> dict[str, Any]:
    if name in ("ttft", "tpot"):
        place = (loaded.brief.ttft_p95 if name == "ttft" else loaded.brief.tpot_p95).place
        return {
            "unit": "s",
            "objective": loaded.thresholds.get(name),
            "place": place.value,
            **{
                quantile: [
                    None if p is None else _round(getattr(p, f"{name}_{quantile}")) for p in points
                ]
                for quantile in ("p50", "p95", "p99")
            },
        }
    if name == "tokens":
        return {
            "unit": "tok/s",
            "place": "engine",
            "input": [None if p is None else _round(p.input_tokens_per_s) for p in points],
            "output": [None if p is None else _round(p.output_tokens_per_s) for p in points],
        }
    return {
        "unit": "count",
        "place": "engine",
        "prefill": [None if p is None else p.prefill.waiting for p in points],
        "decode": [None if p is None else p.decode.waiting for p in points],
    }


def _evaluated(
    loaded: Loaded, times: list[datetime], step_s: float
) -> tuple[dict[str, list[float | None]], list[float | None]]:
    """Busy shares and good requests per step: the newest evaluation of each step."""
    empty: list[float | None] = [None] * len(times)
    busy: dict[str, list[float | None]] = {"prefill": list(empty), "decode": list(empty)}
    good = list(empty)
    if not times:
        return busy, good
    first = times[0] - timedelta(seconds=step_s)
    for row in planning.evaluations_per_step(loaded.deployment, first, times[-1], step_s):
        index = int((row.at - first).total_seconds() // step_s)
        if row.is_stale or not 0 <= index < len(times):
            continue
        busy["prefill"][index] = _round(row.prefill_busy)
        busy["decode"][index] = _round(row.decode_busy)
        good[index] = _round(row.good_per_s)
    return busy, good


def _events(loaded: Loaded, span: Range, points: list[Point | None]) -> list[dict[str, Any]]:
    """Commands, and where bucket bounds changed: percentiles on both sides of such a line are not
    comparable. Oldest first; `label` is a sentence in the reader's language."""
    rows = Command.objects.filter(
        deployment=loaded.deployment, started_at__gte=span.start, started_at__lte=span.end
    )
    commands = [
        {
            "t": row.started_at.isoformat(),
            "kind": "command",
            "id": row.number,
            "changes": changes(row.before, row.targets),
        }
        for row in rows.order_by("started_at")
        if row.started_at is not None
    ]
    ladders = [
        {
            "t": change.at.isoformat(),
            "kind": "ladder_change",
            "latencies": list(change.latencies),
            "label": _sentence(change),
        }
        for change in ladder_changes(points)[-MAX_LADDER_CHANGES:]
    ]
    return sorted([*commands, *ladders], key=lambda event: str(event["t"]))


def _sentence(change: LadderChange) -> str:
    names = {"ttft": "TTFT", "tpot": "TPOT"}
    return _(
        "The bucket bounds of %(latencies)s changed here; percentiles before and after are not "
        "comparable."
    ) % {"latencies": ", ".join(names[name] for name in change.latencies)}


def _number(stored: Any) -> float | None:
    if not isinstance(stored, Mapping) or stored.get("value") is None:
        return None
    return float(stored["value"])


def _round(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.4g}")
