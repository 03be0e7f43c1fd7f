"""Light points for charts, from the same windows and roll-ups as the figures. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

import numpy as np
import numpy.typing as npt

from apps.engines.window import HistogramIncrease, Signal

from .columns import Buckets, Columns, Floats, Stepped, quantiles

_EDGES: Final = ("frontend", "router")
_ENDING: Final = ("decode", "mixed")
#: Scopes in which each latency is looked for, as in `build.latency_scope`.
_TTFT: Final = (*_EDGES, *_ENDING)
_TPOT: Final = ("frontend", *_ENDING, "router")


@dataclass(frozen=True, slots=True)
class PhasePoint:
    """One pool at one point; None is a gap. Gauges are their mean over the step."""

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
    `is_split`: the ladder of TTFT or TPOT changed in the step, and only what was measured with the
    newest one is in its percentiles; the two are never mixed.
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
    is_split: bool = False

    def phase(self, role: str) -> PhasePoint | None:
        """The pool of a planned role."""
        return {"prefill": self.prefill, "decode": self.decode, "mixed": self.mixed}.get(role)


def points(times: Sequence[datetime], step_s: float, scopes: Mapping[str, Columns]) -> list[Point]:
    """One point per step that ends at `times`, from the rows of each scope that end in it."""
    first = times[0].timestamp() - step_s if times else 0.0
    steps = len(times)
    found: dict[str, Stepped] = {}
    for scope, columns in scopes.items():
        columns.close()
        if columns.ends:
            # A row that ends on the edge of a step belongs to the step before it.
            step = np.ceil((np.array(columns.ends) - first) / step_s - 1e-9).astype(np.int64) - 1
            found[scope] = Stepped(columns, np.clip(step, 0, steps - 1), steps)
    ttft = _latency(found, steps, _TTFT, (Signal.TTFT,))
    tpot = _latency(found, steps, _TPOT, (Signal.TPOT, Signal.ITL))
    counts = (*_EDGES, *_ENDING)
    rates = [
        _first_rate(found, steps, Signal.REQUESTS_ARRIVED, _EDGES),
        _first_rate(found, steps, Signal.REQUESTS_COMPLETED, counts),
        _first_rate(found, steps, Signal.REQUESTS_FAILED, counts),
        _first_rate(found, steps, Signal.INPUT_TOKENS, ("frontend", "prefill", "mixed")),
        _first_rate(found, steps, Signal.OUTPUT_TOKENS, ("frontend", "decode", "mixed")),
    ]
    phases = [
        _phase(found.get("prefill"), steps, Signal.INPUT_TOKENS),
        _phase(found.get("decode"), steps, Signal.OUTPUT_TOKENS),
        _phase(found.get("mixed"), steps, Signal.OUTPUT_TOKENS),
    ]
    split = (ttft.split | tpot.split).tolist()
    rows = zip(
        times, *ttft.quantiles, *tpot.quantiles, ttft.histograms, tpot.histograms, *rates, *phases,
        split, strict=True,
    )  # fmt: skip
    return [Point(*row) for row in rows]


@dataclass(slots=True)
class _Latency:
    quantiles: list[list[float | None]]
    histograms: list[HistogramIncrease | None]
    split: npt.NDArray[np.bool_]


def _latency(
    found: Mapping[str, Stepped],
    steps: int,
    scopes: Sequence[str],
    signals: Sequence[Signal],
) -> _Latency:
    """Per step the first scope that has the first signal; the next signal where none has it."""
    values = [np.full(steps, np.nan) for _ in (0.5, 0.95, 0.99)]
    histograms: list[HistogramIncrease | None] = [None] * steps
    split = np.zeros(steps, dtype=bool)
    open_steps = np.ones(steps, dtype=bool)
    for signal in signals:
        for scope in scopes:
            buckets = found[scope].buckets(signal) if scope in found else None
            if buckets is None:
                continue
            mine = buckets.present & open_steps
            open_steps &= ~mine
            split |= mine & buckets.split
            _take(buckets, mine, values, histograms)
    return _Latency([_listed(column) for column in values], histograms, split)


def _take(
    buckets: Buckets,
    mine: npt.NDArray[np.bool_],
    values: Sequence[Floats],
    histograms: list[HistogramIncrease | None],
) -> None:
    for index, (bounds, table) in enumerate(zip(buckets.bounds, buckets.sums, strict=True)):
        rows = np.flatnonzero(mine & (buckets.ladder == index))
        if not len(rows):
            continue
        for column, q in zip(values, (0.5, 0.95, 0.99), strict=True):
            column[rows] = quantiles(bounds, table[rows], q)
        for row, (total, count, *inside) in zip(rows.tolist(), table[rows].tolist(), strict=True):
            histograms[row] = HistogramIncrease(bounds, tuple(inside), total, count)


def _first_rate(
    found: Mapping[str, Stepped], steps: int, signal: Signal, scopes: Sequence[str]
) -> list[float | None]:
    values = np.full(steps, np.nan)
    for scope in scopes:
        if scope in found:
            values = np.where(np.isnan(values), found[scope].rate(signal), values)
    return _listed(values)


def _phase(stepped: Stepped | None, steps: int, tokens: Signal) -> list[PhasePoint]:
    if stepped is None:
        return [PhasePoint()] * steps
    forward = stepped.rate(Signal.FORWARD_SECONDS)
    prefill = stepped.buckets(Signal.PREFILL_TIME) if np.isnan(forward).any() else None
    if prefill is not None:
        total = sum(table[:, 0] for table in prefill.sums)
        with np.errstate(divide="ignore", invalid="ignore"):
            rate = np.where(
                prefill.present & (stepped.histogram_seconds > 0),
                total / stepped.histogram_seconds,
                np.nan,
            )
        forward = np.where(np.isnan(forward), rate, forward)
    columns = (
        _listed(stepped.gauge(Signal.WAITING)),
        _listed(stepped.gauge(Signal.RUNNING)),
        _listed(stepped.gauge(Signal.KV_USED, per_worker=True)),
        _listed(forward),
        _listed(stepped.rate(tokens)),
    )
    return [PhasePoint(*row) for row in zip(*columns, strict=True)]


def _listed(values: Floats) -> list[float | None]:
    return [value if value == value else None for value in values.tolist()]
