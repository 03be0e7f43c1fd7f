"""Sentences of recommendations: titles, reasons, notes, blocks, alternatives, checks."""

from __future__ import annotations

from typing import Final

from django.utils.translation import gettext_lazy as _
from django.utils.translation import ngettext

from apps.common.sentences import Plural, Sentences

#: `RecommendationView.title` and `Alternative.title`: an instruction.
TITLES: Final[Sentences] = {
    "rec.rebalance": (
        Plural(
            lambda n: ngettext(
                "Turn {count} {from_role} worker into {total} {to_role}",
                "Turn {count} {from_role} workers into {total} {to_role}",
                n,
            )
        ),
        _("Move GPUs from {from_role} to {to_role}"),
    ),
    "rec.role_flip": (
        Plural(
            lambda n: ngettext(
                "Turn {count} {from_role} worker into a {to_role} worker",
                "Turn {count} {from_role} workers into {to_role} workers",
                n,
            )
        ),
    ),
    "rec.scale_up": (
        Plural(lambda n: ngettext("Add {count} {role} worker", "Add {count} {role} workers", n)),
    ),
    "rec.scale_down": (
        Plural(
            lambda n: ngettext("Release {count} {role} worker", "Release {count} {role} workers", n)
        ),
    ),
    "rec.scale": (_("Change workers: {changes}"),),
    "rec.do_nothing": (_("Do nothing"),),
}

#: `RecommendationView.reason`.
REASONS: Final[Sentences] = {
    "reason.prefill_saturated": (
        _("Prefill is {prefill_busy} busy and decode {decode_busy}."),
        _("Prefill is the bottleneck and decode has room."),
    ),
    "reason.decode_saturated": (
        _("Decode is {decode_busy} busy and prefill {prefill_busy}."),
        _("Decode is the bottleneck and prefill has room."),
    ),
    "reason.kv_cache_full": (
        _("Decode holds {kv_used} of its KV cache."),
        _("Decode has no room for more sequences."),
    ),
    "reason.both_saturated": (
        _("Both pools are full: prefill {prefill_busy}, decode {decode_busy}."),
        _("Both pools are full."),
    ),
    "reason.return": (_("The load that asked for the last change is over."),),
    "reason.model": (_("The calibrated model finds a cheaper way to hold the objectives."),),
}

#: `RecommendationView.notes`: what happens to running requests, how long, how it rolls back.
NOTES: Final[Sentences] = {
    "note.drains_first": (
        Plural(
            lambda n: ngettext(
                "Drains {worker} first: {running} running request, about {about_s}. "
                "New {role} ready in about {ready_s}.",
                "Drains {worker} first: {running} running requests, about {about_s}. "
                "New {role} ready in about {ready_s}.",
                n,
            ),
            by="running",
        ),
        Plural(
            lambda n: ngettext(
                "Drains {worker} first: {running} running request, about {about_s}.",
                "Drains {worker} first: {running} running requests, about {about_s}.",
                n,
            ),
            by="running",
        ),
        _("Drains {worker} first, about {about_s}."),
        _("Drains {worker} first."),
    ),
    "note.flip": (
        _("{worker} changes its role in about {about_s}; no worker is started or stopped."),
        _("Workers change their role; none is started or stopped."),
    ),
    "note.auto_rollback": (
        _(
            "Rolls back by itself if fewer requests are within objectives than predicted and than "
            "without the change, judged over {soak_s}."
        ),
        _("Rolls back by itself if fewer requests are within objectives than predicted."),
    ),
}

#: `RecommendationView.blocked`: why the primary button is off.
BLOCKED: Final[Sentences] = {
    "blocked.guardrail": (
        _("Blocked by a guardrail: {guardrail}."),
        _("Blocked by guardrails: {guardrails}."),
        _("Blocked by a guardrail."),
    ),
    "blocked.stale": (
        _("Paused: data is {age_s} old."),
        _("Paused until data is fresh."),
    ),
    "blocked.active_command": (_("Waits for {command}."), _("Waits for a running command.")),
    "blocked.kill_switch": (_("The kill switch is on."),),
    "blocked.mode": (
        _("The mode is {mode}: advice only."),
        _("This deployment is in a mode that only advises."),
    ),
    "blocked.expired": (
        _("Made for {at}, load has changed. A new one is computed."),
        _("It is no longer valid. A new one is computed."),
    ),
    "blocked.superseded": (_("Replaced by {recommendation}."), _("Replaced by a newer one.")),
    "blocked.revision": (_("The deployment changed meanwhile. A new plan is computed."),),
}

#: Why a person may not use a button: `RecommendationView.why_not`, `ReviewPage.why_not`, commands.
WHY_NOT: Final[Sentences] = {
    "why_not.permission": (
        _("You need the permission to {permission} here."),
        _("You do not have the permission for this."),
    ),
    "why_not.viewer": (_("You may read. Operators and approvers may act."),),
    "why_not.own_proposal": (_("You proposed it, so someone else has to approve."),),
    "why_not.blocked": (_("A check does not pass."),),
    "why_not.cancel_state": (_("Cancelling is not possible while it is {state}."),),
}

#: `Alternative.reason`: why it was not chosen.
ALTERNATIVES: Final[Sentences] = {
    "alt.misses_ttft": (
        _("TTFT P95 would stay at {predicted}, over its objective."),
        _("TTFT would miss its objective."),
    ),
    "alt.misses_tpot": (
        _("TPOT P95 would be {predicted}, over its objective."),
        _("TPOT would miss its objective."),
    ),
    "alt.dearer": (_("Costs {extra} per hour more."), _("Costs more.")),
    "alt.similar": (_("No better within the error of the model."),),
}

#: `DeploymentPage.no_recommendation`.
NONE: Final[Sentences] = {
    "none.balanced": (
        _(
            "Pools are balanced: prefill {prefill_busy}, decode {decode_busy}. "
            "Next check {next_at}."
        ),
        _("Pools are balanced: prefill {prefill_busy}, decode {decode_busy}."),
        _("Pools are balanced."),
    ),
    "none.not_for_this_cause": (_("Moving or adding workers does not help against this cause."),),
    "none.observe": (_("Mode observe: diagnosis without advice. An operator can raise the mode."),),
    "none.stale": (_("Paused until data is fresh."),),
    "none.not_enough_signal": (_("Not enough fresh figures for advice."),),
    "none.command_running": (_("{command} is running."), _("A command is running.")),
    "none.holding": (
        _("A change is being considered: {have} of {needed} evaluations agree."),
        _("A change is being considered."),
    ),
    "none.recovering": (_("The model expects that present capacity is enough. Watching."),),
    "none.at_limit": (
        _("{role} is at its limit of {count} workers."),
        _("The pools are at their limits."),
    ),
    "none.single_pool": (_("One mixed pool: there is no ratio to plan."),),
    "none.fresh_deployment": (_("Collecting first figures."),),
}

#: Details of guardrails and checks.
DETAILS: Final[Sentences] = {
    "guard.age": (_("data {age_s} old"),),
    "guard.wait": (_("{left_s} more"),),
    "guard.gpus": (_("{gpus_free} GPUs free, {gpus_needed} needed"),),
    "guard.command": (_("{command} is running"),),
    "check.revision": (_("still revision {revision}"),),
    "check.revision_changed": (_("planned on {expected}, now {current}"),),
    "check.age": (_("data {age_s} old"),),
    "check.gpus": (_("{gpus_free} GPUs free, {gpus_needed} needed"), _("{gpus_free} GPUs free")),
    "check.gpus_same": (_("no GPU is added"),),
    "check.command": (_("{command} is running"),),
}

TABLE: Final[Sentences] = {
    **TITLES,
    **REASONS,
    **NOTES,
    **BLOCKED,
    **WHY_NOT,
    **ALTERNATIVES,
    **NONE,
    **DETAILS,
}
