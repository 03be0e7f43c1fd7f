"""State changes, each with its event and its audit record in one transaction."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from celery import current_app
from django.db import transaction
from kombu.exceptions import OperationalError

from apps.accounts.domain.authorize import SYSTEM, Viewer
from apps.audit import services as audit
from apps.common import leases
from apps.common.leases import Lease

from ..domain.states import CommandState, StepState, check, check_step
from ..models import Command, CommandEvent, Step

log = logging.getLogger(__name__)


class StateMoved(Exception):
    """Somebody else moved the row first; the caller must stop and look again."""


def note(command: Command, now: datetime, code: str, /, **params: Any) -> None:
    """One line in the command's log."""
    CommandEvent.objects.create(command=command, at=now, code=code, params=params)


@transaction.atomic
def move(
    command: Command,
    to: CommandState,
    *,
    now: datetime,
    actor: Viewer = SYSTEM,
    lease: Lease | None = None,
    reason: str = "",
    params: Mapping[str, Any] | None = None,
    **values: Any,
) -> None:
    """Conditional UPDATE of the state, with event and audit. Raises StateMoved, LeaseLost."""
    was = CommandState(command.state)
    check(was, to)
    rows = Command.objects.filter(pk=command.pk, state=was.value)
    if lease is not None:
        leases.assert_held(Command.objects.all(), lease)
        rows = rows.filter(lease_epoch=lease.epoch)
    if rows.update(state=to.value, **values) != 1:
        raise StateMoved(f"{command.number} is no longer {was}")
    command.state = to.value
    for name, value in values.items():
        setattr(command, name, value)
    note(command, now, f"state.{to.value.lower()}", **dict(params or {}))
    record(
        command,
        now=now,
        actor=actor,
        action=f"command.{to.value.lower()}",
        before={"state": was.value},
        after={"state": to.value, **dict(params or {})},
        reason=reason,
    )


def record(
    command: Command,
    *,
    now: datetime,
    actor: Viewer,
    action: str,
    before: Mapping[str, Any] | None = None,
    after: Mapping[str, Any] | None = None,
    reason: str = "",
) -> None:
    """An audit event about a command."""
    audit.record(
        actor=actor,
        now=now,
        action=action,
        object_kind="command",
        object_id=str(command.pk),
        object_label=command.number,
        cluster_id=str(command.deployment.cluster_id),
        deployment_id=str(command.deployment_id),
        before=before,
        after=after,
        reason=reason,
    )


@transaction.atomic
def move_step(step: Step, to: StepState, *, now: datetime, lease: Lease, **values: Any) -> None:
    """Conditional UPDATE of a step under the command's lease. Raises StateMoved, LeaseLost."""
    was = StepState(step.state)
    check_step(was, to)
    leases.assert_held(Command.objects.all(), lease)
    rows = Step.objects.filter(pk=step.pk, state=was.value)
    if rows.update(state=to.value, epoch=lease.epoch, **values) != 1:
        raise StateMoved(f"step {step.index} is no longer {was}")
    step.state = to.value
    step.epoch = lease.epoch
    for name, value in values.items():
        setattr(step, name, value)
    params = {"step": step.index, "kind": step.kind, "worker": step.worker_name}
    if step.reason:
        params["reason"] = step.reason
    note(step.command, now, f"step.{to.value.lower()}", **params)


def wake(command_id: object) -> None:
    """Ask for a drive after the commit; a lost message is made good by the sweeper."""

    def send() -> None:
        try:
            current_app.send_task("commands.drive", args=[str(command_id)], queue="control")
        except (OperationalError, OSError) as error:
            log.warning("command %s was not enqueued: %s", command_id, error)

    transaction.on_commit(send)
