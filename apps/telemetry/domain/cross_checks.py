"""Checks of credibility that need several consecutive windows. Pure.

They run with each check of a deployment and their findings are stored; `credibility` holds the
checks of one window and what findings do to figures. Thresholds are wide on purpose: a false alarm
makes the planner hold.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from apps.engines.window import CounterIncrease, GaugeValue, HistogramIncrease, Signal, Window

from .credibility import EDGES, MIN_COMPARED, TOLERANCE, Finding, Severity, differ, increase

#: Consecutive windows that a frozen or empty gauge needs.
MIN_WINDOWS: Final = 4
#: Mean number in the system (Little's law) from which an always empty gauge cannot be true: the
#: chance that four samples of a Poisson count with mean 3 are all 0 is 6e-6.
MIN_IN_SYSTEM: Final = 3.0
TOKEN_TOLERANCE: Final = 0.15
_ENDING: Final = ("decode", "mixed")


@dataclass(frozen=True, slots=True)
class TargetState:
    """Whether a worker's metrics answered, and whether it serves all the same."""

    worker: str
    role: str
    is_up: bool
    is_serving: bool


def over_time(
    windows: Mapping[str, Sequence[Window]], targets: Sequence[TargetState] = ()
) -> tuple[Finding, ...]:
    """What several consecutive windows of each scope (oldest first, not overlapping) show."""
    found: list[Finding] = []
    for scope, chain in sorted(windows.items()):
        found += _stale_kv(scope, chain)
        if len(chain) >= MIN_WINDOWS and scope not in EDGES:
            found += _empty(scope, chain)
            found += _frozen(scope, chain)
        if len(chain) >= MIN_WINDOWS and scope in EDGES:
            found += _accepted(scope, chain)
    found += _completions(windows)
    found += _prompt_tokens(windows)
    found += _silent_counters(windows)
    for target in targets:
        if target.is_serving and not target.is_up:
            found.append(
                Finding(
                    "down_while_serving", Severity.WARNING, target.role, Signal.WORKER_HEALTH,
                    target.worker, voids=False,
                )
            )  # fmt: skip
    return tuple(found)


def _stale_kv(scope: str, chain: Sequence[Window]) -> Iterable[Finding]:
    """KV that was read after its lease had run out: the client got an answer that may be wrong
    (metrics research §8). One is enough, in any window; every figure stays what it is."""
    by_worker: dict[str, float] = {}
    for window in chain:
        value = window.values.get(Signal.STALE_KV_SERVED)
        if isinstance(value, CounterIncrease):
            for worker, count in value.by_worker.items():
                by_worker[worker] = by_worker.get(worker, 0.0) + count
    for worker, count in sorted(by_worker.items()):
        if count > 0:
            yield Finding(
                "stale_kv_served", Severity.CRITICAL, scope, Signal.STALE_KV_SERVED, worker,
                {"count": count}, voids=False,
            )  # fmt: skip


#: Gauges that count what a histogram of times also implies: its sum per second is the mean number
#: in that stage (Little's law).
_IMPLIED: Final = {
    Signal.WAITING: (Signal.QUEUE_TIME,),
    Signal.RUNNING: (Signal.ITL, Signal.PREFILL_TIME),
    Signal.KV_USED: (Signal.ITL, Signal.PREFILL_TIME),
}


def _empty(scope: str, chain: Sequence[Window]) -> Iterable[Finding]:
    """A gauge that reads the same in every window while requests' own times say that far more were
    there: 0 (SGLang #8627, #7317), or the count at which it stopped. One that stands higher than
    they say is believed: times are recorded at the end, so long requests are not in them yet."""
    for signal, times in _IMPLIED.items():
        gauges = [window.values.get(signal) for window in chain]
        levels = {gauge.total if isinstance(gauge, GaugeValue) else None for gauge in gauges}
        level = levels.pop()
        if levels or level is None or (level and signal is Signal.KV_USED):
            continue
        implied = [_in_system(window, times) for window in chain]
        known = [value for value in implied if value is not None]
        # Histograms may be stored less often than gauges: two of them have to say it.
        if len(known) < 2 or min(known) < MIN_IN_SYSTEM * (1 + level):
            continue
        params = {"windows": len(chain), "implied": min(known)}
        if level:
            params = {"windows": len(chain), "value": level}
        code = "frozen" if level else "zero_under_load"
        yield Finding(code, Severity.CRITICAL, scope, signal, "", params)


def _in_system(window: Window, signals: Sequence[Signal]) -> float | None:
    totals = [
        value.total
        for signal in signals
        if isinstance(value := window.values.get(signal), HistogramIncrease)
    ]
    if not totals or window.seconds <= 0:
        return None
    return max(totals) / window.seconds


def _frozen(scope: str, chain: Sequence[Window]) -> Iterable[Finding]:
    """A worker's KV use to the last digit the same in every window while it makes tokens. Full
    (0.98 and more) may stand still; 0 is judged by `_empty`."""
    gauges = [window.values.get(Signal.KV_USED) for window in chain]
    if not all(isinstance(gauge, GaugeValue) for gauge in gauges):
        return
    known = [gauge.by_worker for gauge in gauges if isinstance(gauge, GaugeValue)]
    for worker in sorted(set.intersection(*(set(part) for part in known))):
        values = {part[worker] for part in known}
        if len(values) > 1 or not 0 < next(iter(values)) < 0.98:
            continue
        made = [_of(window, Signal.OUTPUT_TOKENS, worker) for window in chain]
        if all(tokens is not None and tokens >= MIN_COMPARED for tokens in made):
            params = {"windows": len(chain), "value": next(iter(values))}
            yield Finding(
                "frozen", Severity.CRITICAL, scope, Signal.KV_USED, worker, params
            )  # fmt: skip


def _accepted(scope: str, chain: Sequence[Window]) -> Iterable[Finding]:
    """Requests accepted against requests ended plus those still in flight: both ends of the
    interval have a count in flight, so that the books must close."""
    before, after = chain[0].values.get(Signal.RUNNING), chain[-1].values.get(Signal.RUNNING)
    if not isinstance(before, GaugeValue) or not isinstance(after, GaugeValue):
        return
    if any(older.end != newer.start for older, newer in pairwise(chain)):
        return
    later = chain[1:]
    accepted = _sum(later, Signal.REQUESTS_ARRIVED)
    ended = _sum(later, Signal.REQUESTS_COMPLETED)
    if accepted is None or ended is None or accepted < MIN_COMPARED:
        return
    ended += _sum(later, Signal.REQUESTS_FAILED) or 0.0
    ended += _sum(later, Signal.REQUESTS_ABORTED) or 0.0
    grown = after.total - before.total
    # A router of a split counts a request in flight once, or once per leg: either may be so.
    gap = min(abs(accepted - ended - grown * legs) for legs in (1.0, 0.5))
    if gap > max(20.0, TOLERANCE * accepted):
        params = {"accepted": accepted, "ended": ended, "in_flight": after.total}
        yield Finding(
            "accepted_not_ended", Severity.WARNING, scope, Signal.REQUESTS_COMPLETED, "", params
        )


def _completions(windows: Mapping[str, Sequence[Window]]) -> Iterable[Finding]:
    """Requests that ended at the router or frontend against those that its decoders finished."""
    edge = next((scope for scope in EDGES if _is_usable(windows.get(scope, ()))), None)
    roles = [role for role in _ENDING if role in windows]
    if edge is None or not roles or not all(_is_steady(windows[role]) for role in roles):
        return
    seen = _sum(windows[edge], Signal.REQUESTS_COMPLETED)
    parts = [_sum(windows[role], Signal.REQUESTS_COMPLETED) for role in roles]
    if seen is None or any(part is None for part in parts) or not _same_span(windows, edge, roles):
        return
    made = sum(part for part in parts if part is not None)
    if max(seen, made) >= MIN_COMPARED and differ(seen, made, TOLERANCE):
        params = {"edge": edge, "seen": seen, "made": made}
        yield Finding(
            "completions_disagree", Severity.CRITICAL, edge, Signal.REQUESTS_COMPLETED, "", params
        )


def _prompt_tokens(windows: Mapping[str, Sequence[Window]]) -> Iterable[Finding]:
    """Prompt tokens at the frontend against those of the prefill role. Less on prefill is only
    impossible where decode's own computing (short prompts that skip prefill) is known."""
    chain = windows.get("frontend", ())
    roles = [role for role in ("prefill", "mixed") if role in windows]
    if not _is_usable(chain) or not roles or not all(_is_steady(windows[r]) for r in roles):
        return
    seen = _sum(chain, Signal.INPUT_TOKENS)
    parts = [_sum(windows[role], Signal.INPUT_TOKENS) for role in roles]
    requests = _sum(chain, Signal.REQUESTS_COMPLETED) or 0.0
    if seen is None or any(part is None for part in parts) or requests < MIN_COMPARED:
        return
    if not _same_span(windows, "frontend", roles):
        return
    made = sum(part for part in parts if part is not None)
    skipped = _sum(windows.get("decode", ()), Signal.COMPUTED_TOKENS)
    too_many = made > seen * (1 + TOKEN_TOLERANCE)
    too_few = skipped is not None and made + skipped < seen * (1 - TOKEN_TOLERANCE)
    if too_many or too_few:
        params = {"seen": seen, "made": made}
        yield Finding(
            "prompt_tokens_disagree", Severity.WARNING, "frontend", Signal.INPUT_TOKENS, "", params
        )


def _silent_counters(windows: Mapping[str, Sequence[Window]]) -> Iterable[Finding]:
    """A pool's token counter that stands still while requests end at the router or frontend."""
    edge = next((scope for scope in EDGES if _is_usable(windows.get(scope, ()))), None)
    if edge is None:
        return
    ended = _sum(windows[edge], Signal.REQUESTS_COMPLETED) or 0.0
    if ended < MIN_COMPARED:
        return
    for role, signal in (("prefill", Signal.INPUT_TOKENS), ("decode", Signal.OUTPUT_TOKENS)):
        chain = windows.get(role, ())
        if _is_steady(chain) and _sum(chain, signal) == 0:
            yield Finding("counter_stands", Severity.CRITICAL, role, signal, "", {"ended": ended})


def _is_usable(chain: Sequence[Window]) -> bool:
    return len(chain) >= MIN_WINDOWS and not any(window.is_partial for window in chain)


def _is_steady(chain: Sequence[Window]) -> bool:
    """True if the same workers were expected, and all reported, throughout: else a difference of
    counters says nothing."""
    return _is_usable(chain) and all(
        set(window.expected) == set(chain[0].expected)
        and set(window.expected) <= set(window.reported)
        for window in chain
    )


def _same_span(windows: Mapping[str, Sequence[Window]], edge: str, roles: Sequence[str]) -> bool:
    """True if edge and roles were watched over the same time, to a tenth."""
    own = sum(window.seconds for window in windows[edge])
    return all(
        not differ(own, sum(window.seconds for window in windows[role]), 0.1) for role in roles
    )


def _of(window: Window, signal: Signal, worker: str) -> float | None:
    value = window.values.get(signal)
    return value.by_worker.get(worker) if isinstance(value, CounterIncrease) else None


def _sum(chain: Sequence[Window], signal: Signal) -> float | None:
    """The increase over all windows; None if one of them lacks it."""
    parts = [increase(window, signal) for window in chain]
    if not parts or any(part is None for part in parts):
        return None
    return sum(part for part in parts if part is not None)
