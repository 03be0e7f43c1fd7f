"""The engine: one bounded piece of one command per call, under a lease with a fencing epoch."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from apps.common import leases
from apps.common.leases import Lease, LeaseLost

from ..domain.states import DRIVEN, CommandState
from ..models import Command
from . import decide, dispatch, execute, finish, watching, way_back
from .log import StateMoved, wake

#: Longer than the slowest piece (a role switch that is waited for, and its reads).
LEASE_S = 120.0


@dataclass(frozen=True, slots=True)
class Driven:
    """What a call did. `next_s` is the seconds until the next piece, None when there is none."""

    state: str
    next_s: float | None
    did: str


def drive(*, command_id: UUID | str, owner: str, now: datetime) -> Driven:
    """Advance one command by one piece. Any number of callers may try at once; one wins.

    Safe at any crash: the next caller resolves what it finds by observation.
    """
    rows = Command.objects.filter(state__in=[state.value for state in DRIVEN])
    abandoned = rows.filter(pk=command_id).exclude(lease_owner="").exists()
    lease = leases.claim(rows, command_id, owner=owner, now=now, ttl_s=LEASE_S)
    if lease is None:
        return Driven("", None, "not_claimed")
    command = Command.objects.select_related(
        "deployment", "deployment__cluster", "deployment__backend", "rollback_of"
    ).get(pk=command_id)
    next_s: float | None = None
    did = "advanced"
    try:
        if abandoned:
            execute.take_over(command, now)
        next_s = _piece(command, lease, now)
    except (LeaseLost, StateMoved):
        # Somebody else has it now; whatever was under way is theirs to observe.
        return Driven(command.state, None, "lost")
    finally:
        _give_back(command, lease, now, next_s)
    ended = command.state not in DRIVEN
    if not ended and next_s == 0:
        wake(command.pk)
    return Driven(command.state, None if ended else next_s, did)


def _piece(command: Command, lease: Lease, now: datetime) -> float:
    state = CommandState(command.state)
    if state is CommandState.PROPOSED:
        return _expire(command, lease, now)
    if state is CommandState.SCHEDULED and command.not_before and command.not_before > now:
        return (command.not_before - now).total_seconds()
    if state in (CommandState.APPROVED, CommandState.SCHEDULED, CommandState.PREFLIGHT):
        return dispatch.dispatch(command, lease, now)
    if state is CommandState.ROLLING_BACK:
        return way_back.settle(command, now)
    if state is CommandState.RUNNING:
        next_s = execute.advance(command, lease, now)
    else:
        next_s = watching.watch(command, lease, now)
    # After the piece: whatever goes wrong with a measurement, the workers come first.
    if command.state in (CommandState.RUNNING, CommandState.SOAK):
        watching.sample(command, now)
    return next_s


def _expire(command: Command, lease: Lease, now: datetime) -> float:
    at = decide.expires_at(command)
    if now < at:
        return (at - now).total_seconds()
    finish.end(command, CommandState.EXPIRED, now=now, lease=lease, code="expired")
    return 0.0


def _give_back(command: Command, lease: Lease, now: datetime, next_s: float | None) -> None:
    """Release the lease. After an exception the row keeps its time, so the sweeper tries again."""
    held = Command.objects.filter(pk=lease.pk, lease_epoch=lease.epoch, lease_owner=lease.owner)
    if next_s is not None and command.state in DRIVEN:
        # Only in the state that this piece left: a decision that came meanwhile has set its own.
        held.filter(state=command.state).update(next_drive_at=now + timedelta(seconds=next_s))
    leases.release(Command.objects.all(), lease)


def due_ids(now: datetime) -> list[UUID]:
    """Commands that need a drive: due and not held by a living owner."""
    rows = Command.objects.filter(state__in=[state.value for state in DRIVEN])
    free = rows.filter(lease_until__isnull=True) | rows.filter(lease_until__lt=now)
    due = free.filter(next_drive_at__isnull=True) | free.filter(next_drive_at__lte=now)
    return list(due.values_list("pk", flat=True))
