"""`Measurement`: the only form in which a figure travels through Fulcrum (DESIGN law 1).

Missing is not zero is not NaN. A figure carries its unit, its state, the time of the sample it
rests on, the place where it was measured, the method, bounds where a histogram or a model gives
them, and the trace that reproduces it (DESIGN law 10).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal
from enum import StrEnum
from math import isfinite
from typing import Any, Final

from .units import Unit


class State(StrEnum):
    """What is known about a figure. UI, docs and API are compared with this enum by a test."""

    OK = "ok"
    CLAMPED = "clamped"
    NO_TRAFFIC = "no_traffic"
    TOO_FEW = "too_few"
    PARTIAL = "partial"
    STALE = "stale"
    NO_DATA = "no_data"
    SOURCE_DOWN = "source_down"
    CONFLICT = "conflict"


class Place(StrEnum):
    """Where a figure was measured (DESIGN law 3)."""

    FRONTEND = "frontend"
    ROUTER = "router"
    ENGINE = "engine"
    EXPORTER = "exporter"
    DECLARED = "declared"
    MODEL = "model"


class Drive(StrEnum):
    """Kinds of decision a figure may feed."""

    GROWTH = "growth"
    REDUCTION = "reduction"
    PERCENTILE = "percentile"
    IDLE_RULE = "idle_rule"
    LOAD_RULE = "load_rule"


_EVERYTHING: Final = frozenset(Drive)

#: What each state may drive (table of DESIGN law 1). An empty set means hold.
MAY_DRIVE: Final[Mapping[State, frozenset[Drive]]] = {
    State.OK: _EVERYTHING,
    State.CLAMPED: frozenset({Drive.GROWTH}),
    State.NO_TRAFFIC: frozenset({Drive.IDLE_RULE}),
    State.TOO_FEW: frozenset({Drive.LOAD_RULE, Drive.GROWTH}),
    State.PARTIAL: frozenset({Drive.GROWTH}),
    State.STALE: frozenset(),
    State.NO_DATA: frozenset(),
    State.SOURCE_DOWN: frozenset(),
    State.CONFLICT: frozenset(),
}

#: From best to worst; the state of a figure made from several is the worst of them.
_WORST_LAST: Final = (
    State.OK,
    State.NO_TRAFFIC,
    State.CLAMPED,
    State.TOO_FEW,
    State.PARTIAL,
    State.STALE,
    State.SOURCE_DOWN,
    State.CONFLICT,
    State.NO_DATA,
)


def worst(states: Iterable[State]) -> State:
    """The state a figure inherits from its inputs; `NO_DATA` when there are none."""
    found = tuple(states)
    return max(found, key=_WORST_LAST.index) if found else State.NO_DATA


@dataclass(frozen=True, slots=True)
class Trace:
    """How to find a figure again: the source that answered and the query or formula used."""

    source: str = ""
    query: str = ""

    def to_json(self) -> dict[str, str]:
        return {"source": self.source, "query": self.query}


Number = float | Decimal

_UNITS: Final = {unit.value: unit for unit in Unit}
_STATES: Final = {state.value: state for state in State}
_PLACES: Final = {place.value: place for place in Place}
_OK, _NO_DATA, _NO_TRAFFIC = State.OK, State.NO_DATA, State.NO_TRAFFIC
_NO_TRACE: Final = Trace()


@dataclass(frozen=True, slots=True)
class Measurement:
    """One figure.

    `value` is None unless the state says that a value is known (`ok`, `clamped`, `partial`,
    `stale`, `source_down`, `conflict` may carry one; `source_down` and `stale` carry the last
    good value with its old `observed_at`). `lower` and `upper` bound the true value in the same
    unit. `coverage` is (workers that reported, workers expected). `sample_count` is the number of
    requests a percentile rests on.
    """

    value: Number | None
    unit: Unit
    state: State
    observed_at: datetime | None = None
    place: Place = Place.ENGINE
    method: str = ""
    lower: Number | None = None
    upper: Number | None = None
    coverage: tuple[int, int] | None = None
    sample_count: int | None = None
    trace: Trace = Trace()

    def __post_init__(self) -> None:
        # A page makes thousands of figures: no loop, no lookup by name.
        value, lower, upper, state = self.value, self.lower, self.upper, self.state
        if (
            (isinstance(value, float) and not isfinite(value))
            or (isinstance(lower, float) and not isfinite(lower))
            or (isinstance(upper, float) and not isfinite(upper))
        ):
            numbers = {"value": value, "lower": lower, "upper": upper}
            name = next(n for n, x in numbers.items() if isinstance(x, float) and not isfinite(x))
            raise ValueError(f"{name} is {numbers[name]}: NaN and infinity never leave telemetry")
        if value is None:
            if state is _OK:
                raise ValueError("an ok figure has a value")
        elif state is _NO_DATA or state is _NO_TRAFFIC:
            raise ValueError(f"a {state} figure has no value")

    def may_drive(self, drive: Drive) -> bool:
        """True if a decision of this kind may rest on the figure (DESIGN law 1)."""
        return drive in MAY_DRIVE[self.state]

    @property
    def is_known(self) -> bool:
        return self.value is not None

    def number(self) -> float:
        """The value as a float; raises ValueError when there is none."""
        if self.value is None:
            raise ValueError(f"no value: state is {self.state}")
        return float(self.value)

    def with_state(self, state: State) -> Measurement:
        """The same figure in another state; a state that has no value drops it."""
        if state in (State.NO_DATA, State.NO_TRAFFIC):
            return replace(self, state=state, value=None, lower=None, upper=None)
        return replace(self, state=state)

    def to_json(self) -> dict[str, Any]:
        """For storage and the API. Decimals become strings, times ISO 8601 in UTC, no NaN ever."""
        return {
            "value": _number_out(self.value),
            "unit": self.unit.value,
            "state": self.state.value,
            "observed_at": self.observed_at.isoformat() if self.observed_at else None,
            "place": self.place.value,
            "method": self.method,
            "lower": _number_out(self.lower),
            "upper": _number_out(self.upper),
            "coverage": list(self.coverage) if self.coverage else None,
            "sample_count": self.sample_count,
            "trace": self.trace.to_json(),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Measurement:
        """The reverse of `to_json`. Raises ValueError for a unit, state or place it never wrote."""
        get = data.get
        observed, coverage, trace = get("observed_at"), get("coverage"), get("trace")
        unit, state, place = data["unit"], data["state"], get("place", "engine")
        return cls(
            _number_in(get("value")),
            # By dictionary: calling an enumeration costs more than the rest of a figure.
            _UNITS.get(unit) or Unit(unit),
            _STATES.get(state) or State(state),
            datetime.fromisoformat(observed) if observed else None,
            _PLACES.get(place) or Place(place),
            get("method", ""),
            _number_in(get("lower")),
            _number_in(get("upper")),
            (coverage[0], coverage[1]) if coverage else None,
            get("sample_count"),
            Trace(trace.get("source", ""), trace.get("query", "")) if trace else _NO_TRACE,
        )


def missing(
    unit: Unit,
    state: State = State.NO_DATA,
    *,
    place: Place = Place.ENGINE,
    method: str = "",
    observed_at: datetime | None = None,
    trace: Trace = Trace(),
) -> Measurement:
    """A figure without a value, and why."""
    return Measurement(None, unit, state, observed_at, place, method, trace=trace)


def freshness(observed_at: datetime | None, now: datetime, interval_s: float) -> State:
    """`ok` under 2 collect intervals of age, `stale` up to 5, `no_data` beyond (DESIGN §4a)."""
    if observed_at is None:
        return State.NO_DATA
    age_s = (now - observed_at).total_seconds()
    if age_s < 2 * interval_s:
        return State.OK
    return State.STALE if age_s <= 5 * interval_s else State.NO_DATA


def _number_out(number: Number | None) -> float | str | None:
    # Plain digits: `0E-8` is no amount that a person or a spreadsheet reads.
    return format(number, "f") if isinstance(number, Decimal) else number


def _number_in(raw: Any) -> Number | None:
    if raw is None:
        return None
    return Decimal(raw) if isinstance(raw, str) else float(raw)
