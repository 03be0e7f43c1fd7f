"""A `Window` as compact JSON and back, for storage and replay."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from .window import (
    CounterIncrease,
    GaugeValue,
    HistogramIncrease,
    Signal,
    SignalValue,
    Window,
)


def window_to_json(window: Window) -> dict[str, Any]:
    """Everything but scope, start and end, which are columns of their own."""
    data: dict[str, Any] = {
        "v": {signal.value: _value_to_json(value) for signal, value in window.values.items()},
        "n": {signal.value: name for signal, name in window.names.items()},
        "e": list(window.expected),
        "r": list(window.reported),
        "s": window.source,
    }
    if window.covered_s is not None:
        data["c"] = window.covered_s
    if window.is_partial:
        data["p"] = True
    if window.is_conflict:
        data["x"] = True
    return data


def window_from_json(
    data: Mapping[str, Any], *, scope: str, start: datetime, end: datetime
) -> Window:
    """The reverse; signals that this release no longer knows are left out."""
    known = {signal.value: signal for signal in Signal}
    return Window(
        scope=scope,
        start=start,
        end=end,
        values={known[k]: _value_from_json(v) for k, v in data["v"].items() if k in known},
        names={known[k]: v for k, v in data["n"].items() if k in known},
        expected=tuple(data["e"]),
        reported=tuple(data["r"]),
        source=data["s"],
        covered_s=data.get("c"),
        is_partial=bool(data.get("p")),
        is_conflict=bool(data.get("x")),
    )


def _value_to_json(value: SignalValue) -> list[Any]:
    if isinstance(value, CounterIncrease):
        return ["c", value.increase, dict(value.by_worker)]
    if isinstance(value, GaugeValue):
        return ["g", value.total, dict(value.by_worker)]
    return [
        "h",
        list(value.bounds),
        list(value.counts),
        value.total,
        value.count,
        dict(value.sum_by_worker),
        dict(value.count_by_worker),
    ]


def _value_from_json(data: list[Any]) -> SignalValue:
    kind, *rest = data
    if kind == "c":
        return CounterIncrease(*rest)
    if kind == "g":
        return GaugeValue(*rest)
    bounds, counts, total, count, sums, numbers = rest
    return HistogramIncrease(tuple(bounds), tuple(counts), total, count, sums, numbers)
