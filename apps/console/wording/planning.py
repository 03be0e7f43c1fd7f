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
    "rec.drain": (_("Drain {worker}"),),
    "rec.restart": (_("Restart {worker}"),),
    "rec.restore": (
        Plural(
            lambda n: ngettext(
                "Bring back {count} {role} worker", "Bring back {count} {role} workers", n
            )
        ),
    ),
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
    "reason.idle_prefill": (
        _("Prefill was at most {prefill_busy} busy for {for_s}."),
        _("Prefill has more workers than the load needs."),
    ),
    "reason.idle_decode": (
        _("Decode was at most {decode_busy} busy for {for_s}."),
        _("Decode has more workers than the load needs."),
    ),
    "reason.bad_worker": (_("{worker} slows its pool down."), _("One worker slows its pool down.")),
    "reason.replica_lost": (_("{ready} of {wanted} {role} workers serve."), _("A worker is down.")),
    "reason.objective_missed": (
        _("An objective is missed: prefill {prefill_busy} busy, decode {decode_busy}."),
        _("An objective is missed."),
    ),
    "reason.hold_not_over": (_("The need has not held long enough yet."),),
    "reason.below_floor": (_("{role} is below its floor of {needed}."),),
    "reason.imbalance": (
        _("The busy shares are {gap} points apart for {for_s}."),
        _("The busy shares are {gap} points apart."),
    ),
    "reason.return": (_("The load that asked for the last change is over."),),
    "reason.model": (_("The calibrated model finds a cheaper way to hold the objectives."),),
    "reason.person": (_("Chosen by {who}."),),
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
    "note.starts": (
        _("New {role} workers ready in about {ready_s}."),
        _("New {role} workers start first, then the others drain."),
    ),
    "note.flip": (
        _("{worker} changes its role in about {about_s}; no worker is started or stopped."),
        _("Workers change their role; none is started or stopped."),
    ),
    "note.takes": (_("Takes about {about_s}."),),
    "note.lowest_capacity": (_("Lowest capacity on the way: {targets}."),),
    "note.auto_rollback": (
        _(
            "Rolls back by itself if fewer requests are within objectives than predicted and than "
            "without the change, judged over {soak_s}."
        ),
        _("Rolls back by itself if fewer requests are within objectives than predicted."),
    ),
    "note.no_requests_lost": (_("Running requests finish; none is cut off."),),
    "note.extra_cost": (_("Costs {extra} per hour more."),),
    "note.saves": (_("Saves {saved} per hour."),),
    "note.same_cost": (_("No extra cost."),),
    "note.model_only": (_("The model is not calibrated on this deployment yet."),),
    "note.sized_by_load": (
        _("Sized from load and queue, because TTFT is beyond its last bucket."),
    ),
    "note.partial": (
        _("Part of the workers reported ({coverage_share}); only growth is advised."),
    ),
    "note.n_plus_one": (_("One worker of each role may fail afterwards."),),
    "note.n_plus_one_lost": (_("Afterwards no worker may fail: N+1 is used up."),),
    "note.backlog": (_("The queue of {waiting} requests needs about {about_s} to empty."),),
    "note.quality": (_("{role} will be {share} busy."),),
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
    "blocked.freeze": (
        _("Changes are frozen until {until}."),
        _("Changes are frozen."),
    ),
    "blocked.frozen_flapping": (
        _("Frozen until {until}: it went back and forth {count} times."),
        _("Frozen: it went back and forth."),
    ),
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
    "blocked.foreign_writer": (
        _("{who} changes the workers too. Settle who owns the number first."),
        _("Somebody else changes the workers too. Settle who owns the number first."),
    ),
    "blocked.backend_unreachable": (
        _("The backend does not answer: reading works, commands do not."),
    ),
    "blocked.cooldown": (_("Cooldown until {until}."), _("Cooldown is running.")),
    "blocked.gpus": (
        _("Needs {gpus_needed} GPUs more, {gpus_free} are free."),
        _("Not enough free GPUs."),
    ),
    "blocked.unknown_inventory": (_("The number of free GPUs is not known."),),
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
    "why_not.second_factor": (_("Approving needs a recent second factor."),),
    "why_not.token": (_("Tokens never approve in production."),),
    "why_not.blocked": (_("A check does not pass."),),
    "why_not.already_approved": (_("You have approved already."),),
    "why_not.state": (_("Not possible while it is {state}."), _("Not possible in this state.")),
    "why_not.cancel_state": (_("Cancelling is not possible while it is {state}."),),
    "why_not.mode": (_("The mode is {mode}: commands are off."), _("Commands are off.")),
    "why_not.kill_switch": (_("The kill switch is on."),),
    "why_not.stale": (_("Data is old."),),
    "why_not.expired": (_("It has expired."),),
    "why_not.signed_out": (_("Sign in first."),),
    "why_not.freeze": (_("Changes are frozen until {until}."), _("Changes are frozen.")),
    "why_not.active_command": (_("{command} is still running."), _("A command is still running.")),
    "why_not.nothing_to_roll_back": (_("There is nothing to roll back."),),
}

#: `Alternative.reason`: why it was not chosen.
ALTERNATIVES: Final[Sentences] = {
    "alt.slower": (_("TTFT P95 would be {predicted}."), _("Slower.")),
    "alt.misses_ttft": (
        _("TTFT P95 would stay at {predicted}, over its objective."),
        _("TTFT would miss its objective."),
    ),
    "alt.misses_tpot": (
        _("TPOT P95 would be {predicted}, over its objective."),
        _("TPOT would miss its objective."),
    ),
    "alt.misses_objective": (_("An objective would be missed."),),
    "alt.dearer": (_("Costs {extra} per hour more."), _("Costs more.")),
    "alt.no_spare": (_("No worker could fail afterwards."),),
    "alt.too_large_step": (_("The step is larger than allowed."),),
    "alt.no_gpus": (_("Not enough free GPUs."),),
    "alt.budget_gone": (
        _("The error budget would be gone in {left_s}."),
        _("The error budget goes on burning."),
    ),
    "alt.longer": (_("Takes {about_s} longer."), _("Takes longer.")),
    "alt.less_headroom": (_("Leaves less headroom."),),
    "alt.similar": (_("No better within the error of the model."),),
    "alt.guardrail": (
        _("A guardrail does not pass: {guardrail}."),
        _("A guardrail does not pass."),
    ),
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
    "none.cooldown": (_("Cooldown until {until}."), _("Cooldown is running.")),
    "none.recovering": (_("The model expects that present capacity is enough. Watching."),),
    "none.no_traffic": (_("No requests arrive."),),
    "none.frozen": (_("Changes are frozen until {until}."), _("Changes are frozen.")),
    "none.dismissed": (
        _("{recommendation} was dismissed by {who} until {until}."),
        _("Dismissed for now."),
    ),
    "none.at_limit": (
        _("{role} is at its limit of {count} workers."),
        _("The pools are at their limits."),
    ),
    "none.single_pool": (_("One mixed pool: there is no ratio to plan."),),
    "none.fresh_deployment": (_("Collecting first figures."),),
}

#: Details of guardrails and checks.
DETAILS: Final[Sentences] = {
    "guard.value": (_("{value}, limit {threshold}"), _("{value}")),
    "guard.workers": (_("{count} of at most {total}"),),
    "guard.until": (_("until {until}"),),
    "guard.age": (_("data {age_s} old"),),
    "guard.wait": (_("{left_s} more"),),
    "guard.share": (_("{share}, limit {limit}"), _("{share}")),
    "guard.evaluations": (_("{have} of {needed} evaluations"),),
    "guard.gpus": (_("{gpus_free} GPUs free, {gpus_needed} needed"),),
    "guard.command": (_("{command} is running"),),
    "guard.missing": (_("not known: {names}"), _("not known")),
    "guard.role": (_("{role}: {count}"),),
    "check.revision": (_("still revision {revision}"),),
    "check.revision_changed": (_("planned on {expected}, now {current}"),),
    "check.age": (_("data {age_s} old"),),
    "check.gpus": (_("{gpus_free} GPUs free, {gpus_needed} needed"), _("{gpus_free} GPUs free")),
    "check.gpus_same": (_("no GPU is added"),),
    "check.last_change": (_("last change {at}"), _("no change yet")),
    "check.until": (_("until {until}"),),
    "check.command": (_("{command} is running"),),
    "check.who": (_("changed by {who} at {at}"), _("changed by {who}")),
    "check.valid": (_("valid {left_s} more"),),
    "check.mode": (_("mode {mode}"),),
    "check.error": (_("{error}"),),
    "check.guardrail": (_("{guardrails}"),),
    "check.floor": (_("{targets}"),),
    "check.workers_ready": (_("{ready} of {wanted} ready"),),
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
