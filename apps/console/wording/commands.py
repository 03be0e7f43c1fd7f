"""Sentences of commands: titles, states, steps, waits, next actions, errors, roll back."""

from __future__ import annotations

from typing import Final

from django.utils.translation import gettext_lazy as _
from django.utils.translation import ngettext

from apps.common.sentences import Plural, Sentences

#: `CommandView.title`.
TITLES: Final[Sentences] = {
    "command.change": (_("{changes}"),),
    "command.rollback": (_("roll back {command}: {changes}"), _("roll back {command}")),
}

#: `CommandView.state_text`: one sentence about the state.
STATES: Final[Sentences] = {
    "state.PROPOSED": (
        Plural(
            lambda n: ngettext(
                "Waits for {approvals} approval, until {until}.",
                "Waits for {approvals} approvals, until {until}.",
                n,
            ),
            by="approvals",
        ),
        Plural(
            lambda n: ngettext(
                "Waits for {approvals} approval.", "Waits for {approvals} approvals.", n
            ),
            by="approvals",
        ),
        _("Waits for approval."),
    ),
    "state.APPROVED": (_("Approved, starts now."),),
    "state.SCHEDULED": (_("Starts at {at}."), _("Scheduled.")),
    "state.PREFLIGHT": (_("Checks everything again before the first step."),),
    "state.RUNNING": (_("Step {step} of {steps}."), _("Applying.")),
    "state.SOAK": (
        _("All steps done. Verifying: {elapsed_s} of {soak_s}."),
        _("All steps done. Verifying."),
    ),
    "state.SUCCEEDED": (
        _("Done and verified after {after_s}."),
        _("Done and verified."),
    ),
    "state.REJECTED": (_("Rejected by {who}."), _("Rejected by a person.")),
    "state.EXPIRED": (_("Nobody approved it in time. Nothing was changed."),),
    "state.CANCELLED": (_("Cancelled by {who}. Nothing more is changed."), _("Cancelled.")),
    "state.DENIED": (
        _("Refused by a check: {check}. Nothing was changed."),
        _("Refused by a check or by the backend. Nothing was changed."),
    ),
    "state.SUPERSEDED": (
        _("Somebody else changed the workers: {who}."),
        _("Somebody else changed the workers meanwhile."),
    ),
    "state.PARTIAL": (
        _("Only a part was carried out. Now: {true_now}."),
        _("Only a part was carried out."),
    ),
    "state.ROLLING_BACK": (_("Going back by {command}."), _("Going back to what was before.")),
    "state.ROLLED_BACK": (
        _("Back to what was before, by {command}."),
        _("Back to what was before."),
    ),
    "state.FAILED": (_("Failed. Now: {true_now}."), _("Failed.")),
    "state.ROLLBACK_FAILED": (
        _("The way back failed. Now: {true_now}. A person is needed."),
        _("The way back failed. A person is needed."),
    ),
}

#: `PlannedStep.text`.
STEPS: Final[Sentences] = {
    "step.drain": (_("Drain {worker}"),),
    "step.remove": (_("Take {worker} out of the router"),),
    "step.add": (_("Add {worker} to the router as {role}"), _("Add {worker} to the router")),
    "step.set_role": (
        _("Turn {worker} from {from_role} into {to_role}"),
        _("Turn {worker} into {to_role}"),
    ),
    "step.wait_ready": (_("Wait until {worker} is ready"), _("Wait until the workers are ready")),
    "step.verify": (
        _("Check that {worker} serves as {role}"),
        _("Check that {worker} serves"),
        _("Check that the workers serve"),
    ),
    "step.drain_time": (_("Give {worker} time to drain"), _("Give the worker time to drain")),
}

#: `PlannedStep.waiting_for`.
WAITS: Final[Sentences] = {
    "wait.drain": (
        Plural(
            lambda n: ngettext(
                "{running} request still running", "{running} requests still running", n
            ),
            by="running",
        ),
        _("running requests to finish"),
    ),
    "wait.ready": (_("{worker} to become ready"), _("the worker to become ready")),
    "wait.accepted": (_("the backend's answer"),),
    "wait.observe": (_("a look at the real state, because the answer was lost"),),
    "wait.first_request": (
        _("the first request served as {role}"),
        _("the first request in the new role"),
    ),
    "wait.role": (_("the engine to report the role {role}"), _("the engine to report its role")),
    "wait.removed": (_("the router to forget {worker}"), _("the router to forget the worker")),
}

#: `CommandView.next_action`: what the controller does next, and when.
NEXT: Final[Sentences] = {
    "next.approve": (_("Someone with the approver role has to approve."),),
    "next.observe": (_("Looks at the real state before any retry."),),
    "next.soak": (
        _("Judges the objectives until {until}; rolls back by itself if they got worse."),
        _("Judges the objectives; rolls back by itself if they got worse."),
    ),
    "next.person": (_("Nothing happens by itself. Retry or roll back."),),
    "next.step": (_("Step {step} of {steps}."),),
    "next.start": (_("Starts at once."),),
}

#: `ReviewPage.rollback`.
ROLLBACK: Final[Sentences] = {
    "rollback.auto": (
        _(
            "By itself, if over {soak_s} fewer requests are within objectives than the lower end "
            "of the prediction and than without the change. "
            "By hand at any time: back to {targets}."
        ),
        _("By itself, if it got worse. By hand at any time: back to {targets}."),
        _("By itself, if it got worse. By hand at any time."),
    ),
}

#: Errors of services shown on the page, and `CommandView.error`. `code` is `error.<code>`.
ERRORS: Final[Sentences] = {
    "error.stale_revision": (
        _("The deployment changed meanwhile: planned on revision {expected}, now {current}."),
        _("The deployment changed meanwhile. Below is the plan for what is true now."),
    ),
    "error.plan_changed": (_("The plan changed meanwhile. Look at it again before approving."),),
    "error.expired": (_("It has expired. Nothing was changed."),),
    "error.not_open": (_("It is no longer open. Nothing was changed."),),
    "error.wrong_state": (
        _("Not possible while it is {state}. Nothing was changed."),
        _("Not possible in its present state. Nothing was changed."),
    ),
    "error.active_command": (
        _("{command} is still running. Nothing was changed."),
        _("Another command is still running. Nothing was changed."),
    ),
    "error.not_allowed": (
        _("You need the permission to {permission} here. Nothing was changed."),
        _("You may not do this here. Nothing was changed."),
    ),
    "error.own_proposal": (_("You proposed it, so someone else has to approve."),),
    "error.guardrail": (
        _("A guardrail does not pass: {guardrail}. Nothing was changed."),
        _("A guardrail does not pass. Nothing was changed."),
    ),
    "error.stale_data": (
        _("Data is {age_s} old. Nothing was changed."),
        _("Data is old. Nothing was changed."),
    ),
    "error.kill_switch": (_("The kill switch is on. Nothing was changed."),),
    "error.mode": (
        _("The mode is {mode}: commands are off. Nothing was changed."),
        _("The mode does not allow commands. Nothing was changed."),
    ),
    "error.freeze": (_("Changes are frozen until {until}."), _("Changes are frozen.")),
    "error.no_gpus": (
        _("Needs {gpus_needed} GPUs more, {gpus_free} are free. Nothing was changed."),
        _("Not enough free GPUs. Nothing was changed."),
    ),
    "error.idempotency": (_("This form was already used for something else."),),
    "error.backend_unreachable": (
        _("The backend did not answer: {error}"),
        _("The backend did not answer."),
    ),
    "error.backend_refused": (_("The backend refused: {error}"), _("The backend refused.")),
    "error.step_failed": (
        _("Step {step} failed: {error}"),
        _("Step {step} failed."),
        _("A step failed."),
    ),
    "error.deadline": (_("It took longer than allowed."),),
    "error.foreign_writer": (
        _("{who} changed the workers meanwhile. Stopped."),
        _("Somebody else changed the workers meanwhile. Stopped."),
    ),
    "error.token": (_("Tokens never approve in production."),),
    "error.invalid": (_("{error}"), _("The form is not complete.")),
    "error.infeasible": (
        _("The targets are not possible: {error}"),
        _("The targets are not possible."),
    ),
    "error.floor": (
        _("{role} would fall below its floor. Nothing was changed."),
        _("A role would fall below its floor."),
    ),
    "error.command_error": (_("Refused. Nothing was changed."),),
    "error.unknown_pool": (_("There is no pool {role} that can be planned."),),
    "error.unknown_worker": (
        _("The router lists {url}, which is not in the inventory. Nothing was changed."),
    ),
    "error.target_above_maximum": (
        _("{role} {target} is above the maximum of {maximum} workers."),
        _("A target is above its maximum."),
    ),
    "error.nothing_to_change": (_("The deployment has these counts already."),),
    "error.bad_target": (_("A target is not a whole number of workers."),),
    "error.already_decided": (_("You have decided about this command already."),),
    "error.rejected": (_("Rejected by {by}. Nothing was changed."), _("Rejected.")),
    "error.cancelled": (_("Cancelled by {by}."), _("Cancelled.")),
    "error.rolled_back_by_person": (
        _("{by} asked for the way back."),
        _("A person asked for the way back."),
    ),
    "error.approver_lost_role": (
        _("An approver does not hold the role any more. Nothing was changed."),
    ),
    "error.worse_than_doing_nothing": (
        _("Fewer requests were within objectives than predicted and than without the change."),
    ),
    "error.not_found": (_("It does not exist, or you may not see it."),),
    "error.unknown": (_("Refused. Nothing was changed."),),
}

TABLE: Final[Sentences] = {**TITLES, **STATES, **STEPS, **WAITS, **NEXT, **ROLLBACK, **ERRORS}
