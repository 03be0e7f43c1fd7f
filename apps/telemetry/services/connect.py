"""Creating what a draft describes: cluster, deployments, pools, workers, backends, source."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from typing import Any
from uuid import uuid4

from django.db import transaction

from apps.accounts.domain.authorize import ObjectScope, Permission, Viewer, require
from apps.accounts.models import Team
from apps.backends import registry
from apps.backends.errors import BadConnection, PlanRefused, UnknownAdapter
from apps.backends.protocol import Adapter, Connection, Snapshot, WorkerRef
from apps.common.fetch import FetchError, fetch
from apps.fleet import connect
from apps.fleet import selectors as fleet
from apps.fleet import services as inventory
from apps.fleet.models import Accelerator, Cluster, Deployment, SlugRedirect

from ..domain.found import FoundEdge
from ..domain.identity import same_address
from ..models import Source, SourceKind
from .source_test import require_connect
from .sources import create_source

#: Types that callers above name.
__all__ = [
    "Cluster", "ConnectPlan", "ConnectRefused", "Connected", "Deployment", "DryRun",
    "PlannedBackend", "PlannedDeployment", "PlannedPool", "PlannedSource", "PlannedWorker",
    "RouterWorkers", "Team", "clusters_to_connect", "connect_cluster", "dry_run",
    "is_cluster_slug_taken", "is_slug_taken", "router_workers",
]  # fmt: skip


class ConnectRefused(Exception):
    """Something of the plan cannot be created; nothing was. `code` with `subject` (a slug)."""

    http_status = 409

    def __init__(self, code: str, subject: str = "") -> None:
        super().__init__(f"{code} {subject}".strip())
        self.code = code
        self.subject = subject
        self.params = {"subject": subject}


@dataclass(frozen=True, slots=True)
class PlannedWorker:
    name: str
    url: str
    metrics_url: str


@dataclass(frozen=True, slots=True)
class PlannedPool:
    role: str
    engine: str
    accelerator: str
    devices_per_worker: Decimal
    workers: tuple[PlannedWorker, ...]


@dataclass(frozen=True, slots=True)
class PlannedBackend:
    """`noop` reads nothing and commands nothing. Secrets never reach a repr."""

    adapter: str = "noop"
    address: str = ""
    parameters: Mapping[str, str] = field(default_factory=dict)
    credential: str = field(default="", repr=False)
    engine_credential: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class PlannedDeployment:
    key: str
    slug: str
    name: str
    namespace: str
    model: str
    environment: str
    team: Team | None
    mode: str
    pools: tuple[PlannedPool, ...]
    edges: tuple[FoundEdge, ...] = ()
    backend: PlannedBackend = PlannedBackend()


@dataclass(frozen=True, slots=True)
class PlannedSource:
    kind: str
    url: str = ""
    interval_s: float = 15.0
    parameters: Mapping[str, Any] = field(default_factory=dict)
    token: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class ConnectPlan:
    """`cluster` is an existing one, else `cluster_slug` and `cluster_name` make a new one."""

    source: PlannedSource
    deployments: tuple[PlannedDeployment, ...]
    cluster: Cluster | None = None
    cluster_slug: str = ""
    cluster_name: str = ""


@dataclass(frozen=True, slots=True)
class Connected:
    cluster: Cluster
    deployments: Mapping[str, Deployment]


@transaction.atomic
def connect_cluster(*, actor: Viewer, now: datetime, plan: ConnectPlan) -> Connected:
    """Create all of a plan, or nothing. Read-only: each deployment starts in mode `observe` and is
    raised only where its environment lets one person do so.

    Raises NotAllowed, ConnectRefused, FetchError for an address that may not be called, and what
    the services of `fleet` raise.
    """
    scope = ObjectScope() if plan.cluster is None else ObjectScope(cluster_id=plan.cluster.pk)
    require(actor, Permission.CONFIGURE, scope)
    _check(actor, plan)
    cluster = plan.cluster or inventory.register_cluster(
        actor=actor,
        now=now,
        slug=plan.cluster_slug,
        name=plan.cluster_name or plan.cluster_slug,
        uid=f"connected-{uuid4()}",
        mode_cap=max((item.mode for item in plan.deployments), key=_order),
    )
    made = {item.key: _deployment(actor, now, cluster, item) for item in plan.deployments}
    _sources(actor, now, cluster, plan.source, list(made.values()))
    return Connected(cluster, made)


def _order(mode: str) -> int:
    return ("observe", "recommend", "approve", "auto").index(mode)


def _check(actor: Viewer, plan: ConnectPlan) -> None:
    """What can be told before anything is written."""
    if not plan.deployments:
        raise ConnectRefused("nothing_chosen")
    if plan.cluster is None and is_cluster_slug_taken(plan.cluster_slug):
        raise ConnectRefused("cluster_slug_taken", plan.cluster_slug)
    slugs = [item.slug for item in plan.deployments]
    known = set(Accelerator.objects.values_list("slug", flat=True))
    for item in plan.deployments:
        if slugs.count(item.slug) > 1 or is_slug_taken(item.slug):
            raise ConnectRefused("slug_taken", item.slug)
        if _order(item.mode) and item.environment != "demo" and not actor.is_system:
            # Raising the mode is a proposal for a second person (DESIGN law 13).
            raise ConnectRefused("mode_needs_second_person", item.slug)
        for pool in item.pools:
            if pool.accelerator not in known or pool.devices_per_worker <= 0:
                raise ConnectRefused("gpus_unknown", item.slug)


def is_cluster_slug_taken(slug: str) -> bool:
    return Cluster.objects.filter(slug=slug).exists()


def is_slug_taken(slug: str) -> bool:
    """True if a deployment has or had the slug: old ones lead to their deployment for ever."""
    return (
        Deployment.objects.filter(slug=slug).exists()
        or SlugRedirect.objects.filter(slug=slug).exists()
    )


def _deployment(
    actor: Viewer, now: datetime, cluster: Cluster, item: PlannedDeployment
) -> Deployment:
    namespace = item.namespace or "default"
    taken = Deployment.objects.filter(
        cluster=cluster, namespace=namespace, name=item.name, ended_at__isnull=True
    )
    if taken.exists():
        raise ConnectRefused("name_taken", item.name)
    deployment = inventory.register_deployment(
        actor=actor,
        now=now,
        cluster=cluster,
        slug=item.slug,
        name=item.name,
        served_model=item.model,
        environment=item.environment,
        preset="demo" if item.environment == "demo" else "production",
        team=item.team,
        namespace=namespace,
    )
    for pool in item.pools:
        inventory.declare_pool(
            actor=actor,
            now=now,
            deployment=deployment,
            role=pool.role,
            accelerator=pool.accelerator,
            devices_per_worker=pool.devices_per_worker,
            engine=pool.engine,
            engine_version="",
            wanted=len(pool.workers),
            facts={},
        )
        for worker in pool.workers:
            inventory.declare_worker(
                now=now,
                deployment=deployment,
                name=worker.name,
                url=worker.url,
                role=pool.role,
                metrics_url=worker.metrics_url,
                bootstrap_port=None,
            )
    inventory.connect_backend(
        actor=actor,
        now=now,
        deployment=deployment,
        adapter=item.backend.adapter,
        address=item.backend.address,
        parameters={**item.backend.parameters, **edge_parameters(item.edges)},
        credential=item.backend.credential or None,
        engine_credential=item.backend.engine_credential or None,
    )
    if item.mode != "observe":
        inventory.set_mode(actor=actor, now=now, deployment=deployment, mode=item.mode)
    return deployment


def edge_parameters(edges: Sequence[FoundEdge]) -> dict[str, Any]:
    """Backend parameters that make the collector read a router and a frontend (one of each)."""
    found: dict[str, Any] = {}
    for edge in edges:
        if edge.scope == "router" and "metrics_url" not in found:
            found |= {"metrics_url": edge.metrics_url, "metrics_profile": edge.profile}
        if edge.scope == "frontend" and "frontend_metrics_url" not in found:
            found["frontend_metrics_url"] = edge.metrics_url
            found["frontend_profile"] = edge.profile
        if edge.match:
            found["metrics_match"] = dict(edge.match)
    return found


def _sources(
    actor: Viewer,
    now: datetime,
    cluster: Cluster,
    wanted: PlannedSource,
    deployments: Sequence[Deployment],
) -> None:
    """One source for the cluster; where it has one already that is another, one per deployment."""
    present = Source.objects.filter(cluster=cluster, deployment__isnull=True).first()
    if present is not None and (present.kind, present.url) == (wanted.kind, wanted.url):
        return
    owners: Sequence[Deployment | None] = [None] if present is None else deployments
    for owner in owners:
        create_source(
            actor=actor,
            now=now,
            cluster=cluster,
            deployment=owner,
            kind=wanted.kind,
            url=wanted.url,
            interval_s=wanted.interval_s,
            parameters=wanted.parameters if wanted.kind == SourceKind.PROMETHEUS else {},
            credential=wanted.token or None,
        )


@dataclass(frozen=True, slots=True)
class DryRun:
    """Whether a backend could be commanded; `code` and `detail` (safe to show) say why not."""

    ok: bool
    code: str = ""
    detail: str = ""
    workers: int = 0


@dataclass(frozen=True, slots=True)
class RouterWorkers:
    """What a router lists: role by worker address; `problem` when it cannot be read."""

    roles: Mapping[str, str]
    problem: str = ""


def router_workers(*, actor: Viewer, now: datetime, address: str, credential: str) -> RouterWorkers:
    """Ask a router for its workers (the control interface, reading only). Raises NotAllowed."""
    require_connect(actor)
    backend = PlannedBackend("router_workers", address, {}, credential)
    try:
        snapshot = _adapter(backend).observe(now)
    except (FetchError, BadConnection, UnknownAdapter) as error:
        return RouterWorkers({}, str(error)[:200])
    if not snapshot.complete:
        return RouterWorkers({}, "; ".join(snapshot.problems)[:200])
    return RouterWorkers({view.url: view.role for view in snapshot.workers})


def dry_run(
    *,
    actor: Viewer,
    now: datetime,
    backend: PlannedBackend,
    pools: Sequence[PlannedPool],
) -> DryRun:
    """Could this backend carry out a command? Observes, plans moving one worker, and asks whether
    it may be done; changes nothing. Raises NotAllowed."""
    require_connect(actor)
    known = [
        WorkerRef(worker.url, worker.name, pool.role) for pool in pools for worker in pool.workers
    ]
    try:
        adapter = _adapter(backend)
        if not adapter.capabilities().can_write:
            return DryRun(False, "read_only")
        snapshot = adapter.observe(now, known)
    except (FetchError, BadConnection, UnknownAdapter) as error:
        return DryRun(False, "unreachable", str(error)[:200])
    if not snapshot.complete:
        return DryRun(False, "unreachable", "; ".join(snapshot.problems)[:200])
    listed = {same_address(view.url) for view in snapshot.workers if view.router_id}
    mine = sum(1 for ref in known if same_address(ref.url) in listed)
    if not mine:
        return DryRun(False, "other_workers", workers=len(listed))
    denials = _denials(adapter, snapshot, pools)
    if denials:
        return DryRun(False, "denied", ", ".join(denials)[:200], mine)
    return DryRun(True, workers=mine)


def _denials(adapter: Adapter, snapshot: Snapshot, pools: Sequence[PlannedPool]) -> tuple[str, ...]:
    """What speaks against moving one worker, or (where no move can be planned) against any
    write."""
    now = {role: snapshot.count(role) for role in {pool.role for pool in pools}}
    gpus = {pool.role: pool.devices_per_worker for pool in pools}
    for role, count in sorted(now.items(), key=lambda item: -item[1]):
        others = [other for other in now if other != role]
        if count < 2 or not others:
            continue
        try:
            steps = adapter.plan(
                snapshot, {**now, role: count - 1, others[0]: now[others[0]] + 1}, gpus
            )
        except PlanRefused:
            continue
        return adapter.preflight(steps, snapshot).denials
    return adapter.preflight((), snapshot).denials


def _adapter(backend: PlannedBackend) -> Adapter:
    policy = connect.fetch_policy()
    return registry.build(
        backend.adapter,
        Connection(
            address=backend.address,
            credential=backend.credential,
            engine_credential=backend.engine_credential,
            parameters=dict(backend.parameters),
            fetch=lambda *args, **kwargs: fetch(*args, policy=policy, **kwargs),
        ),
    )


def clusters_to_connect(actor: Viewer) -> list[Cluster]:
    """Clusters that the actor may connect something to."""
    return [
        cluster
        for cluster in fleet.clusters_for(actor)
        if actor.can(Permission.CONFIGURE, ObjectScope(cluster_id=cluster.pk))
    ]
