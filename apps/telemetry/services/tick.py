"""What a collect needs to know of a deployment before it reads anything."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from uuid import UUID

from apps.engines.readings import Reading
from apps.engines.window import Window
from apps.fleet import selectors as fleet
from apps.fleet.domain.defaults import Defaults
from apps.fleet.domain.spans import SpanFacts
from apps.fleet.models import Deployment, Serving

from ..models import Source, Target, TargetScope


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
    """What a collector brought back. `error` is set when the source as a whole failed."""

    at: datetime | None = None
    windows: list[tuple[UUID, Window]] = field(default_factory=list)
    readings: dict[UUID, Reading] = field(default_factory=dict)
    answered: set[UUID] = field(default_factory=set)
    errors: dict[UUID, str] = field(default_factory=dict)
    error: str = ""


def prepare(
    source: Source, deployment: Deployment, targets: Sequence[Target], now: datetime
) -> DeploymentTick:
    """Gather roles, their history over the window, and who is expected to report."""
    defaults = fleet.defaults_for(deployment)
    topology = fleet.topology(deployment)
    facts = {worker.id: worker for worker in topology.workers}
    expected: dict[str, list[str]] = {}
    for worker in topology.workers:
        if worker.serving not in (Serving.ABSENT, Serving.UNHEALTHY):
            expected.setdefault(worker.role, []).append(worker.url)
    owners: dict[UUID, str] = {}
    roles: dict[UUID, str] = {}
    for target in targets:
        mine = facts.get(target.worker_id) if target.worker_id else None
        owners[target.pk] = mine.url if mine else target.url
        roles[target.pk] = mine.role if mine else target.scope
        if target.scope != TargetScope.ENGINE:
            expected.setdefault(target.scope, []).append(target.url)
    horizon_s = defaults.window_s + defaults.collect_interval_s
    history: dict[UUID, list[SpanFacts]] = {}
    for span in fleet.role_spans(list(facts), now - timedelta(seconds=horizon_s), now):
        history.setdefault(span.subject_id, []).append(
            SpanFacts(span.value, span.valid_from, span.valid_to)
        )
    spans = {
        target.pk: tuple(history.get(target.worker_id, ())) if target.worker_id else ()
        for target in targets
    }
    return DeploymentTick(
        deployment=deployment,
        defaults=defaults,
        at=now,
        targets=tuple(targets),
        owners=owners,
        roles_now=roles,
        spans=spans,
        expected={scope: tuple(urls) for scope, urls in expected.items()},
    )
