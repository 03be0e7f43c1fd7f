"""From the series of GPUs and hosts to windows of the pools whose workers run there. Pure.

An exporter knows a GPU or a host, the inventory knows workers; `joining` brings them together. A
hardware counter counts since boot, so a series that appears never counts whole: only differences of
two samples do. A step that crosses a role change belongs to neither role.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final, Literal

from apps.common.units import Unit
from apps.engines.combine import TargetPart, combine
from apps.engines.evaluate import SELF, Parts, SignalPart, TargetSignals, evaluate
from apps.engines.measures import unit_of
from apps.engines.schema import Profile, Ref, Row
from apps.engines.window import (
    CounterIncrease,
    GaugeValue,
    HistogramIncrease,
    Kind,
    Signal,
    SignalValue,
    Window,
    hardware_scope,
)

from .joining import Joined, WorkerPlace
from .units import Key, UnitSeries

Part = Literal["device", "host"]

#: The trace of a signal that a GPU has, but that says nothing of one worker alone.
SHARED: Final = "n/a: the GPU is shared"
#: What an exporter reads per slice of a GPU; the rest is the whole GPU's (dcgm-exporter 512, 726).
PER_SLICE: Final = frozenset(
    {Signal.DEVICE_TENSOR_ACTIVE, Signal.DEVICE_DRAM_ACTIVE, Signal.DEVICE_SM_ACTIVE}
)


@dataclass(slots=True)
class _Member:
    """What one worker's units gave in one role."""

    url: str
    role: str
    is_current: bool
    signals: dict[Signal, SignalPart] = field(default_factory=dict)
    not_attributable: set[Signal] = field(default_factory=set)
    covered_s: float = 0.0


class _UnitReader:
    """One unit in one role, for `evaluate`."""

    has_interval = True

    def __init__(self, gauges: Mapping[Key, float], increases: Mapping[Key, float]) -> None:
        self._gauges, self._increases = gauges, increases

    def has_sibling(self, name: str) -> bool:
        return False

    def counter(self, ref: Ref, row: Row) -> Parts | None:
        value = self._increases.get((ref.key, "sum"))
        return None if value is None else {SELF: value}

    def gauge(self, ref: Ref, row: Row) -> Parts | None:
        value = self._gauges.get((ref.key, row.aggregate))
        return None if value is None else {SELF: value}

    def histogram(self, ref: Ref, row: Row) -> HistogramIncrease | None:
        return None


def hardware_windows(
    part: Part,
    profile: Profile,
    joined: Joined,
    workers: Sequence[WorkerPlace],
    *,
    start: datetime,
    end: datetime,
    source: str,
    is_partial: bool = False,
) -> tuple[Window, ...]:
    """One window per role that has a joined worker (scope `hardware_scope(role, part)`).

    Counts, power, energy and memory are summed over a worker's GPUs, activities averaged. A worker
    that was seen for a shorter time than its peers is not among those that reported. A host that
    several workers share counts once in a window's totals.
    """
    members: dict[str, list[_Member]] = {}
    for worker in workers:
        units = joined.by_worker.get(worker.url, ())
        if units:
            shared = part == "device" and worker.url in joined.shared
            for member in _members(profile, worker, units, is_shared=shared, end=end):
                members.setdefault(member.role, []).append(member)
    expected: dict[str, list[str]] = {}
    for worker in workers:
        expected.setdefault(worker.role_now, []).append(worker.url)
    windows = []
    for role, mine in sorted(members.items()):
        covered = max(member.covered_s for member in mine)
        reported = [m.url for m in mine if m.is_current and m.covered_s > covered - 1e-6]
        if not reported:
            continue
        window = combine(
            scope=hardware_scope(role, part),
            start=start,
            end=end,
            parts=[TargetPart(m.url, m.signals, m.is_current) for m in mine],
            expected=expected.get(role) or reported,
            reported=reported,
            source=source,
            is_partial=is_partial,
            covered_s=None if covered == (end - start).total_seconds() else covered,
        )
        silent = {s for m in mine for s in m.not_attributable if s not in window.values}
        names = {**window.names, **dict.fromkeys(silent, SHARED)}
        values = _once_per_host(window, joined) if part == "host" else window.values
        windows.append(replace(window, names=names, values=values))
    return tuple(windows)


def _once_per_host(window: Window, joined: Joined) -> dict[Signal, SignalValue]:
    """The same values with totals over hosts: each worker keeps its host's figures."""
    hosts = {
        url: frozenset(unit.place.physical for unit in units)
        for url, units in joined.by_worker.items()
    }
    values: dict[Signal, SignalValue] = {}
    for signal, value in window.values.items():
        assert not isinstance(value, HistogramIncrease)
        total = sum({hosts[url]: amount for url, amount in value.by_worker.items()}.values())
        if isinstance(value, GaugeValue):
            values[signal] = GaugeValue(total, value.by_worker)
        else:
            values[signal] = CounterIncrease(total, value.by_worker)
    return values


def _members(
    profile: Profile,
    worker: WorkerPlace,
    units: Sequence[UnitSeries],
    *,
    is_shared: bool,
    end: datetime,
) -> Iterable[_Member]:
    roles = {worker.role_now: True}
    roles |= {role: False for unit in units for step in unit.steps
              if (role := worker.role_over(step)) and role != worker.role_now}  # fmt: skip
    for role, is_current in roles.items():
        member = _Member(worker.url, role, is_current)
        found: list[TargetSignals] = []
        for unit in units:
            steps = [step for step in unit.steps if worker.role_over(step) == role]
            increases: dict[Key, float] = {}
            for step in steps:
                for key, value in step.increases.items():
                    increases[key] = increases.get(key, 0.0) + value
            seconds = sum((step.end - step.start).total_seconds() for step in steps)
            member.covered_s = max(member.covered_s, seconds)
            signals = evaluate(
                profile, role, _UnitReader(unit.gauges if is_current else {}, increases)
            )
            kept = {s: p for s, p in signals.items() if _is_attributable(s, unit, is_shared)}
            member.not_attributable |= set(signals) - set(kept)
            found.append(kept)
        member.signals = _together(found)
        yield member


def _is_attributable(signal: Signal, unit: UnitSeries, is_shared: bool) -> bool:
    if unit.place.part:
        return signal in PER_SLICE
    return not is_shared


def _together(units: Sequence[TargetSignals]) -> dict[Signal, SignalPart]:
    """The signals of a worker from those of its units."""
    result: dict[Signal, SignalPart] = {}
    for signal in dict.fromkeys(signal for unit in units for signal in unit):
        parts = [unit[signal] for unit in units if signal in unit]
        values = [(part.parts or {}).get(SELF, 0.0) for part in parts]
        if signal is Signal.DEVICE_FAULT_CODE:
            value = max(values)
        elif unit_of(signal) is Unit.RATIO:
            value = sum(values) / len(values)
        else:
            value = sum(values)
        names = " | ".join(dict.fromkeys(part.names for part in parts))
        kind = parts[0].kind
        assert kind is not Kind.HISTOGRAM
        result[signal] = SignalPart(kind, {SELF: value}, None, names)
    return result
