"""Steps, one bounded piece at a time. INTENT is committed before each call, the epoch is checked
where SENT is marked, and whatever was left in between is resolved by observation first."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction

from apps.backends.protocol import (
    BASELINE,
    Adapter,
    Applied,
    Outcome,
    Progress,
    StepKind,
    StepSpec,
    Verified,
)
from apps.common.leases import Lease
from apps.fleet import selectors as fleet
from apps.fleet import services as fleet_services

from ..domain import specs
from ..domain.plan_hash import step_key
from ..domain.states import CommandState, Kind, StepState
from ..models import Command, Step
from . import errors, finish, way_back
from .kill_switch import stop_reason
from .log import move_step, note
from .planned import adapter_of, observe

WAITS = (StepKind.WAIT_IDLE, StepKind.WAIT_SERVING, StepKind.VERIFY_DATA_PLANE)
#: A call whose effect is not visible yet is given this long before it may be made again.
RESEND_AFTER = timedelta(seconds=5)
MAX_CONFLICTS = 3
#: Ends after which Fulcrum itself takes the change back, as approved with the plan.
_ROLLED_BACK_BY_ITSELF = ("step_failed", "deadline")


def advance(command: Command, lease: Lease, now: datetime) -> float:
    """The next piece of a running command; returns the seconds until the one after it."""
    step = command.steps.exclude(state=StepState.DONE.value).order_by("index").first()
    if step is None:
        return finish.converged(command, lease, now)
    if step.state == StepState.FAILED:
        return stop(command, lease, now, "step_failed", _about(step))
    try:
        adapter = adapter_of(command.deployment)
    except errors.BackendUnreachable as error:
        note(command, now, "backend_unreachable", **error.params)
        return _late(command, step, lease, now) or poll_s(command)
    if step.state in (StepState.PLANNED, StepState.INTENT):
        stopped = _must_stop(command, now)
        if stopped is not None:
            return stop(command, lease, now, stopped[0], stopped[1])
        return _send(command, step, adapter, lease, now)
    if step.state in (StepState.SENT, StepState.UNKNOWN):
        return _resolve(command, step, adapter, lease, now)
    return _verify(command, step, adapter, lease, now)


def take_over(command: Command, now: datetime) -> None:
    """The last owner vanished: the clock of its step stood still while nobody drove it."""
    note(command, now, "taken_over")
    step = command.steps.exclude(state=StepState.DONE.value).order_by("index").first()
    if step is None or step.deadline_at is None:
        return
    fresh = now + timedelta(seconds=specs.from_json(step.spec).deadline_s)
    Step.objects.filter(pk=step.pk, deadline_at__lt=fresh).update(deadline_at=fresh)


def poll_s(command: Command) -> float:
    """Seconds between read-backs: a fifth of the collect interval."""
    return fleet.defaults_for(command.deployment).collect_interval_s / 5


def _must_stop(command: Command, now: datetime) -> tuple[str, dict[str, Any]] | None:
    """Read before every step: who or what stops the command here."""
    asked = Command.objects.values_list("cancel_requested", flat=True).get(pk=command.pk)
    if asked:
        code = "rolled_back_by_person" if asked.get("roll_back") else "cancelled"
        return code, {"by": asked["by"], "reason": asked.get("reason", "")}
    stopped = stop_reason(command.deployment)
    if stopped:
        return "kill_switch", {"scope": stopped}
    if command.deadline_at is not None and now > command.deadline_at:
        return "deadline", {}
    mode = fleet.effective_mode(command.deployment)
    if command.kind != Kind.ROLLBACK and mode not in ("approve", "auto"):
        return "mode", {"mode": mode}
    return None


# --- sending


def _send(command: Command, step: Step, adapter: Adapter, lease: Lease, now: datetime) -> float:
    spec = specs.from_json(step.spec)
    recovered = step.state == StepState.INTENT
    if not recovered:
        move_step(
            step,
            StepState.INTENT,
            now=now,
            lease=lease,
            intent_at=now,
            deadline_at=now + timedelta(seconds=spec.deadline_s),
        )
    late = _late(command, step, lease, now)
    if late is not None:
        return late
    if spec.kind in WAITS:
        move_step(step, StepState.ACCEPTED, now=now, lease=lease, accepted_at=now)
        return 0.0
    snapshot = observe(adapter, fleet.topology(command.deployment), now)
    if not snapshot.complete:
        note(command, now, "backend_unreachable", error="; ".join(snapshot.problems)[:300])
        return poll_s(command)
    done = [s.spec for s in command.steps.filter(state=StepState.DONE.value)]
    foreign = finish.foreign_in(command, done, step.spec, snapshot)
    if foreign:
        return finish.superseded(command, lease, now, foreign, snapshot)
    if recovered and step.was_sent:
        seen = adapter.verify(spec, since=step.intent_at or now, now=now)
        if seen.progress is Progress.CONVERGED:
            return _accepted(step, lease, now, reason="seen_done", **_readings(seen))
    return _call(command, step, spec, adapter, lease, now)


def _call(
    command: Command, step: Step, spec: StepSpec, adapter: Adapter, lease: Lease, now: datetime
) -> float:
    key = step_key(
        number=command.number,
        cluster_id=str(command.deployment.cluster_id),
        plan=command.plan_hash,
        index=step.index,
        epoch=lease.epoch,
    )
    was_sent = step.was_sent
    move_step(
        step,
        StepState.SENT,
        now=now,
        lease=lease,
        sent_at=now,
        idempotency_key=key,
        attempts=step.attempts + 1,
        was_sent=True,
    )
    applied = adapter.apply(spec, key=key, epoch=lease.epoch)
    return _answered(command, step, applied, lease, now, was_sent=was_sent)


def _answered(
    command: Command,
    step: Step,
    applied: Applied,
    lease: Lease,
    now: datetime,
    *,
    was_sent: bool,
) -> float:
    said: dict[str, Any] = {
        "request": applied.request,
        "answer": applied.answer,
        "reason": applied.reason[:120],
    }
    outcome = applied.outcome
    if outcome is Outcome.ACCEPTED:
        return _accepted(step, lease, now, reference=applied.reference[:120], **said)
    if outcome is Outcome.NOOP:
        return _accepted(
            step, lease, now, reference=applied.reference[:120], was_sent=was_sent, **said
        )
    if outcome is Outcome.UNKNOWN:
        move_step(step, StepState.UNKNOWN, now=now, lease=lease, **said)
        return poll_s(command)
    # What follows surely changed nothing by this call.
    said["was_sent"] = was_sent
    if outcome is Outcome.RETRYABLE:
        move_step(step, StepState.INTENT, now=now, lease=lease, **said)
        return max(0.5, applied.retry_after_s or 1.0)
    if outcome is Outcome.CONFLICT and step.conflicts + 1 < MAX_CONFLICTS:
        move_step(
            step, StepState.INTENT, now=now, lease=lease, conflicts=step.conflicts + 1, **said
        )
        return 2.0
    return _failed(command, step, lease, now, **said)


def _accepted(step: Step, lease: Lease, now: datetime, **values: Any) -> float:
    move_step(step, StepState.ACCEPTED, now=now, lease=lease, accepted_at=now, **values)
    return 0.0


# --- resolving and verifying


def _resolve(command: Command, step: Step, adapter: Adapter, lease: Lease, now: datetime) -> float:
    """A call whose outcome nobody knows: look, and call again only if it surely did not happen."""
    spec = specs.from_json(step.spec)
    sent_at = step.sent_at or now
    seen = adapter.verify(spec, since=sent_at, now=now)
    if seen.progress is Progress.CONVERGED:
        return _accepted(step, lease, now, **_readings(seen))
    if seen.progress is Progress.SUPERSEDED:
        return _superseded(command, step, adapter, lease, now, seen)
    late = _late(command, step, lease, now, seen)
    if late is not None:
        return late
    if seen.progress is Progress.PROGRESSING and now - sent_at >= RESEND_AFTER:
        move_step(step, StepState.INTENT, now=now, lease=lease, **_readings(seen))
        return 0.0
    Step.objects.filter(pk=step.pk).update(**_readings(seen))
    return poll_s(command)


def _verify(command: Command, step: Step, adapter: Adapter, lease: Lease, now: datetime) -> float:
    spec = specs.from_json(step.spec)
    seen = adapter.verify(spec, since=step.accepted_at or now, now=now)
    if seen.progress is Progress.SUPERSEDED:
        return _superseded(command, step, adapter, lease, now, seen)
    if seen.progress is Progress.STALLED:
        return _failed(command, step, lease, now, **_readings(seen))
    confirmed = step.confirmed + 1 if seen.progress is Progress.CONVERGED else 0
    if confirmed >= int(spec.expected.get("confirmations", "1")):
        _done(command, step, spec, lease, now, confirmed=confirmed, **_readings(seen))
        return 0.0
    late = _late(command, step, lease, now, seen)
    if late is not None:
        return late
    kept = {key: value for key, value in seen.detail.items() if key.startswith(BASELINE)}
    values = {
        **_readings(seen),
        "confirmed": confirmed,
        "detail": dict(seen.detail),
        "spec": specs.to_json(replace(spec, expected={**spec.expected, **kept})),
    }
    if step.state == StepState.ACCEPTED:
        move_step(step, StepState.VERIFYING, now=now, lease=lease, **values)
    else:
        with transaction.atomic():
            finish.leases_held(lease)
            Step.objects.filter(pk=step.pk, state=step.state).update(**values)
    return poll_s(command)


@transaction.atomic
def _done(
    command: Command, step: Step, spec: StepSpec, lease: Lease, now: datetime, **values: Any
) -> None:
    move_step(step, StepState.DONE, now=now, lease=lease, ended_at=now, **values)
    if spec.kind in (StepKind.SWITCH_ROLE, StepKind.WAIT_SERVING):
        worker = next(
            (w for w in fleet.topology(command.deployment).workers if w.url == spec.worker.url),
            None,
        )
        if worker is not None:
            fleet_services.record_role(
                now=now, worker_id=worker.id, role=spec.target_role, source="reported"
            )
    finish.shrink_reservation(command, done=step.index + 1)


def _late(
    command: Command, step: Step, lease: Lease, now: datetime, seen: Verified | None = None
) -> float | None:
    """Fail the step when its time is over."""
    if step.deadline_at is None or now <= step.deadline_at:
        return None
    readings = _readings(seen) if seen is not None else {}
    readings["reason"] = f"deadline:{readings.get('reason', '')}"[:120]
    return _failed(command, step, lease, now, **readings)


def _failed(command: Command, step: Step, lease: Lease, now: datetime, **values: Any) -> float:
    move_step(step, StepState.FAILED, now=now, lease=lease, ended_at=now, **values)
    return stop(command, lease, now, "step_failed", _about(step))


def _superseded(
    command: Command, step: Step, adapter: Adapter, lease: Lease, now: datetime, seen: Verified
) -> float:
    move_step(step, StepState.FAILED, now=now, lease=lease, ended_at=now, **_readings(seen))
    snapshot = observe(adapter, fleet.topology(command.deployment), now)
    done = [s.spec for s in command.steps.filter(state=StepState.DONE.value)]
    foreign = finish.foreign_in(command, done, step.spec, snapshot) if snapshot.complete else ()
    return finish.superseded(command, lease, now, foreign, snapshot, reason=seen.reason)


def _readings(seen: Verified) -> dict[str, Any]:
    return {"reason": seen.reason[:120], "control": seen.control, "data": seen.data}


def _about(step: Step) -> dict[str, Any]:
    return {
        "step": step.index + 1,
        "kind": step.kind,
        "worker": step.worker_name or step.worker_url,
        "reason": step.reason,
        "error": step.answer or step.reason,
    }


# --- stopping


def stop(
    command: Command, lease: Lease, now: datetime, code: str, params: Mapping[str, Any]
) -> float:
    """End a running command here: as if nothing was, or PARTIAL with the true counts and, where
    the plan's approval covers it, the way back."""
    counts, _ = finish.true_counts(command, now)
    if not finish.was_anything_sent(command):
        cancelled = code in ("cancelled", "rolled_back_by_person", "kill_switch")
        to = CommandState.CANCELLED if cancelled else CommandState.FAILED
        finish.end(command, to, now=now, lease=lease, code=code, params=params, counts=counts)
        return 0.0
    finish.end(
        command,
        CommandState.PARTIAL,
        now=now,
        lease=lease,
        code=code,
        params=params,
        counts=counts,
    )
    asked = code == "rolled_back_by_person"
    if command.kind != Kind.ROLLBACK and (asked or code in _ROLLED_BACK_BY_ITSELF):
        way_back.automatic(command, lease, now, code)
    return 0.0
