"""The words of causes: names, headings, second lines, comparisons, what will not help, stages.

Rows and API hold codes; whoever shows them renders these (DESIGN §3: diagnosis owns the wording).
"""

from __future__ import annotations

from typing import Final

from django.utils.translation import gettext_lazy as _
from django.utils.translation import ngettext, pgettext_lazy

from apps.common.sentences import Plural, Sentences, Words

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

#: Headings that name a worker, a count or a role; without parameters `CAUSES` is used.
HEADINGS: Final[Sentences] = {
    "heading.bad_worker": (_("{worker} is slow"),),
    "heading.replica_lost": (
        Plural(
            lambda n: ngettext(
                "{missing} of {wanted} {role} worker is down",
                "{missing} of {wanted} {role} workers are down",
                n,
            ),
            by="missing",
        ),
    ),
    "heading.host_bound": (_("The host CPU limits {role}"),),
}

#: `DiagnosisView.sentence`: one for each cause, the richest variant first.
SENTENCES: Final[Sentences] = {
    "sentence.prefill_saturated": (
        _(
            "TTFT P95 {ttft} against {ttft_objective}, since {since} ({for_s}). "
            "Requests queue for prefill; decode has room."
        ),
        _("TTFT P95 {ttft} against {ttft_objective}. Requests queue for prefill; decode has room."),
        _("Prefill is {prefill_busy} busy and requests queue for it; decode has room."),
        _("Requests queue for prefill; decode has room."),
    ),
    "sentence.decode_saturated": (
        _(
            "TPOT P95 {tpot} against {tpot_objective}, since {since} ({for_s}). "
            "Decode runs too many sequences at once; prefill has room."
        ),
        _("TPOT P95 {tpot} against {tpot_objective}. Decode is full; prefill has room."),
        _("Decode is {decode_busy} busy; prefill has room."),
        _("Decode is full; prefill has room."),
    ),
    "sentence.kv_cache_full": (
        _(
            "KV cache {kv_used} used, since {since} ({for_s}). "
            "TTFT rises because decode accepts no more sequences, not because prefill is slow."
        ),
        _(
            "KV cache {kv_used} used. "
            "TTFT rises because decode accepts no more sequences, not because prefill is slow."
        ),
        _("Decode accepts no more sequences: its KV cache is full."),
    ),
    "sentence.kv_transfer_slow": (
        _(
            "Moving the KV cache takes {mean} instead of {usual_s}, since {since} ({for_s}). "
            "Both pools have room."
        ),
        _("Moving the KV cache takes {mean} instead of {usual_s}. Both pools have room."),
        _("Moving the KV cache takes {mean}. Both pools have room."),
        _("Moving the KV cache is slow. Both pools have room."),
    ),
    "sentence.router_queue": (
        _(
            "Requests wait {mean} before a worker is chosen, since {since} ({for_s}). "
            "Both pools have room."
        ),
        _("Requests wait {mean} before a worker is chosen. Both pools have room."),
        _("Requests wait before a worker is chosen. Both pools have room."),
    ),
    "sentence.bad_worker": (
        _(
            "{worker} needs {times} the time per token of its {role} peers, since {since} "
            "({for_s})."
        ),
        _("{worker} needs {times} the time per token of its {role} peers."),
        _("{worker} is much slower than its peers."),
    ),
    "sentence.replica_lost": (
        _(
            "{ready} of {wanted} {role} workers serve, since {since} ({for_s}). "
            "The spare is used up."
        ),
        _("{ready} of {wanted} {role} workers serve. The spare is used up."),
        _("A worker stopped serving. The spare is used up."),
    ),
    "sentence.both_saturated": (
        _(
            "Prefill is {prefill_busy} busy and decode {decode_busy}, since {since} ({for_s}). "
            "Demand is above what both pools can serve."
        ),
        _(
            "Prefill is {prefill_busy} busy and decode {decode_busy}. "
            "Demand is above what both pools can serve."
        ),
        _("Demand is above what both pools can serve."),
    ),
    "sentence.idle_prefill": (
        _("Prefill is only {prefill_busy} busy for {for_s}; decode {decode_busy}."),
        _("Prefill is only {prefill_busy} busy; decode {decode_busy}."),
        _("Prefill has more GPUs than the load needs."),
    ),
    "sentence.idle_decode": (
        _("Decode is only {decode_busy} busy for {for_s}; prefill {prefill_busy}."),
        _("Decode is only {decode_busy} busy; prefill {prefill_busy}."),
        _("Decode has more GPUs than the load needs."),
    ),
    "sentence.prefix_cache_lost": (
        _(
            "Prefix cache hits fell from {usual} to {value}, since {since} ({for_s}): "
            "prefill computes more tokens for the same requests."
        ),
        _(
            "Prefix cache hits fell from {usual} to {value}: "
            "prefill computes more tokens for the same requests."
        ),
        _("Prefill computes more tokens for the same requests."),
    ),
    "sentence.host_bound": (
        _("GPUs of {role} wait between steps while the work per step is unchanged, since {since}."),
        _("GPUs of {role} wait between steps while the work per step is unchanged."),
        _("GPUs wait between steps while the work per step is unchanged."),
    ),
    "sentence.uneven_workers": (
        _("Some {role} workers queue while others have room, since {since} ({for_s})."),
        _("Some {role} workers queue while others have room."),
        _("Some workers queue while others have room."),
    ),
    "sentence.balanced": (
        _("Prefill {prefill_busy} and decode {decode_busy} busy, room for {headroom} more load."),
        _("Prefill {prefill_busy} and decode {decode_busy} busy. Next check {next_at}."),
        _("Prefill {prefill_busy} and decode {decode_busy} busy."),
        _("All objectives hold."),
    ),
    "sentence.balanced_no_traffic": (_("No requests arrive. Nothing to judge."),),
    "sentence.not_enough_signal": (
        _("Missing or old: {figures}. No advice until they are fresh."),
        _("Missing or old: {metrics}. No advice until they are fresh."),
        _("Data from {sample_at} is {age_s} old. No advice until it is fresh."),
        _("Required figures are missing or old. No advice until they are fresh."),
    ),
    "sentence.unexplained_breach": (
        _("An objective is missed, but no figure here shows which side causes it."),
    ),
}

#: `DiagnosisView.wont_help`: what must be said with the advice.
WONT_HELP: Final[Sentences] = {
    "wont_help.prefill_saturated": (_("More decode workers will not help."),),
    "wont_help.decode_saturated": (_("More prefill workers make it worse."),),
    "wont_help.kv_cache_full": (
        _("More prefill will not help: TTFT rises only because decode does not accept."),
    ),
    "wont_help.kv_transfer_slow": (_("More workers will not help. Look at the network."),),
    "wont_help.router_queue": (_("Scaling will not help. Look at the router."),),
    "wont_help.bad_worker": (_("Averages of the pool hide it; scaling only dilutes it."),),
    "wont_help.replica_lost": (_("Moving GPUs will not help; the pool needs its worker back."),),
    "wont_help.both_saturated": (_("Moving GPUs between the pools will not help."),),
    "wont_help.idle_prefill": (
        _("Before releasing: the peak of the last 7 days still has to fit."),
    ),
    "wont_help.idle_decode": (
        _("Before releasing: the peak of the last 7 days still has to fit."),
    ),
    "wont_help.prefix_cache_lost": (_("More prefill helps only if the hits stay low."),),
    "wont_help.host_bound": (_("More GPUs will not help. Look at the hosts' CPUs."),),
    "wont_help.uneven_workers": (_("Scaling hides it. Look at the routing policy."),),
    "wont_help.not_enough_signal": (_("There is no automatic advice without fresh figures."),),
}

#: `Evidence.comparison`: what a figure is compared with.
COMPARISONS: Final[Sentences] = {
    "compare.usual": (_("usually {usual}, {basis}"), _("usually {usual}")),
    "compare.no_usual": (_("not enough history to say what is usual"),),
    "compare.ttft_objective": (_("objective {ttft_objective}"),),
    "compare.tpot_objective": (_("objective {tpot_objective}"),),
    "compare.share_of_ttft": (
        _("{share} of TTFT, usually {usual_s}"),
        _("{share} of TTFT"),
    ),
    "compare.over_limit": (_("over {limit} for {for_s}"), _("over {limit}")),
    "compare.under_limit": (_("under {limit} for {for_s}"), _("under {limit}")),
    "compare.peers": (_("its peers {usual}"), _("against its peers")),
    "compare.ready_of": (_("{ready} of {wanted} serve"),),
    "compare.of_total": (_("of {value}"),),
    "compare.found_of": (_("{have} of {needed} found"),),
    "compare.missing": (_("missing: {metrics}"), _("missing")),
    "compare.old": (_("from {sample_at}, {age_s} old"),),
}

#: `Stage.detail` and `Stage.stream`.
STAGES: Final[Sentences] = {
    "stage.waiting": (
        Plural(
            lambda n: ngettext("{waiting} request waiting", "{waiting} requests waiting", n),
            "waiting",
        ),
    ),
    "stage.input": (_("{tokens} tokens in"),),
    "stage.transferring": (_("{running} in transfer"),),
    "stage.not_apart": (_("not measured apart"),),
    "stream.tokens": (_("then {tokens} tokens × {tpot}"), _("then {tpot} for each token")),
}

TABLE: Final[Sentences] = {**HEADINGS, **SENTENCES, **WONT_HELP, **COMPARISONS, **STAGES}
