"""From a window's age, coverage and traffic to the state of a figure (DESIGN law 1, §4a). Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from apps.common.measurement import Measurement, Place, State, Trace, freshness, missing
from apps.common.units import Unit
from apps.engines.window import (
    CounterIncrease,
    GaugeValue,
    HistogramIncrease,
    Signal,
    SignalValue,
    Window,
)

PLACES: Mapping[str, Place] = {"router": Place.ROUTER, "frontend": Place.FRONTEND}


@dataclass(frozen=True, slots=True)
class View:
    """A window as figures see it: where, how old, how complete.

    `histograms` holds the buckets where these were collected more rarely than the rest: they are a
    window of their own, with its own length and age.
    """

    window: Window
    age_state: State
    histograms: View | None = None

    @property
    def place(self) -> Place:
        if "/" in self.window.scope:  # `hardware_scope`
            return Place.EXPORTER
        return PLACES.get(self.window.scope, Place.ENGINE)

    def value(self, signal: Signal) -> SignalValue | None:
        return self.of(signal).window.values.get(signal)

    def of(self, signal: Signal) -> View:
        """The view that holds a signal: this one, or its histograms."""
        apart = self.histograms
        return apart if apart is not None and signal in apart.window.values else self

    def counter(self, signal: Signal) -> CounterIncrease | None:
        found = self.value(signal)
        return found if isinstance(found, CounterIncrease) else None

    def gauge(self, signal: Signal) -> GaugeValue | None:
        found = self.value(signal)
        return found if isinstance(found, GaugeValue) else None

    def histogram(self, signal: Signal) -> HistogramIncrease | None:
        found = self.value(signal)
        return found if isinstance(found, HistogramIncrease) else None

    def rate(self, signal: Signal) -> float | None:
        """Increase per second; None when not measured."""
        found = self.counter(signal)
        if found is None or self.window.seconds <= 0:
            return None
        return found.increase / self.window.seconds

    def coverage(self, signal: Signal) -> tuple[int, int]:
        """(workers that gave this signal and answered last, workers expected)."""
        expected = set(self.window.expected)
        reported = expected & set(self.window.reported)
        value = self.value(signal)
        if self.window.scope in PLACES or value is None:
            return len(reported), len(expected)
        gave = value.count_by_worker if isinstance(value, HistogramIncrease) else value.by_worker
        return len(reported & set(gave)), len(expected)

    def trace(self, signal: Signal, formula: str) -> Trace:
        """The metric names that answered, in the formula that was applied."""
        name = self.window.names.get(signal, signal.value)
        span = f"{self.window.seconds:g}s"
        return Trace(self.window.source, formula.format(name=name, span=span))

    def figure(
        self,
        value: float | None,
        unit: Unit,
        signal: Signal,
        formula: str,
        *,
        state: State = State.OK,
        method: str = "",
        lower: float | None = None,
        upper: float | None = None,
        sample_count: int | None = None,
    ) -> Measurement:
        """A figure from this window: the given state, made worse by coverage and age."""
        apart = self.of(signal)
        if apart is not self:
            return apart.figure(
                value,
                unit,
                signal,
                formula,
                state=state,
                method=method,
                lower=lower,
                upper=upper,
                sample_count=sample_count,
            )
        coverage = self.coverage(signal)
        trace = self.trace(signal, formula)
        if coverage[0] < coverage[1] or self.window.is_partial:
            if state is State.NO_TRAFFIC:
                # Part of the workers saw no traffic: what the others saw is unknown.
                state = State.PARTIAL
            elif state is not State.TOO_FEW and value is not None:
                state = State.PARTIAL
        if value is None and state in (State.OK, State.PARTIAL):
            state = State.NO_DATA
        elif self.window.is_conflict:
            # Copies of a target disagree (M14): neither what they say nor that they say nothing.
            state = State.CONFLICT
        base = Measurement(
            value=None if state is State.NO_TRAFFIC else value,
            unit=unit,
            state=state,
            observed_at=self.window.end,
            place=self.place,
            method=method,
            lower=lower if value is not None else None,
            upper=upper if value is not None else None,
            coverage=coverage,
            sample_count=sample_count,
            trace=trace,
        )
        return aged(base, self.age_state)


def aged(figure: Measurement, age: State) -> Measurement:
    """The figure at its age: fresh as it is; stale or from a source that is down with its last
    value; too old with none."""
    if age is State.OK or figure.state is State.NO_DATA:
        return figure
    if age is State.NO_DATA:
        return replace(figure, state=State.NO_DATA, value=None, lower=None, upper=None)
    return replace(figure, state=age)


def age_state(window_end: datetime, now: datetime, interval_s: float, *, is_down: bool) -> State:
    """`ok`, `stale`, then `source_down` where the source is known to be down, else `no_data`."""
    found = freshness(window_end, now, interval_s)
    if found is State.NO_DATA and is_down:
        return State.SOURCE_DOWN
    return found


def nothing(unit: Unit, place: Place, signal: Signal, *, is_down: bool = False) -> Measurement:
    """A figure that no window holds."""
    state = State.SOURCE_DOWN if is_down else State.NO_DATA
    return missing(unit, state, place=place, trace=Trace(query=signal.value))
