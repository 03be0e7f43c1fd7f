"""Commands: the list, one command's page, and the review before it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from apps.common import formatting
from apps.overview.domain import types

from ..reader import Reader, duration, exact_duration
from ..wording import kinds, labels, say
from . import parts, recommendation, svg
from .deployment import ChangeShown, changes

DONE = frozenset({"DONE"})
RUNNING = frozenset({"INTENT", "SENT", "UNKNOWN", "ACCEPTED", "VERIFYING"})


@dataclass(frozen=True, slots=True)
class StepShown:
    index: int
    mark: str
    text: str
    state_word: str
    time: str
    waiting_for: str
    request: str
    answer: str
    error: str


@dataclass(frozen=True, slots=True)
class ApprovalShown:
    who: str
    time: str
    decision: str
    reason: str
    mark: str


@dataclass(frozen=True, slots=True)
class CommandShown:
    view: types.CommandView
    title: str
    state_word: str
    state_text: str
    status: str
    status_word: str
    kind: str
    who: str
    proposed: str
    started: str
    duration: str
    soak: str
    soak_width: str
    deadline: str
    diff: tuple[parts.DiffShown, ...]
    steps: tuple[StepShown, ...]
    approvals: tuple[ApprovalShown, ...]
    approvals_text: str
    compared: tuple[parts.PredictedShown, ...]
    has_measured: bool
    verdict: str
    verdict_status: str
    worst: tuple[parts.FigureShown, ...]
    recovered: str
    true_now: str
    next_action: str
    error: str
    log: tuple[ChangeShown, ...]
    why_not: str


def present(view: types.CommandView, reader: Reader) -> CommandShown:
    """One command, for its page and its line in the list."""
    compared = parts.predicted(view.compared, reader)
    judged = [row for row in view.compared if row.inside_range is not None]
    inside = sum(1 for row in judged if row.inside_range)
    return CommandShown(
        view=view,
        title=say(view.title, reader),
        state_word=labels.word(labels.COMMAND_STATES, view.state),
        state_text=say(view.state_text, reader),
        status=view.status.value,
        status_word=labels.word(labels.STATUSES, view.status.value),
        kind=labels.word(labels.COMMAND_KINDS, view.kind),
        who=kinds.join(view.proposed_by),
        proposed=reader.time(view.proposed_at),
        started=reader.time(view.started_at) if view.started_at else "–",
        duration=exact_duration(view.duration_s),
        soak=_soak(view),
        soak_width=svg.percent(_soak_share(view)) if view.soak_s else "",
        deadline=reader.time(view.deadline_at) if view.deadline_at else "",
        diff=parts.diff(view.diff),
        steps=steps(view.steps, reader),
        approvals=tuple(
            ApprovalShown(
                who=item.who,
                time=reader.time(item.at),
                decision=labels.word(labels.DECISIONS, item.decision),
                reason=item.reason,
                mark="ok" if item.decision.startswith("approve") else "crit",
            )
            for item in view.approvals
        ),
        approvals_text=_approvals(view),
        compared=compared,
        has_measured=any(row.measured is not None for row in view.compared),
        verdict=_("{inside} of {total} inside the range").format(inside=inside, total=len(judged))
        if judged
        else "",
        verdict_status="" if not judged else "ok" if inside == len(judged) else "warn",
        worst=tuple(parts.figure(item, reader, "worst") for item in view.worst),
        recovered=_("recovered after {time}").format(time=exact_duration(view.recovered_after_s))
        if view.recovered_after_s is not None
        else "",
        true_now=kinds.targets(view.true_now) if view.true_now else "",
        next_action=say(view.next_action, reader),
        error=say(view.error, reader),
        log=changes(view.log, reader, exact=True),
        why_not=say(view.why_not, reader),
    )


def _soak_share(view: types.CommandView) -> float:
    return (view.soak_elapsed_s or 0.0) / view.soak_s if view.soak_s else 0.0


def _soak(view: types.CommandView) -> str:
    if view.soak_s is None or view.state != "SOAK":
        return ""
    return _("Verifying {elapsed} of {total}").format(
        elapsed=duration(view.soak_elapsed_s or 0.0), total=duration(view.soak_s)
    )


def _approvals(view: types.CommandView) -> str:
    given = sum(1 for item in view.approvals if item.decision.startswith("approve"))
    if view.approvals_needed <= 0:
        return _("No second person needed")
    return ngettext(
        "{given} of {needed} approval", "{given} of {needed} approvals", view.approvals_needed
    ).format(given=given, needed=view.approvals_needed)


def steps(found: tuple[types.PlannedStep, ...], reader: Reader) -> tuple[StepShown, ...]:
    return tuple(
        StepShown(
            index=step.index + 1,
            mark=_mark(step.state),
            text=say(step.text, reader),
            state_word=labels.word(labels.STEP_STATES, step.state),
            time=_step_time(step, reader.now),
            waiting_for=_("waits for {what}").format(what=say(step.waiting_for, reader))
            if step.waiting_for
            else "",
            request=step.request,
            answer=step.answer,
            error=step.error,
        )
        for step in found
    )


def _mark(state: str) -> str:
    if state in DONE:
        return "ok"
    if state == "FAILED":
        return "crit"
    return "run" if state in RUNNING else "info"


def _step_time(step: types.PlannedStep, now: datetime) -> str:
    about = (
        _("about {time}").format(time=exact_duration(step.expected_s))
        if step.expected_s is not None
        else ""
    )
    if step.started_at is None:
        return about
    took = exact_duration(((step.ended_at or now) - step.started_at).total_seconds())
    return f"{took} ({about})" if about else took


@dataclass(frozen=True, slots=True)
class ListShown:
    rows: tuple[CommandShown, ...]
    footer: str
    visible: int


def present_list(page: types.CommandList, reader: Reader) -> ListShown:
    footer = _("No prediction has been scored yet.")
    if page.predictions:
        footer = ngettext(
            "{inside} of {total} prediction inside its range",
            "{inside} of {total} predictions inside their range",
            page.predictions,
        ).format(inside=page.inside_range, total=page.predictions)
        if page.median_error is not None:
            footer = _("{predictions}, median error {error}").format(
                predictions=footer, error=formatting.share(page.median_error)
            )
    return ListShown(
        rows=tuple(present(row, reader) for row in page.rows),
        footer=footer,
        visible=page.visible,
    )


@dataclass(frozen=True, slots=True)
class CheckShown:
    word: str
    passed: bool
    detail: str


@dataclass(frozen=True, slots=True)
class ReviewShown:
    page: types.ReviewPage
    recommendation: recommendation.RecommendationShown
    checks: tuple[CheckShown, ...]
    checks_text: str
    checks_ok: bool
    steps: tuple[StepShown, ...]
    lowest: str
    rollback: str
    primary: str
    enabled: bool
    why_not: str


def present_review(page: types.ReviewPage, reader: Reader) -> ReviewShown:
    failed = sum(1 for check in page.checks if not check.passed)
    enabled = page.may_apply and not failed
    return ReviewShown(
        page=page,
        recommendation=recommendation.present(page.recommendation, reader),
        checks=tuple(
            CheckShown(labels.word(labels.CHECKS, item.code), item.passed, say(item.detail, reader))
            for item in page.checks
        ),
        checks_text=_("all checks pass")
        if not failed
        else ngettext("{count} check does not pass", "{count} checks do not pass", failed).format(
            count=failed
        ),
        checks_ok=not failed,
        steps=steps(page.steps, reader),
        lowest=kinds.targets(page.lowest_capacity) if page.lowest_capacity else "",
        rollback=say(page.rollback, reader),
        primary=_("Apply now") if page.one_person_may else _("Ask for approval"),
        enabled=enabled,
        why_not="" if enabled else say(page.why_not, reader) or _("A check does not pass."),
    )
