"""The recommendation card: an instruction, its diff, prediction, basis, guardrails, buttons."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from apps.common import formatting
from apps.overview.domain import types

from ..reader import Reader, duration
from ..wording import kinds, labels, say
from . import parts

#: Fewer similar changes than this and the confidence reads "model only" (`design/ui.md` §6.2).
MIN_SIMILAR: Final = 5
#: Guardrails named on the card; the review names all.
NAMED: Final = 5
LEVELS: Final = {"high": 3, "medium": 2, "low": 1, "model_only": 1}


@dataclass(frozen=True, slots=True)
class GuardrailShown:
    word: str
    passed: bool
    detail: str


@dataclass(frozen=True, slots=True)
class AlternativeShown:
    title: str
    targets: str
    rows: tuple[parts.PredictedShown, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class RecommendationShown:
    """`state` is fresh, expired, dismissed, applied, superseded, blocked or stale."""

    number: str
    state: str
    state_word: str
    age: str
    title: str
    reason: str
    revision: str
    diff: tuple[parts.DiffShown, ...]
    predicted: tuple[parts.PredictedShown, ...]
    confidence: str
    level: int
    level_steps: tuple[tuple[str, bool], ...]
    basis: str
    guardrails: tuple[GuardrailShown, ...]
    guardrails_ok: bool
    guardrails_text: str
    guardrails_names: str
    notes: tuple[str, ...]
    blocked: str
    primary: str
    primary_enabled: bool
    primary_reason: str
    may_dismiss: bool
    dismiss_reason: str
    approvals: str
    alternatives: tuple[AlternativeShown, ...]
    alternatives_title: str
    applied_command: str
    is_open: bool


def present(view: types.RecommendationView, reader: Reader) -> RecommendationShown:
    """The card of a recommendation for one reader."""
    is_open = view.state == "open"
    model_only = view.similar_changes < MIN_SIMILAR
    confidence = "model_only" if model_only else view.confidence
    passed = [item for item in view.guardrails if item.passed]
    failed = [item for item in view.guardrails if not item.passed]
    enabled = is_open and view.blocked is None and (view.may_propose or view.may_approve)
    return RecommendationShown(
        number=view.number,
        state=_state(view),
        state_word=labels.word(labels.RECOMMENDATION_STATES, view.state),
        age=_age(view, is_open),
        title=say(view.title, reader),
        reason=say(view.reason, reader),
        revision=_("rev {before} → {after}").format(
            before=view.revision_from, after=view.revision_from + 1
        ),
        diff=parts.diff(view.diff),
        predicted=parts.predicted(view.predicted, reader),
        confidence=labels.word(labels.CONFIDENCE, confidence),
        level=LEVELS.get(confidence, 1),
        level_steps=tuple(
            (f"{34.5 * step:g}%", step < LEVELS.get(confidence, 1)) for step in range(3)
        ),
        basis=_basis(view),
        guardrails=tuple(
            GuardrailShown(
                labels.word(labels.GUARDRAILS, item.code), item.passed, say(item.detail, reader)
            )
            for item in view.guardrails
        ),
        guardrails_ok=not failed,
        guardrails_text=_guardrail_count(len(passed), len(view.guardrails)),
        guardrails_names=_guardrail_names(failed or passed),
        notes=tuple(say(note, reader) for note in view.notes),
        blocked=say(view.blocked, reader),
        primary=_primary(view),
        primary_enabled=enabled,
        primary_reason="" if enabled else say(view.blocked or view.why_not, reader),
        may_dismiss=is_open and view.may_dismiss,
        dismiss_reason="" if view.may_dismiss else say(view.why_not, reader),
        approvals=_approvals(view),
        alternatives=tuple(
            AlternativeShown(
                title=say(item.title, reader),
                targets=kinds.targets(item.targets) if item.targets else "",
                rows=parts.predicted(item.rows, reader),
                reason=say(item.reason, reader),
            )
            for item in view.alternatives
        ),
        alternatives_title=ngettext(
            "{count} other option", "{count} other options", len(view.alternatives)
        ).format(count=len(view.alternatives)),
        applied_command=view.applied_command,
        is_open=is_open,
    )


def _state(view: types.RecommendationView) -> str:
    if view.state != "open":
        return view.state
    if view.blocked is None:
        return "fresh"
    return "stale" if view.blocked.code == "blocked.stale" else "blocked"


def _age(view: types.RecommendationView, is_open: bool) -> str:
    if not is_open:
        return _("{age} old").format(age=duration(view.age_s))
    if view.valid_s <= 0:
        return _("{age} old, no longer valid").format(age=duration(view.age_s))
    return _("{age} old, valid {left}").format(
        age=duration(view.age_s), left=duration(view.valid_s)
    )


def _basis(view: types.RecommendationView) -> str:
    if not view.similar_changes:
        return _("no similar change yet")
    if view.median_error is None:
        return ngettext(
            "{count} similar change", "{count} similar changes", view.similar_changes
        ).format(count=view.similar_changes)
    return ngettext(
        "{count} similar change, median error {error}",
        "{count} similar changes, median error {error}",
        view.similar_changes,
    ).format(count=view.similar_changes, error=formatting.share(view.median_error))


def _guardrail_count(passed: int, total: int) -> str:
    if passed == total:
        return ngettext(
            "{passed} of {total} guardrail passes", "{passed} of {total} guardrails pass", total
        ).format(passed=passed, total=total)
    return ngettext(
        "{failed} of {total} guardrail does not pass",
        "{failed} of {total} guardrails do not pass",
        total - passed,
    ).format(failed=total - passed, total=total)


def _guardrail_names(found: list[types.Guardrail]) -> str:
    """Names of the failing guardrails, else of the passing ones; a long list is cut."""
    words = [labels.word(labels.GUARDRAILS, item.code) for item in found]
    more = len(words) - NAMED
    if more < 2:
        return kinds.join(words)
    return ngettext("{names} and {count} more", "{names} and {count} more", more).format(
        names=kinds.join(words[:NAMED]), count=more
    )


def _primary(view: types.RecommendationView) -> str:
    if view.may_approve or not view.may_propose:
        return _("Review and approve")
    return _("Review and propose")


def _approvals(view: types.RecommendationView) -> str:
    if view.approvals_needed <= 0:
        return _("Needs no second person here.")
    needed = ngettext(
        "Needs {count} approval.", "Needs {count} approvals.", view.approvals_needed
    ).format(count=view.approvals_needed)
    if view.may_approve:
        return ngettext(
            "Needs {count} approval. You can approve.",
            "Needs {count} approvals. You can approve.",
            view.approvals_needed,
        ).format(count=view.approvals_needed)
    return needed
