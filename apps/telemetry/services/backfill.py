"""Filling what an outage of ours left open, from the history of a Prometheus.

The same interval collected twice gives the same rows, so a run may stop anywhere and a doubled one
changes nothing. A run is bounded; the next one goes on.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

from django.core.cache import cache

from apps.common.secretbox import SecretUnreadable
from apps.engines.window import Window

from ..domain.gaps import Piece, gaps, pieces
from ..models import LatestFigures, Source, SourceKind, SourceState, StoredWindow
from . import through_prometheus
from .collect import headers_of, ticks_of
from .store import has_histograms, store_windows
from .tick import DeploymentTick

log = logging.getLogger(__name__)

#: How far back a run looks (seconds), and how many windows it collects.
LOOK_BACK_S: Final = 24 * 3600
PIECES_PER_RUN: Final = 40
DEADLINE_S: Final = 20.0
#: Late samples are looked for in windows that ended so long ago (seconds), once per window.
LATE_FROM_S: Final = 60
LATE_TO_S: Final = 600
LATE_PER_RUN: Final = 2
#: How a window that was collected again says so (its trace); it is never collected a third time.
AGAIN: Final = "; collected again"
#: Deployments whose windows show when the source was collected; an outage of ours hits all.
_WITNESSES: Final = 5


@dataclass(frozen=True, slots=True)
class BackfillResult:
    """`filled` intervals and the windows stored for them, `corrected` ones, and what is left."""

    filled: int = 0
    windows: int = 0
    corrected: int = 0
    left: int = 0
    error: str = ""


def backfill_due(*, now: datetime) -> dict[UUID, BackfillResult]:
    """Every Prometheus that works: fill its gaps, correct its late windows."""
    working = Source.objects.filter(kind=SourceKind.PROMETHEUS, state=SourceState.OK)
    return {
        source.pk: backfill_source(source_id=source.pk, now=now, again=False)
        for source in working.order_by("created_at")
    }


def backfill_source(
    *,
    source_id: UUID | str,
    now: datetime,
    since: datetime | None = None,
    limit: int = PIECES_PER_RUN,
    again: bool = True,
) -> BackfillResult:
    """Collect what is missing after `since` (default: a day ago), oldest first, at most `limit`
    windows. A direct scrape has no history: nothing to do. `again` also asks for intervals that
    brought nothing within the last hour (the Prometheus was away as well)."""
    source = Source.objects.select_related("cluster", "deployment").get(pk=source_id)
    if source.kind != SourceKind.PROMETHEUS:
        return BackfillResult()
    since = since or now - timedelta(seconds=LOOK_BACK_S)
    try:
        headers = headers_of(source)
    except SecretUnreadable as error:
        return BackfillResult(error=str(error))
    present = ticks_of(source, now)
    missing = _missing(source, present, now, since)
    if not again:
        missing = [piece for piece in missing if cache.get(_tried(source, piece)) is None]
    filled = windows = 0
    for piece in missing[:limit]:
        ticks = _ticks_at(source, piece.end)
        collected = through_prometheus.collect(
            source, ticks, headers, DEADLINE_S, start=piece.start
        )
        if collected.error:
            log.warning("back-fill of source %s stopped: %s", source.pk, collected.error)
            return BackfillResult(filled, windows, 0, len(missing) - filled, collected.error)
        store_windows(collected.windows)
        cache.set(_tried(source, piece), 1, 3600)
        filled += 1
        windows += len(collected.windows)
    corrected = _correct(source, present, headers, now) if len(missing) <= limit else 0
    return BackfillResult(filled, windows, corrected, len(missing) - filled)


def _tried(source: Source, piece: Piece) -> str:
    return f"telemetry.backfill.{source.pk}.{piece.start.timestamp()}.{piece.end.timestamp()}"


def _looked(source: Source, end: datetime) -> str:
    return f"telemetry.late.{source.pk}.{end.timestamp()}"


def _ticks_at(source: Source, end: datetime) -> list[DeploymentTick]:
    """The deployments as of a window's end; its tick was later by the source's delay."""
    delay = timedelta(seconds=float(source.parameters.get("delay_s", 0)))
    return ticks_of(source, end + delay)


def _missing(
    source: Source, present: list[DeploymentTick], now: datetime, since: datetime
) -> list[Piece]:
    # Those whose windows are newest: one that serves nobody would show a gap, or nothing at all.
    latest = LatestFigures.objects.filter(deployment__in=[tick.deployment.pk for tick in present])
    witnesses = list(latest.order_by("-newest_end", "pk").values_list("pk", flat=True)[:_WITNESSES])
    rows = StoredWindow.objects.filter(
        deployment__in=witnesses, end__gt=since - timedelta(hours=1), end__lte=now
    )
    covered = list(rows.order_by().values_list("start", "end").distinct())
    window_s = max((tick.defaults.window_s for tick in present), default=60.0)
    holes = gaps(covered, since=since, tolerance_s=1.5 * source.interval_s)
    return [piece for hole in holes for piece in pieces(hole, window_s)]


def _correct(
    source: Source, present: list[DeploymentTick], headers: Mapping[str, str], now: datetime
) -> int:
    """Windows in which somebody was missing whose samples have come since, each once. One query
    (`up` as of then) tells whether they came."""
    rows = StoredWindow.objects.filter(
        deployment__in=[tick.deployment.pk for tick in present],
        end__gt=now - timedelta(seconds=LATE_TO_S),
        end__lte=now - timedelta(seconds=LATE_FROM_S),
    )
    # Hardware is not collected again, and who reported there is not counted by `up`.
    rows = rows.exclude(scope__contains="/").order_by("end")
    seen: dict[datetime, tuple[int, int]] = {}
    closed: set[datetime] = set()
    for end, trace, expected, reported in rows.values_list(
        "end", "payload__s", "expected_count", "reported_count"
    ):
        if AGAIN in str(trace):
            closed.add(end)
        wanted, had = seen.get(end, (0, 0))
        seen[end] = (wanted + expected, had + reported)
    incomplete = [
        end
        for end, (wanted, had) in seen.items()
        if had < wanted and end not in closed and cache.get(_looked(source, end)) is None
    ]
    corrected = 0
    for end in incomplete[:LATE_PER_RUN]:
        ticks = _ticks_at(source, end)
        if through_prometheus.answering(source, ticks, headers, DEADLINE_S) <= seen[end][1]:
            continue
        collected = through_prometheus.collect(source, ticks, headers, DEADLINE_S, trace=AGAIN)
        # Also where it brought nothing better (a worker that is up but not expected).
        cache.set(_looked(source, end), 1, LATE_TO_S)
        better = [item for item in collected.windows if _is_better(*item)]
        store_windows(better)
        corrected += bool(better)
    return corrected


def _is_better(deployment_id: UUID, window: Window) -> bool:
    known = StoredWindow.objects.filter(
        deployment=deployment_id, scope=window.scope, end=window.end
    ).first()
    if known is None:
        return True
    if known.has_histograms and not has_histograms(window):
        return False
    return len(set(window.expected) & set(window.reported)) > known.reported_count
