"""The only writer of audit events. Called by services inside the transaction of their change."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Protocol

from django.db import transaction

from .models import AuditEvent, AuditHead


class Actor(Protocol):
    """What audit needs to know of a viewer; `accounts` lies above this room."""

    @property
    def user_id(self) -> Any: ...
    @property
    def name(self) -> str: ...
    @property
    def via_token(self) -> bool: ...
    @property
    def source_ip(self) -> str: ...
    @property
    def request_id(self) -> str: ...


class ChainBroken(Exception):
    """The head could not be moved; the change must not be committed."""


@transaction.atomic
def record(
    *,
    actor: Actor,
    now: datetime,
    action: str,
    object_kind: str,
    object_id: str,
    object_label: str = "",
    cluster_id: str = "",
    deployment_id: str = "",
    before: Mapping[str, Any] | None = None,
    after: Mapping[str, Any] | None = None,
    reason: str = "",
) -> AuditEvent:
    """Append one event. If it cannot be written the caller's transaction fails with it."""
    AuditHead.objects.get_or_create(pk=1)
    head = AuditHead.objects.select_for_update().get(pk=1)
    event = AuditEvent(
        sequence=head.sequence + 1,
        at=now,
        actor_id=str(actor.user_id or ""),
        actor_name=actor.name,
        via_token=actor.via_token,
        source_ip=actor.source_ip,
        request_id=actor.request_id,
        action=action,
        object_kind=object_kind,
        object_id=object_id,
        object_label=object_label[:200],
        cluster_id=cluster_id,
        deployment_id=deployment_id,
        before=dict(before) if before is not None else None,
        after=dict(after) if after is not None else None,
        reason=reason,
        previous_hash=head.hash,
    )
    event.hash = digest(event)
    moved = AuditHead.objects.filter(pk=1, sequence=head.sequence, hash=head.hash).update(
        sequence=event.sequence, hash=event.hash
    )
    if moved != 1:
        raise ChainBroken("another writer moved the audit head")
    event.save(force_insert=True)
    return event


def digest(event: AuditEvent) -> str:
    """SHA-256 over the canonical JSON of the event and the hash before it."""
    body = {
        "sequence": event.sequence,
        "at": event.at.isoformat(),
        "actor_id": event.actor_id,
        "actor_name": event.actor_name,
        "via_token": event.via_token,
        "source_ip": event.source_ip,
        "request_id": event.request_id,
        "action": event.action,
        "object_kind": event.object_kind,
        "object_id": event.object_id,
        "object_label": event.object_label,
        "cluster_id": event.cluster_id,
        "deployment_id": event.deployment_id,
        "before": event.before,
        "after": event.after,
        "reason": event.reason,
    }
    canonical = json.dumps(body, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256((canonical + event.previous_hash).encode()).hexdigest()
