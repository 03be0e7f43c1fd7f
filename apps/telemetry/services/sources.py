"""Sources that people connect, and their targets, which follow the inventory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from django.core.exceptions import ObjectDoesNotExist
from django.db import transaction

from apps.accounts.domain.authorize import ObjectScope, Permission, Viewer, require
from apps.audit import services as audit
from apps.common.fetch import resolve, split_url
from apps.engines import loader
from apps.fleet import connect
from apps.fleet import selectors as fleet
from apps.fleet.domain.topology import Topology
from apps.fleet.models import Cluster, Deployment

from ..collectors.prometheus import Labels
from ..models import Source, SourceKind, Target, TargetScope


def bound_to(source_id: UUID) -> str:
    """The place a source's credential is sealed for."""
    return f"telemetry.source:{source_id}:credential"


@transaction.atomic
def create_source(
    *,
    actor: Viewer,
    now: datetime,
    cluster: Cluster,
    kind: str,
    deployment: Deployment | None = None,
    url: str = "",
    interval_s: float = 15,
    credential: str | None = None,
    parameters: Mapping[str, Any] | None = None,
    name: str = "",
) -> Source:
    """Connect a source to a deployment, or to a whole cluster.

    A Prometheus needs an address; a direct scrape takes its targets from the inventory, and sends
    no credential: a router could name an address that collects it. Raises NotAllowed, FetchError
    for an address that may not be called, ValueError for bad parameters.
    """
    scope = _scope(cluster, deployment)
    require(actor, Permission.CONFIGURE, scope)
    given = dict(parameters or {})
    if kind not in SourceKind.values or interval_s <= 0:
        raise ValueError("unknown kind of source, or an interval that is not positive")
    if kind == SourceKind.PROMETHEUS:
        _check_address(url)
        Labels.from_parameters(given)
    elif credential or url:
        raise ValueError("a direct scrape has neither an address nor a credential of its own")
    _check_exporters(given)
    source = Source(
        name=(name or (deployment.slug if deployment else cluster.slug))[:120],
        cluster=cluster,
        deployment=deployment,
        kind=kind,
        url=url,
        interval_s=interval_s,
        parameters=given,
        created_at=now,
    )
    if credential:
        box = connect.secret_box()
        source.credential_sealed = box.seal(credential, bound_to=bound_to(source.pk))
    source.save(force_insert=True)
    _record(actor, now, "source.create", source, None)
    return source


@transaction.atomic
def change_source(
    *,
    actor: Viewer,
    now: datetime,
    source_id: UUID,
    url: str | None = None,
    interval_s: float | None = None,
    credential: str | None = None,
    parameters: Mapping[str, Any] | None = None,
) -> Source:
    """Change a source. A new address clears the credential unless a new one comes with it."""
    source = Source.objects.select_for_update().get(pk=source_id)
    require(actor, Permission.CONFIGURE, _scope(source.cluster, source.deployment))
    before = _facts(source)
    if source.kind == SourceKind.SCRAPE and (credential or url):
        raise ValueError("a direct scrape has neither an address nor a credential of its own")
    if url is not None and url != source.url:
        _check_address(url)
        source.url = url
        source.credential_sealed = ""
    if interval_s is not None:
        if interval_s <= 0:
            raise ValueError("the interval must be positive")
        source.interval_s = interval_s
    if parameters is not None:
        Labels.from_parameters(parameters)
        _check_exporters(parameters)
        source.parameters = dict(parameters)
    if credential is not None:
        box = connect.secret_box()
        source.credential_sealed = (
            box.seal(credential, bound_to=bound_to(source.pk)) if credential else ""
        )
    source.next_due_at = None
    source.save(
        update_fields=["url", "interval_s", "parameters", "credential_sealed", "next_due_at"]
    )
    _record(actor, now, "source.change", source, before)
    return source


def _check_address(url: str) -> None:
    _, host, port, _ = split_url(url)
    resolve(host, port, connect.fetch_policy())


def _check_exporters(parameters: Mapping[str, Any]) -> None:
    """Refuse what no fetch would take; parameters are shown and audited, so no password may be in
    them. Whether an address may be called is checked with each fetch."""
    raw = parameters.get("exporters")
    for item in raw if isinstance(raw, list) else ():
        if isinstance(item, Mapping) and item.get("url"):
            split_url(str(item["url"]))


def _scope(cluster: Cluster, deployment: Deployment | None) -> ObjectScope:
    if deployment is not None:
        return fleet.object_scope(deployment)
    return ObjectScope(cluster_id=cluster.pk)


def _facts(source: Source) -> dict[str, Any]:
    return {
        "kind": source.kind,
        "url": source.url,
        "interval_s": source.interval_s,
        "parameters": source.parameters,
        "credential": "set" if source.credential_sealed else "",
    }


def _record(
    actor: Viewer, now: datetime, action: str, source: Source, before: dict[str, Any] | None
) -> None:
    audit.record(
        actor=actor,
        now=now,
        action=action,
        object_kind="source",
        object_id=str(source.pk),
        object_label=source.name,
        cluster_id=str(source.cluster_id),
        deployment_id=str(source.deployment_id or ""),
        before=before,
        after=_facts(source),
    )


@dataclass(frozen=True, slots=True)
class _Wanted:
    """What a target should be."""

    worker_id: UUID | None
    profile: str
    match: Mapping[str, str] = field(default_factory=dict)


def sync_targets(deployment: Deployment, source: Source | None = None) -> tuple[Target, ...]:
    """Make the targets follow the inventory, and return the active ones.

    One engine target per worker with a metrics address (profile from its pool's engine), the
    router's and the frontend's from the backend's parameters (`metrics_url`,
    `frontend_metrics_url`, `metrics_profile`, `frontend_profile`, `metrics_match`). Writes only
    what differs. No source: no targets.
    """
    source = source or source_of(deployment)
    if source is None:
        return ()
    topologies = {deployment.pk: fleet.topology(deployment)}
    return sync_all(source, [deployment], topologies)[deployment.pk]


def sync_all(
    source: Source, deployments: Sequence[Deployment], topologies: Mapping[UUID, Topology]
) -> dict[UUID, tuple[Target, ...]]:
    """The same for all deployments of a source; one query where nothing differs."""
    present: dict[UUID, dict[tuple[str, str], Target]] = {}
    rows = Target.objects.filter(source=source, deployment__in=[d.pk for d in deployments])
    for target in rows:
        present.setdefault(target.deployment_id, {})[(target.scope, target.url)] = target
    gone: list[UUID] = []
    found: dict[UUID, tuple[Target, ...]] = {}
    for deployment in deployments:
        wanted = _wanted(deployment, topologies[deployment.pk])
        mine = present.get(deployment.pk, {})
        for key, want in wanted.items():
            mine[key] = _synced(mine.get(key), source, deployment, key, want)
        gone += [t.pk for key, t in mine.items() if key not in wanted and t.is_active]
        found[deployment.pk] = tuple(mine[key] for key in sorted(wanted))
    if gone:
        Target.objects.filter(pk__in=gone).update(is_active=False, last_error="")
    return found


def _synced(
    target: Target | None,
    source: Source,
    deployment: Deployment,
    key: tuple[str, str],
    want: _Wanted,
) -> Target:
    if target is None:
        target, _ = Target.objects.get_or_create(
            source=source,
            deployment=deployment,
            scope=key[0],
            url=key[1],
            defaults={
                "worker_id": want.worker_id,
                "profile": want.profile,
                "match": dict(want.match),
            },
        )
    state = (target.worker_id, target.profile, target.match, target.is_active)
    if state != (want.worker_id, want.profile, dict(want.match), True):
        target.worker_id, target.profile = want.worker_id, want.profile
        target.match, target.is_active = dict(want.match), True
        target.save(update_fields=["worker", "profile", "match", "is_active"])
    return target


def source_of(deployment: Deployment) -> Source | None:
    """The deployment's own source, else its cluster's."""
    own = Source.objects.filter(deployment=deployment).first()
    return (
        own
        or Source.objects.filter(cluster_id=deployment.cluster_id, deployment__isnull=True).first()
    )


def _wanted(deployment: Deployment, topology: Topology) -> dict[tuple[str, str], _Wanted]:
    wanted: dict[tuple[str, str], _Wanted] = {}
    engines = {role: pool.engine for role, pool in topology.pools.items() if pool.engine}
    only = next(iter(engines.values()), "") if len(set(engines.values())) == 1 else ""
    for worker in topology.workers:
        profile = _profile(engines.get(worker.role, only))
        if worker.metrics_url and profile:
            key = (TargetScope.ENGINE.value, worker.metrics_url)
            wanted[key] = _Wanted(worker.id, profile)
    try:
        parameters = deployment.backend.parameters
    except ObjectDoesNotExist:
        return wanted
    raw = parameters.get("metrics_match")
    match = {str(k): str(v) for k, v in raw.items()} if isinstance(raw, dict) else {}
    for scope, field_name, profile_name, default in (
        (TargetScope.ROUTER, "metrics_url", "metrics_profile", "smg"),
        (TargetScope.FRONTEND, "frontend_metrics_url", "frontend_profile", "dynamo_frontend"),
    ):
        url = str(parameters.get(field_name) or "")
        profile = _profile(str(parameters.get(profile_name) or default))
        if url and profile:
            wanted[(scope.value, url)] = _Wanted(None, profile, match)
    return wanted


def _profile(engine: str) -> str:
    """The profile that reads an engine; empty if none is shipped."""
    try:
        return loader.load(engine).profile if engine else ""
    except loader.UnknownProfile:
        return ""
