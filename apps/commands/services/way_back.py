"""Taking a command back: always a new command with its own plan and diff."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.db import transaction

from apps.accounts.domain.authorize import SYSTEM, Permission, Viewer
from apps.common.leases import Lease
from apps.fleet import selectors as fleet
from apps.fleet import services as fleet_services

from ..domain import approvals
from ..domain.states import ACTIVE, CommandState, Kind
from ..models import Command
from . import decide, errors
from .finish import release
from .kill_switch import stop_reason
from .log import StateMoved, move, note, record, wake
from .planned import look, make_plan
from .writing import insert

#: The way back is part of the approved plan while the command has not succeeded yet.
_INSIDE_THE_PLAN = (CommandState.SOAK, CommandState.PARTIAL)
_NEW_PLAN = (CommandState.SUCCEEDED, CommandState.ROLLBACK_FAILED)


def rollback(
    *,
    actor: Viewer,
    now: datetime,
    command_id: UUID | None = None,
    number: str = "",
    reason: str = "",
    idempotency_key: str = "",
) -> Command:
    """Return the deployment to the counts before a command.

    Gives the new rollback command; for one that still runs, the command itself, which stops
    between two steps and is then rolled back. A way back inside the approved plan needs no second
    approval; after success it is a new proposal (in a demo approved at once by its proposer).
    Asking again gives the rollback that is under way, with or without an idempotency key.
    Raises NotAllowed, WrongState, KillSwitchOn, BackendUnreachable, InfeasiblePlan.
    """
    command = decide.visible(actor, command_id, number)
    if not actor.can(Permission.ROLL_BACK, fleet.object_scope(command.deployment)):
        raise errors.NotAllowed(permission=Permission.ROLL_BACK.value)
    existing = command.rollbacks.filter(state__in=[state.value for state in ACTIVE]).first()
    if existing is not None:
        return existing
    if command.state == CommandState.RUNNING:
        return _stop_then_roll_back(command, actor, now, reason)
    if command.kind == Kind.ROLLBACK or command.state not in (*_INSIDE_THE_PLAN, *_NEW_PLAN):
        raise errors.WrongState(state=command.state)
    stopped = stop_reason(command.deployment)
    if stopped:
        raise errors.KillSwitchOn(scope=stopped)
    made = start(command, actor=actor, now=now, reason=reason)
    waits = made.state == CommandState.PROPOSED and made.deployment.environment == "demo"
    if waits and decide.may_approve(actor, made) is None:
        return decide.approve(
            actor=actor, now=now, command_id=made.pk, plan_hash=made.plan_hash, reason=reason
        )
    return made


def _stop_then_roll_back(command: Command, actor: Viewer, now: datetime, reason: str) -> Command:
    asked = {"by": actor.name, "reason": reason, "at": now.isoformat(), "roll_back": True}
    with transaction.atomic():
        rows = Command.objects.filter(pk=command.pk, state=CommandState.RUNNING.value)
        if rows.update(cancel_requested=asked, next_drive_at=now) != 1:
            raise errors.WrongState(state=command.state)
        command.cancel_requested = asked
        note(command, now, "rollback_requested", by=actor.name)
        record(command, now=now, actor=actor, action="command.rollback", reason=reason)
    wake(command.pk)
    return command


def start(
    command: Command,
    *,
    actor: Viewer,
    now: datetime,
    reason: str = "",
    lease: Lease | None = None,
    automatic: bool = False,
) -> Command:
    """Plan the way back from what is true now and hand the deployment over to it."""
    deployment = fleet.deployment_by_id(command.deployment_id)
    seen = look(deployment, now)
    before = {role: seen.snapshot.count(role) for role in command.before}
    planned = make_plan(
        seen,
        kind=Kind.ROLLBACK.value,
        targets=command.before,
        before=before,
        expected_revision=deployment.revision,
        now=now,
        # On the way back no objective is held against the plan: it ends what breached it.
        loads={},
        is_rollback=True,
    )
    inside = command.state in _INSIDE_THE_PLAN
    life_s = fleet.defaults_for(deployment).approval_life_s
    who = approvals.Proposer(str(actor.user_id or ""), actor.name)
    values: dict[str, Any] = {
        "state": CommandState.PROPOSED.value,
        "proposers": [who.to_json()],
        "note": reason,
        "rollback_of": command,
        "is_automatic": automatic,
        "recommendation_number": command.recommendation_number,
        "next_drive_at": now,
    }
    if inside:
        values |= {
            "state": CommandState.APPROVED.value,
            "approved_at": now,
            "approval_expires_at": now + timedelta(seconds=life_s),
        }
    try:
        with transaction.atomic():
            if inside:
                _hand_over(command, actor=actor, now=now, lease=lease, reason=reason)
            made = insert(actor, now, seen, planned, values)
            if inside:
                note(made, now, "approved_with", command=command.number)
    except StateMoved as error:
        raise errors.WrongState(state=command.state) from error
    wake(made.pk)
    return made


def _hand_over(
    command: Command, *, actor: Viewer, now: datetime, lease: Lease | None, reason: str
) -> None:
    move(
        command,
        CommandState.ROLLING_BACK,
        now=now,
        actor=actor,
        lease=lease,
        reason=reason,
        finished_at=command.finished_at or now,
        next_drive_at=now + timedelta(seconds=30),
    )
    release(command, now)
    fleet_services.finish_change(
        now=now,
        deployment_id=command.deployment_id,
        command_id=command.pk,
        converged=None,
        kind=command.kind,
        direction="",
    )


def automatic(command: Command, lease: Lease | None, now: datetime, code: str) -> bool:
    """Roll back without asking, as approved with the plan; False (and a note) if it cannot be.

    The kill switch stops this too: a person stopped all writes.
    """
    if stop_reason(command.deployment):
        note(command, now, "rollback_refused", reason="kill_switch")
        return False
    try:
        start(command, actor=SYSTEM, now=now, reason=code, lease=lease, automatic=True)
    except errors.CommandError as error:
        note(command, now, "rollback_refused", reason=error.code, **_plain(error.params))
        return False
    return True


def _plain(params: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in params.items() if key != "reason"}


def begin_of(original: Command, rollback_command: Command, now: datetime) -> None:
    """At the dispatch of a rollback that was a proposal of its own."""
    original.refresh_from_db()
    if original.state in _NEW_PLAN:
        move(
            original,
            CommandState.ROLLING_BACK,
            now=now,
            params={"by": rollback_command.number},
            next_drive_at=now + timedelta(seconds=30),
        )


def settle(command: Command, now: datetime) -> float:
    """A command in ROLLING_BACK follows its newest rollback (after a crash between the two)."""
    newest = command.rollbacks.order_by("-serial").first()
    if newest is None or newest.finished_at is None:
        return 30.0
    done = newest.state == CommandState.SUCCEEDED
    to = CommandState.ROLLED_BACK if done else CommandState.ROLLBACK_FAILED
    move(command, to, now=now, params={"by": newest.number}, next_drive_at=None)
    return 0.0
