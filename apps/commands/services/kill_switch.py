"""The kill switch: a row per scope, and a file that works with the database down."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Final
from uuid import UUID

from django.conf import settings
from django.db import transaction

from apps.accounts.domain.authorize import (
    NotAllowed as RoleMissing,
)
from apps.accounts.domain.authorize import (
    ObjectScope,
    Permission,
    ScopeKind,
    Viewer,
)
from apps.accounts.domain.authorize import (
    require as require_role,
)
from apps.audit import services as audit
from apps.fleet import selectors as fleet
from apps.fleet.models import Deployment, Environment

from ..models import KillSwitch
from . import errors

#: A file of this name in the state folder stops everything, whatever the database says.
STOP_FILE: Final = "STOP"


def stop_reason(deployment: Deployment) -> str | None:
    """Which switch stops commands on the deployment; read afresh, None if none.

    A database error is raised to the caller, who must then send nothing: unreadable means stop.
    """
    if (Path(settings.STATE_DIR) / STOP_FILE).exists():
        return "file"
    on = KillSwitch.objects.filter(on=True).values_list("scope_kind", "scope_id")
    ids = {
        ScopeKind.INSTALLATION.value: None,
        ScopeKind.CLUSTER.value: deployment.cluster_id,
        ScopeKind.TEAM.value: deployment.team_id,
        ScopeKind.DEPLOYMENT.value: deployment.pk,
    }
    for kind, scope_id in on:
        if kind == ScopeKind.INSTALLATION.value or (kind in ids and ids[kind] == scope_id):
            return str(kind)
    return None


@transaction.atomic
def set_kill_switch(
    *,
    actor: Viewer,
    now: datetime,
    on: bool,
    scope_kind: ScopeKind = ScopeKind.DEPLOYMENT,
    scope_id: UUID | None = None,
    slug: str = "",
    reason: str = "",
) -> KillSwitch:
    """Turn a switch on at once, or off: by one person in a demo, else by two.

    The first to ask for the release is recorded; it takes effect when another person with the
    permission asks too. `slug` names a deployment instead of kind and id. Raises NotAllowed,
    NotVisible.
    """
    if slug:
        scope_kind, scope_id = ScopeKind.DEPLOYMENT, fleet.deployment_by_slug(actor, slug).pk
    if (scope_id is None) != (scope_kind is ScopeKind.INSTALLATION):
        raise fleet.NotVisible(scope_kind.value)
    scope = _scope(scope_kind, scope_id)
    _require(actor, Permission.KILL_ON if on else Permission.KILL_OFF, scope)
    row, _ = KillSwitch.objects.select_for_update().get_or_create(
        scope_kind=scope_kind.value,
        scope_id=scope_id,
        defaults={"on": False, "by_name": actor.name, "at": now},
    )
    before = {"on": row.on, "release_by": row.release_by_name}
    if on:
        _write(row, actor, now, on=True, reason=reason)
        action = "kill_switch.on"
    elif not row.on:
        return row
    elif _is_demo(scope_kind, scope_id) or _second_person(row, actor):
        _write(row, actor, now, on=False, reason=reason)
        action = "kill_switch.off"
    else:
        if actor.via_token:
            raise errors.TokenMayNotApprove(environment="production")
        row.release_by_id = actor.user_id
        row.release_by_name = actor.name
        row.release_at = now
        row.save()
        action = "kill_switch.release_requested"
    audit.record(
        actor=actor,
        now=now,
        action=action,
        object_kind="kill_switch",
        object_id=str(row.pk),
        object_label=scope_kind.value,
        cluster_id=str(scope.cluster_id or ""),
        deployment_id=str(scope.deployment_id or ""),
        before=before,
        after={"on": row.on, "release_by": row.release_by_name},
        reason=reason,
    )
    return row


def _write(row: KillSwitch, actor: Viewer, now: datetime, *, on: bool, reason: str) -> None:
    row.on = on
    row.by_id = actor.user_id
    row.by_name = actor.name
    row.at = now
    row.reason = reason
    row.release_by = None
    row.release_by_name = ""
    row.release_at = None
    row.save()


def _second_person(row: KillSwitch, actor: Viewer) -> bool:
    return (
        row.release_at is not None
        and not actor.via_token
        and actor.user_id is not None
        and actor.user_id != row.release_by_id
    )


def _is_demo(scope_kind: ScopeKind, scope_id: UUID | None) -> bool:
    """True when nothing but demo deployments lies in the scope."""
    rows = Deployment.objects.filter(ended_at__isnull=True)
    if scope_kind is not ScopeKind.INSTALLATION and scope_id is None:
        return False
    if scope_id is None:
        pass
    elif scope_kind is ScopeKind.CLUSTER:
        rows = rows.filter(cluster_id=scope_id)
    elif scope_kind is ScopeKind.TEAM:
        rows = rows.filter(team_id=scope_id)
    elif scope_kind is ScopeKind.DEPLOYMENT:
        rows = rows.filter(pk=scope_id)
    return rows.exists() and not rows.exclude(environment=Environment.DEMO).exists()


def _scope(scope_kind: ScopeKind, scope_id: UUID | None) -> ObjectScope:
    if scope_kind is ScopeKind.DEPLOYMENT and scope_id is not None:
        return fleet.object_scope(fleet.deployment_by_id(scope_id))
    if scope_kind is ScopeKind.CLUSTER:
        return ObjectScope(cluster_id=scope_id)
    if scope_kind is ScopeKind.TEAM:
        return ObjectScope(team_id=scope_id)
    return ObjectScope()


def _require(actor: Viewer, permission: Permission, scope: ObjectScope) -> None:
    try:
        require_role(actor, permission, scope)
    except RoleMissing as missing:
        raise errors.NotAllowed(permission=missing.permission.value) from missing
