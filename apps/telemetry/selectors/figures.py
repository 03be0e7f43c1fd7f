"""The figures of a deployment from its windows.

A large fleet reads counters and gauges at every tick and histograms more rarely. So there are two
chains of windows that do not overlap: all of them for counters and gauges, and those that have
histograms for latencies; each is judged by its own age.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, Final

from django.db.models import Max, Q

from apps.engines.combine import merge_windows
from apps.engines.window import HistogramIncrease, Signal, Window, hardware_scope
from apps.fleet import selectors as fleet
from apps.fleet.domain.defaults import Defaults
from apps.fleet.domain.topology import Topology
from apps.fleet.models import Deployment

from ..coverage import doubted
from ..domain.build import figures_from_windows, latency_scope
from ..domain.figures import DeploymentFigures
from ..domain.hardware_figures import PARTS, changes_of_faults
from ..domain.levels import FIVE_MINUTES
from ..domain.rollup import to_window
from ..domain.windows import Slot, chain
from ..models import StoredWindow
from .sources import down_scopes
from .windows import load, rolled

_EDGES: Final = ("router", "frontend")


@dataclass(slots=True)
class _Index:
    """The windows of a scope without their payloads: all, and those that have histograms."""

    slots: list[Slot] = field(default_factory=list)
    with_histograms: list[Slot] = field(default_factory=list)

    @property
    def is_mixed(self) -> bool:
        """True if some windows have counters and gauges only (a first tick has nothing else)."""
        whole = sum(1 for slot in self.slots if slot.end > slot.start)
        return 0 < len(self.with_histograms) < whole

    @property
    def every_s(self) -> float:
        """How often histograms come, in seconds, at most a window's length. 0 while only one is
        known: it is then judged by the source's own beat, which is the stricter."""
        newest = sorted(self.with_histograms, key=lambda slot: slot.end)[-2:]
        if len(newest) < 2:
            return 0.0
        older, newer = newest
        apart, length = newer.end - older.end, newer.end - newer.start
        return min(apart, length).total_seconds()


class _Windows:
    """Windows of a deployment by key, each read once; negative keys are roll-ups."""

    def __init__(self) -> None:
        self._known: dict[int, Window] = {}

    def add(self, window: Window) -> int:
        key = -1 - len(self._known)
        self._known[key] = window
        return key

    def fetch(self, slots: Sequence[Slot]) -> None:
        self._known |= load({slot.key for slot in slots} - self._known.keys())

    def of(self, slots: Sequence[Slot]) -> list[Window]:
        return [self._known[slot.key] for slot in slots]


def figures(
    deployment: Deployment, now: datetime, topology: Topology | None = None
) -> DeploymentFigures:
    """The figures of now: the diagnosis window, and for percentiles one that grows until it holds
    enough requests (§4a). What is old keeps its last value and says so. `topology` is read where
    the caller has not read it."""
    defaults = fleet.defaults_for(deployment)
    return _figures(
        deployment,
        end=now,
        now=now,
        span_s=defaults.diagnosis_window_s,
        grow_to_s=defaults.percentile_max_window_s,
        defaults=defaults,
        down=down_scopes([deployment.pk]).get(deployment.pk, frozenset()),
        topology=topology,
    )


def figures_over(deployment: Deployment, end: datetime, span_s: float) -> DeploymentFigures:
    """The figures over the `span_s` seconds that end at the newest window not after `end`; ages
    are judged as of `end`, so that history can be replayed. What is older than the windows are
    kept comes from the 5 min slots, at their ends."""
    return _figures(
        deployment,
        end=end,
        now=end,
        span_s=span_s,
        grow_to_s=span_s,
        defaults=fleet.defaults_for(deployment),
        down=frozenset(),
        is_history=True,
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
    topology: Topology | None = None,
    is_history: bool = False,
) -> DeploymentFigures:
    topology = topology or fleet.topology(deployment)
    roles = {*topology.pools, *(worker.role for worker in topology.workers)}
    known = {*roles, *_EDGES, *(hardware_scope(role, part) for role in roles for part in PARTS)}
    # A fault code that changed in the oldest window is seen against the one before it.
    before_s = 1.5 * defaults.window_s
    rows = StoredWindow.objects.filter(deployment=deployment, end__lte=end)
    reach_s = max(span_s + before_s, grow_to_s)
    index = {s: f for s, f in _index(rows, reach_s).items() if s in known}
    windows = _Windows()
    if is_history:
        _reach_back(deployment, end, span_s, index, known, windows)
    chains = {s: chain(found.slots, end=end, span_s=span_s) for s, found in index.items()}
    measured = {
        scope: chain(found.with_histograms, end=end, span_s=span_s)
        for scope, found in index.items()
        if found.is_mixed
    }
    coded = {
        scope: chain(found.slots, end=end, span_s=span_s + before_s)
        for scope, found in index.items()
        if scope.endswith("/device")
    }
    wanted = (*chains.values(), *measured.values(), *coded.values())
    windows.fetch([slot for slots in wanted for slot in slots])
    merged = {s: merge_windows(windows.of(slots)) for s, slots in chains.items() if slots}
    histograms = {
        scope: _only(merge_windows(windows.of(slots)), histograms=True)
        for scope, slots in measured.items()
        if slots
    }
    for scope in histograms:
        merged[scope] = _only(merged[scope], histograms=False)
    both = {**merged, **{scope: _both(merged[scope], h) for scope, h in histograms.items()}}
    made = figures_from_windows(
        merged.get("router"),
        {scope: window for scope, window in merged.items() if scope not in _EDGES},
        topology,
        now,
        defaults,
        frontend=merged.get("frontend"),
        fault_changes={
            scope: changes_of_faults(windows.of(slots)) for scope, slots in coded.items()
        },
        grown=_grown(
            {**merged, **histograms},
            index,
            end,
            grow_to_s,
            defaults.percentile_min_requests,
            windows,
        ),
        down_scopes=down,
        histograms={scope: (window, index[scope].every_s) for scope, window in histograms.items()},
    )
    return doubted(made, deployment, both, end)


def _both(window: Window, histograms: Window) -> Window:
    """A window with the histograms of the other chain, to be checked as a whole."""
    return replace(window, values={**window.values, **histograms.values})


def _only(window: Window, *, histograms: bool) -> Window:
    values = {
        signal: value
        for signal, value in window.values.items()
        if isinstance(value, HistogramIncrease) is histograms
    }
    return replace(window, values=values)


def _grown(
    merged: Mapping[str, Window],
    index: Mapping[str, _Index],
    end: datetime,
    grow_to_s: float,
    minimum: int,
    windows: _Windows,
) -> dict[Signal, Window]:
    """For TTFT and TPOT, the shortest longer window that holds `minimum` requests, else the
    longest there is; nothing where the present one suffices."""
    wanted: dict[Signal, tuple[Slot, ...]] = {}
    for signal in (Signal.TTFT, Signal.TPOT, Signal.ITL):
        scope = latency_scope(merged, signal)
        if scope is None or _count(merged[scope], signal) >= minimum:
            continue
        found = index[scope]
        slots = found.with_histograms if found.is_mixed else found.slots
        longer = chain(slots, end=end, span_s=grow_to_s)
        if len(longer) > 1:
            wanted[signal] = longer
    windows.fetch([slot for slots in wanted.values() for slot in slots])
    grown: dict[Signal, Window] = {}
    for signal, longer in wanted.items():
        taken: list[Window] = []
        total = 0.0
        for window in windows.of(longer):
            taken.append(window)
            total += _count(window, signal)
            if total >= minimum:
                break
        grown[signal] = merge_windows(taken)
    return grown


def _count(window: Window, signal: Signal) -> float:
    value = window.values.get(signal)
    return value.count if isinstance(value, HistogramIncrease) else 0.0


def _index(rows: Any, span_s: float) -> dict[str, _Index]:
    """Per scope, the windows that reach back `span_s` from that scope's own newest one (2
    queries): a scope that went silent still shows its last figures, however old."""
    rows = rows.order_by()
    newest = rows.values("scope").annotate(newest=Max("end")).values_list("scope", "newest")
    ranges = Q(pk__in=[])
    for scope, last in newest:
        ranges |= Q(scope=scope, end__gt=last - timedelta(seconds=span_s))
    found: dict[str, _Index] = {}
    names = ("scope", "has_histograms", "pk", "start", "end")
    for scope, has_histograms, *slot in rows.filter(ranges).values_list(*names):
        mine = found.setdefault(scope, _Index())
        mine.slots.append(Slot(*slot))
        if has_histograms and slot[2] > slot[1]:
            mine.with_histograms.append(mine.slots[-1])
    return found


def _reach_back(
    deployment: Deployment,
    end: datetime,
    span_s: float,
    index: dict[str, _Index],
    known: set[str],
    windows: _Windows,
) -> None:
    """Add 5 min slots where the windows do not reach back far enough."""
    start = end - timedelta(seconds=span_s)
    slack = timedelta(seconds=FIVE_MINUTES.slot_s)
    first = min((slot.start for found in index.values() for slot in found.slots), default=end)
    if first <= start + slack:
        return
    for scope, slots in rolled(FIVE_MINUTES, deployment, [(start, end)]).items():
        if scope not in known:
            continue
        mine = index.setdefault(scope, _Index())
        earliest = min((slot.start for slot in mine.slots), default=end)
        reached: datetime | None = None
        for slot in slots:
            if slot.end <= earliest:
                window = to_window(slot, scope)
                # Where counters and histograms tile apart, the first part of one use may start
                # before the last part of the other ends; what is covered is counted already.
                window = replace(window, start=max(window.start, reached or window.start))
                reached = window.end
                mine.slots.append(Slot(windows.add(window), window.start, window.end))
                mine.with_histograms.append(mine.slots[-1])
