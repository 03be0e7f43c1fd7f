"""Reads about the telemetry itself: what is found, what is missing, what cannot be true."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

from django.core.exceptions import ObjectDoesNotExist
from django.db.models import Max, Q

from apps.backends.errors import BadConnection, UnknownAdapter
from apps.common.secretbox import SecretUnreadable
from apps.engines import loader
from apps.engines.codec import window_from_json
from apps.engines.window import HistogramIncrease, Signal, SignalValue, Window
from apps.fleet import connect
from apps.fleet import selectors as fleet
from apps.fleet.domain.topology import Topology
from apps.fleet.models import Deployment

from .domain import credibility, roles
from .domain.coverage import CoverageReport
from .domain.coverage_facts import (
    BackendFacts,
    CoverageFacts,
    RoleFinding,
    SignalCoverage,
    TargetFacts,
)
from .domain.coverage_report import report as report_of
from .domain.credibility import Finding, Severity
from .domain.figures import DeploymentFigures
from .domain.observed import Observed
from .domain.windows import Slot, chain
from .models import FindingKind, StoredFinding, StoredWindow, Target, TargetScope

__all__ = [
    "Look",
    "SignalCoverage",
    "checked_deployments",
    "doubted",
    "findings_at",
    "look",
    "recent_windows",
    "report",
    "role_findings",
    "signals",
]

#: Windows that the checks over time look back on.
CHECKED_WINDOWS: Final = 5
#: Seconds within which a histogram is looked for behind a window that has none.
LOOK_BACK_S: Final = 120.0
#: A backend that was not observed for this many of its intervals cannot be commanded now.
FRESH_OBSERVATIONS: Final = 4
_SIGNALS: Final = frozenset(signal.value for signal in Signal)
#: How long a finding stands without a check that repeats it.
STANDS_FOR: Final = timedelta(minutes=15)


def recent_windows(
    deployment: Deployment, now: datetime, *, with_histograms: bool = False
) -> dict[str, list[Window]]:
    """The last windows of each scope that do not overlap, oldest first; none of a scope that is
    not fresh (2 queries). `with_histograms`: where some windows of a scope hold histograms (they
    may be read more rarely than counters), only those."""
    defaults = fleet.defaults_for(deployment)
    span_s = CHECKED_WINDOWS * defaults.window_s
    oldest = now - timedelta(seconds=span_s + 2 * defaults.window_s)
    fresh = now - timedelta(seconds=defaults.gone_intervals * defaults.collect_interval_s)
    slots: dict[str, list[Slot]] = {}
    rows = StoredWindow.objects.filter(deployment=deployment, end__gt=oldest, end__lte=now)
    names = ("scope", "has_histograms", "pk", "start", "end")
    measured: dict[str, list[Slot]] = {}
    for scope, has_histograms, *row in rows.values_list(*names):
        slot = Slot(*row)
        if slot.end > slot.start:
            slots.setdefault(scope, []).append(slot)
            if has_histograms and with_histograms:
                measured.setdefault(scope, []).append(slot)
    slots |= measured
    picked = {
        scope: chain(found, end=now, span_s=span_s)
        for scope, found in slots.items()
        if max(slot.end for slot in found) >= fresh
    }
    loaded = _windows([slot.key for found in picked.values() for slot in found])
    return {
        scope: [loaded[slot.key] for slot in reversed(found)] for scope, found in picked.items()
    }


def checked_deployments() -> list[UUID]:
    """Living deployments with a target, whose telemetry is checked."""
    rows = Deployment.objects.filter(ended_at__isnull=True, targets__is_active=True)
    return list(rows.order_by("pk").values_list("pk", flat=True).distinct())


def _windows(keys: Sequence[int]) -> dict[int, Window]:
    if not keys:
        return {}
    return {row.pk: _window(row) for row in StoredWindow.objects.filter(pk__in=keys)}


def _newest(deployment: Deployment, now: datetime | None = None) -> dict[str, Window]:
    """The newest window of each scope; where it has no histograms (they may be read less often
    than counters), with those of the newest before it that has some (2 queries, else 3)."""
    rows = StoredWindow.objects.filter(deployment=deployment).order_by()
    if now is not None:
        rows = rows.filter(end__lte=now)
    ends = dict(rows.values("scope").annotate(newest=Max("end")).values_list("scope", "newest"))
    wanted, before = Q(pk__in=[]), Q(pk__in=[])
    for scope, end in ends.items():
        wanted |= Q(scope=scope, end=end)
    newest = {row.scope: _window(row) for row in rows.filter(wanted)}
    bare = [s for s, window in newest.items() if "/" not in s and not _histograms(window)]
    for scope in bare:
        end = ends[scope]
        before |= Q(scope=scope, end__lt=end, end__gte=end - timedelta(seconds=LOOK_BACK_S))
    if bare:
        for row in rows.filter(before).order_by("end"):
            found = _histograms(_window(row))
            if found:
                known = newest[row.scope]
                newest[row.scope] = replace(known, values={**known.values, **found})
    return newest


def _window(row: StoredWindow) -> Window:
    return window_from_json(row.payload, scope=row.scope, start=row.start, end=row.end)


def _histograms(window: Window) -> dict[Signal, SignalValue]:
    return {
        signal: value
        for signal, value in window.values.items()
        if isinstance(value, HistogramIncrease)
    }


def findings_at(deployment: Deployment, at: datetime) -> list[StoredFinding]:
    """What was found wrong and not over at a time (1 query)."""
    rows = StoredFinding.objects.filter(deployment=deployment, since__lte=at)
    return list(rows.filter(Q(ended_at__isnull=True) | Q(ended_at__gt=at)))


def _credibility(rows: Sequence[StoredFinding], at: datetime) -> list[Finding]:
    """Findings that a check still stood by: if checks stop, they may not doubt figures for ever."""
    return [
        Finding(
            row.code, Severity(row.severity), row.scope, Signal(row.signal), row.worker,
            row.params, row.voids,
        )
        for row in rows
        if row.kind == FindingKind.CREDIBILITY
        and row.signal in _SIGNALS
        and at - row.seen_at <= STANDS_FOR
    ]  # fmt: skip


def _lasting(rows: Sequence[StoredFinding], now: datetime) -> list[RoleFinding]:
    return [
        RoleFinding(row.code, row.worker, row.since, row.params)
        for row in rows
        if row.kind == FindingKind.ROLE and roles.lasting(row.since, now)
    ]


def role_findings(deployment: Deployment, now: datetime) -> list[RoleFinding]:
    """Disagreements about roles that have lasted long enough to tell (1 query)."""
    return _lasting(findings_at(deployment, now), now)


def doubted(
    figures: DeploymentFigures,
    deployment: Deployment,
    windows: Mapping[str, Window],
    at: datetime,
) -> DeploymentFigures:
    """The figures with those that cannot be true in state `conflict`: by their own windows, and by
    what the checks over time had found at `at` (1 query)."""
    stored = _credibility(findings_at(deployment, at), at)
    return credibility.apply(figures, [*credibility.instant(windows), *stored])


def signals(deployment: Deployment) -> tuple[SignalCoverage, ...]:
    """Signals per scope of the deployment's targets, by metric name."""
    return _signals(_targets(deployment), _newest(deployment))


def _targets(deployment: Deployment) -> list[Target]:
    rows = Target.objects.filter(deployment=deployment, is_active=True)
    return list(rows.select_related("worker", "source"))


def _scope_of(target: Target) -> str:
    if target.scope == TargetScope.ENGINE and target.worker is not None:
        return target.worker.role
    return target.scope


def _signals(targets: Sequence[Target], newest: Mapping[str, Window]) -> tuple[SignalCoverage, ...]:
    profiles: dict[str, str] = {}
    for target in targets:
        profiles.setdefault(_scope_of(target), target.profile)
    found: list[SignalCoverage] = []
    for scope, name in sorted(profiles.items()):
        profile = loader.load(name)
        window = newest.get(scope)
        for signal in Signal:
            if window is not None and signal in window.values:
                state, metric, reason = "found", window.names.get(signal, ""), ""
            elif profile.rows(signal, scope):
                state, metric, reason = "missing", "", ""
            else:
                reason = profile.absent.get(signal, "not read in this role")
                state, metric = "absent", ""
            found.append(SignalCoverage(scope, name, signal.value, state, metric, reason))
    return tuple(found)


@dataclass(frozen=True, slots=True)
class Look:
    """A coverage report with the signals under it."""

    signals: tuple[SignalCoverage, ...]
    report: CoverageReport


def report(
    deployment: Deployment, now: datetime, thresholds: Mapping[str, float] | None = None
) -> CoverageReport:
    """Levels, lines, effects and fixes. `thresholds` are the objectives in seconds by `ttft` and
    `tpot` (they live in a room above)."""
    return look(deployment, now, thresholds).report


def look(
    deployment: Deployment,
    now: datetime,
    thresholds: Mapping[str, float] | None = None,
    topology: Topology | None = None,
) -> Look:
    """The report and its signals (4 queries beside the topology's)."""
    topology = topology or fleet.topology(deployment)
    targets = _targets(deployment)
    newest = _newest(deployment, now)
    stored = findings_at(deployment, now)
    found = _signals(targets, newest)
    made = report_of(
        CoverageFacts(
            topology=topology,
            now=now,
            interval_s=fleet.defaults_for(deployment).collect_interval_s,
            signals=found,
            targets=[_facts(target) for target in targets],
            windows=newest,
            thresholds=dict(thresholds or {}),
            findings=[*credibility.instant(newest), *_credibility(stored, now)],
            role_findings=_lasting(stored, now),
            backend=_backend(deployment, now),
        )
    )
    return Look(found, made)


def _facts(target: Target) -> TargetFacts:
    return TargetFacts(
        scope=_scope_of(target),
        profile=target.profile,
        worker=target.worker.url if target.worker else "",
        is_up=bool(target.last_ok_at) and not target.last_error,
        observed=Observed.from_json(target.observed),
    )


def _backend(deployment: Deployment, now: datetime) -> BackendFacts | None:
    try:
        row = deployment.backend
    except ObjectDoesNotExist:
        return None
    patience = timedelta(seconds=FRESH_OBSERVATIONS * row.observe_interval_s)
    is_fresh = row.last_ok_at is not None and now - row.last_ok_at <= patience
    try:
        able = connect.adapter_for(deployment).capabilities()
    except (BadConnection, UnknownAdapter, SecretUnreadable) as error:
        return BackendFacts(row.adapter, False, True, False, str(error)[:200])
    return BackendFacts(row.adapter, is_fresh, able.can_write, able.dry_run, row.last_error)
