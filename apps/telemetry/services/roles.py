"""Looks at targets, decides roles by the order of trust, and keeps what contradicts a role."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

from django.db import transaction
from django.db.models import F, Q

from apps.common.secretbox import SecretUnreadable
from apps.engines import loader
from apps.engines.combine import merge_windows
from apps.engines.window import Window
from apps.fleet import connect
from apps.fleet import selectors as fleet
from apps.fleet.domain.topology import Topology, WorkerFacts
from apps.fleet.models import Deployment, Serving
from apps.fleet.services import record_role

from ..collectors import observe
from ..collectors.client import Prometheus, SourceFailed
from ..collectors.observe import Look
from ..collectors.prometheus import Labels
from ..coverage import recent_windows
from ..domain import cross_checks, roles
from ..domain.credibility import Finding
from ..domain.cross_checks import TargetState
from ..domain.identity import instance_key
from ..domain.observed import Observed
from ..domain.roles import Behaviour, Disagreement, RoleEvidence, RoleSource
from ..models import (
    FindingKind,
    Source,
    SourceKind,
    SourceState,
    StoredFinding,
    Target,
    TargetScope,
)
from .collect import headers_of
from .sources import source_of

#: Seconds after which a target is looked at again, by kind of source (names and labels change
#: with releases; a Prometheus answers for many deployments), and the longest one look may take.
OBSERVE_EVERY_S: Final = {SourceKind.SCRAPE.value: 300.0, SourceKind.PROMETHEUS.value: 1800.0}
DEADLINE_S: Final = 8.0
#: An ended finding is kept as long as the longest windows that it explains.
KEPT: Final = timedelta(days=35)

_Key = tuple[str, str, str, str]


def check_deployment(*, deployment_id: UUID | str, now: datetime) -> int:
    """Look at the deployment's targets, store the roles that only labels name, and store what is
    wrong with its telemetry. Returns the number of open findings. Safe to run twice."""
    deployment = fleet.deployment_by_id(deployment_id)
    observe_targets(deployment=deployment, now=now)
    topology = fleet.topology(deployment)
    windows = recent_windows(deployment, now)
    targets = list(
        Target.objects.filter(deployment=deployment, is_active=True).select_related("source")
    )
    contradictions, silent = _check_roles(topology, windows, targets, now)
    measured = recent_windows(deployment, now, with_histograms=True)
    impossible = cross_checks.over_time(measured, _states(topology, targets))
    with transaction.atomic():
        _keep(deployment, now, FindingKind.ROLE, _of_roles(contradictions), silent)
        _keep(deployment, now, FindingKind.CREDIBILITY, _of_figures(impossible), frozenset())
        StoredFinding.objects.filter(deployment=deployment, ended_at__lt=now - KEPT).delete()
    return StoredFinding.objects.filter(deployment=deployment, ended_at__isnull=True).count()


def observe_targets(*, deployment: Deployment, now: datetime) -> int:
    """Look at the targets that were not looked at for a while; returns how many answered. Those
    that did not answer the last collect wait until they do."""
    source = source_of(deployment)
    if source is None or source.state == SourceState.DOWN:
        return 0
    before = now - timedelta(seconds=OBSERVE_EVERY_S[source.kind])
    due = Q(observed_at__isnull=True) | Q(observed_at__lt=before)
    rows = Target.objects.filter(due, deployment=deployment, is_active=True).select_related(
        "worker"
    )
    targets = list(rows.order_by(F("observed_at").asc(nulls_first=True)))
    if not targets:
        return 0
    looks = [
        Look(
            str(target.pk),
            target.url,
            instance_key(target.url),
            loader.load(target.profile),
            target.worker.role if target.worker else target.scope,
        )
        for target in targets
    ]
    found = _look(source, looks, now)
    for target in targets:
        seen = found.get(str(target.pk))
        if seen is not None:
            Target.objects.filter(pk=target.pk).update(observed=seen.to_json(), observed_at=now)
    return len(found)


def _look(source: Source, looks: Sequence[Look], now: datetime) -> Mapping[str, Observed]:
    policy = connect.fetch_policy()
    if source.kind != SourceKind.PROMETHEUS:
        return observe.by_scrape(looks, policy=policy, deadline_s=DEADLINE_S)
    try:
        client = Prometheus(
            source.url, policy=policy, deadline_s=DEADLINE_S, headers=headers_of(source)
        )
        labels = Labels.from_parameters(source.parameters)
        delay = timedelta(seconds=float(source.parameters.get("delay_s", 0)))
        return observe.by_prometheus(looks, client, labels, now - delay)
    except (SourceFailed, SecretUnreadable, ValueError):
        # The collect says why the source is down; nothing seen is nothing changed.
        return {}


def _check_roles(
    topology: Topology,
    windows: Mapping[str, Sequence[Window]],
    targets: Iterable[Target],
    now: datetime,
) -> tuple[list[Disagreement], frozenset[str]]:
    """What contradicts roles now, and the workers whose silence leaves earlier findings open."""
    since = {
        span.subject_id: span.valid_from
        for span in fleet.role_spans([w.id for w in topology.workers], now, now)
        if span.valid_to is None
    }
    # Labels that were seen before a role change say nothing about the role after it.
    observed = {
        target.worker_id: Observed.from_json(target.observed)
        for target in targets
        if target.worker_id is not None
        and target.observed_at is not None
        and target.observed_at >= since.get(target.worker_id, target.observed_at)
    }
    merged = {scope: merge_windows(chain) for scope, chain in windows.items() if chain}
    found: list[Disagreement] = []
    silent: set[str] = set()
    for worker in topology.workers:
        behaviour = _behaviour(worker, merged)
        evidence = evidence_of(worker, topology, observed.get(worker.id, Observed()), behaviour)
        decision = roles.decide(evidence)
        if decision.source in (RoleSource.POD_LABEL, RoleSource.METRIC_LABEL) and (
            (worker.role, worker.role_source) != (decision.role, decision.source.value)
        ):
            record_role(
                now=now, worker_id=worker.id, role=decision.role, source=decision.source.value
            )
        found += roles.disagreements(worker.url, decision, behaviour)
        if not roles.is_judged(behaviour) and worker.serving != Serving.ABSENT:
            silent.add(worker.url)
    return found, frozenset(silent)


def _behaviour(worker: WorkerFacts, merged: Mapping[str, Window]) -> Behaviour | None:
    window = merged.get(worker.role)
    return roles.behaviour_of(window, worker.url) if window is not None else None


def evidence_of(
    worker: WorkerFacts, topology: Topology, seen: Observed, behaviour: Behaviour | None
) -> RoleEvidence:
    """The evidence about one worker. A role that an earlier label gave is not our inventory's."""
    pool = topology.pools.get(worker.role)
    return RoleEvidence(
        inventory_role=worker.role,
        inventory_source=worker.role_source,
        pod_labels=seen.pod_labels,
        metric_labels=seen.metric_labels,
        engine=pool.engine if pool else "",
        engine_version=pool.engine_version if pool else "",
        behaviour=behaviour,
        has_prefill="prefill" in topology.pools or bool(topology.workers_of("prefill")),
    )


def _states(topology: Topology, targets: Iterable[Target]) -> list[TargetState]:
    workers = {worker.id: worker for worker in topology.workers}
    return [
        TargetState(
            worker.url,
            worker.role,
            is_up=not target.last_error,
            is_serving=worker.serving == Serving.SERVING,
        )
        for target in targets
        if target.scope == TargetScope.ENGINE
        and target.worker_id in workers
        and (worker := workers[target.worker_id])
    ]


def _of_roles(found: Iterable[Disagreement]) -> dict[_Key, dict[str, object]]:
    return {
        (item.code, "", "", item.worker): {
            "severity": "warning",
            "params": dict(item.params),
            "voids": False,
        }
        for item in found
    }


def _of_figures(found: Iterable[Finding]) -> dict[_Key, dict[str, object]]:
    return {
        (item.code, item.scope, item.signal.value, item.worker): {
            "severity": item.severity.value,
            "params": dict(item.params),
            "voids": item.voids,
        }
        for item in found
    }


def _keep(
    deployment: Deployment,
    now: datetime,
    kind: FindingKind,
    found: Mapping[_Key, Mapping[str, object]],
    silent: frozenset[str],
) -> None:
    """Open what is new, refresh what lasts, end what is gone (not of workers that were silent)."""
    rows = StoredFinding.objects.filter(deployment=deployment, kind=kind, ended_at__isnull=True)
    present = {(row.code, row.scope, row.signal, row.worker): row for row in rows}
    for key, facts in found.items():
        row = present.get(key)
        if row is not None:
            StoredFinding.objects.filter(pk=row.pk).update(seen_at=now, **facts)
            continue
        code, scope, signal, worker = key
        StoredFinding.objects.get_or_create(
            deployment=deployment, code=code, scope=scope, signal=signal, worker=worker,
            ended_at=None, defaults={"kind": kind, "since": now, "seen_at": now, **facts},
        )  # fmt: skip
    gone = [
        row.pk
        for key, row in present.items()
        if key not in found and (row.worker not in silent or row.code == "label_contradicts")
    ]
    StoredFinding.objects.filter(pk__in=gone).update(ended_at=now)
