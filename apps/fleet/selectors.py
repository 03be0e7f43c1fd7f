"""Reads of the inventory. Every selector on behalf of a person takes the viewer (law 15)."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from decimal import Decimal
from uuid import UUID

from django.db.models import Q, QuerySet

from apps.accounts.domain.authorize import ObjectScope, Permission, ScopeKind, Viewer

from .domain.defaults import PRESETS, PRODUCTION, Defaults
from .domain.topology import PoolFacts, Topology, WorkerFacts
from .models import (
    Accelerator,
    ChangeState,
    Cluster,
    Deployment,
    Device,
    ModelArchitecture,
    Node,
    Pool,
    Span,
    Worker,
)

#: Further ahead than an observation ever schedules the next one.
_AHEAD_INTERVALS = 3


class NotVisible(Exception):
    """The object does not exist or the viewer may not see it; callers answer 404 for both."""


def deployments_for(viewer: Viewer) -> QuerySet[Deployment]:
    """Living deployments inside the viewer's scopes."""
    living = Deployment.objects.filter(ended_at__isnull=True).select_related(
        "cluster", "team", "architecture", "backend"
    )
    if viewer.is_system:
        return living
    allowed = Q(pk__in=[])
    for binding in viewer.scopes_with(Permission.READ):
        if binding.scope_kind is ScopeKind.INSTALLATION:
            return living
        field = {
            ScopeKind.CLUSTER: "cluster_id",
            ScopeKind.TEAM: "team_id",
            ScopeKind.DEPLOYMENT: "id",
        }[binding.scope_kind]
        allowed |= Q(**{field: binding.scope_id})
    return living.filter(allowed)


def sees_everything(viewer: Viewer) -> bool:
    """True if the viewer may read the whole installation."""
    return viewer.is_system or any(
        binding.scope_kind is ScopeKind.INSTALLATION
        for binding in viewer.scopes_with(Permission.READ)
    )


def deployment_count() -> int:
    """Living deployments in the installation, for "3 of 14 deployments"."""
    return Deployment.objects.filter(ended_at__isnull=True).count()


def deployment_by_slug(viewer: Viewer, slug: str) -> Deployment:
    """A visible deployment by its slug or an old one; raises NotVisible."""
    rows = deployments_for(viewer)
    found = rows.filter(slug=slug).first() or rows.filter(slugredirect__slug=slug).first()
    if found is None:
        raise NotVisible(slug)
    return found


def deployment_by_id(deployment_id: UUID | str) -> Deployment:
    """A deployment for Fulcrum's own tasks; raises NotVisible."""
    found = (
        Deployment.objects.select_related("cluster", "backend", "architecture", "team")
        .filter(pk=deployment_id)
        .first()
    )
    if found is None:
        raise NotVisible(str(deployment_id))
    return found


def object_scope(deployment: Deployment) -> ObjectScope:
    """The scopes that a binding may match for this deployment."""
    return ObjectScope(
        cluster_id=deployment.cluster_id,
        team_id=deployment.team_id,
        deployment_id=deployment.pk,
    )


def defaults_for(deployment: Deployment) -> Defaults:
    """The preset's numbers (DESIGN §4a)."""
    return PRESETS.get(deployment.preset, PRODUCTION)


def topology(deployment: Deployment) -> Topology:
    """Pools and living workers (2 queries)."""
    return topologies([deployment])[deployment.pk]


def topologies(deployments: Sequence[Deployment]) -> dict[UUID, Topology]:
    """The same of many deployments by their id (2 queries in all, if their clusters are loaded)."""
    ids = [deployment.pk for deployment in deployments]
    pools: dict[UUID, dict[str, PoolFacts]] = {}
    for pool in Pool.objects.filter(deployment__in=ids).select_related("accelerator"):
        pools.setdefault(pool.deployment_id, {})[pool.role] = pool_facts(pool)
    workers: dict[UUID, list[WorkerFacts]] = {}
    for worker in Worker.objects.filter(deployment__in=ids, ended_at__isnull=True):
        workers.setdefault(worker.deployment_id, []).append(_worker_facts(worker))
    return {
        deployment.pk: Topology(
            deployment_id=deployment.pk,
            slug=deployment.slug,
            cluster_id=deployment.cluster_id,
            revision=deployment.revision,
            environment=deployment.environment,
            mode=effective_mode(deployment),
            pools=pools.get(deployment.pk, {}),
            workers=tuple(workers.get(deployment.pk, ())),
        )
        for deployment in deployments
    }


def pool_facts(pool: Pool) -> PoolFacts:
    """A pool (with its accelerator) as data."""
    return PoolFacts(
        id=pool.pk,
        role=pool.role,
        accelerator=pool.accelerator.slug if pool.accelerator else None,
        devices_per_worker=pool.devices_per_worker,
        wanted=pool.wanted_workers,
        min_workers=pool.min_workers,
        max_workers=pool.max_workers,
        kv_capacity_tokens=pool.kv_capacity_tokens,
        max_sequences=pool.max_sequences,
        prefill_tokens_per_step=pool.prefill_tokens_per_step,
        engine=pool.engine,
        engine_version=pool.engine_version,
        ratio_target=pool.ratio_target,
        parallelism=_parallelism(pool),
    )


def _worker_facts(worker: Worker) -> WorkerFacts:
    return WorkerFacts(
        id=worker.pk,
        url=worker.url,
        name=worker.name,
        role=worker.role,
        role_source=worker.role_source,
        serving=worker.serving,
        bootstrap_port=worker.bootstrap_port,
        metrics_url=worker.metrics_url,
        router_worker_id=worker.router_worker_id,
    )


def effective_mode(deployment: Deployment) -> str:
    """The deployment's mode capped by its cluster's (DESIGN law 12)."""
    order = ["observe", "recommend", "approve", "auto"]
    return order[min(order.index(deployment.mode), order.index(deployment.cluster.mode_cap))]


def _parallelism(pool: Pool) -> str:
    parts = [f"TP{pool.tensor_parallel}"]
    if pool.data_parallel > 1:
        parts.append(f"DP{pool.data_parallel}")
    if pool.expert_parallel > 1:
        parts.append(f"EP{pool.expert_parallel}")
    if pool.pipeline_parallel > 1:
        parts.append(f"PP{pool.pipeline_parallel}")
    return pool.topology or " ".join(parts)


def role_spans(worker_ids: Sequence[UUID], start: datetime, end: datetime) -> QuerySet[Span]:
    """Role spans of workers that touch `[start, end)`."""
    return Span.objects.filter(
        subject_kind="worker", subject_id__in=worker_ids, attribute="role", valid_from__lt=end
    ).filter(Q(valid_to__isnull=True) | Q(valid_to__gt=start))


def role_at(worker_id: UUID, at: datetime) -> str | None:
    """The role a worker had at a time; None if it was not known then."""
    span = (
        Span.objects.filter(
            subject_kind="worker", subject_id=worker_id, attribute="role", valid_from__lte=at
        )
        .filter(Q(valid_to__isnull=True) | Q(valid_to__gt=at))
        .first()
    )
    return None if span is None else str(span.value)


def gpus_provisioned(cluster_id: UUID, now: datetime) -> Decimal | None:
    """Declared GPUs of a cluster; None when it has no declared device (unknown is not 0)."""
    shares = list(
        Device.objects.filter(node__cluster_id=cluster_id, node__provisioned_from__lte=now)
        .filter(Q(node__provisioned_to__isnull=True) | Q(node__provisioned_to__gt=now))
        .values_list("share", flat=True)
    )
    return sum(shares, Decimal(0)) if shares else None


def gpus_in_use(cluster_id: UUID) -> Decimal | None:
    """GPUs of the wanted workers of all living deployments; None if any unit is unknown."""
    total = Decimal(0)
    pools = Pool.objects.filter(
        deployment__cluster_id=cluster_id, deployment__ended_at__isnull=True, wanted_workers__gt=0
    )
    for wanted, unit in pools.values_list("wanted_workers", "devices_per_worker"):
        if unit is None:
            return None
        total += unit * wanted
    return total


def change_state(deployment_id: UUID) -> ChangeState:
    """What commands last did to a deployment (an empty state if nothing yet)."""
    found = ChangeState.objects.filter(pk=deployment_id).first()
    return found or ChangeState(deployment_id=deployment_id)


def clusters_for(viewer: Viewer) -> QuerySet[Cluster]:
    """Clusters of the visible deployments, or all for an installation-wide viewer."""
    if sees_everything(viewer):
        return Cluster.objects.all()
    bound = [
        b.scope_id for b in viewer.scopes_with(Permission.READ) if b.scope_kind is ScopeKind.CLUSTER
    ]
    return Cluster.objects.filter(
        Q(pk__in=bound) | Q(pk__in=deployments_for(viewer).values("cluster_id"))
    )


def nodes_for(viewer: Viewer) -> QuerySet[Node]:
    """Nodes of the visible clusters."""
    return Node.objects.filter(cluster__in=clusters_for(viewer)).select_related("cluster")


def devices_for(viewer: Viewer) -> QuerySet[Device]:
    """Devices of the visible clusters."""
    return Device.objects.filter(node__cluster__in=clusters_for(viewer)).select_related(
        "node", "accelerator"
    )


def pools_for(viewer: Viewer) -> QuerySet[Pool]:
    """Pools of the visible deployments."""
    return Pool.objects.filter(deployment__in=deployments_for(viewer)).select_related(
        "deployment", "accelerator"
    )


def workers_for(viewer: Viewer) -> QuerySet[Worker]:
    """Living workers of the visible deployments."""
    return Worker.objects.filter(
        deployment__in=deployments_for(viewer), ended_at__isnull=True
    ).select_related("deployment")


def accelerators() -> QuerySet[Accelerator]:
    """The catalog of GPU models (no scope: public facts)."""
    return Accelerator.objects.all()


def architectures() -> QuerySet[ModelArchitecture]:
    """The catalog of model architectures (no scope: public facts)."""
    return ModelArchitecture.objects.all()


def due_backend_ids(now: datetime) -> list[UUID]:
    """Deployments whose backend is due for observation. One that is due later than anything would
    write was given its time while our own clock was ahead, and is due now (fault M12)."""
    rows = (
        Deployment.objects.filter(ended_at__isnull=True, backend__isnull=False)
        .exclude(backend__adapter="noop")
        .values_list("pk", "backend__next_due_at", "backend__observe_interval_s")
    )
    return [
        pk
        for pk, at, interval_s in rows
        if at is None or at <= now or (at - now).total_seconds() > _AHEAD_INTERVALS * interval_s
    ]
