"""Structural causes: something is broken or unseen, and load merely shows it."""

from __future__ import annotations

from apps.common.measurement import Measurement, Place, State
from apps.common.units import Unit

from . import evidence as ev
from .causes import Cause, Evidence, Finding, Severity
from .peers import uneven, worst_worker
from .symptoms import LOST, Symptoms, coverage, share_of

MIN_COVERAGE = 0.80
SATURATED = 0.92
KV_FULL, DECODE_SHARED = 0.82, 0.85
TRANSFER_RATIO, TRANSFER_SHARE = 2.5, 0.15
#: Without a usual value: half of TTFT and a quarter of a second are slow on any network.
TRANSFER_ALONE_SHARE, TRANSFER_ALONE_S = 0.5, 0.25
ROUTER_RATIO, ROUTER_FLOOR_S, ROUTER_SHARE = 5.0, 0.005, 0.10


def severity(*breaches: bool) -> Severity:
    """Critical when an objective is missed, else a warning."""
    return Severity.CRIT if any(breaches) else Severity.WARN


def not_enough_signal(s: Symptoms) -> Finding | None:
    """A required figure is missing or old, or under 80 % of a pool reports."""
    required = {
        "prefill_busy": s.busy.prefill,
        "decode_busy": s.busy.decode,
        "kv_used": s.figures.decode.kv_used if s.figures.decode else s.busy.decode,
        "ttft_p95": s.figures.ttft.p95,
        "tpot_p95": s.figures.tpot.p95,
    }
    lost = {code: figure for code, figure in required.items() if figure.state in LOST}
    thin = {
        role: phase
        for role, phase in (("prefill", s.figures.prefill), ("decode", s.figures.decode))
        if coverage(phase) < MIN_COVERAGE
    }
    if not lost and not thin:
        return None
    evidence = [
        Evidence(code, Severity.UNKNOWN, figure, "required") for code, figure in lost.items()
    ]
    evidence += [ev.reporting(role, phase) for role, phase in thin.items()]
    return Finding(
        Cause.NOT_ENOUGH_SIGNAL,
        Severity.UNKNOWN,
        tuple(evidence),
        "missing_signals" if lost else "few_workers_report",
        {"missing": sorted(lost), "roles": sorted(thin)},
        wont_help="no_automatic_advice",
    )


def replica_lost(s: Symptoms) -> Finding | None:
    """Fewer workers serve than are wanted, for longer than a start takes, by no command."""
    if s.has_open_command:
        return None
    for phase in (s.figures.decode, s.figures.prefill):
        if phase is None or phase.workers_serving >= phase.workers_wanted:
            continue
        short_for = s.short_for_s.get(phase.role, 0.0)
        if short_for <= s.replica_grace_s:
            continue
        down = phase.workers_wanted - phase.workers_serving
        return Finding(
            Cause.REPLICA_LOST,
            severity(s.ttft_breached, s.tpot_breached, phase.workers_serving == 0),
            (
                ev.serving(phase),
                *ev.waiting(phase),
                *ev.latencies(s),
                ev.busy(phase.role, s),
            ),
            "replica_lost",
            {"role": phase.role, "down": down, "wanted": phase.workers_wanted, "for_s": short_for},
            wont_help="spare_used_up",
            role=phase.role,
        )
    return None


def bad_worker(s: Symptoms) -> Finding | None:
    """One worker takes far longer per token than its peers."""
    pools = ((s.figures.prefill, s.expected_seconds_per_token), (s.figures.decode, None))
    for phase, expected in pools:
        outlier = worst_worker(phase, expected)
        if outlier is None or phase is None:
            continue
        worker = outlier.worker
        return Finding(
            Cause.BAD_WORKER,
            severity(s.ttft_breached, s.tpot_breached),
            (
                Evidence(
                    "seconds_per_token",
                    Severity.CRIT,
                    worker.seconds_per_token,
                    "peers",
                    {"value": outlier.reference, "ratio": outlier.ratio},
                ),
                Evidence("worker_waiting", Severity.WARN, worker.waiting, "pool", ev.rest(phase)),
                ev.busy(phase.role, s),
                *ev.latencies(s),
            ),
            "bad_worker",
            {"worker": worker.name, "role": phase.role, "ratio": outlier.ratio},
            wont_help="averages_hide_it",
            worker=worker.name,
            role=phase.role,
        )
    return None


def router_queue(s: Symptoms) -> Finding | None:
    """Requests wait in the router while prefill has room."""
    wait = s.router_wait
    if wait is None or wait.value is None or wait.state in LOST:
        return None
    usual = max(ROUTER_FLOOR_S, s.usual_router_wait_s or 0.0)
    share = wait.number() / s.ttft_mean_s if s.ttft_mean_s else 0.0
    if wait.number() <= ROUTER_RATIO * usual or share <= ROUTER_SHARE:
        return None
    if s.prefill_busy > SATURATED:
        return None
    return Finding(
        Cause.ROUTER_QUEUE,
        severity(s.ttft_breached),
        (
            Evidence("router_wait", Severity.CRIT, wait, "usual", {"value": usual}),
            ev.busy("prefill", s),
            ev.busy("decode", s),
            *ev.latencies(s),
        ),
        "router_queue",
        {"wait_s": wait.number(), "share": min(1.0, share)},
        wont_help="scaling_will_not_help",
    )


def kv_transfer_slow(s: Symptoms) -> Finding | None:
    """KV transfer takes far longer than usual and matters in TTFT."""
    transfer = s.kv_transfer
    if transfer.value is None or transfer.state in LOST or not s.ttft_mean_s:
        return None
    seconds, share = transfer.number(), transfer.number() / s.ttft_mean_s
    if transfer.method == "derived" and (
        ev.kv_used_number(s) > KV_FULL or s.decode_tokens_busy > DECODE_SHARED
    ):
        return None  # the rest of TTFT is then the wait for decode, not the link
    usual = s.usual.kv_transfer_s
    if usual is None:
        slow = share > TRANSFER_ALONE_SHARE and seconds > TRANSFER_ALONE_S
        slow = slow and s.prefill_busy <= SATURATED
    else:
        slow = seconds > TRANSFER_RATIO * usual and share > TRANSFER_SHARE
    if not slow:
        return None
    return Finding(
        Cause.KV_TRANSFER_SLOW,
        severity(s.ttft_breached),
        (
            ev.against_usual("kv_transfer_time", transfer, usual, Severity.CRIT),
            ev.share("kv_transfer_share", share_of(transfer, s.figures.ttft.mean, "kv_over_ttft")),
            *ev.transferring(s),
            ev.busy("prefill", s),
            *ev.latencies(s)[:1],
        ),
        "kv_transfer_slow",
        {"transfer_s": seconds, "share": min(1.0, share)},
        wont_help="replicas_will_not_help",
    )


def uneven_workers(s: Symptoms) -> Finding | None:
    """An objective is missed while work piles up on one of several workers."""
    if not (s.ttft_breached or s.tpot_breached):
        return None
    for phase in (s.figures.prefill, s.figures.decode):
        found = uneven(phase)
        if found is None or phase is None:
            continue
        worker, most, mean = found
        held = Measurement(most, Unit.COUNT, State.OK, None, Place.ENGINE, "waiting_plus_running")
        return Finding(
            Cause.UNEVEN_WORKERS,
            severity(True),
            (
                Evidence("worker_load", Severity.CRIT, held, "pool_mean", {"value": mean}),
                ev.busy(phase.role, s),
                *ev.latencies(s),
            ),
            "uneven_workers",
            {"worker": worker.name, "role": phase.role, "most": most, "mean": mean},
            wont_help="scaling_hides_it",
            worker=worker.name,
            role=phase.role,
        )
    return None
