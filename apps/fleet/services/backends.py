"""Connecting a backend and observing it: discovery from the router (serving, roles)."""

from __future__ import annotations

import hmac
import logging
import os
import socket
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID, uuid4

from django.db import transaction

from apps.accounts.domain.authorize import Permission, Viewer, require
from apps.audit import services as audit
from apps.backends.protocol import ABSENT, Snapshot, WorkerRef, WorkerView
from apps.common import leases
from apps.common.addresses import same_address
from apps.common.fetch import FetchError, resolve, split_url
from apps.common.secretbox import SecretBox, SecretUnreadable

from .. import connect, selectors
from ..models import AttributeSource, Backend, Deployment, Serving, Worker
from .spans import record_role

log = logging.getLogger(__name__)
_OWNER: Final = f"{socket.gethostname()}:{os.getpid()}"


@transaction.atomic
def connect_backend(
    *,
    actor: Viewer,
    now: datetime,
    deployment: Deployment,
    adapter: str,
    address: str,
    parameters: Mapping[str, Any],
    credential: str | None = None,
    engine_credential: str | None = None,
    observe_interval_s: float = 15,
) -> Backend:
    """Set how a deployment is observed and commanded.

    Changing the address clears the stored credentials unless new ones are given, so that
    re-pointing it can never send a secret to a new host (DESIGN law 14). Raises FetchError for an
    address that may not be called.
    """
    require(actor, Permission.CONFIGURE, selectors.object_scope(deployment))
    if address:
        _, host, port, _ = split_url(address)
        resolve(host, port, connect.fetch_policy())
    backend, _ = Backend.objects.select_for_update().get_or_create(deployment=deployment)
    moved = backend.address != address
    if moved:
        backend.credential_sealed = backend.engine_credential_sealed = ""
        backend.credential_id = None
    backend.adapter = adapter
    backend.address = address
    backend.parameters = dict(parameters)
    backend.observe_interval_s = observe_interval_s
    box = connect.secret_box()
    for field, secret in (("credential", credential), ("engine_credential", engine_credential)):
        place = connect.bound_to(deployment.pk, field)
        sealed = getattr(backend, f"{field}_sealed")
        if secret is not None and not _is_same(box, sealed, place, secret):
            setattr(backend, f"{field}_sealed", box.seal(secret, bound_to=place))
            backend.credential_id = uuid4()
    backend.next_due_at = None
    backend.save()
    audit.record(
        actor=actor,
        now=now,
        action="backend.connect",
        object_kind="deployment",
        object_id=str(deployment.pk),
        object_label=deployment.slug,
        cluster_id=str(deployment.cluster_id),
        deployment_id=str(deployment.pk),
        after={"adapter": adapter, "address": address, "credential": "set" if credential else ""},
    )
    return backend


def _is_same(box: SecretBox, sealed: str, place: str, secret: str) -> bool:
    """True if this very secret is stored already: then the credential stays the one that approvals
    cover (DESIGN law 13)."""
    if not sealed:
        return False
    try:
        return hmac.compare_digest(box.open(sealed, bound_to=place).encode(), secret.encode())
    except SecretUnreadable:
        return False


def observe_backend(*, deployment_id: UUID | str, now: datetime) -> Snapshot | None:
    """Read the backend once and write what it says. Safe to run twice; None when leased away or
    unreachable (then `last_error` says why and nothing else changes: unreachable is not gone)."""
    rows = Backend.objects.all()
    owner = f"{_OWNER}:{uuid4().hex[:8]}"
    lease = leases.claim(rows, deployment_id, owner=owner, now=now, ttl_s=30)
    if lease is None:
        return None
    try:
        deployment = selectors.deployment_by_id(deployment_id)
        known = [
            WorkerRef(worker.url, worker.name, worker.role, worker.bootstrap_port)
            for worker in selectors.topology(deployment).workers
        ]
        try:
            snapshot = connect.adapter_for(deployment).observe(now, known)
        except (FetchError, SecretUnreadable) as error:
            _note_failure(deployment.pk, now, str(error))
            return None
        if not snapshot.workers and not snapshot.complete:
            _note_failure(deployment.pk, now, "; ".join(snapshot.problems)[:200])
            return None
        _write_snapshot(deployment, snapshot, now)
        return snapshot
    finally:
        leases.release(rows, lease)


def _note_failure(deployment_id: UUID, now: datetime, message: str) -> None:
    backend = Backend.objects.get(pk=deployment_id)
    Backend.objects.filter(pk=deployment_id).update(
        last_error=message[:200],
        last_error_at=now,
        next_due_at=now + timedelta(seconds=backend.observe_interval_s),
    )


@transaction.atomic
def _write_snapshot(deployment: Deployment, snapshot: Snapshot, now: datetime) -> None:
    # A router may spell an address otherwise than we do: that is no other worker.
    living = {
        same_address(worker.url): worker
        for worker in Worker.objects.filter(deployment=deployment, ended_at__isnull=True)
    }
    listed = {same_address(view.url) for view in snapshot.workers if view.status != ABSENT}
    for view in snapshot.workers:
        key = same_address(view.url)
        if view.status == ABSENT and key in listed:
            continue
        worker = living.get(key)
        if worker is None and view.status == ABSENT:
            continue
        if worker is None:
            worker = _discovered(deployment, view, now)
            living[key] = worker
        _update_worker(worker, view, now)
    if snapshot.complete:
        Worker.objects.filter(
            pk__in=[worker.pk for key, worker in living.items() if key not in listed]
        ).update(serving=Serving.ABSENT, serving_at=now, router_worker_id="")
    backend = Backend.objects.get(pk=deployment.pk)
    Backend.objects.filter(pk=deployment.pk).update(
        last_ok_at=now,
        last_error="",
        version=snapshot.version[:64],
        next_due_at=now + timedelta(seconds=backend.observe_interval_s),
    )


def _discovered(deployment: Deployment, view: WorkerView, now: datetime) -> Worker:
    number = Worker.objects.filter(deployment=deployment).count()
    worker = Worker.objects.create(
        deployment=deployment,
        kind="engine",
        name=f"{view.role[:1] or 'w'}-{number}",
        url=view.url,
        metrics_url=f"{view.url.rstrip('/')}/metrics",
        role=view.role,
        role_source=AttributeSource.REPORTED,
        first_seen_at=now,
    )
    record_role(now=now, worker_id=worker.pk, role=view.role, source=AttributeSource.REPORTED)
    return worker


def _update_worker(worker: Worker, view: WorkerView, now: datetime) -> None:
    if view.status == ABSENT:
        serving = Serving.ABSENT
    elif view.status == "draining":
        serving = Serving.DRAINING
    elif view.is_healthy:
        serving = Serving.SERVING
    else:
        serving = Serving.UNHEALTHY
    if serving is Serving.SERVING and view.role and view.role != worker.role:
        record_role(now=now, worker_id=worker.pk, role=view.role, source=AttributeSource.REPORTED)
    elif (
        serving is Serving.SERVING and view.role and worker.role_source != AttributeSource.REPORTED
    ):
        Worker.objects.filter(pk=worker.pk).update(role_source=AttributeSource.REPORTED)
    Worker.objects.filter(pk=worker.pk).update(
        serving=serving,
        serving_at=now,
        last_seen_at=now,
        router_worker_id=view.router_id,
    )
