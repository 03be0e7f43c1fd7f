"""Reads of telemetry: figures, series, what is usual, sources (`coverage` reads about itself)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

from django.db.models import Max, Q, QuerySet

from apps.accounts.domain.authorize import Viewer
from apps.engines.codec import window_from_json
from apps.engines.combine import merge_windows
from apps.engines.window import HistogramIncrease, Signal, Window
from apps.fleet import selectors as fleet
from apps.fleet.domain.defaults import Defaults
from apps.fleet.models import Deployment

from .coverage import doubted
from .domain.build import figures_from_windows, latency_scope
from .domain.figures import DeploymentFigures, Usual
from .domain.series import Point, point
from .domain.usual import MINIMUM_WINDOWS, usual_of
from .domain.windows import Slot, chain
from .models import Source, SourceState, StoredWindow, Target, TargetScope

#: Moments that a median rests on; more change it little and cost time.
MOMENTS: Final = 120
_EDGES: Final = ("router", "frontend")


def window_of(row: StoredWindow) -> Window:
    """A stored window as a `Window`."""
    return window_from_json(row.payload, scope=row.scope, start=row.start, end=row.end)


def sources_for(viewer: Viewer) -> QuerySet[Source]:
    """Sources of what the viewer may see: of visible deployments, and of clusters they are in."""
    visible = fleet.deployments_for(viewer)
    return Source.objects.filter(
        Q(deployment__in=visible)
        | Q(deployment__isnull=True, cluster__in=fleet.clusters_for(viewer))
    ).select_related("cluster", "deployment")


def targets_of(deployment: Deployment) -> QuerySet[Target]:
    """The active targets of a deployment."""
    return Target.objects.filter(deployment=deployment, is_active=True).select_related(
        "worker", "source"
    )


def latest_end(deployment: Deployment) -> datetime | None:
    """The end of the newest window, the "as of" of the deployment."""
    found: datetime | None = StoredWindow.objects.filter(deployment=deployment).aggregate(
        newest=Max("end")
    )["newest"]
    return found


def figures(deployment: Deployment, now: datetime) -> DeploymentFigures:
    """The figures of now: the diagnosis window, and for percentiles one that grows until it holds
    enough requests (§4a). What is old keeps its last value and says so."""
    defaults = fleet.defaults_for(deployment)
    return _figures(
        deployment,
        end=now,
        now=now,
        span_s=defaults.diagnosis_window_s,
        grow_to_s=defaults.percentile_max_window_s,
        defaults=defaults,
        down=_down_scopes(deployment),
    )


def figures_over(deployment: Deployment, end: datetime, span_s: float) -> DeploymentFigures:
    """The figures over the `span_s` seconds that end at the newest window not after `end`; ages
    are judged as of `end`, so that history can be replayed."""
    return _figures(
        deployment,
        end=end,
        now=end,
        span_s=span_s,
        grow_to_s=span_s,
        defaults=fleet.defaults_for(deployment),
        down=frozenset(),
    )


def _figures(
    deployment: Deployment,
    *,
    end: datetime,
    now: datetime,
    span_s: float,
    grow_to_s: float,
    defaults: Defaults,
    down: frozenset[str],
) -> DeploymentFigures:
    topology = fleet.topology(deployment)
    known = {*topology.pools, *(worker.role for worker in topology.workers), *_EDGES}
    index = {
        scope: slots
        for scope, slots in _index(deployment, end, max(span_s, grow_to_s)).items()
        if scope in known
    }
    chains = {scope: chain(slots, end=end, span_s=span_s) for scope, slots in index.items()}
    loaded = _load(slot for slots in chains.values() for slot in slots)
    merged = {
        scope: merge_windows(loaded[slot.key] for slot in slots)
        for scope, slots in chains.items()
        if slots
    }
    found = figures_from_windows(
        merged.get("router"),
        {scope: window for scope, window in merged.items() if scope not in _EDGES},
        topology,
        now,
        defaults,
        frontend=merged.get("frontend"),
        grown=_grown(merged, index, end, grow_to_s, defaults.percentile_min_requests),
        down_scopes=down,
    )
    return doubted(found, deployment, merged, end)


def _grown(
    merged: Mapping[str, Window],
    index: Mapping[str, Sequence[Slot]],
    end: datetime,
    grow_to_s: float,
    minimum: int,
) -> dict[Signal, Window]:
    """For TTFT and TPOT, the shortest longer window that holds `minimum` requests, else the
    longest there is; nothing where the present one suffices."""
    wanted: dict[Signal, tuple[Slot, ...]] = {}
    for signal in (Signal.TTFT, Signal.TPOT, Signal.ITL):
        scope = latency_scope(merged, signal)
        if scope is None or _count(merged[scope], signal) >= minimum:
            continue
        longer = chain(index[scope], end=end, span_s=grow_to_s)
        if len(longer) > 1:
            wanted[signal] = longer
    loaded = _load(slot for slots in wanted.values() for slot in slots)
    found: dict[Signal, Window] = {}
    for signal, slots in wanted.items():
        taken: list[Window] = []
        total = 0.0
        for slot in slots:
            taken.append(loaded[slot.key])
            total += _count(loaded[slot.key], signal)
            if total >= minimum:
                break
        found[signal] = merge_windows(taken)
    return found


def _count(window: Window, signal: Signal) -> float:
    value = window.values.get(signal)
    return value.count if isinstance(value, HistogramIncrease) else 0.0


def _index(deployment: Deployment, end: datetime, span_s: float) -> dict[str, list[Slot]]:
    """Per scope, the windows that reach back `span_s` from that scope's own newest one (2
    queries): a scope that went silent still shows its last figures, however old."""
    rows = StoredWindow.objects.filter(deployment=deployment, end__lte=end).order_by()
    newest = rows.values("scope").annotate(newest=Max("end")).values_list("scope", "newest")
    ranges = Q(pk__in=[])
    for scope, last in newest:
        ranges |= Q(scope=scope, end__gt=last - timedelta(seconds=span_s))
    found: dict[str, list[Slot]] = {}
    for key, scope, start, stop in rows.filter(ranges).values_list("pk", "scope", "start", "end"):
        found.setdefault(scope, []).append(Slot(key, start, stop))
    return found


def _load(slots: Iterable[Slot]) -> dict[int, Window]:
    keys = [slot.key for slot in slots]
    if not keys:
        return {}
    return {row.pk: window_of(row) for row in StoredWindow.objects.filter(pk__in=keys)}


def _down_scopes(deployment: Deployment) -> frozenset[str]:
    """Scopes none of whose targets answered the last collect."""
    alive: dict[str, bool] = {}
    for target in targets_of(deployment):
        scope = target.scope
        if scope == TargetScope.ENGINE:
            scope = target.worker.role if target.worker else ""
        works = not target.last_error and target.source.state != SourceState.DOWN
        alive[scope] = alive.get(scope, False) or works
    return frozenset(scope for scope, works in alive.items() if not works)


def series(deployment: Deployment, start: datetime, end: datetime, step_s: float) -> list[Point]:
    """One point per step, at `start + step, ..., end`; a step without a window is a point of
    gaps. Steps shorter than the stored windows show the newest window that ends in them. Two
    queries."""
    if step_s <= 0 or end <= start:
        return []
    slots: dict[str, list[Slot]] = {}
    rows = StoredWindow.objects.filter(deployment=deployment, end__gt=start, end__lte=end)
    for key, scope, begin, stop in rows.values_list("pk", "scope", "start", "end"):
        slots.setdefault(scope, []).append(Slot(key, begin, stop))
    steps = int((end - start).total_seconds() // step_s)
    times = [start + timedelta(seconds=step_s * (index + 1)) for index in range(steps)]
    picked: list[dict[str, tuple[Slot, ...]]] = []
    for at in times:
        begin = at - timedelta(seconds=step_s)
        inside = {
            scope: [slot for slot in found if begin < slot.end <= at]
            for scope, found in slots.items()
        }
        picked.append(
            {scope: chain(found, end=at, span_s=step_s) for scope, found in inside.items() if found}
        )
    loaded = _load(slot for chains in picked for found in chains.values() for slot in found)
    return [
        point(
            at,
            {s: merge_windows(loaded[slot.key] for slot in found) for s, found in chains.items()},
        )
        for at, chains in zip(times, picked, strict=True)
    ]


def usual(deployment: Deployment, now: datetime) -> Usual:
    """Medians of the same hour of the last four weeks; with less history of the last 24 hours, or
    since the start, without the last five minutes (which are what is compared)."""
    week, half = timedelta(days=7), timedelta(minutes=30)
    same_hour = Q(pk__in=[])
    for weeks in range(1, 5):
        middle = now - weeks * week
        same_hour |= Q(end__gt=middle - half, end__lte=middle + half)
    rows = StoredWindow.objects.filter(deployment=deployment)
    found = _ends(rows.filter(same_hour))
    if len(found) >= MINIMUM_WINDOWS:
        return usual_of("same_hour_4_weeks", _moments(rows, found))
    recent = now - timedelta(minutes=5)
    day = now - timedelta(hours=24)
    basis = "last_24_h" if rows.filter(end__lte=day).exists() else "since_start"
    found = _ends(rows.filter(end__gt=day, end__lte=recent))
    return usual_of(basis, _moments(rows, found))


def _ends(rows: QuerySet[StoredWindow]) -> list[datetime]:
    """At most `MOMENTS` evenly spaced window ends."""
    ends = list(rows.order_by("end").values_list("end", flat=True).distinct())
    if len(ends) <= MOMENTS:
        return ends
    return [ends[index * len(ends) // MOMENTS] for index in range(MOMENTS)]


def _moments(rows: QuerySet[StoredWindow], ends: Sequence[datetime]) -> list[dict[str, Window]]:
    by_end: dict[datetime, dict[str, Window]] = {}
    for row in rows.filter(end__in=ends):
        if row.end > row.start:
            by_end.setdefault(row.end, {})[row.scope] = window_of(row)
    return list(by_end.values())
