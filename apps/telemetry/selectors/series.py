"""Points of charts: each range from the coarsest level that answers its step, and what that level
does not hold yet from the finer ones below it."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime, timedelta
from math import ceil

from apps.fleet.models import Deployment

from ..domain.columns import Columns
from ..domain.levels import BY_NAME, RAW, Level, level_for
from ..domain.series import Point, points
from ..domain.windows import Slot, chain
from ..models import StoredWindow
from .windows import decoded


def series(
    deployment: Deployment,
    start: datetime,
    end: datetime,
    step_s: float,
    *,
    without: Collection[str] = (),
) -> list[Point]:
    """One point per step, at `start + step, ..., end`; a step without a window is a point of
    gaps. Steps shorter than the stored windows show the newest window that ends in them. Two
    queries for windows, and one for each level above them that the step allows. What only scopes in
    `without` have is not read."""
    if step_s <= 0 or end <= start:
        return []
    steps = int((end - start).total_seconds() // step_s)
    times = [start + timedelta(seconds=step_s * (index + 1)) for index in range(steps)]
    if not times:
        return []
    scopes: dict[str, Columns] = {}
    since = start
    level = level_for(step_s)
    while level is not RAW:
        since = _add_blocks(scopes, level, deployment, since, times[-1], without)
        level = BY_NAME[level.below]
    if since < times[-1]:
        _add_windows(scopes, deployment, since, times, step_s, without)
    return points(times, step_s, scopes)


def _add_blocks(
    scopes: dict[str, Columns],
    level: Level,
    deployment: Deployment,
    since: datetime,
    until: datetime,
    without: Collection[str],
) -> datetime:
    """Add the slots of a level that end in `(since, until]`; returns where its newest one ends."""
    if since >= until:
        return since
    newest = since.timestamp()
    for scope, block in decoded(level, deployment, [(since, until)], without):
        columns = scopes.setdefault(scope, Columns())
        columns.add_block(block, since.timestamp(), until.timestamp())
        if columns.ends:
            newest = max(newest, columns.ends[-1])
    # A slot is complete for every scope that reported in it: the finer level goes on after it.
    return since if newest <= since.timestamp() else _edge(level, since, newest)


def _edge(level: Level, since: datetime, newest: float) -> datetime:
    slot_end = newest + (-newest) % level.slot_s
    return since + timedelta(seconds=slot_end - since.timestamp())


def _add_windows(
    scopes: dict[str, Columns],
    deployment: Deployment,
    since: datetime,
    times: list[datetime],
    step_s: float,
    without: Collection[str],
) -> None:
    rows = StoredWindow.objects.filter(deployment=deployment, end__gt=since, end__lte=times[-1])
    rows = rows.exclude(scope__contains="/").exclude(scope__in=without)
    slots: dict[tuple[int, str, bool], list[Slot]] = {}
    first = times[0] - timedelta(seconds=step_s)
    names = ("scope", "has_histograms", "pk", "start", "end")
    for scope, has_histograms, *row in rows.values_list(*names):
        slot = Slot(*row)
        step = ceil((slot.end - first).total_seconds() / step_s - 1e-9)
        slots.setdefault((step, scope, False), []).append(slot)
        if has_histograms:
            slots.setdefault((step, scope, True), []).append(slot)
    uses: dict[int, set[bool]] = {}
    for (step, _, kind), found in slots.items():
        at = first + timedelta(seconds=step_s * step)
        for slot in chain(found, end=at, span_s=step_s):
            uses.setdefault(slot.key, set()).add(kind)
    if not uses:
        return
    picked = StoredWindow.objects.filter(pk__in=list(uses)).order_by("end")
    for key, scope, begin, end, payload in picked.values_list(
        "pk", "scope", "start", "end", "payload"
    ):
        scopes.setdefault(scope, Columns()).add_payload(
            begin, end, payload, counters=False in uses[key], histograms=True in uses[key]
        )
