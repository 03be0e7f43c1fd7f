"""Sentences of the fleet and deployment pages: status, figures, pools, banners, changes, roles."""

from __future__ import annotations

from typing import Final

from django.utils.translation import gettext_lazy as _
from django.utils.translation import ngettext

from apps.common.sentences import Plural, Sentences

#: `DeploymentPage.status_text`: the worst status with its reason.
STATUS: Final[Sentences] = {
    "status.paging_ttft": (_("Paging · TTFT"),),
    "status.paging_tpot": (_("Paging · TPOT"),),
    "status.paging": (_("Paging · {cause}"), _("Paging")),
    "status.warning_ttft": (_("Warning · TTFT"),),
    "status.warning_tpot": (_("Warning · TPOT"),),
    "status.warning": (_("Warning · {cause}"), _("Warning")),
    "status.ok": (_("Within objectives"),),
    "status.stale": (_("Data {age_s} old"), _("Data is old")),
    "status.no_data": (_("No fresh data"),),
    "status.no_traffic": (_("No traffic"),),
    "status.too_few": (_("Too few requests"),),
    "status.paused": (_("Paused"),),
    "status.applying": (_("Applying {command}"), _("Applying")),
}

#: `Figure.detail`.
FIGURES: Final[Sentences] = {
    "figure.objective_ttft": (_("objective {ttft_objective}"),),
    "figure.objective_tpot": (_("objective {tpot_objective}"),),
    "figure.objective": (_("objective {threshold}"),),
    "figure.no_objective": (_("no objective set"),),
    "figure.share_of_demand": (_("{share} of {demand}"), _("of {demand}")),
    "figure.share_range_of_demand": (_("{first}–{second} of {demand}"),),
    "figure.input_rate": (_("{rate} in"),),
    "figure.all_tokens": (
        _("{per_million} per 1M of all completed tokens"),
        _("no completed tokens"),
    ),
    "figure.good_and_completed": (_("{share} of completed tokens are good"),),
    "figure.budget": (_("burn {burn}, gone in {left_s}"), _("burn {burn}")),
    "figure.budget_safe": (_("burn {burn}, lasts"), _("lasts")),
    "figure.budget_short": (_("over {span_s} of history"), _("history too short for a budget")),
    "figure.late": (_("{late} of {of} late"),),
    "figure.requests": (
        Plural(lambda n: ngettext("{requests} request", "{requests} requests", n), "requests"),
    ),
    "figure.usual": (_("usually {usual}"),),
    "figure.range": (_("between {first} and {second}"),),
    "figure.oldest": (_("oldest {oldest_s}"),),
    "figure.in_progress": (
        Plural(lambda n: ngettext("{count} change in progress", "{count} changes in progress", n)),
    ),
    "figure.waiting_for": (_("{recommendation}, valid {left_s}"), _("{command}"), _("{names}")),
    "figure.requests_per_s": (_("of {rate}"),),
    "figure.of_rate": (_("of {rate}"),),
    "figure.of_total": (_("of {total}"),),
    "figure.per_hour_change": (_("{change} against last week"),),
    "figure.gpus": (
        _("of {total}; {spare} spare, {draining} draining"),
        _("of {total}; {spare} spare"),
        _("of {total}"),
    ),
    "figure.no_price": (_("no price for: {names}"), _("no price set")),
    "figure.none": (_("none"),),
    "figure.in_time": (_("in {span_s}"),),
    "figure.at": (_("at {at}"),),
    "figure.before": (_("before {value}"),),
    "figure.idle": (_("{idle_share} of it idle"),),
    "figure.window": (_("last {span_s}"),),
    "figure.method_marginals": (_("a range: requests were not seen one by one"),),
}

#: `PoolView.headline`.
POOLS: Final[Sentences] = {
    "pool.saturated": (_("Saturated"),),
    "pool.busy": (_("Busy"),),
    "pool.room": (
        Plural(
            lambda n: ngettext("Room for {count} worker less", "Room for {count} workers less", n)
        ),
        _("Has room"),
    ),
    "pool.ok": (_("In balance"),),
    "pool.idle": (_("Idle"),),
    "pool.memory_full": (_("Memory full"),),
    "pool.missing": (
        Plural(lambda n: ngettext("{missing} worker down", "{missing} workers down", n), "missing"),
    ),
    "pool.stale": (_("No fresh data"),),
    "pool.no_traffic": (_("No traffic"),),
    "pool.bad_worker": (_("{worker} is slow"), _("One slow worker")),
    "pool.uneven": (_("Unevenly spread"),),
    "pool.starting": (_("Starting"),),
    "pool.model_only": (_("Not calibrated"),),
    "pool.empty": (_("No worker"),),
}

#: Fleet: `FleetRow.limited_by`, `limited_detail`, `card`, `next_step`.
FLEET: Final[Sentences] = {
    "limited.cause": (_("{cause}"),),
    "limited.single_pool": (_("Single pool"),),
    "limited.no_traffic": (_("No traffic"),),
    "limited.stale": (_("Old data"),),
    "detail.queue_share": (_("{share} of TTFT is queue"),),
    "detail.busy": (_("{busy} busy for {for_s}"), _("{busy} busy")),
    "detail.kv_used": (_("KV cache {kv_used}"),),
    "detail.links": (_("links {links_used} used"),),
    "detail.transfer": (_("KV transfer {mean}"),),
    "detail.tpot": (_("TPOT P95 {tpot}"),),
    "detail.balanced": (_("balanced"),),
    "detail.last_sample": (_("last sample {age_s} ago"), _("no sample yet")),
    "detail.not_split": (_("not split"),),
    "detail.worker": (_("{worker}"),),
    "detail.missing": (_("{missing} of {wanted} down"),),
    "detail.both": (_("{prefill_busy} and {decode_busy} busy"),),
    "detail.no_traffic": (_("no requests"),),
    "detail.too_few": (_("{requests} requests, too few"), _("too few requests")),
    "detail.waiting": (_("{waiting} requests wait"),),
    "card.ttft": (
        _("TTFT P95 {ttft} of {ttft_objective}, {for_s}. A fix is ready."),
        _("TTFT P95 {ttft} of {ttft_objective}, {for_s}."),
        _("TTFT P95 {ttft} of {ttft_objective}."),
    ),
    "card.ttft_fix_free": (
        _("TTFT P95 {ttft} of {ttft_objective}, {for_s}. A fix is ready at no extra cost."),
        _("TTFT P95 {ttft} of {ttft_objective}. A fix is ready at no extra cost."),
    ),
    "card.tpot": (
        _("TPOT P95 {tpot} of {tpot_objective}, {for_s}."),
        _("TPOT P95 {tpot} of {tpot_objective}."),
    ),
    "card.wont_scale": (
        _("since {since}. More workers will not help."),
        _("More workers will not help."),
    ),
    "card.idle": (
        _("{busy} busy for {for_s}. Moving {gpus} GPUs saves {saved} per hour."),
        _("{busy} busy for {for_s}."),
        _("{busy} busy."),
    ),
    "card.stale": (_("last sample {age_s} ago"), _("no fresh sample")),
    "step.next_review": (_("Review {recommendation}"),),
    "step.next_command": (_("Wait for {command}"),),
    "step.next_approve": (_("Approve {command}"),),
    "step.next_open": (_("Open"),),
    "step.next_source": (_("Check source"),),
}

#: `Banner.text` and `Banner.link_text`.
BANNERS: Final[Sentences] = {
    "banner.source_stale": (
        _(
            "{source} answered {age_s} ago. Figures below are from {sample_at}. "
            "Recommendations are paused until data is fresh."
        ),
        _("{source} answers late. Recommendations are paused until data is fresh."),
        _("A source answers late. Recommendations are paused until data is fresh."),
    ),
    "banner.source_down": (
        _(
            "{source} cannot be reached since {since}. Figures below are the last good ones. "
            "Recommendations are paused."
        ),
        _("{source} cannot be reached. Figures below are the last good ones."),
        _("A source cannot be reached. Figures below are the last good ones."),
    ),
    "banner.no_data": (_("No data yet. First figures come with the next collection."),),
    "banner.queries_failed": (
        _("Some queries failed: {names}. Everything else is current."),
        _("Some queries failed. Everything else is current."),
    ),
    "banner.read_only": (
        _("Read-only mode. Commands are off for {deployment}."),
        _("Read-only mode. Commands are off."),
    ),
    "banner.observe": (_("Mode observe: diagnosis only. No advice and no commands."),),
    "banner.recommend": (_("Mode recommend: advice only. Commands are off."),),
    "banner.freeze": (
        _("Changes are frozen until {until} by {who}."),
        _("Changes are frozen until {until}."),
        _("Changes are frozen."),
    ),
    "banner.frozen_flapping": (
        _("Frozen until {until}: the ratio went back and forth {count} times."),
        _("Frozen: the ratio went back and forth."),
    ),
    "banner.kill_switch": (
        _("The kill switch is on, set by {who} at {at}. No command runs."),
        _("The kill switch is on. No command runs."),
    ),
    "banner.backend_unreachable": (
        _("The backend does not answer since {since}. Reading works, commands do not."),
        _("The backend does not answer. Reading works, commands do not."),
    ),
    "banner.foreign_change": (
        _("{who} changed the workers outside at {at}: {changes}."),
        _("Somebody changed the workers outside at {at}."),
        _("Somebody changed the workers outside."),
    ),
    "banner.out_of_sync": (
        _("Wanted {wanted_targets}, serving {serving_targets}."),
        _("What serves differs from what is wanted."),
    ),
    "banner.conflict": (
        _("Sources contradict each other about: {figures}."),
        _("Sources contradict each other."),
    ),
    "banner.too_few": (
        _("{requests} requests in {span_s}. Percentiles need {needed}, so they are hidden."),
        _("Too few requests for percentiles."),
    ),
    "banner.partial": (
        _("{have} of {needed} workers reported. Only growth is advised."),
        _("Part of the workers reported. Only growth is advised."),
    ),
    "banner.missing_prices": (
        _("No price for: {names}. Costs are incomplete."),
        _("Some prices are missing."),
    ),
    "banner.scope": (_("You see {visible} of {total} deployments."),),
    "banner.uncalibrated": (_("The model is not calibrated yet: predictions are model only."),),
    "link.check_source": (_("Check source"),),
    "link.show_command": (_("Show {command}"), _("Show")),
    "link.coverage": (_("Coverage"),),
}

#: `Change.title` and `Change.detail`.
CHANGES: Final[Sentences] = {
    "change.recommended": (
        _("{recommendation} proposed: {changes}"),
        _("{recommendation} proposed"),
    ),
    "change.recommendation_dismissed": (_("{recommendation} dismissed"),),
    "change.recommendation_expired": (_("{recommendation} expired"),),
    "change.command_proposed": (_("{command} proposed: {changes}"), _("{command} proposed")),
    "change.command_approved": (_("{command} approved"),),
    "change.command_rejected": (_("{command} rejected"),),
    "change.command_cancelled": (_("{command} cancelled"),),
    "change.command_started": (_("{command} started: {changes}"), _("{command} started")),
    "change.command_step": (_("{command}: step {step} of {steps}"), _("{command}: a step")),
    "change.command_applied": (_("{command} applied: {changes}"), _("{command} applied")),
    "change.command_verified": (_("{command} verified: {changes}"), _("{command} verified")),
    "change.command_partial": (_("{command} partly done"),),
    "change.command_failed": (_("{command} failed"),),
    "change.command_denied": (_("{command} refused"),),
    "change.command_expired": (_("{command} expired"),),
    "change.command_superseded": (_("{command}: somebody else changed it"),),
    "change.command_rolled_back": (_("{command} rolled back"),),
    "change.command_rolling_back": (_("{command} is rolling back"),),
    "change.command_rollback_failed": (_("{command}: roll back failed"),),
    "change.deployment_mode": (_("Mode set to {mode}"), _("Mode changed")),
    "change.kill_switch_on": (_("Kill switch on"),),
    "change.kill_switch_off": (_("Kill switch off"),),
    "change.mode": (_("Mode set to {mode}"),),
    "change.foreign": (_("Changed outside: {changes}"), _("Workers changed outside")),
    "change.worker_lost": (_("{worker} stopped serving"),),
    "change.worker_back": (_("{worker} serves again"),),
    "change.worker_added": (_("{worker} appeared as {role}"), _("{worker} appeared")),
    "change.role": (_("{worker}: {from_role} → {to_role}"),),
    "change.cause": (_("Diagnosis: {cause_phrase}"),),
    "change.traffic": (_("Input tokens per second changed by {change}"),),
    "change.deployment_created": (_("{deployment} connected"),),
    "change.objectives": (_("Objectives changed"),),
    "change.prices": (_("Prices changed"),),
    "change.revision": (_("Revision {revision}"),),
    "change.page": (_("Page sent: TTFT budget burning {burn}"), _("Page sent")),
    "change.frozen": (_("Changes frozen until {until}"), _("Changes frozen")),
    "change.other": (_("{name}"),),
    "log.waits_for_approval": (_("waits for approval"),),
    "log.acknowledged": (_("acknowledged by {who} at {at}"),),
    "log.verified": (
        _("verified after {after_s}: {figure} {first} → {second}, predicted {predicted}"),
        _("verified after {after_s}: {figure} {first} → {second}"),
        _("verified after {after_s}"),
    ),
    "log.figure": (_("{figure} {first} → {second}"),),
    "log.reason": (_("{reason_text}"),),
    "log.targets": (_("{targets}"),),
    "log.error": (_("{error}"),),
    "log.step_kind": (_("{name}"),),
    "log.step": (_("{name}"),),
    "log.rollback_reason": (_("fewer requests within objectives than predicted"),),
}

#: `role_line`: what the reader may do here.
ROLES: Final[Sentences] = {
    "role_line.read": (_("You may read"),),
    "role_line.operate": (_("You may propose and roll back"),),
    "role_line.approve": (_("You may approve and roll back"),),
    "role_line.operate_approve": (_("You may propose, approve and roll back"),),
    "role_line.admin": (_("You may configure"),),
    "role_line.all": (_("You may propose, approve and configure"),),
    "role_line.nothing": (_("You may not see any deployment yet"),),
}

TABLE: Final[Sentences] = {
    **STATUS,
    **FIGURES,
    **POOLS,
    **FLEET,
    **BANNERS,
    **CHANGES,
    **ROLES,
}
