"""Slots of one scope packed into the bytes of one row, column by column. Pure.

A row of JSON per slot costs more to read than the chart it draws: 30 days of hours are 720 rows a
scope. Packed, they are 30 rows of some kilobytes, and a chart reads only the columns it shows.

Layout: zlib of `<u32 length of the header> <header JSON> <float64 columns>`, the columns'
bytes sorted by their place in the number (equal high bytes lie together and compress well). NaN
marks a value that a slot does not have; it never leaves this file as a figure.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from apps.engines.window import CounterIncrease, HistogramIncrease, Signal

from .rollup import GaugeSpan, Rolled

Floats = npt.NDArray[np.float64]

VERSION: Final = 1
_BASE: Final = (
    "start", "end", "seconds", "histogram_seconds", "partial", "expected_count", "reported_count",
    "expected", "reported", "source",
)  # fmt: skip
_GAUGE: Final = ("last", "low", "high", "mean", "seconds", "workers")
_SIGNALS: Final = {signal.value: signal for signal in Signal}


class UnknownBlock(ValueError):
    """The bytes are not a block that this release can read."""


@dataclass(frozen=True, slots=True)
class Block:
    """A decoded block: arrays of one value per slot, oldest first."""

    header: Mapping[str, Any]
    matrix: Floats
    places: Mapping[tuple[str, str, int], int]

    def __len__(self) -> int:
        return int(self.matrix.shape[1])

    def base(self, name: str) -> Floats:
        """One of the columns that every slot has; times in seconds of the epoch."""
        return _row(self.matrix, _BASE.index(name))

    def counter(self, signal: Signal) -> Floats | None:
        """Increases; NaN where absent."""
        place = self.places.get(("c", signal.value, 0))
        return None if place is None else _row(self.matrix, place)

    def gauge(self, signal: Signal) -> Floats | None:
        """Rows `last, low, high, mean, seconds, workers`; NaN where absent."""
        place = self.places.get(("g", signal.value, 0))
        return None if place is None else self.matrix[place : place + len(_GAUGE)]

    def histograms(self, signal: Signal) -> list[tuple[tuple[float, ...], Floats]]:
        """Per ladder its bounds and the rows `total, count, buckets ...`; NaN where absent."""
        found = []
        for name, index in self.header["h"]:
            if name == signal.value:
                bounds = tuple(self.header["b"][index])
                place = self.places[("h", name, index)]
                found.append((bounds, self.matrix[place : place + len(bounds) + 3]))
        return found


def _row(matrix: Floats, index: int) -> Floats:
    found: Floats = matrix[index]
    return found


def encode(slots: Sequence[Rolled], *, with_workers: bool) -> bytes:
    """The slots, oldest first, as bytes."""
    header: dict[str, Any] = {
        "v": VERSION,
        "n": len(slots),
        "c": _present(slot.counters for slot in slots),
        "g": _present(slot.gauges for slot in slots),
        "m": {signal.value: name for slot in slots for signal, name in slot.names.items()},
        "x": {
            str(index): [[start.timestamp(), end.timestamp()] for start, end in slot.covered]
            for index, slot in enumerate(slots)
            if slot.covered != ((slot.start, slot.end),)
        },
    }
    bounds = _Interned()
    header["h"] = sorted(
        {(s.value, bounds.index(h.bounds)) for slot in slots for s, h in slot.histograms.items()}
    )
    header["b"] = [list(item) for item in bounds.items]
    workers = _workers(slots) if with_workers else []
    header["u"] = workers
    lists, sources = _Interned(), _Interned()
    columns: list[list[float]] = [
        [slot.start.timestamp() for slot in slots],
        [slot.end.timestamp() for slot in slots],
        [slot.seconds for slot in slots],
        [slot.histogram_seconds for slot in slots],
        [float(slot.is_partial) for slot in slots],
        [float(slot.expected_count) for slot in slots],
        [float(slot.reported_count) for slot in slots],
        [float(lists.index(slot.expected if with_workers else ())) for slot in slots],
        [float(lists.index(slot.reported if with_workers else ())) for slot in slots],
        [float(sources.index(slot.source)) for slot in slots],
    ]
    header["l"] = [list(item) for item in lists.items]
    header["s"] = list(sources.items)
    for name in header["c"]:
        columns += _counter_columns([slot.counters.get(_SIGNALS[name]) for slot in slots], workers)
    for name in header["g"]:
        columns += _gauge_columns([slot.gauges.get(_SIGNALS[name]) for slot in slots], workers)
    for name, index in header["h"]:
        ladder = bounds.items[index]
        found = [slot.histograms.get(_SIGNALS[name]) for slot in slots]
        mine = [h if h is not None and h.bounds == ladder else None for h in found]
        columns += _histogram_columns(mine, len(ladder), workers)
    matrix = np.array(columns, dtype="<f8")
    text = json.dumps(header, separators=(",", ":")).encode()
    mixed = matrix.view(np.uint8).reshape(-1, 8).T.tobytes()
    return zlib.compress(struct.pack("<I", len(text)) + text + mixed, 6)


class _Interned:
    """Equal things get equal numbers."""

    def __init__(self) -> None:
        self.items: list[Any] = []

    def index(self, item: Any) -> int:
        if item not in self.items:
            self.items.append(item)
        return self.items.index(item)


def _present(maps: Iterable[Mapping[Signal, Any]]) -> list[str]:
    return sorted({signal.value for found in maps for signal in found})


def _workers(slots: Sequence[Rolled]) -> list[str]:
    found: set[str] = set()
    for slot in slots:
        for counter in slot.counters.values():
            found.update(counter.by_worker)
        for gauge in slot.gauges.values():
            found.update(gauge.by_worker)
        for hist in slot.histograms.values():
            found.update(hist.sum_by_worker)
            found.update(hist.count_by_worker)
    return sorted(found)


_NAN: Final = float("nan")


def _counter_columns(
    found: Sequence[CounterIncrease | None], workers: Sequence[str]
) -> list[list[float]]:
    return [
        [_NAN if item is None else item.increase for item in found],
        *(_of_worker([None if i is None else i.by_worker for i in found], url) for url in workers),
    ]


def _gauge_columns(found: Sequence[GaugeSpan | None], workers: Sequence[str]) -> list[list[float]]:
    return [
        *([_NAN if item is None else getattr(item, name) for item in found] for name in _GAUGE),
        *(_of_worker([None if i is None else i.by_worker for i in found], url) for url in workers),
    ]


def _histogram_columns(
    found: Sequence[HistogramIncrease | None], bounds: int, workers: Sequence[str]
) -> list[list[float]]:
    sums = [None if item is None else item.sum_by_worker for item in found]
    counts = [None if item is None else item.count_by_worker for item in found]
    rows = [(_NAN,) * (bounds + 3) if h is None else (h.total, h.count, *h.counts) for h in found]
    return [
        *(list(column) for column in zip(*rows, strict=True)),
        *(_of_worker(sums, url) for url in workers),
        *(_of_worker(counts, url) for url in workers),
    ]


def _of_worker(found: Sequence[Mapping[str, float] | None], url: str) -> list[float]:
    return [_NAN if item is None else item.get(url, _NAN) for item in found]


def decode(payload: bytes | memoryview) -> Block:
    """The reverse of `encode`. Raises UnknownBlock."""
    try:
        data = zlib.decompress(payload)
        (length,) = struct.unpack_from("<I", data)
        header = json.loads(data[4 : 4 + length])
    except (zlib.error, struct.error, ValueError) as error:
        raise UnknownBlock("not a block") from error
    if header["v"] != VERSION:
        raise UnknownBlock(f"version {header['v']}")
    count, workers = header["n"], len(header["u"])
    flat = np.frombuffer(data, np.uint8, offset=4 + length).reshape(8, -1)
    matrix = np.ascontiguousarray(flat.T).view("<f8").reshape(-1, count)
    places: dict[tuple[str, str, int], int] = {}
    at = len(_BASE)
    for name in header["c"]:
        places[("c", name, 0)] = at
        at += 1 + workers
    for name in header["g"]:
        places[("g", name, 0)] = at
        at += len(_GAUGE) + workers
    for name, index in header["h"]:
        places[("h", name, index)] = at
        at += len(header["b"][index]) + 3 + 2 * workers
    return Block(header, matrix, places)


def slots_of(
    block: Block, signals: Collection[Signal] | None = None, *, with_workers: bool = True
) -> list[Rolled]:
    """The slots of a block, all signals or only some, with each worker's part or without; signals
    that this release no longer knows are left out."""
    header, count = block.header, len(block)
    workers = list(block.header["u"]) if with_workers else []
    width = len(header["u"])
    counters: list[dict[Signal, CounterIncrease]] = [{} for _ in range(count)]
    gauges: list[dict[Signal, GaugeSpan]] = [{} for _ in range(count)]
    histograms: list[dict[Signal, HistogramIncrease]] = [{} for _ in range(count)]

    def rows(kind: str, name: str, index: int, columns: int) -> list[list[float]]:
        at = block.places[(kind, name, index)]
        listed: list[list[float]] = block.matrix[at : at + columns].T.tolist()
        return listed

    def wanted(name: str) -> Signal | None:
        signal = _SIGNALS.get(name)
        return signal if signals is None or signal in signals else None

    shown = width if with_workers else 0
    for name in header["c"]:
        if (signal := wanted(name)) is not None:
            for slot, row in enumerate(rows("c", name, 0, 1 + shown)):
                if row[0] == row[0]:
                    counters[slot][signal] = CounterIncrease(row[0], _parts(row, 1, workers))
    for name in header["g"]:
        if (signal := wanted(name)) is not None:
            for slot, row in enumerate(rows("g", name, 0, len(_GAUGE) + shown)):
                if row[0] == row[0]:
                    gauges[slot][signal] = _gauge_span(row, 0, workers)
    for name, index in header["h"]:
        if (signal := wanted(name)) is not None:
            bounds = tuple(header["b"][index])
            for slot, row in enumerate(rows("h", name, index, len(bounds) + 3 + 2 * shown)):
                if row[0] == row[0]:
                    histograms[slot][signal] = _histogram(row, 0, bounds, workers)
    names = {_SIGNALS[k]: v for k, v in header["m"].items() if k in _SIGNALS}
    found: list[Rolled] = []
    for index, row in enumerate(block.matrix[: len(_BASE)].T.tolist()):
        base = dict(zip(_BASE, row, strict=True))
        start, end = _time(base["start"]), _time(base["end"])
        stretches = header["x"].get(str(index))
        found.append(
            Rolled(
                start=start,
                end=end,
                seconds=base["seconds"],
                histogram_seconds=base["histogram_seconds"],
                counters=counters[index],
                gauges=gauges[index],
                histograms=histograms[index],
                expected_count=int(base["expected_count"]),
                reported_count=int(base["reported_count"]),
                covered=((start, end),)
                if stretches is None
                else tuple((_time(a), _time(b)) for a, b in stretches),
                expected=tuple(header["l"][int(base["expected"])]),
                reported=tuple(header["l"][int(base["reported"])]),
                names=names,
                source=header["s"][int(base["source"])],
                is_partial=bool(base["partial"]),
            )
        )
    return found


def _time(stamp: float) -> datetime:
    return datetime.fromtimestamp(stamp, UTC)


def _parts(row: Sequence[float], at: int, workers: Sequence[str]) -> dict[str, float]:
    if not workers:
        return {}
    found = zip(workers, row[at : at + len(workers)], strict=True)
    return {url: value for url, value in found if value == value}


def _gauge_span(row: Sequence[float], at: int, workers: Sequence[str]) -> GaugeSpan:
    last, low, high, mean, seconds, count = row[at : at + len(_GAUGE)]
    return GaugeSpan(last, low, high, mean, seconds, count, _parts(row, at + len(_GAUGE), workers))


def _histogram(
    row: Sequence[float], at: int, bounds: tuple[float, ...], workers: Sequence[str]
) -> HistogramIncrease:
    buckets = at + 2
    end = buckets + len(bounds) + 1
    return HistogramIncrease(
        bounds=bounds,
        counts=tuple(row[buckets:end]),
        total=row[at],
        count=row[at + 1],
        sum_by_worker=_parts(row, end, workers),
        count_by_worker=_parts(row, end + len(workers), workers),
    )
