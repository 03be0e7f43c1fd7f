"""One collect of a source: read all its targets, store samples and windows, wake the planner."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Final
from uuid import UUID

from celery import current_app
from django.db import transaction
from django.db.models import Q
from kombu.exceptions import OperationalError

from apps.common import leases
from apps.common.secretbox import SecretUnreadable
from apps.fleet import connect
from apps.fleet import selectors as fleet
from apps.fleet.models import Deployment

from ..models import Source, SourceKind, SourceState, Target
from . import hardware, through_prometheus, through_scrape
from .sources import bound_to, sync_all
from .store import store_samples, store_windows
from .tick import Collected, DeploymentTick, prepare_all

log = logging.getLogger(__name__)

#: Longest a collect may take, whatever the interval.
DEADLINE_S: Final = 10.0
#: One server answers for all: a Prometheus may take longer, hardware comes after it, and a large
#: fleet takes seconds to be read. The lease covers all of it, or the next tick would take it over
#: each time and none would be stored.
PROMETHEUS_DEADLINE_S: Final = 25.0
LEASE_S: Final = 45.0
#: The task that is woken by name: `planning` lies above this room.
WAKES: Final = "planning.evaluate_deployment"


@dataclass(frozen=True, slots=True)
class CollectResult:
    """What one collect brought. `at` is the tick: the end of its windows."""

    at: datetime
    targets: int
    answered: int
    windows: int
    error: str = ""
    requests: int = 0


def claim_due_sources(now: datetime) -> list[UUID]:
    """Sources that are due, each claimed by moving its due time with a conditional UPDATE, so that
    two dispatchers never both enqueue one tick."""
    living = Source.objects.filter(
        Q(deployment__isnull=True) | Q(deployment__ended_at__isnull=True)
    )
    claimed = []
    for source in living.only("pk", "next_due_at", "interval_s"):
        at = source.next_due_at
        if at is not None and at > now and not _is_ahead(source, at, now):
            continue
        same = Source.objects.filter(pk=source.pk, next_due_at=source.next_due_at)
        if source.next_due_at is None:
            same = Source.objects.filter(pk=source.pk, next_due_at__isnull=True)
        if same.update(next_due_at=_next_due(source, now)) == 1:
            claimed.append(source.pk)
    return claimed


def _next_due(source: Source, now: datetime) -> datetime:
    """The next time on the source's own beat, after `now` (a late tick does not shift the beat)."""
    if source.next_due_at is None or _is_ahead(source, source.next_due_at, now):
        return now + timedelta(seconds=source.interval_s)
    passed = max(0.0, (now - source.next_due_at).total_seconds())
    steps = int(passed // source.interval_s) + 1
    return source.next_due_at + timedelta(seconds=steps * source.interval_s)


def _is_ahead(source: Source, at: datetime, now: datetime) -> bool:
    """True if a time of the source lies so far in the future that our own clock must have been
    ahead when it was written (M12): waiting for it would stop the collecting."""
    return (at - now).total_seconds() > 2 * source.interval_s


def collect_source(*, source_id: UUID | str, now: datetime, owner: str) -> CollectResult | None:
    """Collect a source once, under its lease. None when somebody else collects it or when it was
    collected a moment ago (a doubled message). The same `now` twice writes the same rows."""
    rows = Source.objects.all()
    lease = leases.claim(rows, source_id, owner=owner, now=now, ttl_s=LEASE_S)
    if lease is None:
        return None
    try:
        source = Source.objects.select_related("cluster", "deployment").get(pk=source_id)
        if _is_doubled(source, now):
            return None
        with through_prometheus.no_cycle_search():
            return _collect(source, lease, now)
    finally:
        leases.release(rows, lease)


def _is_doubled(source: Source, now: datetime) -> bool:
    if source.last_ok_at is None or source.last_ok_at == now:
        return False
    if _is_ahead(source, source.last_ok_at, now):
        return False
    return (now - source.last_ok_at).total_seconds() < 0.4 * source.interval_s


def _collect(source: Source, lease: leases.Lease, now: datetime) -> CollectResult:
    ticks = ticks_of(source, now)
    deadline_s = min(DEADLINE_S, max(1.0, 0.8 * source.interval_s))
    if source.kind == SourceKind.PROMETHEUS:
        # A tick that takes longer than the interval skips the next.
        deadline_s = min(PROMETHEUS_DEADLINE_S, max(1.0, 1.6 * source.interval_s))
    try:
        headers = headers_of(source)
    except SecretUnreadable as error:
        return _write(source, lease, now, ticks, Collected(error=str(error)))
    if source.kind == SourceKind.PROMETHEUS:
        collected = through_prometheus.collect(source, ticks, headers, deadline_s)
    else:
        collected = through_scrape.collect(source, ticks, deadline_s)
    hardware.add_windows(source, ticks, headers, collected, now)
    return _write(source, lease, now, ticks, collected)


def ticks_of(source: Source, now: datetime) -> list[DeploymentTick]:
    """The deployments of a source at one time; their targets follow the inventory first."""
    deployments = _deployments(source)
    topologies = fleet.topologies(deployments)
    targets = sync_all(source, deployments, topologies)
    return prepare_all(source, deployments, targets, now, topologies)


def _deployments(source: Source) -> list[Deployment]:
    living = Deployment.objects.filter(ended_at__isnull=True).select_related("backend", "cluster")
    if source.deployment_id is not None:
        return list(living.filter(pk=source.deployment_id))
    return list(living.filter(cluster_id=source.cluster_id, source__isnull=True))


def headers_of(source: Source) -> dict[str, str]:
    """The credential of a source as request headers; raises SecretUnreadable."""
    if not source.credential_sealed:
        return {}
    box = connect.secret_box()
    secret = box.open(source.credential_sealed, bound_to=bound_to(source.pk))
    return {"Authorization": f"Bearer {secret}"}


@transaction.atomic
def _write(
    source: Source,
    lease: leases.Lease,
    now: datetime,
    ticks: Sequence[DeploymentTick],
    collected: Collected,
) -> CollectResult:
    """Store a tick, if the lease is still ours (fencing)."""
    leases.assert_held(Source.objects.all(), lease)
    store_samples(collected.readings, now)
    store_windows(collected.windows)
    _note_targets(source, ticks, collected, now)
    total = sum(len(tick.targets) for tick in ticks)
    answered = len(collected.answered)
    failed = collected.error or (
        next(iter(collected.errors.values()), "no target answered")
        if total and not answered
        else ""
    )
    mine = Source.objects.filter(pk=source.pk)
    if failed:
        mine.update(state=SourceState.DOWN, last_error=failed[:200], last_error_at=now)
    else:
        mine.update(state=SourceState.OK, last_ok_at=now, last_error=collected.warning[:200])
        due = Q(next_due_at__isnull=True) | Q(next_due_at__lte=now)
        mine.filter(due).update(next_due_at=_next_due(source, now))
        for deployment_id in {deployment_id for deployment_id, _ in collected.windows}:
            transaction.on_commit(partial(_wake, deployment_id))
    windows = len(collected.windows)
    return CollectResult(collected.at or now, total, answered, windows, failed, collected.requests)


def _note_targets(
    source: Source, ticks: Sequence[DeploymentTick], collected: Collected, now: datetime
) -> None:
    silent = [
        target.pk
        for tick in ticks
        for target in tick.targets
        if target.pk not in collected.answered
    ]
    answered = Target.objects.filter(pk__in=collected.answered)
    if collected.answered and len(silent) < len(collected.answered):
        # The shorter list: thousands of ids cost more than the update itself.
        asked = [tick.deployment.pk for tick in ticks]
        answered = Target.objects.filter(source=source, is_active=True, deployment__in=asked)
        answered = answered.exclude(pk__in=silent)
    answered.update(last_ok_at=now, last_error="")
    by_error: dict[str, list[UUID]] = {}
    for tick in ticks:
        for target in tick.targets:
            if target.pk not in collected.answered:
                error = collected.errors.get(target.pk) or collected.error or "not reported"
                by_error.setdefault(error[:200], []).append(target.pk)
    for error, ids in by_error.items():
        Target.objects.filter(pk__in=ids).update(last_error=error)


def _wake(deployment_id: UUID) -> None:
    """Wake the planner; a lost message costs nothing, its own beat finds the rows."""
    try:
        current_app.send_task(WAKES, args=[str(deployment_id)], queue="control")
    except OperationalError:
        log.warning("the broker did not take a wake-up for deployment %s", deployment_id)
