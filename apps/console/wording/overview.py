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
    "status.warning": (_("Warning · {cause}"), _("Warning")),
    "status.ok": (_("Within objectives"),),
    "status.stale": (_("Data {age_s} old"), _("Data is old")),
    "status.no_data": (_("No fresh data"),),
    "status.no_traffic": (_("No traffic"),),
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
    "figure.waiting_for": (_("{recommendation}, valid {left_s}"), _("{command}"), _("{names}")),
    "figure.requests_per_s": (_("of {rate}"),),
    "figure.of_total": (_("of {total}"),),
    "figure.none": (_("none"),),
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
    "pool.missing": (
        Plural(lambda n: ngettext("{missing} worker down", "{missing} workers down", n), "missing"),
    ),
    "pool.stale": (_("No fresh data"),),
    "pool.no_traffic": (_("No traffic"),),
    "pool.bad_worker": (_("{worker} is slow"), _("One slow worker")),
    "pool.model_only": (_("Not calibrated"),),
    "pool.empty": (_("No worker"),),
}

#: Fleet: `FleetRow.limited_by`, `limited_detail`, `card`, `next_step`.
FLEET: Final[Sentences] = {
    "limited.cause": (_("{cause}"),),
    "limited.no_traffic": (_("No traffic"),),
    "limited.stale": (_("Old data"),),
    "detail.queue_share": (_("{share} of TTFT is queue"),),
    "detail.kv_used": (_("KV cache {kv_used}"),),
    "detail.transfer": (_("KV transfer {mean}"),),
    "detail.tpot": (_("TPOT P95 {tpot}"),),
    "detail.balanced": (_("balanced"),),
    "detail.last_sample": (_("last sample {age_s} ago"), _("no sample yet")),
    "detail.worker": (_("{worker}"),),
    "detail.missing": (_("{missing} of {wanted} down"),),
    "detail.no_traffic": (_("no requests"),),
    "step.next_review": (_("Review {recommendation}"),),
    "step.next_command": (_("Wait for {command}"),),
    "step.next_approve": (_("Approve {command}"),),
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
    "banner.observe": (_("Mode observe: diagnosis only. No advice and no commands."),),
    "banner.recommend": (_("Mode recommend: advice only. Commands are off."),),
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
    "banner.scope": (_("You see {visible} of {total} deployments."),),
}

#: `Change.title` and `Change.detail`.
CHANGES: Final[Sentences] = {
    "change.recommended": (
        _("{recommendation} proposed: {changes}"),
        _("{recommendation} proposed"),
    ),
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
    "change.cause": (_("Diagnosis: {cause_phrase}"),),
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
