"""Causes of load: a pool is full, idle, or both are in balance."""

from __future__ import annotations

from apps.common.measurement import Measurement, State

from . import evidence as ev
from .causes import Cause, Evidence, Finding, Severity
from .structural import DECODE_SHARED, KV_FULL, SATURATED, severity
from .symptoms import Symptoms, number

DECODE_FULL = 0.97
QUEUE_SHARE = 0.40
KV_CROWDED, SLOTS_FULL = 0.60, 0.95
ADMISSION_SHARE = 0.25
IDLE, IDLE_RATIO = 0.30, 1.5
#: A queue before prefill that makes TTFT late is prefill's, also when the pool's busy share is
#: lower: bursts, or a worker that joined within the window.
BURSTY = 0.40


def both_saturated(s: Symptoms) -> Finding | None:
    """Prefill is full and decode too, as far as a full prefill lets one see."""
    slots = number(s.busy.slots)
    decode_full = s.decode_tokens_busy > DECODE_SHARED or slots > DECODE_SHARED
    if s.prefill_busy <= SATURATED or not decode_full:
        return None
    return Finding(
        Cause.BOTH_SATURATED,
        severity(s.ttft_breached, s.tpot_breached),
        (ev.busy("prefill", s), ev.busy("decode", s), *ev.demand(s), *ev.latencies(s)),
        "both_saturated",
        {"prefill": s.prefill_busy, "decode": max(s.decode_tokens_busy, slots)},
        wont_help="moving_will_not_help",
    )


def kv_cache_full(s: Symptoms) -> Finding | None:
    """Decode refuses new requests for want of KV memory while it has batch slots."""
    decode = s.figures.decode
    if decode is None or s.prefill_busy > SATURATED or number(s.busy.slots) >= SLOTS_FULL:
        return None
    used = ev.kv_used_number(s)
    wait = s.decode_admission_wait_s
    prefill_time = s.prefill_seconds or (
        number(s.figures.prefill.stage_time_mean) if s.figures.prefill else 0.0
    )
    full = used > KV_FULL and wait > ADMISSION_SHARE * prefill_time
    # Engines that reserve the whole answer refuse before "used" is full: then the wait tells.
    crowded = used > KV_CROWDED and s.ttft_breached and wait > 0.3 * s.ttft_mean_s > 0
    if not (full or crowded):
        return None
    return Finding(
        Cause.KV_CACHE_FULL,
        severity(s.ttft_breached, s.tpot_breached),
        (
            ev.limit("kv_used", decode.kv_used, KV_FULL, Severity.CRIT),
            *ev.waiting(decode),
            Evidence("preemptions", Severity.INFO, decode.preemptions),
            ev.against_usual(
                "mean_input_tokens",
                s.figures.mean_input_tokens,
                s.usual.mean_input_tokens,
                Severity.INFO,
            ),
            ev.busy("prefill", s),
        ),
        "kv_cache_full",
        {"used": used, "wait_s": wait},
        wont_help="prefill_will_not_help",
        role="decode",
    )


def prefill_saturated(s: Symptoms) -> Finding | None:
    """Prefill is full and queueing makes up the time to the first token."""
    queue = number(s.queue_share)
    saturated = s.prefill_busy > SATURATED and max(queue, s.backlog_share) > QUEUE_SHARE
    bursty = s.ttft_breached and s.prefill_busy > BURSTY and queue > QUEUE_SHARE
    if not (saturated or bursty):
        return None
    return Finding(
        Cause.PREFILL_SATURATED,
        severity(s.ttft_breached),
        (
            ev.share("queue_share", s.queue_share, QUEUE_SHARE),
            ev.busy("prefill", s, SATURATED),
            ev.busy("decode", s),
            ev.against_usual("kv_transfer_time", s.kv_transfer, s.usual.kv_transfer_s, Severity.OK),
            ev.against_usual(
                "mean_input_tokens",
                s.figures.mean_input_tokens,
                s.usual.mean_input_tokens,
                Severity.INFO,
            ),
        ),
        "prefill_saturated",
        {"queue_share": queue, "prefill": s.prefill_busy, "backlog_s": s.backlog_wait_s},
        wont_help="decode_will_not_help",
        role="prefill",
    )


def decode_saturated(s: Symptoms) -> Finding | None:
    """The token rate is at what the objective allows, or TPOT is over it."""
    if s.decode_tokens_busy <= DECODE_FULL and not s.tpot_breached:
        return None
    decode = s.figures.decode
    return Finding(
        Cause.DECODE_SATURATED,
        severity(s.tpot_breached),
        (
            ev.objective("tpot_p95", s.figures.tpot.p95, s.tpot_objective_s),
            ev.busy("decode", s, DECODE_FULL),
            *((Evidence("kv_used", Severity.INFO, decode.kv_used),) if decode else ()),
            *((Evidence("preemptions", Severity.INFO, decode.preemptions),) if decode else ()),
            ev.against_usual(
                "mean_output_tokens",
                s.figures.mean_output_tokens,
                s.usual.mean_output_tokens,
                Severity.INFO,
            ),
        ),
        "decode_saturated",
        {"decode": s.decode_tokens_busy, "slots": number(s.busy.slots)},
        wont_help="prefill_makes_it_worse",
        role="decode",
    )


def idle(s: Symptoms) -> Finding | None:
    """One pool has been far below the other and under 30 % for the hold time."""
    if s.ttft_breached or s.tpot_breached:
        return None
    shares = {"prefill": s.busy.prefill, "decode": s.busy.decode}
    if any(not _usable_for_idle(figure) for figure in shares.values()):
        return None
    prefill, decode = number(shares["prefill"]), number(shares["decode"])
    role, idle, other = (
        ("prefill", prefill, decode) if prefill < decode else ("decode", decode, prefill)
    )
    if idle >= IDLE or other < IDLE_RATIO * idle or other <= 0:
        return None
    if s.idle_for_s.get(role, 0.0) < s.idle_hold_s:
        return None
    return Finding(
        Cause.IDLE_PREFILL if role == "prefill" else Cause.IDLE_DECODE,
        Severity.INFO,
        (ev.busy(role, s, IDLE), ev.busy(_other(role), s), *ev.latencies(s)),
        "idle",
        {"role": role, "idle": idle, "other": other, "for_s": s.idle_for_s.get(role, 0.0)},
        wont_help="peak_must_still_fit",
        role=role,
    )


def unexplained(s: Symptoms) -> Finding | None:
    """A breach that no rule explains is said to be one; "balanced" would be a lie."""
    if not (s.ttft_breached or s.tpot_breached):
        return None
    return Finding(
        Cause.NOT_ENOUGH_SIGNAL,
        Severity.CRIT,
        (*ev.latencies(s), ev.busy("prefill", s), ev.busy("decode", s)),
        "unexplained_breach",
        {},
        wont_help="no_automatic_advice",
    )


def balanced(s: Symptoms) -> Finding:
    """Nothing limits the service."""
    busiest = max(s.prefill_busy, number(s.busy.decode))
    return Finding(
        Cause.BALANCED,
        Severity.OK,
        (*ev.latencies(s), ev.busy("prefill", s), ev.busy("decode", s)),
        "balanced" if busiest > 0 else "no_load",
        {"busiest": busiest, "headroom": max(0.0, 1.0 / busiest - 1.0) if busiest > 0 else None},
    )


def _usable_for_idle(figure: Measurement) -> bool:
    return figure.state in (State.OK, State.NO_TRAFFIC)


def _other(role: str) -> str:
    return "decode" if role == "prefill" else "prefill"
