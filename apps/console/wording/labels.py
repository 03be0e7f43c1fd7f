"""Names of coded things: causes, figures, guardrails, checks, states, roles.

One table for each kind of code; an unknown code raises where `sentences.is_strict()` says so.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Final

from django.utils.translation import gettext_lazy as _
from django.utils.translation import pgettext_lazy

logger = logging.getLogger(__name__)

Words = Mapping[str, object]

ROLE_ORDER: Final = ("prefill", "decode", "mixed")

ROLES: Final[Words] = {
    "prefill": pgettext_lazy("role inside a sentence", "prefill"),
    "decode": pgettext_lazy("role inside a sentence", "decode"),
    "mixed": pgettext_lazy("role inside a sentence", "mixed"),
    "encode": pgettext_lazy("role inside a sentence", "encode"),
    "unknown": pgettext_lazy("role inside a sentence", "unknown role"),
}

ROLES_TITLE: Final[Words] = {
    "prefill": pgettext_lazy("role as a title", "Prefill"),
    "decode": pgettext_lazy("role as a title", "Decode"),
    "mixed": pgettext_lazy("role as a title", "Mixed"),
    "encode": pgettext_lazy("role as a title", "Encode"),
    "unknown": pgettext_lazy("role as a title", "Unknown role"),
}

PHASES: Final[Words] = {
    "queue": pgettext_lazy("phase", "Queue"),
    "prefill": pgettext_lazy("phase", "Prefill"),
    "kv_transfer": pgettext_lazy("phase", "KV transfer"),
    "prefill_and_kv": pgettext_lazy("phase", "Prefill + transfer"),
    "decode": pgettext_lazy("phase", "Decode"),
}

STATUSES: Final[Words] = {
    "ok": pgettext_lazy("status", "OK"),
    "warn": pgettext_lazy("status", "Warning"),
    "crit": pgettext_lazy("status", "Critical"),
    "unknown": pgettext_lazy("status", "No fresh data"),
    "paused": pgettext_lazy("status", "Paused"),
    "info": pgettext_lazy("status", "Information"),
}

#: Headings of the diagnosis, for all causes of DESIGN §5.
CAUSES: Final[Words] = {
    "prefill_saturated": _("Prefill is the bottleneck"),
    "decode_saturated": _("Decode is the bottleneck"),
    "kv_cache_full": _("Decode memory is full"),
    "kv_transfer_slow": _("KV transfer is slow"),
    "router_queue": _("Requests wait before routing"),
    "bad_worker": _("One worker is slow"),
    "replica_lost": _("A worker is down"),
    "both_saturated": _("Demand is above capacity"),
    "idle_prefill": _("Prefill is idle"),
    "idle_decode": _("Decode is idle"),
    "prefix_cache_lost": _("Prefix cache hits fell"),
    "host_bound": _("The host CPU is the limit"),
    "uneven_workers": _("Work is unevenly spread"),
    "balanced": _("Within objectives"),
    "not_enough_signal": _("Cannot tell which side"),
}

#: "Limited by" in one or two words.
CAUSES_SHORT: Final[Words] = {
    "prefill_saturated": pgettext_lazy("limited by", "Prefill"),
    "decode_saturated": pgettext_lazy("limited by", "Decode"),
    "kv_cache_full": pgettext_lazy("limited by", "KV cache"),
    "kv_transfer_slow": pgettext_lazy("limited by", "KV transfer"),
    "router_queue": pgettext_lazy("limited by", "Router"),
    "bad_worker": pgettext_lazy("limited by", "One worker"),
    "replica_lost": pgettext_lazy("limited by", "Worker down"),
    "both_saturated": pgettext_lazy("limited by", "Both pools"),
    "idle_prefill": pgettext_lazy("limited by", "Idle prefill"),
    "idle_decode": pgettext_lazy("limited by", "Idle decode"),
    "prefix_cache_lost": pgettext_lazy("limited by", "Prefix cache"),
    "host_bound": pgettext_lazy("limited by", "Host CPU"),
    "uneven_workers": pgettext_lazy("limited by", "Uneven work"),
    "balanced": pgettext_lazy("limited by", "None"),
    "not_enough_signal": pgettext_lazy("limited by", "No data"),
}

#: A short phrase for the cards of the fleet page: "<deployment>: <phrase>".
CAUSES_PHRASE: Final[Words] = {
    "prefill_saturated": _("prefill saturated"),
    "decode_saturated": _("decode saturated"),
    "kv_cache_full": _("decode memory full"),
    "kv_transfer_slow": _("KV transfer slow"),
    "router_queue": _("requests wait at the router"),
    "bad_worker": _("one slow worker"),
    "replica_lost": _("a worker is down"),
    "both_saturated": _("demand above capacity"),
    "idle_prefill": _("idle prefill"),
    "idle_decode": _("idle decode"),
    "prefix_cache_lost": _("prefix cache hits fell"),
    "host_bound": _("host CPU is the limit"),
    "uneven_workers": _("work unevenly spread"),
    "balanced": _("within objectives"),
    "not_enough_signal": _("cannot tell which side"),
}

#: Names of figures: evidence tiles, key figures, meters, facts, predicted rows.
FIGURES: Final[Words] = {
    "ttft_p95": _("TTFT P95"),
    "ttft_mean": _("TTFT mean"),
    "tpot_p95": _("TPOT P95"),
    "goodput": _("Goodput"),
    "good_share": _("Good tokens"),
    "output_rate": pgettext_lazy("figure", "Output"),
    "input_rate": pgettext_lazy("figure", "Input"),
    "uncached_rate": pgettext_lazy("figure", "Uncached"),
    "cost_per_million_good": _("Cost per 1M good tokens"),
    "cost_per_million_completed": _("Cost per 1M completed tokens"),
    "cost_per_million_input": _("Per 1M input"),
    "cost_per_million_uncached": _("Per 1M uncached input"),
    "cost_per_million_output": _("Per 1M output"),
    "cost_per_million": _("Cost per 1M good"),
    "spend_per_hour": _("Spend per hour"),
    "ttft_budget": _("TTFT error budget"),
    "tpot_budget": _("TPOT error budget"),
    "attainment": _("Within objectives"),
    "ttft_attainment": _("TTFT within objective"),
    "tpot_attainment": _("TPOT within objective"),
    "queue_wait": _("Queue wait"),
    "queue_share": _("Queue share of TTFT"),
    "queue_length": _("Queue length"),
    "prefill_busy": _("Prefill busy"),
    "decode_busy": _("Decode busy"),
    "mixed_busy": _("Pool busy"),
    "busy": pgettext_lazy("figure", "Busy"),
    "kv_transfer": _("KV transfer"),
    "kv_transfer_time": _("KV transfer"),
    "kv_transfer_share": _("KV transfer share of TTFT"),
    "ttft": _("TTFT"),
    "tpot": _("TPOT"),
    "prefill_reporting": _("Prefill workers reporting"),
    "decode_reporting": _("Decode workers reporting"),
    "worker_waiting": _("Waiting at this worker"),
    "worker_load": _("Requests at this worker"),
    "idle_share": _("Idle share"),
    "kv_transfer_failures": _("Transfer failures"),
    "link_use": _("Link use"),
    "worst_pair": _("Worst node pair"),
    "input_tokens": _("Input tokens"),
    "output_tokens": _("Output tokens"),
    "input_length": _("Input length"),
    "output_length": _("Output length"),
    "requests_rate": pgettext_lazy("figure", "Requests"),
    "demand": pgettext_lazy("figure", "Demand"),
    "kv_used": _("KV cache used"),
    "batch_tokens": _("Batch tokens"),
    "batch_slots": _("Batch slots"),
    "prefix_hits": _("Prefix cache hits"),
    "power": pgettext_lazy("figure", "Power"),
    "preemptions": _("Preemptions"),
    "waiting": pgettext_lazy("figure", "Waiting"),
    "running": pgettext_lazy("figure", "Running"),
    "waiting_prefill": _("Waiting for prefill"),
    "waiting_decode": _("Waiting for decode"),
    "transferring": pgettext_lazy("figure", "Transferring"),
    "context_length": _("Context length"),
    "router_queue": _("Router queue"),
    "routing_time": _("Routing time"),
    "worker_vs_peers": _("This worker against its peers"),
    "robust_z": _("Distance from peers"),
    "peer_time": _("Median of its peers"),
    "worker_time": _("Time per token"),
    "gpu_clock": _("GPU clock"),
    "xid_errors": _("XID errors"),
    "ready_workers": _("Ready workers"),
    "missing_workers": _("Missing workers"),
    "restart_reason": _("Last restart"),
    "missing_demand": _("Demand not served"),
    "money_per_day": _("Money per day"),
    "idle_time": _("Idle for"),
    "idle_money": _("Idle spend"),
    "peak_busy": _("Peak of 7 days"),
    "uncached_tokens": _("Uncached tokens"),
    "evictions": _("Evictions"),
    "step_gap": _("Gap between steps"),
    "cpu_busy": _("CPU busy"),
    "run_queue": _("Run queue"),
    "queue_spread": _("Spread of queues"),
    "kv_spread": _("Spread of KV use"),
    "headroom": pgettext_lazy("figure", "Headroom"),
    "signals_found": _("Signals found"),
    "data_age": _("Age of data"),
    "coverage": pgettext_lazy("figure", "Coverage"),
    "errors": pgettext_lazy("figure", "Errors"),
    "error_share": _("Failed requests"),
    "recovery_time": _("Time to recover"),
    "worst_ttft_p95": _("Worst TTFT P95"),
    "worst_tpot_p95": _("Worst TPOT P95"),
    "worst_error_share": _("Worst share of failed requests"),
    "budget_burn": _("Budget burn"),
    "max_wait": _("Longest wait"),
    "speed": _("Transfer speed"),
    # strip of the fleet page
    "paging": pgettext_lazy("fleet strip", "Paging"),
    "warnings": pgettext_lazy("fleet strip", "Warnings"),
    "waiting_approval": pgettext_lazy("fleet strip", "Waiting for approval"),
    "good_tokens": pgettext_lazy("fleet strip", "Good tokens"),
    "spend": pgettext_lazy("fleet strip", "Spend"),
    "gpus": pgettext_lazy("fleet strip", "GPUs in use"),
}

GUARDRAILS: Final[Words] = {
    "fresh_data": pgettext_lazy("guardrail", "data complete and fresh"),
    "data_fresh": pgettext_lazy("guardrail", "data complete and fresh"),
    "data_stale": pgettext_lazy("guardrail", "data complete and fresh"),
    "max_workers": pgettext_lazy("guardrail", "below the ceiling"),
    "min_workers": pgettext_lazy("guardrail", "floor of each role kept"),
    "step_limit": pgettext_lazy("guardrail", "step within the limit"),
    "no_foreign_change": pgettext_lazy("guardrail", "nobody else changes it"),
    "passing_state": pgettext_lazy("guardrail", "objectives hold on the way"),
    "ratio_limits": pgettext_lazy("guardrail", "ratio within bounds"),
    "floor": pgettext_lazy("guardrail", "floor of each role kept"),
    "ceiling": pgettext_lazy("guardrail", "below the ceiling"),
    "max_step": pgettext_lazy("guardrail", "step within the limit"),
    "cooldown": pgettext_lazy("guardrail", "cooldown over"),
    "hysteresis": pgettext_lazy("guardrail", "need held long enough"),
    "flap": pgettext_lazy("guardrail", "no back and forth"),
    "opposite_lockout": pgettext_lazy("guardrail", "no recent opposite change"),
    "gpu_inventory": pgettext_lazy("guardrail", "GPUs available"),
    "gpu_budget": pgettext_lazy("guardrail", "GPU budget"),
    "cost_budget": pgettext_lazy("guardrail", "cost budget"),
    "objective_on_the_way": pgettext_lazy("guardrail", "objectives hold on the way"),
    "survives_loss": pgettext_lazy("guardrail", "N+1 kept"),
    "headroom": pgettext_lazy("guardrail", "headroom after the change"),
    "ratio_bounds": pgettext_lazy("guardrail", "ratio within bounds"),
    "freeze": pgettext_lazy("guardrail", "no freeze"),
    "kill_switch": pgettext_lazy("guardrail", "kill switch off"),
    "no_active_command": pgettext_lazy("guardrail", "no other command"),
    "calibrated": pgettext_lazy("guardrail", "model calibrated"),
    "no_rollout": pgettext_lazy("guardrail", "no rollout running"),
    "no_foreign_writer": pgettext_lazy("guardrail", "nobody else changes it"),
    "mode": pgettext_lazy("guardrail", "mode allows it"),
    "daily_changes": pgettext_lazy("guardrail", "changes per day"),
    "warm_up": pgettext_lazy("guardrail", "workers warmed up"),
}

CHECKS: Final[Words] = {
    "revision": pgettext_lazy("check", "the plan is based on the current revision"),
    "fresh_data": pgettext_lazy("check", "data is fresh"),
    "survives_loss": pgettext_lazy("check", "one worker may fail after the change"),
    "gpu_inventory": pgettext_lazy("check", "GPUs are free to move"),
    "cooldown": pgettext_lazy("check", "cooldown is over"),
    "freeze": pgettext_lazy("check", "no freeze"),
    "kill_switch": pgettext_lazy("check", "kill switch is off"),
    "no_active_command": pgettext_lazy("check", "no other command runs"),
    "no_foreign_writer": pgettext_lazy("check", "nobody else changes the workers"),
    "backend_reachable": pgettext_lazy("check", "the backend answers"),
    "dry_run": pgettext_lazy("check", "the backend accepts a dry run"),
    "not_expired": pgettext_lazy("check", "the recommendation is still valid"),
    "guardrails": pgettext_lazy("check", "all guardrails pass"),
    "mode": pgettext_lazy("check", "the mode allows commands"),
    "floor": pgettext_lazy("check", "each role keeps its floor"),
    "objective_on_the_way": pgettext_lazy("check", "objectives hold on the way"),
    "max_step": pgettext_lazy("check", "the step is within the limit"),
    "permission": pgettext_lazy("check", "you may propose this"),
    "calibrated": pgettext_lazy("check", "the model is calibrated"),
    "inventory_fresh": pgettext_lazy("check", "the inventory is fresh"),
}

COST_LINES: Final[Words] = {
    "prefill_gpus": _("Prefill GPUs"),
    "decode_gpus": _("Decode GPUs"),
    "mixed_gpus": _("Mixed GPUs"),
    "other_gpus": _("Other GPUs"),
    "cpu_memory": _("CPU and memory"),
    "network_storage": _("Network and storage"),
    "software_operations": _("Software and operations"),
    "redundancy_failures": _("Redundancy and failures"),
    "power_cooling": _("Power and cooling"),
    "idle": _("Idle"),
    "unallocated": _("Unallocated"),
    "shared": _("Shared"),
}

#: Command states in words (`design/ui.md` §6.4).
COMMAND_STATES: Final[Words] = {
    "PROPOSED": pgettext_lazy("command state", "Waiting for approval"),
    "APPROVED": pgettext_lazy("command state", "Approved"),
    "SCHEDULED": pgettext_lazy("command state", "Scheduled"),
    "PREFLIGHT": pgettext_lazy("command state", "Checking"),
    "RUNNING": pgettext_lazy("command state", "Applying"),
    "SOAK": pgettext_lazy("command state", "Verifying"),
    "SUCCEEDED": pgettext_lazy("command state", "Done"),
    "REJECTED": pgettext_lazy("command state", "Rejected"),
    "EXPIRED": pgettext_lazy("command state", "Expired"),
    "CANCELLED": pgettext_lazy("command state", "Cancelled"),
    "DENIED": pgettext_lazy("command state", "Refused"),
    "SUPERSEDED": pgettext_lazy("command state", "Superseded"),
    "PARTIAL": pgettext_lazy("command state", "Partly done"),
    "ROLLING_BACK": pgettext_lazy("command state", "Rolling back"),
    "ROLLED_BACK": pgettext_lazy("command state", "Rolled back"),
    "FAILED": pgettext_lazy("command state", "Failed"),
    "ROLLBACK_FAILED": pgettext_lazy("command state", "Roll back failed"),
}

STEP_STATES: Final[Words] = {
    "PLANNED": pgettext_lazy("step state", "planned"),
    "INTENT": pgettext_lazy("step state", "about to be sent"),
    "SENT": pgettext_lazy("step state", "sent"),
    "UNKNOWN": pgettext_lazy("step state", "answer unknown, looking"),
    "ACCEPTED": pgettext_lazy("step state", "accepted"),
    "VERIFYING": pgettext_lazy("step state", "being verified"),
    "DONE": pgettext_lazy("step state", "done"),
    "FAILED": pgettext_lazy("step state", "failed"),
}

RECOMMENDATION_STATES: Final[Words] = {
    "open": pgettext_lazy("recommendation state", "Open"),
    "applied": pgettext_lazy("recommendation state", "Applied"),
    "dismissed": pgettext_lazy("recommendation state", "Dismissed"),
    "expired": pgettext_lazy("recommendation state", "Expired"),
    "superseded": pgettext_lazy("recommendation state", "Superseded"),
}

COMMAND_KINDS: Final[Words] = {
    "scale": pgettext_lazy("command kind", "Scale"),
    "rebalance": pgettext_lazy("command kind", "Rebalance"),
    "drain": pgettext_lazy("command kind", "Drain"),
    "role_flip": pgettext_lazy("command kind", "Role flip"),
    "restart": pgettext_lazy("command kind", "Restart"),
    "rollback": pgettext_lazy("command kind", "Roll back"),
}

CONFIDENCE: Final[Words] = {
    "high": _("High confidence"),
    "medium": _("Medium confidence"),
    "low": _("Low confidence"),
    "model_only": _("Low confidence, model only"),
}

DECISIONS: Final[Words] = {
    "approve": pgettext_lazy("decision", "approved"),
    "approved": pgettext_lazy("decision", "approved"),
    "rejected": pgettext_lazy("decision", "rejected"),
    "reject": pgettext_lazy("decision", "rejected"),
    "cancel": pgettext_lazy("decision", "cancelled"),
    "break_glass": pgettext_lazy("decision", "broke the glass"),
}

SERVING: Final[Words] = {
    "serving": pgettext_lazy("worker", "serving"),
    "draining": pgettext_lazy("worker", "draining"),
    "absent": pgettext_lazy("worker", "absent"),
    "unhealthy": pgettext_lazy("worker", "down"),
    "unknown": pgettext_lazy("worker", "unknown"),
    "starting": pgettext_lazy("worker", "starting"),
}

MODES: Final[Words] = {
    "observe": pgettext_lazy("mode", "observe"),
    "recommend": pgettext_lazy("mode", "recommend"),
    "approve": pgettext_lazy("mode", "approve"),
    "auto": pgettext_lazy("mode", "auto"),
}

ENVIRONMENTS: Final[Words] = {
    "production": pgettext_lazy("environment", "production"),
    "staging": pgettext_lazy("environment", "staging"),
    "demo": pgettext_lazy("environment", "demo"),
}

PLACES: Final[Words] = {
    "frontend": pgettext_lazy("place of measurement", "frontend"),
    "router": pgettext_lazy("place of measurement", "router"),
    "engine": pgettext_lazy("place of measurement", "engine"),
    "exporter": pgettext_lazy("place of measurement", "exporter"),
    "declared": pgettext_lazy("place of measurement", "declared"),
    "model": pgettext_lazy("place of measurement", "model"),
}

#: States of a figure (DESIGN law 1) in words.
FIGURE_STATES: Final[Words] = {
    "ok": pgettext_lazy("state of a figure", "fresh"),
    "clamped": pgettext_lazy("state of a figure", "at or above the last bucket bound"),
    "no_traffic": pgettext_lazy("state of a figure", "no traffic"),
    "too_few": pgettext_lazy("state of a figure", "too few requests"),
    "partial": pgettext_lazy("state of a figure", "part of the workers"),
    "stale": pgettext_lazy("state of a figure", "old"),
    "no_data": pgettext_lazy("state of a figure", "no data"),
    "source_down": pgettext_lazy("state of a figure", "source unreachable"),
    "conflict": pgettext_lazy("state of a figure", "sources contradict each other"),
}

USUAL_BASIS: Final[Words] = {
    "same_hour_4_weeks": _("the same hour of the last 4 weeks"),
    "last_24_h": _("the last 24 h"),
    "since_start": _("samples so far"),
}

PERMISSIONS: Final[Words] = {
    "read": pgettext_lazy("permission", "read"),
    "propose": pgettext_lazy("permission", "propose"),
    "approve": pgettext_lazy("permission", "approve"),
    "roll_back": pgettext_lazy("permission", "roll back"),
    "dismiss": pgettext_lazy("permission", "dismiss"),
    "kill_on": pgettext_lazy("permission", "stop commands"),
    "kill_off": pgettext_lazy("permission", "allow commands again"),
    "configure": pgettext_lazy("permission", "configure"),
    "manage_people": pgettext_lazy("permission", "manage people"),
    "read_audit": pgettext_lazy("permission", "read the audit"),
}

SOURCE_KINDS: Final[Words] = {
    "prometheus": pgettext_lazy("kind of source", "Prometheus"),
    "direct": pgettext_lazy("kind of source", "direct scrape"),
    "scrape": pgettext_lazy("kind of source", "direct scrape"),
    "backend": pgettext_lazy("kind of source", "backend"),
    "prices": pgettext_lazy("kind of source", "prices"),
    "exporter": pgettext_lazy("kind of source", "exporter"),
}

TABLES: Final[Mapping[str, Words]] = {
    "cause": CAUSES,
    "cause_short": CAUSES_SHORT,
    "cause_phrase": CAUSES_PHRASE,
    "figure": FIGURES,
    "guardrail": GUARDRAILS,
    "check": CHECKS,
    "cost_line": COST_LINES,
    "command_state": COMMAND_STATES,
    "command_kind": COMMAND_KINDS,
    "step_state": STEP_STATES,
    "recommendation_state": RECOMMENDATION_STATES,
    "confidence": CONFIDENCE,
    "decision": DECISIONS,
    "serving": SERVING,
    "mode": MODES,
    "environment": ENVIRONMENTS,
    "place": PLACES,
    "figure_state": FIGURE_STATES,
    "usual_basis": USUAL_BASIS,
    "permission": PERMISSIONS,
    "source_kind": SOURCE_KINDS,
    "role": ROLES_TITLE,
    "phase": PHASES,
    "status": STATUSES,
}


def word(table: Words, code: str) -> str:
    """The words of a code; an unknown code raises in tests and debug, else shows itself."""
    found = table.get(code)
    if found is not None:
        return str(found)
    from .sentences import UnknownCode, is_strict

    if is_strict():
        raise UnknownCode(code)
    logger.error("no words for code %s", code)
    return code.replace("_", " ")


def role(code: str) -> str:
    """A role inside a sentence. A backend may report any role: unknown ones show as they are."""
    found = ROLES.get(code)
    return str(found) if found is not None else code


def role_title(code: str) -> str:
    found = ROLES_TITLE.get(code)
    return str(found) if found is not None else code


def in_order(roles: Iterable[str]) -> list[str]:
    """Roles in the fixed order prefill, decode, mixed, then others by name."""
    return sorted(
        roles, key=lambda item: (ROLE_ORDER.index(item) if item in ROLE_ORDER else 9, item)
    )
