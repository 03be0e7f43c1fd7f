"""The words of each cause (DESIGN §3: diagnosis owns the wording of causes; rows hold codes).

Whole sentences with named parameters, never glued from parts. Functions return text in the active
language; numbers come formatted by `common.formatting`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from django.utils.functional import Promise
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from apps.common.formatting import duration, share, stage_time

from .domain.causes import Cause

Words = str | Promise

HEADINGS: Final[Mapping[str, Words]] = {
    Cause.PREFILL_SATURATED: _("Prefill is the bottleneck"),
    Cause.DECODE_SATURATED: _("Decode is the bottleneck"),
    Cause.KV_CACHE_FULL: _("Decode memory is full"),
    Cause.KV_TRANSFER_SLOW: _("KV transfer is slow"),
    Cause.ROUTER_QUEUE: _("Requests wait before routing"),
    Cause.BAD_WORKER: _("%(worker)s is slow"),
    Cause.REPLICA_LOST: _("%(down)s of %(wanted)s %(role)s workers down"),
    Cause.BOTH_SATURATED: _("Demand is above capacity"),
    Cause.IDLE_PREFILL: _("Prefill is idle"),
    Cause.IDLE_DECODE: _("Decode is idle"),
    Cause.PREFIX_CACHE_LOST: _("Prefix cache hits fell"),
    Cause.HOST_BOUND: _("The host CPU is the limit"),
    Cause.UNEVEN_WORKERS: _("Work is unevenly spread"),
    Cause.BALANCED: _("Within objectives"),
    Cause.NOT_ENOUGH_SIGNAL: _("Cannot tell which side"),
}

SENTENCES: Final[Mapping[str, Words]] = {
    "prefill_saturated": _(
        "Prompts wait before prefill: queueing is %(queue_share)s of TTFT and the prefill workers "
        "are %(prefill)s busy."
    ),
    "decode_saturated": _(
        "Tokens come too slowly: the decode workers are %(decode)s busy by token rate."
    ),
    "kv_cache_full": _(
        "Decode workers hold %(used)s of their KV memory, so new requests wait %(wait_s)s to be "
        "accepted."
    ),
    "kv_transfer_slow": _(
        "Moving the KV cache takes %(transfer_s)s, %(share)s of the time to the first token."
    ),
    "router_queue": _("Requests wait %(wait_s)s in the router while both pools have room."),
    "bad_worker": _(
        "%(worker)s takes %(ratio)s times as long per token as its peers in the %(role)s pool."
    ),
    "replica_lost": _(
        "%(down)s of %(wanted)s %(role)s workers have not served for %(for_s)s, and no command of "
        "ours explains it."
    ),
    "both_saturated": _(
        "Prefill is %(prefill)s busy and decode %(decode)s. While prefill is full, decode sees "
        "only what prefill lets through, so its true demand may be higher."
    ),
    "idle": _(
        "The %(role)s pool has been %(idle)s busy for %(for_s)s while the other pool is %(other)s "
        "busy."
    ),
    "uneven_workers": _(
        "%(worker)s holds %(most)s requests; the mean of the %(role)s pool is %(mean)s."
    ),
    "balanced": _("Both pools have room: the busier one is %(busiest)s busy."),
    "no_load": _("No requests arrive at the moment."),
    "missing_signals": _("Needed measurements are missing or old: %(missing)s."),
    "few_workers_report": _("Too few workers report in these pools: %(roles)s."),
    "unexplained_breach": _(
        "An objective is missed, but no measurement here shows which side causes it."
    ),
}

WONT_HELP: Final[Mapping[str, Words]] = {
    "decode_will_not_help": _("More decode workers will not help."),
    "prefill_makes_it_worse": _("More prefill workers would make it worse."),
    "prefill_will_not_help": _(
        "TTFT rises only because decode does not accept requests; more prefill workers will not "
        "help."
    ),
    "replicas_will_not_help": _("More workers will not help."),
    "scaling_will_not_help": _("Scaling will not help."),
    "averages_hide_it": _("Averages over the pool hide it."),
    "spare_used_up": _("The spare capacity is used up: one more loss would show."),
    "moving_will_not_help": _("Moving GPUs between the pools will not help."),
    "peak_must_still_fit": _("Before releasing GPUs, check that the recent peak still fits."),
    "scaling_hides_it": _("Scaling would only hide it."),
    "no_automatic_advice": _("No automatic advice until this is known."),
}

ADVICE: Final[Mapping[str, Words]] = {
    Cause.PREFILL_SATURATED: _("Move a worker to prefill, or add prefill workers."),
    Cause.DECODE_SATURATED: _("Add decode workers, or lower the concurrency limit."),
    Cause.KV_CACHE_FULL: _(
        "Add decode workers, or route long contexts apart; a smaller KV format is a choice of the "
        "serving team."
    ),
    Cause.KV_TRANSFER_SLOW: _("Open the network runbook and avoid the slow node pair."),
    Cause.ROUTER_QUEUE: _("Open the router runbook."),
    Cause.BAD_WORKER: _("Drain the worker and replace it."),
    Cause.REPLICA_LOST: _("Restart the worker, or hold traffic until it is back."),
    Cause.BOTH_SATURATED: _("Add GPUs, or shed requests of low priority."),
    Cause.IDLE_PREFILL: _("Move or release prefill GPUs."),
    Cause.IDLE_DECODE: _("Move or release decode GPUs."),
    Cause.PREFIX_CACHE_LOST: _("Wait for the cache to refill, undo the change, route by prefix."),
    Cause.HOST_BOUND: _("Give the host more CPU, or add router replicas."),
    Cause.UNEVEN_WORKERS: _("Change the routing policy."),
    Cause.BALANCED: _("Nothing to do."),
    Cause.NOT_ENOUGH_SIGNAL: _("Fix the coverage of the required measurements."),
}

#: Causes as one noun phrase, for "limited by" in lists.
LIMITED_BY: Final[Mapping[str, Words]] = {
    Cause.PREFILL_SATURATED: _("prefill"),
    Cause.DECODE_SATURATED: _("decode"),
    Cause.KV_CACHE_FULL: _("decode memory"),
    Cause.KV_TRANSFER_SLOW: _("KV transfer"),
    Cause.ROUTER_QUEUE: _("router"),
    Cause.BAD_WORKER: _("one worker"),
    Cause.REPLICA_LOST: _("lost worker"),
    Cause.BOTH_SATURATED: _("demand"),
    Cause.IDLE_PREFILL: _("nothing; prefill idle"),
    Cause.IDLE_DECODE: _("nothing; decode idle"),
    Cause.PREFIX_CACHE_LOST: _("prefix cache"),
    Cause.HOST_BOUND: _("host CPU"),
    Cause.UNEVEN_WORKERS: _("uneven spread"),
    Cause.BALANCED: _("nothing"),
    Cause.NOT_ENOUGH_SIGNAL: _("unknown"),
}

EVIDENCE: Final[Mapping[str, Words]] = {
    "ttft_p95": _("TTFT P95"),
    "tpot_p95": _("TPOT P95"),
    "queue_share": _("Queue share of TTFT"),
    "prefill_busy": _("Prefill busy"),
    "decode_busy": _("Decode busy"),
    "kv_used": _("KV cache used"),
    "kv_transfer_time": _("KV transfer time"),
    "kv_transfer_share": _("KV transfer share of TTFT"),
    "transferring": _("Requests in KV transfer"),
    "preemptions": _("Preemptions"),
    "mean_input_tokens": _("Input tokens per request"),
    "mean_output_tokens": _("Output tokens per request"),
    "arrivals": _("Arrivals"),
    "serving": _("Workers serving"),
    "prefill_reporting": _("Prefill workers reporting"),
    "decode_reporting": _("Decode workers reporting"),
    "prefill_waiting": _("Waiting before prefill"),
    "decode_waiting": _("Waiting at decode"),
    "seconds_per_token": _("Time per token"),
    "worker_waiting": _("Waiting at this worker"),
    "worker_load": _("Requests at this worker"),
    "router_wait": _("Wait in the router"),
}

COMPARISONS: Final[Mapping[str, Words]] = {
    "usual": _("usual %(value)s"),
    "no_usual": _("no usual value yet"),
    "objective": _("objective %(value)s"),
    "no_objective": _("no objective set"),
    "limit": _("limit %(value)s"),
    "peers": _("peers %(value)s"),
    "pool": _("whole pool %(value)s"),
    "pool_mean": _("mean of the pool %(value)s"),
    "wanted": _("%(value)s wanted"),
    "of_workers": _("of %(value)s workers"),
    "of_ttft": _("of the time to the first token"),
    "completions": _("%(value)s completed"),
    "required": _("required"),
}

ROLES: Final[Mapping[str, Words]] = {
    "prefill": _("prefill"),
    "decode": _("decode"),
    "mixed": _("mixed"),
}

_SHARES = frozenset(
    {"queue_share", "prefill", "decode", "used", "share", "idle", "other", "busiest", "headroom"}
)


def heading(cause: str, params: Mapping[str, Any] | None = None) -> str:
    """The heading of a cause; names the worker or the count where the cause has one."""
    text = HEADINGS.get(cause)
    return cause if text is None else str(text) % _words(params or {}, str(text))


def sentence(code: str, params: Mapping[str, Any] | None = None) -> str:
    """The one sentence under the heading."""
    text = SENTENCES.get(code)
    return "" if text is None else str(text) % _words(params or {}, str(text))


def wont_help(code: str) -> str:
    """What must also be said; empty when the cause has nothing of the kind."""
    return str(WONT_HELP.get(code, ""))


def advice(cause: str) -> str:
    """What helps."""
    return str(ADVICE.get(cause, ""))


def limited_by(cause: str) -> str:
    """The cause in a word or two, for lists."""
    return str(LIMITED_BY.get(cause, cause))


def evidence_name(code: str) -> str:
    """The name of an evidence tile."""
    return str(EVIDENCE.get(code, code))


def comparison(code: str, value: str = "") -> str:
    """What a tile is compared with; `value` comes formatted in the figure's own unit."""
    text = COMPARISONS.get(code)
    return "" if text is None else str(text) % {"value": value}


def _words(params: Mapping[str, Any], text: str) -> dict[str, str]:
    found = {name: _word(name, value) for name, value in params.items()}
    # A parameter that an old row lacks shows as a dash instead of failing the page.
    for name in ("worker", "down", "wanted", "role", *_SHARES):
        if f"%({name})s" in text:
            found.setdefault(name, "–")
    return found


def _word(name: str, value: Any) -> str:
    if isinstance(value, list | tuple):
        return ", ".join(_listed(str(item)) for item in value)
    if name == "role":
        return str(ROLES.get(str(value), value))
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    if name in _SHARES:
        return share(float(value))
    if name == "for_s":
        return duration(float(value))
    if name.endswith("_s"):
        return stage_time(float(value))
    return f"{value:.1f}" if isinstance(value, float) else str(value)


def _listed(code: str) -> str:
    return str(EVIDENCE.get(code) or ROLES.get(code) or gettext(code))
