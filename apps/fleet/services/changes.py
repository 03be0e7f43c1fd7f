"""What commands change in the inventory: wanted counts, revision, change state."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.db import transaction
from django.db.models import F

from apps.accounts.domain.authorize import Viewer
from apps.audit import services as audit

from ..models import ChangeState, Deployment, Pool


class StaleRevision(Exception):
    """The deployment moved on since it was read; carries the present state (HTTP 409)."""

    code = "stale_revision"
    http_status = 409

    def __init__(self, expected: int, current: int, wanted: Mapping[str, int]) -> None:
        super().__init__(f"revision {expected} was expected, the deployment is at {current}")
        self.expected = expected
        self.current = current
        self.wanted = dict(wanted)
        self.params: dict[str, Any] = {
            "expected": expected,
            "current": current,
            "wanted": dict(wanted),
        }


def wanted_counts(deployment_id: UUID) -> dict[str, int]:
    """Wanted workers per role."""
    return dict(
        Pool.objects.filter(deployment_id=deployment_id).values_list("role", "wanted_workers")
    )


@transaction.atomic
def set_wanted(
    *,
    actor: Viewer,
    now: datetime,
    deployment_id: UUID,
    wanted: Mapping[str, int],
    expected_revision: int,
) -> int:
    """Set absolute wanted workers per role by compare-and-swap on the revision.

    Returns the new revision; raises StaleRevision without any change if it has moved.
    """
    before = wanted_counts(deployment_id)
    moved = Deployment.objects.filter(pk=deployment_id, revision=expected_revision).update(
        revision=F("revision") + 1
    )
    if moved != 1:
        current = Deployment.objects.values_list("revision", flat=True).get(pk=deployment_id)
        raise StaleRevision(expected_revision, current, before)
    for role, count in wanted.items():
        Pool.objects.filter(deployment_id=deployment_id, role=role).update(wanted_workers=count)
    deployment = Deployment.objects.get(pk=deployment_id)
    audit.record(
        actor=actor,
        now=now,
        action="deployment.set_wanted",
        object_kind="deployment",
        object_id=str(deployment_id),
        object_label=deployment.slug,
        cluster_id=str(deployment.cluster_id),
        deployment_id=str(deployment_id),
        before=before,
        after=dict(wanted),
    )
    return expected_revision + 1


@transaction.atomic
def begin_change(
    *, now: datetime, deployment_id: UUID, command_id: UUID, label: str
) -> ChangeState:
    """Note that a command is changing the deployment."""
    state, _ = ChangeState.objects.select_for_update().get_or_create(pk=deployment_id)
    state.active_command_id = command_id
    state.active_command_label = label
    state.save(update_fields=["active_command_id", "active_command_label"])
    return state


@transaction.atomic
def finish_change(
    *,
    now: datetime,
    deployment_id: UUID,
    command_id: UUID,
    converged: Mapping[str, int] | None,
    kind: str,
    direction: str,
) -> None:
    """Note the end of a command; a change of direction counts as a reversal (flap rule)."""
    state, _ = ChangeState.objects.select_for_update().get_or_create(pk=deployment_id)
    if state.active_command_id == command_id:
        state.active_command_id = None
        state.active_command_label = ""
    if converged is not None:
        state.last_converged = dict(converged)
        if direction and state.last_direction and direction != state.last_direction:
            horizon = now - timedelta(days=1)
            recent = [t for t in state.reversals if datetime.fromisoformat(t) > horizon]
            state.reversals = [*recent, now.isoformat()]
        state.last_direction = direction or state.last_direction
        state.last_change_at = now
        state.last_change_kind = kind
    state.save()


@transaction.atomic
def note_foreign_change(*, now: datetime, deployment_id: UUID, what: Mapping[str, Any]) -> None:
    """Somebody else changed the serving set; planning holds until a person acknowledges."""
    state, _ = ChangeState.objects.select_for_update().get_or_create(pk=deployment_id)
    state.foreign_change_at = now
    state.foreign_change = dict(what)
    state.save(update_fields=["foreign_change_at", "foreign_change"])
