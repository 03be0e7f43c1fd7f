"""What a collect needs to know of a deployment before it reads anything."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final
from urllib.parse import urlsplit
from uuid import UUID

from apps.engines import loader
from apps.engines.evaluate import Defect
from apps.engines.readings import Reading
from apps.engines.window import Window
from apps.fleet import selectors as fleet
from apps.fleet.domain.defaults import Defaults
from apps.fleet.domain.spans import SpanFacts
from apps.fleet.domain.topology import Topology
from apps.fleet.models import Deployment, Serving

from ..domain.addresses import canonical
from ..domain.windows import ENGINE, TargetHistory
from ..models import Source, SourceKind, Target, TargetScope

#: Through a Prometheus a window is widened to several scrapes, which may be an hour apart; roles
#: are known over the longest that can be (seconds).
ROLES_BACK_S: Final = 5 * 3600.0


@dataclass(frozen=True, slots=True)
class DeploymentTick:
    """One deployment at one tick.

    `owners` maps a target to its identity in windows (a worker's URL, or its own address);
    `roles_now` and `spans` give its role; `expected` lists, per scope, who should report: workers
    that the router lets serve (who is absent or unhealthy there is not missed here), routers,
    frontends.
    """

    deployment: Deployment
    defaults: Defaults
    at: datetime
    targets: tuple[Target, ...]
    owners: Mapping[UUID, str]
    roles_now: Mapping[UUID, str]
    spans: Mapping[UUID, tuple[SpanFacts, ...]]
    expected: Mapping[str, tuple[str, ...]]

    @property
    def horizon(self) -> datetime:
        """The earliest time a window of this tick can start."""
        return self.at - timedelta(
            seconds=self.defaults.window_s + self.defaults.collect_interval_s
        )


@dataclass(slots=True)
class Collected:
    """What a collector brought back. `error` is set when the source as a whole failed, `kind` says
    how (`apps.telemetry.collectors.client.Failure`); `warning` is what a tick that worked lacks.
    `refused` are figures that cannot be; `requests` counts what was asked of a Prometheus."""

    at: datetime | None = None
    windows: list[tuple[UUID, Window]] = field(default_factory=list)
    readings: dict[UUID, Reading] = field(default_factory=dict)
    answered: set[UUID] = field(default_factory=set)
    errors: dict[UUID, str] = field(default_factory=dict)
    error: str = ""
    kind: str = ""
    warning: str = ""
    refused: list[Defect] = field(default_factory=list)
    requests: int = 0


def prepare(
    source: Source, deployment: Deployment, targets: Sequence[Target], now: datetime
) -> DeploymentTick:
    """Gather roles, their history over the window, and who is expected to report."""
    return prepare_all(source, [deployment], {deployment.pk: targets}, now)[0]


def prepare_all(
    source: Source,
    deployments: Sequence[Deployment],
    targets: Mapping[UUID, Sequence[Target]],
    now: datetime,
    topologies: Mapping[UUID, Topology] | None = None,
) -> list[DeploymentTick]:
    """The same for all deployments of a source; the number of queries does not grow with them."""
    topologies = topologies or fleet.topologies(deployments)
    defaults = {deployment.pk: fleet.defaults_for(deployment) for deployment in deployments}
    horizon_s = max((d.window_s + d.collect_interval_s for d in defaults.values()), default=0.0)
    if source.kind == SourceKind.PROMETHEUS:
        horizon_s = max(horizon_s, ROLES_BACK_S)
    ids = [worker.id for found in topologies.values() for worker in found.workers]
    history: dict[UUID, list[SpanFacts]] = {}
    for span in fleet.role_spans(ids, now - timedelta(seconds=horizon_s), now):
        history.setdefault(span.subject_id, []).append(
            SpanFacts(span.value, span.valid_from, span.valid_to)
        )
    same_hosts = source.parameters.get("same_hosts") or {}
    return [
        _tick(
            deployment,
            defaults[deployment.pk],
            topologies[deployment.pk],
            targets[deployment.pk],
            history,
            same_hosts,
            now,
        )
        for deployment in deployments
    ]


def _tick(
    deployment: Deployment,
    defaults: Defaults,
    topology: Topology,
    targets: Sequence[Target],
    history: Mapping[UUID, list[SpanFacts]],
    same_hosts: Mapping[str, str],
    now: datetime,
) -> DeploymentTick:
    facts = {worker.id: worker for worker in topology.workers}
    kept, twins = _once(targets, same_hosts)
    expected: dict[str, list[str]] = {}
    for worker in topology.workers:
        if worker.serving in (Serving.ABSENT, Serving.UNHEALTHY) or worker.id in twins:
            continue
        expected.setdefault(worker.role, []).append(worker.url)
    owners: dict[UUID, str] = {}
    roles: dict[UUID, str] = {}
    for target in kept:
        mine = facts.get(target.worker_id) if target.worker_id else None
        owners[target.pk] = mine.url if mine else target.url
        roles[target.pk] = mine.role if mine else target.scope
        if target.scope != TargetScope.ENGINE:
            expected.setdefault(target.scope, []).append(target.url)
    spans = {
        target.pk: tuple(history.get(target.worker_id, ())) if target.worker_id else ()
        for target in kept
    }
    return DeploymentTick(
        deployment=deployment,
        defaults=defaults,
        at=now,
        targets=kept,
        owners=owners,
        roles_now=roles,
        spans=spans,
        expected={scope: tuple(urls) for scope, urls in expected.items()},
    )


def history_of(
    tick: DeploymentTick, target: Target, readings: Sequence[tuple[datetime, Reading]]
) -> TargetHistory:
    """A target's readings with whose they are and in which role."""
    return TargetHistory(
        owner=tick.owners[target.pk],
        scope=target.scope if target.scope != TargetScope.ENGINE else ENGINE,
        profile=loader.load(target.profile),
        readings=readings,
        role_now=tick.roles_now[target.pk],
        roles=tick.spans[target.pk],
    )


def _once(
    targets: Sequence[Target], same_hosts: Mapping[str, str]
) -> tuple[tuple[Target, ...], frozenset[UUID]]:
    """Targets without those that are another spelling of an earlier one (one engine counts once),
    and the workers that were left out with them."""
    kept: dict[tuple[str, str], Target] = {}
    twins: set[UUID] = set()
    for target in targets:
        key = (target.scope, canonical(target.url, same_hosts) + urlsplit(target.url).path)
        if key not in kept:
            kept[key] = target
        elif target.worker_id:
            twins.add(target.worker_id)
    return tuple(kept.values()), frozenset(twins)
