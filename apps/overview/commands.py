"""Commands as the list and their page show them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from django.db.models import prefetch_related_objects

from apps.accounts.domain.authorize import ObjectScope, Permission, Viewer
from apps.commands import selectors as commands
from apps.commands.domain import approvals, scoring
from apps.commands.domain.states import ACTIVE, DRIVEN, CommandState
from apps.commands.models import Command, Step
from apps.common.measurement import Measurement, Place, State
from apps.common.units import Unit
from apps.fleet import selectors as fleet
from apps.planning import selectors as planning
from apps.slo import selectors as slo

from .domain.types import (
    ApprovalLine,
    Change,
    CommandList,
    CommandView,
    Figure,
    PlannedStep,
    PredictedRow,
    Status,
    Text,
)
from .labels import changes, diff, why_not_permission

#: Thresholds of the deployment by compared key, and the recommendation's predictions.
Around = tuple[Mapping[str, float], Mapping[str, Any]]
#: States that `commands.services.cancel` stops; a verified change is rolled back instead.
CANCELLABLE: Final = tuple(state for state in ACTIVE if state is not CommandState.SOAK)
STATUS_OF: Final[Mapping[CommandState, Status]] = {
    CommandState.SUCCEEDED: Status.OK,
    CommandState.ROLLED_BACK: Status.WARN,
    CommandState.PARTIAL: Status.CRIT,
    CommandState.FAILED: Status.CRIT,
    CommandState.ROLLBACK_FAILED: Status.CRIT,
    CommandState.SUPERSEDED: Status.WARN,
    CommandState.DENIED: Status.WARN,
    CommandState.ROLLING_BACK: Status.WARN,
    CommandState.EXPIRED: Status.PAUSED,
    CommandState.CANCELLED: Status.PAUSED,
    CommandState.REJECTED: Status.PAUSED,
}
#: Kind of a step -> code of its sentence.
STEP_TEXT: Final[Mapping[str, str]] = {
    "set_drain_time": "step.drain_time",
    "remove_worker": "step.remove",
    "wait_idle": "step.drain",
    "switch_role": "step.set_role",
    "add_worker": "step.add",
    "wait_serving": "step.wait_ready",
    "verify_data_plane": "step.verify",
}
WAIT_TEXT: Final[Mapping[str, str]] = {
    "remove_worker": "wait.removed",
    "wait_idle": "wait.drain",
    "switch_role": "wait.role",
    "add_worker": "wait.accepted",
    "wait_serving": "wait.ready",
    "verify_data_plane": "wait.first_request",
}
#: Measured key -> (figure name, is lower better).
COMPARED: Final[Mapping[str, str]] = {
    "ttft_p95": "ttft_p95",
    "tpot_p95": "tpot_p95",
    "goodput": "goodput",
    "cost_per_million": "cost_per_million",
}
EVENT_OF_STATE: Final[Mapping[str, str]] = {
    "proposed": "command_proposed",
    "approved": "command_approved",
    "rejected": "command_rejected",
    "cancelled": "command_cancelled",
    "running": "command_started",
    "soak": "command_applied",
    "succeeded": "command_verified",
    "partial": "command_partial",
    "failed": "command_failed",
    "denied": "command_denied",
    "expired": "command_expired",
    "superseded": "command_superseded",
    "rolling_back": "command_rolling_back",
    "rolled_back": "command_rolled_back",
    "rollback_failed": "command_rollback_failed",
}


def page(viewer: Viewer, number: str, now: datetime) -> CommandView:
    """One command with everything its page shows."""
    return view(viewer, commands.command_by_number(viewer, number), now)


def listing(viewer: Viewer, now: datetime, params: Mapping[str, str]) -> CommandList:
    """The newest commands in scope, filtered by `state` and `deployment`."""
    rows = commands.commands_for(viewer)
    if params.get("deployment"):
        rows = rows.filter(deployment__slug=params["deployment"])
    if params.get("state"):
        rows = rows.filter(state=params["state"].upper())
    accuracy = commands.accuracy(viewer)
    return CommandList(
        rows=views(viewer, rows[:50], now),
        visible=rows.count(),
        predictions=accuracy.count,
        inside_range=accuracy.inside,
        median_error=accuracy.median_error,
    )


def view(viewer: Viewer, command: Command, now: datetime) -> CommandView:
    """A stored command with its steps and log."""
    return _view(viewer, command, now, _around(viewer, [command])[0], detailed=True)


def views(viewer: Viewer, rows: Iterable[Command], now: datetime) -> tuple[CommandView, ...]:
    """The rows of a list, without steps and log: 4 more queries for any number of them."""
    found = list(rows)
    prefetch_related_objects(found, "approvals", "rollbacks")
    pairs = zip(found, _around(viewer, found), strict=True)
    return tuple(_view(viewer, c, now, a, detailed=False) for c, a in pairs)


def _around(viewer: Viewer, found: Sequence[Command]) -> list[Around]:
    """What stands around each of these commands: 2 queries for any number of them."""
    of: dict[Any, dict[str, float]] = {}
    for each in slo.objectives_for(viewer).filter(deployment__in={c.deployment_id for c in found}):
        of.setdefault(each.deployment_id, {})[f"{each.signal}_p95"] = each.threshold_s
    ids = [c.recommendation_id for c in found if c.recommendation_id]
    advice = planning.recommendations_for(viewer).filter(pk__in=ids).values_list("pk", "predicted")
    advised: dict[Any, Any] = dict(advice)
    return [(of.get(c.deployment_id, {}), advised.get(c.recommendation_id) or {}) for c in found]


def _view(
    viewer: Viewer, command: Command, now: datetime, around: Around, *, detailed: bool
) -> CommandView:
    deployment = command.deployment
    thresholds, advised = around
    state = CommandState(command.state)
    scope = fleet.object_scope(deployment)
    rule = approvals.rule_for(deployment.environment)
    decided = list(command.approvals.all())
    own = str(viewer.user_id) in {str(p.get("id", "")) for p in command.proposers}
    may_approve = (
        state is CommandState.PROPOSED
        and viewer.can(Permission.APPROVE, scope)
        and (rule.own_proposal or not own)
        and (rule.tokens or not viewer.via_token)
    )
    may_cancel = state in CANCELLABLE and (
        viewer.can(Permission.PROPOSE, scope) or viewer.can(Permission.ROLL_BACK, scope)
    )
    can_roll_back = state in (
        CommandState.RUNNING,
        CommandState.SOAK,
        CommandState.SUCCEEDED,
        CommandState.PARTIAL,
        CommandState.ROLLBACK_FAILED,
    )
    steps = list(command.steps.all()) if detailed else []
    defaults = fleet.defaults_for(deployment)
    soak_s = defaults.soak_s if state is CommandState.SOAK else None
    elapsed = (now - command.converged_at).total_seconds() if command.converged_at else None
    ended = command.finished_at
    reference = command.started_at
    return CommandView(
        id=str(command.pk),
        number=command.number,
        deployment_slug=deployment.slug,
        deployment_name=deployment.name,
        kind=command.kind,
        title=_title(command),
        state=state.value,
        status=STATUS_OF.get(state, Status.INFO),
        state_text=_state_text(command, state, steps, rule.needed, elapsed, soak_s),
        diff=diff(command.before, command.targets, fleet.topology(deployment)) if detailed else (),
        proposed_by=tuple(str(p.get("name", "")) for p in command.proposers),
        proposed_at=command.requested_at,
        started_at=command.started_at,
        finished_at=ended,
        duration_s=((ended or now) - reference).total_seconds() if reference else None,
        deadline_at=command.deadline_at,
        soak_elapsed_s=elapsed if soak_s else None,
        soak_s=soak_s,
        plan_hash=command.plan_hash,
        expected_revision=command.expected_revision,
        approvals_needed=rule.needed,
        approvals=tuple(ApprovalLine(a.user_name, a.at, a.decision, a.reason) for a in decided),
        steps=tuple(_step(step) for step in steps),
        compared=compared(command, thresholds, advised),
        worst=_worst(command.worst),
        recovered_after_s=command.recovery_s,
        true_now=command.true_now or {},
        next_action=_next(state, steps, command),
        error=_error(command),
        log=tuple(_log(command)) if detailed else (),
        rollback_of=command.rollback_of.number if command.rollback_of else "",
        rolled_back_by=_rolled_back_by(command) if detailed else "",
        may_approve=may_approve,
        may_reject=state is CommandState.PROPOSED and viewer.can(Permission.APPROVE, scope),
        may_cancel=may_cancel,
        may_roll_back=can_roll_back and viewer.can(Permission.ROLL_BACK, scope),
        why_not=_why_not(viewer, scope, state, may_cancel, own and not rule.own_proposal),
        recommendation_number=command.recommendation_number,
        is_live=state in DRIVEN,
        etag=f"{command.number}-{state.value}-{command.lease_epoch}-{_digest(steps)}",
    )


def compared(
    command: Command, objectives: Mapping[str, float], advised: Mapping[str, Any]
) -> tuple[PredictedRow, ...]:
    """Predicted against measured, one row a figure; the range is the prediction's 90 %. What was
    before comes from the recommendation that the command carries out."""
    rows = []
    before_by_key = {k: row.get("now") for k, row in advised.items() if isinstance(row, Mapping)}
    for key, code in COMPARED.items():
        stored = command.predicted.get(key)
        if not stored:
            continue
        after = _measurement(stored.get("after", stored))
        before = _measurement(before_by_key.get(key))
        if after is None:
            continue
        measured = _measurement(command.measured.get(key))
        objective = objectives.get(key)
        rows.append(
            PredictedRow(
                code=code,
                now=before or Measurement(None, after.unit, State.NO_DATA),
                after=after,
                objective=objective,
                meets_objective=_meets(measured or after, objective),
                measured=measured,
                inside_range=scoring.is_inside(after, measured) if measured else None,
            )
        )
    return tuple(rows)


def _meets(figure: Measurement, objective: float | None) -> bool | None:
    if objective is None or figure.value is None:
        return None
    return figure.number() <= objective


def _measurement(stored: Any) -> Measurement | None:
    return Measurement.from_json(stored) if isinstance(stored, Mapping) else None


def _title(command: Command) -> Text:
    moved = changes(command.before, command.targets)
    if command.rollback_of is not None:
        return Text("command.rollback", {"command": command.rollback_of.number, "changes": moved})
    return Text("command.change", {"changes": moved})


def _state_text(
    command: Command,
    state: CommandState,
    steps: Sequence[Step],
    needed: int,
    elapsed: float | None,
    soak_s: float | None,
) -> Text:
    params: dict[str, Any] = {}
    if state is CommandState.PROPOSED:
        params = {"approvals": needed, "until": command.approval_expires_at}
    elif state is CommandState.RUNNING and steps:
        done = sum(1 for step in steps if step.state == "DONE")
        params = {"step": min(done + 1, len(steps)), "steps": len(steps)}
    elif state is CommandState.SOAK and elapsed is not None and soak_s is not None:
        params = {"elapsed_s": min(elapsed, soak_s), "soak_s": soak_s}
    elif state is CommandState.SUCCEEDED and command.finished_at and command.started_at:
        params = {"after_s": (command.finished_at - command.started_at).total_seconds()}
    elif state in (CommandState.PARTIAL, CommandState.FAILED, CommandState.ROLLBACK_FAILED):
        params = {"true_now": command.true_now or None}
    elif state is CommandState.SUPERSEDED:
        params = {"who": command.error_params.get("who")}
    elif state in (CommandState.ROLLING_BACK, CommandState.ROLLED_BACK):
        params = {"command": _rolled_back_by(command) or None}
    return Text(f"state.{state.value}", {k: v for k, v in params.items() if v is not None})


def _step(step: Step) -> PlannedStep:
    spec = step.spec
    waiting = None
    if step.state == "UNKNOWN":
        waiting = Text("wait.observe")
    elif step.state in ("SENT", "ACCEPTED", "VERIFYING") and step.kind in WAIT_TEXT:
        waiting = Text(WAIT_TEXT[step.kind], _wait_params(step))
    return PlannedStep(
        index=step.index,
        kind=step.kind,
        worker=step.worker_name,
        state=step.state,
        text=step_text(step.kind, step.worker_name, spec),
        expected_s=None,
        started_at=step.intent_at,
        ended_at=step.ended_at,
        request=step.request,
        answer="\n".join(filter(None, [step.answer, step.control, step.data])),
        waiting_for=waiting,
        error=step.reason if step.state == "FAILED" else "",
    )


def _wait_params(step: Step) -> dict[str, Any]:
    params: dict[str, Any] = {
        "worker": step.worker_name,
        "role": step.spec.get("target_role", ""),
    }
    in_flight = step.detail.get("in_flight")
    if step.kind == "wait_idle" and in_flight not in (None, ""):
        params["running"] = int(in_flight)
    return params


def step_text(kind: str, worker: str, spec: Mapping[str, Any]) -> Text:
    """The sentence of one step."""
    role = str(spec.get("target_role", ""))
    source = str(spec.get("worker", {}).get("role", ""))
    return Text(
        STEP_TEXT.get(kind, "step.verify"),
        {"worker": worker, "role": role, "to_role": role, "from_role": source},
    )


def _worst(worst: Mapping[str, Any]) -> tuple[Figure, ...]:
    units = {
        "ttft_p95": ("worst_ttft_p95", Unit.SECONDS),
        "tpot_p95": ("worst_tpot_p95", Unit.SECONDS),
        "error_share": ("worst_error_share", Unit.RATIO),
    }
    found = []
    for key, (code, unit) in units.items():
        value = worst.get(key)
        if isinstance(value, Mapping):
            value = value.get("value")
        if value is None:
            continue
        figure = Measurement(float(value), unit, State.OK, place=Place.ROUTER)
        found.append(Figure(code, figure, None, None, None))
    return tuple(found)


def _next(state: CommandState, steps: Sequence[Step], command: Command) -> Text | None:
    if state is CommandState.PROPOSED:
        return Text("next.approve")
    if state in (CommandState.APPROVED, CommandState.PREFLIGHT):
        return Text("next.start")
    if state is CommandState.SOAK:
        return Text("next.soak", {"until": command.soak_until} if command.soak_until else {})
    if state is CommandState.RUNNING:
        if any(step.state == "UNKNOWN" for step in steps):
            return Text("next.observe")
        done = sum(1 for step in steps if step.state == "DONE")
        if done + 1 < len(steps):
            return Text("next.step", {"step": done + 2, "steps": len(steps)})
        return None
    if state in (CommandState.PARTIAL, CommandState.ROLLBACK_FAILED):
        return Text("next.person")
    return None


def _error(command: Command) -> Text | None:
    if not command.error_code:
        return None
    return Text(f"error.{command.error_code}", dict(command.error_params))


def _log(command: Command) -> list[Change]:
    lines = []
    for event in command.events.all():
        kind, _, name = event.code.partition(".")
        params: dict[str, Any] = {"command": command.number}
        detail = None
        if kind == "state":
            code = EVENT_OF_STATE.get(name)
            if code is None:
                continue
        elif kind == "step":
            if name not in ("done", "failed", "unknown"):
                continue
            code = "command_step"
            params |= {"step": int(event.params.get("step", 0)) + 1, "steps": len(command.plan)}
            index = int(event.params.get("step", 0))
            spec = command.plan[index] if 0 <= index < len(command.plan) else {}
            worker = str(event.params.get("worker", ""))
            detail = step_text(str(event.params.get("kind", "")), worker, spec)
        else:
            continue
        status = STATUS_OF.get(_state_or_none(name), Status.INFO)
        if name == "failed":
            status = Status.CRIT
        lines.append(Change(event.at, status, Text(f"change.{code}", params), detail, ""))
    return lines


def _state_or_none(name: str) -> CommandState:
    try:
        return CommandState(name.upper())
    except ValueError:
        return CommandState.RUNNING


def _rolled_back_by(command: Command) -> str:
    newest = max(command.rollbacks.all(), key=lambda row: row.serial, default=None)
    return newest.number if newest else ""


def _why_not(
    viewer: Viewer, scope: ObjectScope, state: CommandState, may_cancel: bool, own: bool
) -> Text | None:
    """Why a shown button is off; the state itself where no permission is the reason."""
    is_proposed = state is CommandState.PROPOSED
    if is_proposed and own:
        return Text("why_not.own_proposal")
    needed = Permission.APPROVE if is_proposed else Permission.ROLL_BACK
    refused = why_not_permission(viewer, needed, scope)
    if refused is not None or may_cancel or state not in DRIVEN:
        return refused
    if state in CANCELLABLE:
        return why_not_permission(viewer, Permission.PROPOSE, scope)
    return Text("why_not.cancel_state", {"state": state.value})


def _digest(steps: Sequence[Step]) -> str:
    import zlib

    text = "|".join(f"{s.index}{s.state}{s.detail}{s.confirmed}" for s in steps)
    return f"{zlib.crc32(text.encode()):08x}"
