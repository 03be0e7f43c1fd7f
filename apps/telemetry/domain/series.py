"""Light points for charts, from the same windows as the figures. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from apps.engines.histogram import quantile
from apps.engines.window import (
    CounterIncrease,
    GaugeValue,
    HistogramIncrease,
    Signal,
    Window,
)

from .build import latency_scope


@dataclass(frozen=True, slots=True)
class PhasePoint:
    """One pool at one point; None is a gap."""

    waiting: float | None = None
    running: float | None = None
    kv_used: float | None = None
    forward_seconds_per_s: float | None = None
    tokens_per_s: float | None = None


@dataclass(frozen=True, slots=True)
class Point:
    """One point of the charts over the step that ends at `at`; None is a gap, never 0.

    Percentiles in seconds, rates per second; the histograms let the reader compute the share
    inside any objective (the marginals of goodput). A clamped percentile is the last bound.
    """

    at: datetime
    ttft_p50: float | None = None
    ttft_p95: float | None = None
    ttft_p99: float | None = None
    tpot_p50: float | None = None
    tpot_p95: float | None = None
    tpot_p99: float | None = None
    ttft_histogram: HistogramIncrease | None = None
    tpot_histogram: HistogramIncrease | None = None
    arrivals_per_s: float | None = None
    completions_per_s: float | None = None
    failures_per_s: float | None = None
    input_tokens_per_s: float | None = None
    output_tokens_per_s: float | None = None
    prefill: PhasePoint = PhasePoint()
    decode: PhasePoint = PhasePoint()
    mixed: PhasePoint = PhasePoint()

    def phase(self, role: str) -> PhasePoint | None:
        """The pool of a planned role."""
        return {"prefill": self.prefill, "decode": self.decode, "mixed": self.mixed}.get(role)


def point(at: datetime, windows: Mapping[str, Window]) -> Point:
    """The point of the windows (by scope) that cover one step."""
    ttft = _hist(windows, Signal.TTFT)
    tpot = _hist(windows, Signal.TPOT) or _hist(windows, Signal.ITL)
    edges = ("frontend", "router")
    return Point(
        at=at,
        ttft_p50=_quantile(ttft, 0.5),
        ttft_p95=_quantile(ttft, 0.95),
        ttft_p99=_quantile(ttft, 0.99),
        tpot_p50=_quantile(tpot, 0.5),
        tpot_p95=_quantile(tpot, 0.95),
        tpot_p99=_quantile(tpot, 0.99),
        ttft_histogram=ttft,
        tpot_histogram=tpot,
        arrivals_per_s=_rate(windows, Signal.REQUESTS_ARRIVED, edges),
        completions_per_s=_rate(windows, Signal.REQUESTS_COMPLETED, (*edges, "decode", "mixed")),
        failures_per_s=_rate(windows, Signal.REQUESTS_FAILED, (*edges, "decode", "mixed")),
        input_tokens_per_s=_rate(windows, Signal.INPUT_TOKENS, ("frontend", "prefill", "mixed")),
        output_tokens_per_s=_rate(windows, Signal.OUTPUT_TOKENS, ("frontend", "decode", "mixed")),
        prefill=_phase(windows, "prefill", Signal.INPUT_TOKENS),
        decode=_phase(windows, "decode", Signal.OUTPUT_TOKENS),
        mixed=_phase(windows, "mixed", Signal.OUTPUT_TOKENS),
    )


def _phase(windows: Mapping[str, Window], role: str, tokens: Signal) -> PhasePoint:
    window = windows.get(role)
    if window is None:
        return PhasePoint()
    forward = _rate(windows, Signal.FORWARD_SECONDS, (role,))
    prefill = window.values.get(Signal.PREFILL_TIME)
    if forward is None and isinstance(prefill, HistogramIncrease) and window.seconds > 0:
        forward = prefill.total / window.seconds
    kv = window.values.get(Signal.KV_USED)
    return PhasePoint(
        waiting=_gauge(window, Signal.WAITING),
        running=_gauge(window, Signal.RUNNING),
        kv_used=kv.mean if isinstance(kv, GaugeValue) and kv.by_worker else None,
        forward_seconds_per_s=forward,
        tokens_per_s=_rate(windows, tokens, (role,)),
    )


def _hist(windows: Mapping[str, Window], signal: Signal) -> HistogramIncrease | None:
    scope = latency_scope(windows, signal)
    found = windows[scope].values.get(signal) if scope else None
    return found if isinstance(found, HistogramIncrease) else None


def _quantile(hist: HistogramIncrease | None, q: float) -> float | None:
    found = quantile(hist, q) if hist is not None else None
    return None if found is None else found.value


def _rate(windows: Mapping[str, Window], signal: Signal, scopes: tuple[str, ...]) -> float | None:
    for scope in scopes:
        window = windows.get(scope)
        value = window.values.get(signal) if window else None
        if window is not None and isinstance(value, CounterIncrease) and window.seconds > 0:
            return value.increase / window.seconds
    return None


def _gauge(window: Window, signal: Signal) -> float | None:
    value = window.values.get(signal)
    return value.total if isinstance(value, GaugeValue) else None
