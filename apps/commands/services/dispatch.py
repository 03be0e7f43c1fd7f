"""The dispatch: everything that was true at the approval is checked again, then the command takes
its GPUs, its revision and its start in one transaction."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal

from django.db import transaction

from apps.accounts import selectors as accounts
from apps.accounts.domain.authorize import SYSTEM, Permission
from apps.common.leases import Lease
from apps.fleet import selectors as fleet
from apps.fleet import services as fleet_services

from ..domain import specs
from ..domain.plan_hash import changed_parts, plan_hash
from ..domain.proof import Load, largest_gpus
from ..domain.states import CommandState, Kind
from ..models import Command, Reservation
from . import errors, facts, finish, way_back
from .checks import data_refusal
from .decide import APPROVED, untouched
from .kill_switch import stop_reason
from .log import move, note
from .planned import Seen, base_gpus, free_gpus, look, parts_of, prove

_RETRY_S = 5.0


class _Refused(Exception):
    """Ends the command before anything was changed."""

    def __init__(self, to: CommandState, code: str, **params: object) -> None:
        super().__init__(code)
        self.to = to
        self.code = code
        self.params = params


def dispatch(command: Command, lease: Lease, now: datetime) -> float:
    """One attempt. Returns the seconds until the next piece; 0 when the state has changed."""
    try:
        _check_without_backend(command, now)
        if not _is_fresh(command, now):
            return _RETRY_S
        if command.state != CommandState.PREFLIGHT:
            move(command, CommandState.PREFLIGHT, now=now, lease=lease)
        seen = _look(command, now)
        if seen is None:
            return _RETRY_S
        _check_with_backend(command, seen, now)
        _begin(command, seen, lease, now)
    except _Refused as refused:
        finish.end(
            command,
            refused.to,
            now=now,
            lease=lease,
            code=refused.code,
            params=refused.params,
        )
    return 0.0


def _check_without_backend(command: Command, now: datetime) -> None:
    deployment = command.deployment
    if command.approval_expires_at is None or command.approval_expires_at <= now:
        raise _Refused(CommandState.EXPIRED, "expired")
    if command.cancel_requested:
        raise _Refused(CommandState.CANCELLED, "cancelled", by=command.cancel_requested["by"])
    stopped = stop_reason(deployment)
    if stopped:
        raise _Refused(CommandState.DENIED, "kill_switch", scope=stopped)
    if deployment.revision != command.expected_revision:
        raise _Refused(
            CommandState.SUPERSEDED,
            "stale_revision",
            expected=command.expected_revision,
            current=deployment.revision,
        )
    if command.kind == Kind.ROLLBACK:
        return
    mode = fleet.effective_mode(deployment)
    if mode not in ("approve", "auto"):
        raise _Refused(CommandState.DENIED, "mode", mode=mode)
    _check_approvers(command)


def _is_fresh(command: Command, now: datetime) -> bool:
    """True if a reduction may rest on the figures; False to try again, while they are old but not
    gone: so they are for a moment after every restart. Gone ones refuse."""
    if command.kind == Kind.ROLLBACK:
        return True
    stale = data_refusal(command.deployment, command.targets, now)
    if stale is None:
        return True
    if stale.is_gone:
        raise _Refused(CommandState.DENIED, stale.code, **stale.params)
    note(command, now, stale.code, **stale.params)
    return False


def _check_approvers(command: Command) -> None:
    """Each approver is still an active person with the role here, and approved this very plan."""
    scope = fleet.object_scope(command.deployment)
    for approval in command.approvals.filter(decision=APPROVED).select_related("user"):
        if approval.plan_hash != command.plan_hash:
            raise _Refused(CommandState.DENIED, "plan_changed", parts=["plan_hash"])
        if approval.user is None:
            continue
        viewer = accounts.viewer_for(approval.user)
        if not viewer.is_active or not viewer.can(Permission.APPROVE, scope):
            raise _Refused(CommandState.DENIED, "approver_lost_role", by=approval.user_name)


def _look(command: Command, now: datetime) -> Seen | None:
    """A complete observation, or None to try again while the approval lives."""
    try:
        return look(command.deployment, now)
    except errors.BackendUnreachable as error:
        note(command, now, "backend_unreachable", **error.params)
        return None


def _check_with_backend(command: Command, seen: Seen, now: datetime) -> None:
    present = parts_of(
        seen,
        kind=command.kind,
        targets=command.targets,
        before=command.before,
        steps=command.plan,
        expected_revision=command.expected_revision,
        rollback=command.hash_parts["rollback"],
    )
    if plan_hash(present) != command.plan_hash:
        changed = changed_parts(command.hash_parts, present.to_json())
        if changed == ("fence",):
            changes = finish.foreign_in(command, [], None, seen.snapshot)
            raise _Refused(
                CommandState.SUPERSEDED,
                "foreign_writer",
                changes=[change.to_json() for change in changes],
                **({"who": ", ".join(seen.snapshot.owners)} if seen.snapshot.owners else {}),
            )
        raise _Refused(CommandState.DENIED, "plan_changed", parts=list(changed))
    steps = tuple(specs.from_json(spec) for spec in command.plan)
    is_rollback = command.kind == Kind.ROLLBACK
    try:
        prove(seen, steps, command.targets, now=now, loads=_loads(command, now))
    except errors.CommandError as error:
        raise _Refused(CommandState.DENIED, error.code, **error.params) from error
    denials = seen.adapter.preflight(steps, seen.snapshot).denials
    if denials:
        raise _Refused(CommandState.DENIED, "backend_refused", error=", ".join(denials))
    if command.recommendation_id is not None and not is_rollback:
        reasons = facts.provider.recheck(command.recommendation_id, now)
        if reasons:
            raise _Refused(CommandState.DENIED, "guardrail", guardrail=", ".join(reasons))


def _loads(command: Command, now: datetime) -> Mapping[str, Load]:
    """Busy shares that the passing states are held against. Guardrails of the planner judge its
    own recommendation, and a way back ends what breached an objective."""
    if command.kind == Kind.ROLLBACK or untouched(command):
        return {}
    return facts.provider.loads(command.deployment, now)


def _begin(command: Command, seen: Seen, lease: Lease, now: datetime) -> None:
    """Reserve, take the revision, start: all or nothing."""
    steps = tuple(specs.from_json(spec) for spec in command.plan)
    deployment = command.deployment
    try:
        with transaction.atomic():
            # Row locks make two commands of one cluster count their GPUs one after the other.
            type(deployment.cluster).objects.select_for_update().get(pk=deployment.cluster_id)
            largest, base = largest_gpus(steps), base_gpus(seen)
            if largest > base:
                free = free_gpus(deployment, now=now, besides=command)
                if free is None or largest - base > free:
                    raise _Refused(
                        CommandState.DENIED,
                        "no_gpus",
                        gpus_needed=str(largest - base),
                        gpus_free="unknown" if free is None else str(free),
                    )
            own = sum(
                (seen.units[role] * count for role, count in command.targets.items()), Decimal(0)
            ) + sum(
                (
                    seen.units[role] * pool.wanted
                    for role, pool in seen.topology.pools.items()
                    if role in seen.units and role not in command.targets
                ),
                Decimal(0),
            )
            Reservation.objects.update_or_create(
                command=command,
                defaults={
                    "cluster_id": deployment.cluster_id,
                    "gpus": max(Decimal(0), largest - own),
                    "created_at": now,
                    "released_at": None,
                },
            )
            revision = fleet_services.set_wanted(
                actor=SYSTEM,
                now=now,
                deployment_id=deployment.pk,
                wanted=command.targets,
                expected_revision=command.expected_revision,
            )
            fleet_services.begin_change(
                now=now, deployment_id=deployment.pk, command_id=command.pk, label=command.number
            )
            if command.rollback_of is not None:
                way_back.begin_of(command.rollback_of, command, now)
            if command.recommendation_id is not None and command.kind != Kind.ROLLBACK:
                applied = facts.provider.mark_applied(
                    command.recommendation_id, actor=SYSTEM, now=now, command_id=command.pk
                )
                if not applied:
                    raise _Refused(
                        CommandState.DENIED,
                        "not_open",
                        number=command.recommendation_number,
                    )
            # Last, so that whatever refuses above leaves the object as its row is.
            move(
                command,
                CommandState.RUNNING,
                now=now,
                lease=lease,
                started_at=now,
                deadline_at=finish.life(command, now),
                running_revision=revision,
                members=seen.members,
            )
    except fleet_services.StaleRevision as error:
        raise _Refused(
            CommandState.SUPERSEDED,
            "stale_revision",
            expected=error.expected,
            current=error.current,
        ) from error
