"""Figures that cannot be true: checks over windows, and what they do to figures. Pure.

A figure that is fresh and complete may still be wrong: a gauge that an engine never sets, a counter
that only part of the workers fill, a ratio exported as percent. A figure found not credible becomes
`conflict` (DESIGN law 1): it keeps its value to look at and drives nothing.

`instant` judges one merged window per scope, each time figures are read; what needs several windows
is in `cross_checks`. `apply` is what findings do to figures.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Final

from apps.common.measurement import Measurement, State
from apps.engines.window import (
    CounterIncrease,
    GaugeValue,
    HistogramIncrease,
    Signal,
    Window,
)

from .figures import DeploymentFigures, PhaseFigures, Quantiles, WorkerFigures

#: Requests that a comparison of counters needs, and the share by which they may differ.
MIN_COMPARED: Final = 200.0
TOLERANCE: Final = 0.10

EDGES: Final = ("frontend", "router")
#: Gauges that are ratios 0..1.
_RATIOS: Final = (
    Signal.KV_USED,
    Signal.DEVICE_TENSOR_ACTIVE,
    Signal.DEVICE_DRAM_ACTIVE,
    Signal.DEVICE_SM_ACTIVE,
    Signal.DEVICE_UTILISATION,
    Signal.HOST_CPU_BUSY,
)


class Severity(StrEnum):
    """`warning`: a figure is not to be trusted; `critical`: a decision would rest on it."""

    WARNING = "warning"
    CRITICAL = "critical"


@dataclass(frozen=True, slots=True)
class Finding:
    """One figure that cannot be true.

    `code` names the check, `scope` and `signal` the figure, `worker` the one it concerns (empty:
    the whole scope), `params` the numbers of its sentence. `voids`: the figure is not credible
    (else it is only told).
    """

    code: str
    severity: Severity
    scope: str
    signal: Signal
    worker: str = ""
    params: Mapping[str, Any] = field(default_factory=dict)
    voids: bool = True


def instant(windows: Mapping[str, Window]) -> tuple[Finding, ...]:
    """What one merged window per scope shows to be impossible."""
    found: list[Finding] = []
    for scope, window in sorted(windows.items()):
        found += _ratios(scope, window)
        found += _cached(scope, window)
        if scope in EDGES:
            found += _first_after_last(scope, window)
    return tuple(found)


def _ratios(scope: str, window: Window) -> Iterable[Finding]:
    """A ratio that is outside 0..1: percent instead of a ratio, or a broken exporter."""
    for signal in _RATIOS:
        gauge = window.values.get(signal)
        if not isinstance(gauge, GaugeValue):
            continue
        for worker, value in sorted(gauge.by_worker.items()):
            if value < 0 or value > 1.05:
                code = "looks_like_percent" if 1.5 < value <= 100 else "ratio_out_of_range"
                yield Finding(code, Severity.CRITICAL, scope, signal, worker, {"value": value})


def _cached(scope: str, window: Window) -> Iterable[Finding]:
    """More prompt tokens found in the cache than there were prompt tokens. Decode is left out: its
    count of cached tokens is never read (DESIGN law 4)."""
    prompt = increase(window, Signal.INPUT_TOKENS)
    cached = increase(window, Signal.CACHED_TOKENS)
    if scope == "decode" or prompt is None or cached is None or prompt < 10_000:
        return
    if cached > prompt * (1 + TOLERANCE):
        params = {"cached": cached, "prompt": prompt}
        yield Finding(
            "cached_above_prompt", Severity.CRITICAL, scope, Signal.CACHED_TOKENS, "", params
        )


def _first_after_last(scope: str, window: Window) -> Iterable[Finding]:
    """The first token after the last one: mean TTFT above the mean of whole requests, over about
    the same requests."""
    first = window.values.get(Signal.TTFT)
    whole = window.values.get(Signal.E2E)
    if not isinstance(first, HistogramIncrease) or not isinstance(whole, HistogramIncrease):
        return
    if min(first.count, whole.count) < MIN_COMPARED or differ(first.count, whole.count, 0.2):
        return
    if first.total / first.count > 1.1 * whole.total / whole.count:
        params = {"ttft_s": first.total / first.count, "e2e_s": whole.total / whole.count}
        yield Finding("ttft_above_e2e", Severity.CRITICAL, scope, Signal.TTFT, "", params)


def differ(left: float, right: float, tolerance: float) -> bool:
    """True if two counts differ by more than a share of the larger one."""
    return abs(left - right) > tolerance * max(left, right)


def increase(window: Window, signal: Signal) -> float | None:
    """A counter's increase; None when the window lacks it."""
    value = window.values.get(signal)
    return value.increase if isinstance(value, CounterIncrease) else None


#: Figures of a deployment that rest on a signal.
_WHOLE: Final[Mapping[Signal, tuple[str, ...]]] = {
    Signal.REQUESTS_ARRIVED: ("arrivals_per_s",),
    Signal.REQUESTS_COMPLETED: ("completions_per_s", "mean_input_tokens", "mean_output_tokens"),
    Signal.INPUT_TOKENS: ("input_tokens_per_s", "mean_input_tokens"),
    Signal.OUTPUT_TOKENS: ("output_tokens_per_s", "mean_output_tokens"),
    Signal.CACHED_TOKENS: ("cached_tokens_per_s",),
}
#: Figures of a pool (and, of the same name, of a worker) that rest on a signal.
_POOL: Final[Mapping[Signal, tuple[str, ...]]] = {
    Signal.WAITING: ("waiting",),
    Signal.RUNNING: ("running",),
    Signal.KV_USED: ("kv_used",),
    Signal.INPUT_TOKENS: ("tokens_per_s",),
    Signal.OUTPUT_TOKENS: ("tokens_per_s",),
}
_TOUCHED: Final = (State.OK, State.CLAMPED, State.PARTIAL, State.TOO_FEW)


def apply(figures: DeploymentFigures, findings: Iterable[Finding]) -> DeploymentFigures:
    """The figures, with those that are not credible in state `conflict`."""
    for finding in findings:
        if finding.voids:
            figures = _apply(figures, finding)
    return figures


def _apply(figures: DeploymentFigures, finding: Finding) -> DeploymentFigures:
    changed: dict[str, Any] = {
        name: _doubted(getattr(figures, name)) for name in _WHOLE.get(finding.signal, ())
    }
    if finding.signal is Signal.TTFT:
        changed["ttft"] = _doubted_quantiles(figures.ttft)
    phase = figures.phase(finding.scope)
    if phase is not None:
        changed[finding.scope] = _doubted_phase(phase, finding)
    return replace(figures, **changed)


def _doubted(figure: Measurement) -> Measurement:
    return figure.with_state(State.CONFLICT) if figure.state in _TOUCHED else figure


def _doubted_quantiles(found: Quantiles) -> Quantiles:
    return replace(
        found,
        p50=_doubted(found.p50),
        p95=_doubted(found.p95),
        p99=_doubted(found.p99),
        mean=_doubted(found.mean),
    )


def _doubted_phase(phase: PhaseFigures, finding: Finding) -> PhaseFigures:
    names = _POOL.get(finding.signal, ())
    changed: dict[str, Any] = {name: _doubted(getattr(phase, name)) for name in names}
    changed["workers"] = tuple(
        _doubted_worker(worker, names) if finding.worker in ("", worker.url) else worker
        for worker in phase.workers
    )
    return replace(phase, **changed)


def _doubted_worker(worker: WorkerFigures, names: Sequence[str]) -> WorkerFigures:
    changed: dict[str, Any] = {name: _doubted(getattr(worker, name)) for name in names}
    return replace(worker, **changed)
