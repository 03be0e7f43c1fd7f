"""Declared inventory: clusters, nodes with devices, deployments, pools, workers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any

from django.db import transaction

from apps.accounts.domain.authorize import Permission, Viewer, require
from apps.accounts.models import Team
from apps.audit import services as audit

from .. import selectors
from ..models import (
    Accelerator,
    AttributeSource,
    Cluster,
    Deployment,
    Device,
    ModelArchitecture,
    Node,
    Pool,
    Worker,
)
from .spans import record_role, set_span


@transaction.atomic
def register_cluster(
    *, actor: Viewer, now: datetime, slug: str, name: str, uid: str, mode_cap: str
) -> Cluster:
    """Register a cluster, or return the one with that uid."""
    cluster, created = Cluster.objects.get_or_create(
        uid=uid, defaults={"slug": slug, "name": name, "mode_cap": mode_cap}
    )
    if created:
        audit.record(
            actor=actor,
            now=now,
            action="cluster.register",
            object_kind="cluster",
            object_id=str(cluster.pk),
            object_label=slug,
            cluster_id=str(cluster.pk),
        )
    return cluster


@transaction.atomic
def declare_node(
    *, actor: Viewer, now: datetime, cluster: Cluster, name: str, accelerator: str, devices: int
) -> Node:
    """Declare a node with whole devices; provisioned from now until retired by a person."""
    node, created = Node.objects.get_or_create(
        cluster=cluster,
        name=name,
        object_uid="",
        defaults={"provisioned_from": now, "source": AttributeSource.DECLARED},
    )
    gpu = Accelerator.objects.get(slug=accelerator)
    for index in range(devices):
        Device.objects.get_or_create(
            node=node,
            index=index,
            defaults={"accelerator": gpu, "source": AttributeSource.DECLARED},
        )
    if created:
        audit.record(
            actor=actor,
            now=now,
            action="node.declare",
            object_kind="node",
            object_id=str(node.pk),
            object_label=name,
            cluster_id=str(cluster.pk),
            after={"accelerator": accelerator, "devices": devices},
        )
    return node


@transaction.atomic
def register_deployment(
    *,
    actor: Viewer,
    now: datetime,
    cluster: Cluster,
    slug: str,
    name: str,
    served_model: str,
    environment: str,
    preset: str,
    team: Team | None = None,
    namespace: str = "default",
) -> Deployment:
    """Register a deployment in mode `observe` (DESIGN law 12), or return the one with that slug."""
    architecture = ModelArchitecture.objects.filter(hf_id__iexact=served_model).first()
    deployment, created = Deployment.objects.get_or_create(
        slug=slug,
        defaults={
            "name": name,
            "namespace": namespace,
            "cluster": cluster,
            "team": team,
            "architecture": architecture,
            "served_model": served_model,
            "environment": environment,
            "preset": preset,
            "created_at": now,
        },
    )
    if created:
        for attribute, value in (
            ("environment", environment),
            ("team", str(team.pk) if team else ""),
        ):
            set_span(
                now=now,
                subject_kind="deployment",
                subject_id=deployment.pk,
                attribute=attribute,
                value=value,
                source=AttributeSource.DECLARED,
            )
        _audit(actor, now, "deployment.register", deployment, {"environment": environment})
    return deployment


@transaction.atomic
def set_mode(*, actor: Viewer, now: datetime, deployment: Deployment, mode: str) -> None:
    """Set how far Fulcrum may go. Needs `configure`; loosening outside environment `demo` is a
    proposal and waits for its approval flow, so here only tightening and the demo pass."""
    require(actor, Permission.CONFIGURE, selectors.object_scope(deployment))
    order = ["observe", "recommend", "approve", "auto"]
    loosens = order.index(mode) > order.index(deployment.mode)
    if loosens and deployment.environment != "demo" and not actor.is_system:
        raise LooseningNeedsApproval(deployment.mode, mode)
    before = deployment.mode
    if Deployment.objects.filter(pk=deployment.pk, mode=before).update(mode=mode) == 1:
        deployment.mode = mode
        _audit(actor, now, "deployment.set_mode", deployment, {"mode": mode}, {"mode": before})


class LooseningNeedsApproval(Exception):
    """Raising the mode is a proposal too (DESIGN law 13)."""

    code = "loosening_needs_approval"
    http_status = 409

    def __init__(self, current: str, asked: str) -> None:
        super().__init__(f"raising the mode from {current} to {asked} needs a second person")
        self.params = {"current": current, "asked": asked}


@transaction.atomic
def declare_pool(
    *,
    actor: Viewer,
    now: datetime,
    deployment: Deployment,
    role: str,
    accelerator: str,
    devices_per_worker: Decimal,
    engine: str,
    engine_version: str,
    wanted: int,
    facts: Mapping[str, Any],
) -> Pool:
    """Declare a pool; every attribute given here is stored with source `declared`."""
    known = dict(facts)
    sources = dict.fromkeys(
        ["accelerator", "devices_per_worker", "engine", "engine_version", *known],
        AttributeSource.DECLARED.value,
    )
    pool, created = Pool.objects.get_or_create(
        deployment=deployment,
        role=role,
        defaults={
            "accelerator": Accelerator.objects.get(slug=accelerator),
            "devices_per_worker": devices_per_worker,
            "engine": engine,
            "engine_version": engine_version,
            "wanted_workers": wanted,
            "attribute_sources": sources,
            **known,
        },
    )
    if created:
        for attribute, value in (
            ("accelerator", accelerator),
            ("devices_per_worker", str(devices_per_worker)),
            ("checkpoint", known.get("checkpoint", "")),
        ):
            set_span(
                now=now,
                subject_kind="pool",
                subject_id=pool.pk,
                attribute=attribute,
                value=value,
                source=AttributeSource.DECLARED,
            )
        _audit(actor, now, "pool.declare", deployment, {"role": role, "wanted": wanted})
    return pool


@transaction.atomic
def declare_worker(
    *,
    now: datetime,
    deployment: Deployment,
    name: str,
    url: str,
    role: str,
    metrics_url: str,
    bootstrap_port: int | None,
    object_uid: str = "",
    devices: Sequence[Device] = (),
) -> Worker:
    """Declare a worker by its address; its role starts a span."""
    worker, created = Worker.objects.get_or_create(
        deployment=deployment,
        kind="engine",
        url=url,
        object_uid=object_uid,
        defaults={
            "name": name,
            "role": role,
            "role_source": AttributeSource.DECLARED,
            "metrics_url": metrics_url,
            "bootstrap_port": bootstrap_port,
            "first_seen_at": now,
        },
    )
    if created:
        worker.devices.set(devices)
        record_role(now=now, worker_id=worker.pk, role=role, source=AttributeSource.DECLARED)
    return worker


def _audit(
    actor: Viewer,
    now: datetime,
    action: str,
    deployment: Deployment,
    after: Mapping[str, Any],
    before: Mapping[str, Any] | None = None,
) -> None:
    audit.record(
        actor=actor,
        now=now,
        action=action,
        object_kind="deployment",
        object_id=str(deployment.pk),
        object_label=deployment.slug,
        cluster_id=str(deployment.cluster_id),
        deployment_id=str(deployment.pk),
        before=before,
        after=after,
    )
