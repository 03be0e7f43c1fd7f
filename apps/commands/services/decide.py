"""What people decide about a proposed command: approve, reject, cancel."""

from __future__ import annotations

from datetime import datetime, timedelta
from uuid import UUID

from django.db import IntegrityError, transaction

from apps.accounts.domain.authorize import Permission, Viewer
from apps.fleet import selectors as fleet

from ..domain import approvals
from ..domain.states import CommandState
from ..models import Approval, Command
from . import errors
from .log import StateMoved, move, note, record, wake

APPROVED, REJECTED = "approved", "rejected"


def visible(actor: Viewer, command_id: UUID | None, number: str = "") -> Command:
    """The command by id or number, if the actor may see its deployment. Raises CommandNotFound."""
    rows = Command.objects.select_related("deployment", "deployment__cluster").filter(
        deployment__in=fleet.deployments_for(actor)
    )
    if command_id is not None:
        found = rows.filter(pk=command_id).first()
    else:
        found = rows.filter(number__iexact=number).first()
    if found is None:
        raise errors.CommandNotFound(number=number or str(command_id))
    return found


def proposers(command: Command) -> tuple[approvals.Proposer, ...]:
    """Who proposed it, as the rules want them."""
    return tuple(approvals.Proposer(one["id"], one["name"]) for one in command.proposers)


def untouched(command: Command) -> bool:
    """True for the planner's own recommendation, applied as it was."""
    return command.recommendation_id is not None and all(
        not one.user_id for one in proposers(command)
    )


def may_approve(actor: Viewer, command: Command) -> errors.CommandError | None:
    """Why the actor may not approve this command; None if they may (for buttons and for acting)."""
    deployment = command.deployment
    code = approvals.refusal(
        environment=deployment.environment,
        mode=fleet.effective_mode(deployment),
        proposers=proposers(command),
        approver_id=str(actor.user_id or ""),
        is_system=actor.is_system,
        is_active=actor.is_active,
        holds_role=actor.can(Permission.APPROVE, fleet.object_scope(deployment)),
        via_token=actor.via_token,
    )
    if code is None:
        return None
    if code == "token":
        return errors.TokenMayNotApprove(environment=deployment.environment)
    if code == "own_proposal":
        return errors.OwnProposal(environment=deployment.environment)
    return errors.NotAllowed(permission=Permission.APPROVE.value, reason=code)


def approve(
    *,
    actor: Viewer,
    now: datetime,
    command_id: UUID | None = None,
    number: str = "",
    plan_hash: str,
    reason: str = "",
    via: str = "console",
) -> Command:
    """Approve exactly the plan with this hash. Repeating one's own approval changes nothing.

    Raises PlanChanged, WrongState, OwnProposal, TokenMayNotApprove, NotAllowed, CommandNotFound.
    """
    command = visible(actor, command_id, number)
    if _decided(command, actor) == APPROVED and command.plan_hash == plan_hash:
        return command
    _expire(command, now)
    if command.state != CommandState.PROPOSED:
        raise errors.WrongState(state=command.state)
    if plan_hash != command.plan_hash:
        raise errors.PlanChanged(plan_hash=command.plan_hash)
    refused = may_approve(actor, command)
    if refused is not None:
        raise refused
    try:
        with transaction.atomic():
            _decision(command, actor, now, APPROVED, reason, via)
            given = command.approvals.filter(decision=APPROVED, plan_hash=plan_hash).count()
            if given >= approvals.rule_for(command.deployment.environment).needed:
                _approved(command, actor, now, reason)
    except StateMoved as error:
        raise errors.WrongState(state=_state(command)) from error
    wake(command.pk)
    return command


def _approved(command: Command, actor: Viewer, now: datetime, reason: str) -> None:
    start = max(now, command.not_before) if command.not_before else now
    life_s = fleet.defaults_for(command.deployment).approval_life_s
    move(
        command,
        CommandState.SCHEDULED if start > now else CommandState.APPROVED,
        now=now,
        actor=actor,
        reason=reason,
        approved_at=now,
        approval_expires_at=start + timedelta(seconds=life_s),
        next_drive_at=start,
    )


def reject(
    *,
    actor: Viewer,
    now: datetime,
    command_id: UUID | None = None,
    number: str = "",
    reason: str = "",
    via: str = "console",
) -> Command:
    """Refuse a proposal. Needs the approver's role; a proposer withdraws with `cancel` instead."""
    command = visible(actor, command_id, number)
    if not actor.can(Permission.APPROVE, fleet.object_scope(command.deployment)):
        raise errors.NotAllowed(permission=Permission.APPROVE.value)
    if command.state != CommandState.PROPOSED:
        raise errors.WrongState(state=command.state)
    try:
        with transaction.atomic():
            _decision(command, actor, now, REJECTED, reason, via)
            move(
                command,
                CommandState.REJECTED,
                now=now,
                actor=actor,
                reason=reason,
                finished_at=now,
                error_code="rejected",
                error_params={"by": actor.name, "reason": reason},
            )
    except StateMoved as error:
        raise errors.WrongState(state=_state(command)) from error
    return command


def cancel(
    *,
    actor: Viewer,
    now: datetime,
    command_id: UUID | None = None,
    number: str = "",
    reason: str = "",
) -> Command:
    """Stop a command: at once before it runs, between two steps while it runs.

    A running one ends as CANCELLED if nothing was sent yet, else as PARTIAL with what is true.
    """
    command = visible(actor, command_id, number)
    scope = fleet.object_scope(command.deployment)
    if not (actor.can(Permission.PROPOSE, scope) or actor.can(Permission.ROLL_BACK, scope)):
        raise errors.NotAllowed(permission=Permission.PROPOSE.value)
    waiting = (CommandState.PROPOSED, CommandState.APPROVED, CommandState.SCHEDULED)
    if command.state in waiting:
        try:
            move(
                command,
                CommandState.CANCELLED,
                now=now,
                actor=actor,
                reason=reason,
                finished_at=now,
                error_code="cancelled",
                error_params={"by": actor.name},
            )
        except StateMoved as error:
            raise errors.WrongState(state=_state(command)) from error
        return command
    if command.state not in (CommandState.PREFLIGHT, CommandState.RUNNING):
        raise errors.WrongState(state=command.state)
    with transaction.atomic():
        asked = {"by": actor.name, "reason": reason, "at": now.isoformat()}
        stopped = Command.objects.filter(
            pk=command.pk, state__in=[CommandState.PREFLIGHT.value, CommandState.RUNNING.value]
        ).update(cancel_requested=asked, next_drive_at=now)
        if stopped != 1:
            raise errors.WrongState(state=_state(command))
        command.cancel_requested = asked
        note(command, now, "cancel_requested", by=actor.name)
        record(command, now=now, actor=actor, action="command.cancel", reason=reason)
    wake(command.pk)
    return command


def _decided(command: Command, actor: Viewer) -> str | None:
    if actor.user_id is None:
        return None
    return (
        command.approvals.filter(user_id=actor.user_id).values_list("decision", flat=True).first()
    )


def _decision(
    command: Command, actor: Viewer, now: datetime, decision: str, reason: str, via: str
) -> None:
    try:
        with transaction.atomic():
            Approval.objects.create(
                command=command,
                user_id=actor.user_id,
                user_name=actor.name,
                decision=decision,
                at=now,
                plan_hash=command.plan_hash,
                reason=reason,
                via="token" if actor.via_token else via,
            )
    except IntegrityError as error:
        raise errors.AlreadyDecided() from error
    note(command, now, f"decision.{decision}", by=actor.name)
    record(
        command,
        now=now,
        actor=actor,
        action="command.decide",
        after={"decision": decision, "plan_hash": command.plan_hash},
        reason=reason,
    )


def expires_at(command: Command) -> datetime:
    """When a proposal that nobody approved ends."""
    life_s = fleet.defaults_for(command.deployment).recommendation_life_s
    return command.requested_at + timedelta(seconds=life_s)


def _expire(command: Command, now: datetime) -> None:
    if command.state == CommandState.PROPOSED and expires_at(command) <= now:
        move(
            command,
            CommandState.EXPIRED,
            now=now,
            finished_at=now,
            error_code="expired",
        )
        raise errors.WrongState(state=command.state)


def _state(command: Command) -> str:
    return str(Command.objects.values_list("state", flat=True).get(pk=command.pk))
