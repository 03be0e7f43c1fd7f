"""What is usual: medians over windows of comparable times. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median

from apps.engines.histogram import quantile
from apps.engines.window import CounterIncrease, HistogramIncrease, Signal, Window

from .build import latency_scope
from .figures import Usual

#: Fewer windows than this say nothing about what is usual.
MINIMUM_WINDOWS = 3


def usual_of(basis: str, moments: Sequence[Mapping[str, Window]]) -> Usual:
    """Medians over moments (windows by scope). A figure with fewer than three values is None."""

    def middle(values: Sequence[float | None]) -> float | None:
        known = [value for value in values if value is not None]
        return median(known) if len(known) >= MINIMUM_WINDOWS else None

    return Usual(
        basis=basis,
        ttft_mean_s=middle([_mean(_latency(m, Signal.TTFT)) for m in moments]),
        queue_time_s=middle([_mean(_pool(m, "prefill", Signal.QUEUE_TIME)) for m in moments]),
        prefill_time_s=middle([_mean(_pool(m, "prefill", Signal.PREFILL_TIME)) for m in moments]),
        kv_transfer_s=middle([_mean(_transfer(m)) for m in moments]),
        tpot_p95_s=middle([_p95(_latency(m, Signal.TPOT)) for m in moments]),
        mean_input_tokens=middle(
            [_per_request(m, "prefill", Signal.INPUT_TOKENS) for m in moments]
        ),
        mean_output_tokens=middle(
            [_per_request(m, "decode", Signal.OUTPUT_TOKENS) for m in moments]
        ),
        arrivals_per_s=middle([_arrivals(m) for m in moments]),
        prefill_busy=middle([_prefill_busy(m) for m in moments]),
    )


def _latency(moment: Mapping[str, Window], signal: Signal) -> HistogramIncrease | None:
    scope = latency_scope(moment, signal)
    value = moment[scope].values.get(signal) if scope else None
    return value if isinstance(value, HistogramIncrease) else None


def _pool(moment: Mapping[str, Window], role: str, signal: Signal) -> HistogramIncrease | None:
    window = moment.get(role) or moment.get("mixed")
    value = window.values.get(signal) if window else None
    return value if isinstance(value, HistogramIncrease) else None


def _transfer(moment: Mapping[str, Window]) -> HistogramIncrease | None:
    found = [_pool(moment, role, Signal.KV_TRANSFER_TIME) for role in ("prefill", "decode")]
    return next((hist for hist in found if hist is not None and hist.count > 0), None)


def _mean(hist: HistogramIncrease | None) -> float | None:
    return hist.mean if hist is not None else None


def _p95(hist: HistogramIncrease | None) -> float | None:
    found = quantile(hist, 0.95) if hist is not None else None
    return None if found is None or found.is_clamped else found.value


def _counter(window: Window | None, signal: Signal) -> CounterIncrease | None:
    value = window.values.get(signal) if window else None
    return value if isinstance(value, CounterIncrease) else None


def _per_request(moment: Mapping[str, Window], role: str, signal: Signal) -> float | None:
    for scope in ("frontend", role, "mixed"):
        window = moment.get(scope)
        tokens = _counter(window, signal)
        ended = _counter(window, Signal.REQUESTS_COMPLETED)
        if tokens is not None and ended is not None and ended.increase > 0:
            return tokens.increase / ended.increase
    return None


def _arrivals(moment: Mapping[str, Window]) -> float | None:
    for scope in ("frontend", "router"):
        window = moment.get(scope)
        counter = _counter(window, Signal.REQUESTS_ARRIVED)
        if window is not None and counter is not None and window.seconds > 0:
            return counter.increase / window.seconds
    return None


def _prefill_busy(moment: Mapping[str, Window]) -> float | None:
    window = moment.get("prefill")
    forward = _counter(window, Signal.FORWARD_SECONDS)
    if window is None or window.seconds <= 0:
        return None
    workers = len(forward.by_worker) if forward else len(window.expected)
    total = forward.increase if forward else None
    if total is None:
        hist = window.values.get(Signal.PREFILL_TIME)
        total = hist.total if isinstance(hist, HistogramIncrease) else None
    return None if total is None or workers == 0 else total / window.seconds / workers
