"""The signals that charts show, as columns over many windows or slots of one scope. Pure.

Charts of a month would make thousands of objects of them; here they stay arrays until they are
points. NaN marks what a row does not have and never leaves the room: a point has None there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from apps.engines.window import Signal

from .block import Block

Floats = npt.NDArray[np.float64]
Steps = npt.NDArray[np.int64]

COUNTERS: Final = (
    Signal.REQUESTS_ARRIVED, Signal.REQUESTS_COMPLETED, Signal.REQUESTS_FAILED,
    Signal.INPUT_TOKENS, Signal.OUTPUT_TOKENS, Signal.FORWARD_SECONDS,
)  # fmt: skip
GAUGES: Final = (Signal.WAITING, Signal.RUNNING, Signal.KV_USED)
HISTOGRAMS: Final = (Signal.TTFT, Signal.TPOT, Signal.ITL, Signal.PREFILL_TIME)


@dataclass(slots=True)
class Ladder:
    """Buckets of one ladder: one line `total, count, buckets ...` per window, and the window's row;
    single lines, and tables of many."""

    rows: list[int] = field(default_factory=list)
    lines: list[Sequence[float]] = field(default_factory=list)
    tables: list[tuple[Steps, Floats]] = field(default_factory=list)

    def whole(self) -> tuple[Steps, Floats]:
        """All rows and their lines."""
        parts = list(self.tables)
        if self.rows:
            parts.append((np.array(self.rows, dtype=np.int64), np.array(self.lines)))
        return np.concatenate([rows for rows, _ in parts]), np.concatenate([t for _, t in parts])


@dataclass(slots=True)
class Columns:
    """Windows or slots of one scope as rows. Times in seconds of the epoch."""

    ends: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    histogram_seconds: list[float] = field(default_factory=list)
    counters: dict[Signal, list[float]] = field(default_factory=dict)
    #: Per gauge its mean over the row's seconds, and how many workers gave it.
    gauges: dict[Signal, list[tuple[float, float]]] = field(default_factory=dict)
    ladders: dict[Signal, dict[tuple[float, ...], Ladder]] = field(default_factory=dict)

    def add_payload(
        self,
        start: datetime,
        end: datetime,
        payload: Mapping[str, Any],
        *,
        counters: bool = True,
        histograms: bool = True,
    ) -> None:
        """A stored window (`apps.engines.codec`), of which only the charts' signals are read, and
        of these counters with gauges, or histograms, or both."""
        row = len(self.ends)
        covered = payload.get("c")
        seconds = (end - start).total_seconds() if covered is None else float(covered)
        values = payload["v"]
        self.ends.append(end.timestamp())
        self.seconds.append(seconds if counters else 0.0)
        self.histogram_seconds.append(seconds if histograms else 0.0)
        for signal in COUNTERS if counters else ():
            found = values.get(signal.value)
            if found is not None:
                _padded(self.counters.setdefault(signal, []), row, _NAN)[row] = found[1]
        for signal in GAUGES if counters else ():
            found = values.get(signal.value)
            if found is not None:
                pair = (found[1], float(len(found[2])))
                _padded(self.gauges.setdefault(signal, []), row, _NO_GAUGE)[row] = pair
        for signal in HISTOGRAMS if histograms else ():
            found = values.get(signal.value)
            if found is not None:
                _, bounds, counts, total, count = found[:5]
                ladder = self._ladder(signal, tuple(bounds))
                ladder.rows.append(row)
                ladder.lines.append((total, count, *counts))

    def add_block(self, block: Block, after: float, until: float) -> None:
        """The slots of a block that end in `(after, until]`."""
        ends = block.base("end")
        picked = np.flatnonzero((ends > after) & (ends <= until))
        if not len(picked):
            return
        first = len(self.ends)
        self.ends += ends[picked].tolist()
        self.seconds += block.base("seconds")[picked].tolist()
        self.histogram_seconds += block.base("histogram_seconds")[picked].tolist()
        for signal in COUNTERS:
            increases = block.counter(signal)
            if increases is not None:
                column = self.counters.setdefault(signal, [])
                _filled(column, first, _NAN).extend(increases[picked].tolist())
        for signal in GAUGES:
            gauge = block.gauge(signal)
            if gauge is not None:
                means = zip(gauge[3][picked].tolist(), gauge[5][picked].tolist(), strict=True)
                _filled(self.gauges.setdefault(signal, []), first, _NO_GAUGE).extend(means)
        for signal in HISTOGRAMS:
            for bounds, found in block.histograms(signal):
                table = found[:, picked].T
                present = np.flatnonzero(~np.isnan(table[:, 0]))
                if len(present):
                    lines = (present + first, table[present])
                    self._ladder(signal, bounds).tables.append(lines)

    def _ladder(self, signal: Signal, bounds: tuple[float, ...]) -> Ladder:
        return self.ladders.setdefault(signal, {}).setdefault(bounds, Ladder())

    def close(self) -> None:
        """Make all columns equally long; call it after the last row."""
        for counter in self.counters.values():
            _filled(counter, len(self.ends), _NAN)
        for gauge in self.gauges.values():
            _filled(gauge, len(self.ends), _NO_GAUGE)


_NAN: Final = float("nan")
_NO_GAUGE: Final = (_NAN, _NAN)


def _filled(column: list[Any], length: int, empty: Any) -> list[Any]:
    column.extend([empty] * (length - len(column)))
    return column


def _padded(column: list[Any], row: int, empty: Any) -> list[Any]:
    return _filled(column, row + 1, empty)


@dataclass(frozen=True, slots=True)
class Buckets:
    """The histograms of one signal per step: one ladder each, the newest of the step. `present`
    says which steps have one at all (it may hold no observation), `split` which had more than one
    ladder."""

    bounds: Sequence[tuple[float, ...]]
    ladder: Steps
    sums: Sequence[Floats]
    present: npt.NDArray[np.bool_]
    split: npt.NDArray[np.bool_]


class Stepped:
    """The columns of a scope added up into steps; `step[i]` is the step of row i."""

    def __init__(self, columns: Columns, step: Steps, steps: int) -> None:
        self._columns, self._step, self._steps = columns, step, steps
        self.seconds = self._added(np.array(columns.seconds))
        self.histogram_seconds = self._added(np.array(columns.histogram_seconds))

    def _added(self, values: Floats) -> Floats:
        return np.bincount(self._step, values, minlength=self._steps).astype(np.float64)

    def rate(self, signal: Signal) -> Floats:
        """Increase per covered second; NaN where nothing was measured."""
        column = self._columns.counters.get(signal)
        if column is None:
            return np.full(self._steps, _NAN)
        values = np.array(column)
        known = ~np.isnan(values)
        total = self._added(np.where(known, values, 0.0))
        count = self._added(known.astype(float))
        with np.errstate(divide="ignore", invalid="ignore"):
            found: Floats = np.where((count > 0) & (self.seconds > 0), total / self.seconds, _NAN)
        return found

    def gauge(self, signal: Signal, *, per_worker: bool = False) -> Floats:
        """The time-weighted mean, summed over the workers or per worker; NaN where absent."""
        column = self._columns.gauges.get(signal)
        if column is None:
            return np.full(self._steps, _NAN)
        table = np.array(column, dtype=float).reshape(-1, 2)
        values = table[:, 0]
        known = ~np.isnan(values)
        if per_worker:
            with np.errstate(divide="ignore", invalid="ignore"):
                values = np.where(table[:, 1] > 0, values / table[:, 1], _NAN)
            known = ~np.isnan(values)
        # A window of no length (the first tick) has gauges too.
        weights = np.where(known, np.maximum(np.array(self._columns.seconds), 1e-9), 0.0)
        total = self._added(np.where(known, values, 0.0) * weights)
        weight = self._added(weights)
        with np.errstate(divide="ignore", invalid="ignore"):
            found: Floats = np.where(weight > 0, total / weight, _NAN)
        return found

    def buckets(self, signal: Signal) -> Buckets | None:
        """The signal's histograms per step; None where no row has any."""
        ladders = self._columns.ladders.get(signal)
        if not ladders:
            return None
        ends = np.array(self._columns.ends)
        bounds = [ladder for ladder in ladders if ladder] or [()]
        newest = np.full((len(bounds), self._steps), -np.inf)
        sums: list[Floats] = []
        present = np.zeros(self._steps, dtype=bool)
        for index, ladder in enumerate(bounds):
            rows, lines = ladders[ladder].whole()
            order = np.argsort(self._step[rows], kind="stable")
            rows, lines = rows[order], lines[order]
            step, first = np.unique(self._step[rows], return_index=True)
            table = np.zeros((self._steps, len(ladder) + 3))
            table[step] = np.add.reduceat(lines, first, axis=0)
            newest[index][step] = np.maximum.reduceat(ends[rows], first)
            present[step] = True
            sums.append(table)
        if bounds != [()] and () in ladders:
            # A family that was not there yet: nothing to add, but an answer.
            present[self._step[ladders[()].whole()[0]]] = True
        return Buckets(
            bounds=bounds,
            ladder=newest.argmax(axis=0),
            sums=sums,
            present=present,
            split=(newest > -np.inf).sum(axis=0) > 1,
        )


def quantiles(bounds: tuple[float, ...], table: Floats, q: float) -> Floats:
    """`apps.engines.histogram.quantile` over many rows `total, count, buckets ...` of one ladder;
    NaN without observations or without a finite bound."""
    count, buckets = table[:, 1], table[:, 2:]
    if not bounds or not len(table):
        return np.full(len(table), _NAN)
    ladder = np.array(bounds)
    below = np.cumsum(buckets, axis=1)
    rank = q * count
    hit = (buckets[:, :-1] > 0) & (below[:, :-1] >= (rank * (1 - 1e-12))[:, None])
    index = hit.argmax(axis=1)
    rows = np.arange(len(table))
    inside = buckets[rows, index]
    upper = ladder[index]
    lower = np.where(index > 0, ladder[np.maximum(index - 1, 0)], np.minimum(0.0, upper))
    with np.errstate(divide="ignore", invalid="ignore"):
        fraction = np.clip((rank - (below[rows, index] - inside)) / inside, 0.0, 1.0)
    value = lower + (upper - lower) * fraction
    value = np.where((index == 0) & (upper <= 0), upper, value)
    value = np.where(hit.any(axis=1), value, ladder[-1])
    found: Floats = np.where(count > 0, value, _NAN)
    return found
