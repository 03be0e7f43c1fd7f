"""How commands end: everything that belongs to an end is written in one transaction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from django.db import transaction

from apps.accounts.domain.authorize import SYSTEM, Viewer
from apps.backends.protocol import Snapshot
from apps.common import leases
from apps.common.leases import Lease
from apps.common.measurement import Measurement
from apps.fleet import selectors as fleet
from apps.fleet import services as fleet_services

from ..domain import membership, proof, scoring, soak, specs
from ..domain.states import CommandState, Kind
from ..models import Command, Reservation
from . import errors, facts
from .log import StateMoved, move, note
from .planned import adapter_of, observe

#: Ends after which the workers stay as they were before.
_NOTHING_CHANGED = (CommandState.FAILED, CommandState.CANCELLED)


def true_counts(command: Command, now: datetime) -> tuple[dict[str, int], Snapshot | None]:
    """Workers per role as the backend lists them now; the last known ones if it is silent."""
    try:
        adapter = adapter_of(command.deployment)
    except errors.BackendUnreachable:
        return dict(command.true_now), None
    snapshot = observe(adapter, fleet.topology(command.deployment), now)
    if not snapshot.complete:
        return dict(command.true_now), None
    found = membership.counts(membership.members(snapshot))
    roles = {*command.before, *command.targets}
    return {role: found.get(role, 0) for role in sorted(roles)}, snapshot


def was_anything_sent(command: Command) -> bool:
    """True if some call may have changed something outside."""
    return command.steps.filter(was_sent=True).exists()


@transaction.atomic
def end(
    command: Command,
    to: CommandState,
    *,
    now: datetime,
    lease: Lease | None,
    actor: Viewer = SYSTEM,
    code: str = "",
    params: Mapping[str, Any] | None = None,
    counts: Mapping[str, int] | None = None,
    **values: Any,
) -> None:
    """Move to an end state and give back what the command held."""
    move(
        command,
        to,
        now=now,
        actor=actor,
        lease=lease,
        params={"code": code, **dict(params or {})} if code else params,
        finished_at=now,
        error_code=code,
        error_params=dict(params or {}),
        true_now=dict(counts) if counts is not None else command.true_now,
        next_drive_at=None,
        **values,
    )
    release(command, now)
    _settle_wanted(command, to, now, counts)
    succeeded = to is CommandState.SUCCEEDED
    fleet_services.finish_change(
        now=now,
        deployment_id=command.deployment_id,
        command_id=command.pk,
        converged=dict(command.targets) if succeeded else None,
        kind=command.kind,
        direction=direction(command),
    )
    if command.rollback_of is not None:
        _settle_original(command, command.rollback_of, now, succeeded=succeeded)


def leases_held(lease: Lease) -> None:
    """Raise LeaseLost unless the command is still ours."""
    leases.assert_held(Command.objects.all(), lease)


def release(command: Command, now: datetime) -> None:
    """Give the reserved GPUs back."""
    Reservation.objects.filter(command=command, released_at__isnull=True).update(released_at=now)


def direction(command: Command) -> str:
    """Which role grew, for the flap rule; empty when none did."""
    grown = sorted(r for r, n in command.targets.items() if n > command.before.get(r, 0))
    if grown:
        return f"{grown[0]}_up"
    shrunk = sorted(r for r, n in command.targets.items() if n < command.before.get(r, 0))
    return f"{shrunk[0]}_down" if shrunk else ""


def _settle_wanted(
    command: Command, to: CommandState, now: datetime, counts: Mapping[str, int] | None
) -> None:
    """Wanted counts never name workers that no command is bringing any more."""
    if command.running_revision is None or to is CommandState.SUCCEEDED:
        return
    wanted = dict(command.before) if to in _NOTHING_CHANGED else counts
    if wanted is None:
        return
    pools = fleet.topology(command.deployment).pools
    present = {role: count for role, count in wanted.items() if role in pools}
    if all(pools[role].wanted == count for role, count in present.items()):
        return
    try:
        fleet_services.set_wanted(
            actor=SYSTEM,
            now=now,
            deployment_id=command.deployment_id,
            wanted=present,
            expected_revision=command.running_revision,
        )
    except fleet_services.StaleRevision as error:
        note(command, now, "wanted_left", current=error.current)


def _settle_original(
    rollback: Command, original: Command, now: datetime, *, succeeded: bool
) -> None:
    original.refresh_from_db()
    if original.state != CommandState.ROLLING_BACK:
        return
    to = CommandState.ROLLED_BACK if succeeded else CommandState.ROLLBACK_FAILED
    try:
        move(
            original,
            to,
            now=now,
            params={"by": rollback.number},
            true_now=rollback.true_now,
            next_drive_at=None,
        )
    except StateMoved:
        return
    if not succeeded:
        note(original, now, "needs_a_person", rollback=rollback.number)


def converged(command: Command, lease: Lease, now: datetime) -> float:
    """All steps are done: a rollback has succeeded, everything else is watched for a while."""
    counts, snapshot = true_counts(command, now)
    if snapshot is not None:
        done = [step.spec for step in command.steps.all()]
        foreign = foreign_in(command, done, None, snapshot)
        if foreign:
            return superseded(command, lease, now, foreign, snapshot)
    if command.kind == Kind.ROLLBACK:
        end(
            command,
            CommandState.SUCCEEDED,
            now=now,
            lease=lease,
            counts=counts,
            converged_at=now,
        )
        return 0.0
    defaults = fleet.defaults_for(command.deployment)
    with transaction.atomic():
        move(
            command,
            CommandState.SOAK,
            now=now,
            lease=lease,
            converged_at=now,
            true_now=counts,
            soak_until=soak.ends_at(now, defaults.soak_s),
        )
        shrink_reservation(command, done=len(command.plan))
    return defaults.window_s / 2


def foreign_in(
    command: Command,
    done: Sequence[Mapping[str, Any]],
    under_way: Mapping[str, Any] | None,
    snapshot: Snapshot,
) -> tuple[membership.ForeignChange, ...]:
    """What somebody else changed since the command began."""
    return membership.foreign_changes(
        command.members,
        [specs.from_json(spec) for spec in done],
        specs.from_json(under_way) if under_way is not None else None,
        membership.members(snapshot),
    )


def superseded(
    command: Command,
    lease: Lease,
    now: datetime,
    changes: Sequence[membership.ForeignChange],
    snapshot: Snapshot | None,
    reason: str = "",
) -> float:
    """Somebody else owns the workers: stop, say who and what, and let planning hold."""
    names = {w.url: w.name for w in fleet.topology(command.deployment).workers}
    what = [{**change.to_json(), "name": names.get(change.url, "")} for change in changes]
    by = ", ".join(snapshot.owners) if snapshot is not None and snapshot.owners else ""
    params: dict[str, Any] = {"changes": what, "reason": reason, **({"who": by} if by else {})}
    counts, _ = true_counts(command, now)
    with transaction.atomic():
        end(
            command,
            CommandState.SUPERSEDED,
            now=now,
            lease=lease,
            code="foreign_writer",
            params=params,
            counts=counts,
        )
        fleet_services.note_foreign_change(
            now=now,
            deployment_id=command.deployment_id,
            what={**params, "command": command.number},
        )
    return 0.0


def shrink_reservation(command: Command, *, done: int) -> None:
    """Keep only what the steps that are left still need beyond the targets' own GPUs."""
    row = Reservation.objects.filter(command=command, released_at__isnull=True).first()
    if row is None or row.gpus == 0:
        return
    steps = [specs.from_json(spec) for spec in command.plan]
    whole = proof.largest_gpus(steps)
    left = proof.largest_gpus(steps, done)
    smaller = max(Decimal(0), row.gpus - (whole - left)) if left else Decimal(0)
    if smaller < row.gpus:
        Reservation.objects.filter(pk=row.pk, gpus=row.gpus).update(gpus=smaller)


def score(command: Command, now: datetime, measured: Mapping[str, Measurement]) -> dict[str, Any]:
    """What a finished command stores beside its prediction."""
    samples = [scoring.Sample.from_json(one) for one in command.samples]
    predicted = predictions(command.predicted)
    started = command.started_at or now
    objectives = facts.provider.thresholds(command.deployment)
    return {
        "measured": {key: figure.to_json() for key, figure in measured.items()},
        "worst": scoring.worst(samples),
        "recovery_s": scoring.recovery_s(samples, started, predicted, objectives),
    }


def predictions(stored: Mapping[str, Any]) -> dict[str, Measurement]:
    """Stored predictions as figures."""
    return {
        key: Measurement.from_json(value) for key, value in stored.items() if key in scoring.KEYS
    }


def life(command: Command, now: datetime) -> datetime:
    """60 minutes and the planned drains (DESIGN §4a)."""
    defaults = fleet.defaults_for(command.deployment)
    drains = sum(s["deadline_s"] for s in command.plan if s["kind"] == "wait_idle")
    return now + timedelta(seconds=defaults.command_life_s + drains)
