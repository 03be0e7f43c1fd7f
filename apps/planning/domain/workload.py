"""Workload profile: what the users of a deployment ask for, as additive parts of stored windows.

Pure. A part is what some windows held; parts add up, so that a profile grows hour by hour and two
runs over the same windows give the same. Units: tokens, requests, seconds.

Drift (the rule that starts a new span): the last day against all before it, each with at least
1,000 requests. Where both have a length histogram of one ladder, a population stability index above
0.25 (the usual mark of a major shift; sum of (p - q) ln(p / q) over the buckets); with means only,
a mean longer or shorter by more than half.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final
from zoneinfo import ZoneInfo

from apps.engines.window import CounterIncrease, GaugeValue, HistogramIncrease, Signal, Window

HISTOGRAM, MEAN_ONLY = "histogram", "mean_only"
LITTLE, RUNNING = "little", "running"
LENGTHS: Final = ("input", "output", "uncached")
DRIFT_REQUESTS: Final = 1000.0
DRIFT_INDEX: Final = 0.25
DRIFT_RATIO: Final = 1.5
RECENT: Final = timedelta(hours=24)

_EDGES: Final = ("frontend", "router")
_PROMPT: Final = ("frontend", "prefill", "mixed")
_ENDING: Final = ("frontend", "decode", "mixed")
_SIGNALS: Final[Mapping[str, tuple[Signal, tuple[str, ...]]]] = {
    "input": (Signal.INPUT_LENGTH, _PROMPT),
    "output": (Signal.OUTPUT_LENGTH, _ENDING),
    "uncached": (Signal.UNCACHED_LENGTH, _PROMPT),
}


@dataclass(frozen=True, slots=True)
class Lengths:
    """Token lengths of requests: buckets of one ladder (not cumulative, one more count for +Inf),
    or, without `bounds`, only how many tokens over how many requests."""

    count: float = 0.0
    total: float = 0.0
    bounds: tuple[float, ...] = ()
    counts: tuple[float, ...] = ()

    @property
    def method(self) -> str:
        return HISTOGRAM if self.bounds else MEAN_ONLY

    @property
    def mean(self) -> float | None:
        return self.total / self.count if self.count > 0 else None

    @property
    def histogram(self) -> HistogramIncrease | None:
        if not self.bounds:
            return None
        return HistogramIncrease(self.bounds, self.counts, self.total, self.count)

    def plus(self, newer: Lengths) -> Lengths:
        """Both together. Another ladder, or a histogram after means, replaces what was before:
        buckets of two ladders cannot be added, and a mean has none."""
        if newer.count <= 0:
            return self
        if self.count <= 0:
            return newer
        if self.bounds != newer.bounds:
            return newer if newer.bounds else self
        return Lengths(
            self.count + newer.count,
            self.total + newer.total,
            self.bounds,
            tuple(a + b for a, b in zip(self.counts, newer.counts, strict=True)),
        )


@dataclass(frozen=True, slots=True)
class HourLoad:
    """One hour of the week: seconds seen, requests that arrived in them, and requests in flight
    times seconds, over the seconds in which those were known."""

    seconds: float = 0.0
    arrivals: float = 0.0
    busy_seconds: float = 0.0
    flight_seconds: float = 0.0

    @property
    def arrivals_per_s(self) -> float | None:
        return self.arrivals / self.seconds if self.seconds > 0 else None

    @property
    def concurrency(self) -> float | None:
        return self.flight_seconds / self.busy_seconds if self.busy_seconds > 0 else None

    def plus(self, other: HourLoad) -> HourLoad:
        return HourLoad(
            self.seconds + other.seconds,
            self.arrivals + other.arrivals,
            self.busy_seconds + other.busy_seconds,
            self.flight_seconds + other.flight_seconds,
        )


@dataclass(frozen=True, slots=True)
class Part:
    """What some windows held. `hours` is by hour of the week in the site's zone (0 = Monday
    00:00), `flight_method` says how requests in flight were counted: `little` (time spent by those
    that ended) or `running` (a lower bound)."""

    requests: float = 0.0
    input_tokens: float = 0.0
    cached_tokens: float | None = None
    lengths: Mapping[str, Lengths] = field(default_factory=dict)
    hours: Mapping[int, HourLoad] = field(default_factory=dict)
    flight_method: str = ""

    @property
    def cached_share(self) -> float | None:
        """Cached tokens over input tokens; None where no place reports cached tokens."""
        if self.cached_tokens is None or self.input_tokens <= 0:
            return None
        return min(1.0, self.cached_tokens / self.input_tokens)

    def plus(self, newer: Part) -> Part:
        names = dict.fromkeys((*self.lengths, *newer.lengths))
        hours = dict.fromkeys((*self.hours, *newer.hours))
        cached = [c for c in (self.cached_tokens, newer.cached_tokens) if c is not None]
        return Part(
            requests=self.requests + newer.requests,
            input_tokens=self.input_tokens + newer.input_tokens,
            cached_tokens=sum(cached) if cached else None,
            lengths={
                name: self.lengths.get(name, Lengths()).plus(newer.lengths.get(name, Lengths()))
                for name in names
            },
            hours={
                hour: self.hours.get(hour, HourLoad()).plus(newer.hours.get(hour, HourLoad()))
                for hour in sorted(hours)
            },
            flight_method=newer.flight_method or self.flight_method,
        )

    def to_json(self) -> dict[str, Any]:
        return {
            "requests": self.requests,
            "input_tokens": self.input_tokens,
            "cached_tokens": self.cached_tokens,
            "lengths": {
                name: [one.count, one.total, list(one.bounds), list(one.counts)]
                for name, one in self.lengths.items()
            },
            "hours": {
                str(hour): [h.seconds, h.arrivals, h.busy_seconds, h.flight_seconds]
                for hour, h in self.hours.items()
            },
            "flight_method": self.flight_method,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Part:
        return cls(
            requests=data.get("requests", 0.0),
            input_tokens=data.get("input_tokens", 0.0),
            cached_tokens=data.get("cached_tokens"),
            lengths={
                name: Lengths(count, total, tuple(bounds), tuple(counts))
                for name, (count, total, bounds, counts) in data.get("lengths", {}).items()
            },
            hours={int(hour): HourLoad(*row) for hour, row in data.get("hours", {}).items()},
            flight_method=data.get("flight_method", ""),
        )


def hour_of_week(at: datetime, zone: str) -> int:
    """0 for Monday 00:00 to 01:00 in the zone."""
    local = at.astimezone(ZoneInfo(zone))
    return local.weekday() * 24 + local.hour


@dataclass(frozen=True, slots=True)
class Places:
    """From which scope each quantity is taken, chosen once for many windows (DESIGN law 4): a
    scope that misses one tick does not hand its requests to another place, where they would count
    twice. `lengths` maps a length to its scope and whether that scope has a histogram of it."""

    load: str
    tokens: str
    lengths: Mapping[str, tuple[str, bool]]
    pools: tuple[str, ...]


def places_of(batch: Iterable[Mapping[str, Window]]) -> Places:
    """Requests at the frontend, else the router, else where answers end; lengths at the frontend,
    else where prompts are computed or answers end; cached tokens never from decode."""
    has: set[tuple[str, Signal]] = set()
    histograms: set[tuple[str, Signal]] = set()
    for windows in batch:
        for scope, window in windows.items():
            has |= {(scope, signal) for signal in window.values}
            histograms |= {
                (scope, signal)
                for signal, value in window.values.items()
                if isinstance(value, HistogramIncrease) and value.bounds and value.count > 0
            }
    lengths: dict[str, tuple[str, bool]] = {}
    for name, (signal, scopes) in _SIGNALS.items():
        tokens = Signal.OUTPUT_TOKENS if name == "output" else Signal.INPUT_TOKENS
        exact = [scope for scope in scopes if (scope, signal) in histograms]
        means = [scope for scope in scopes if (scope, tokens) in has]
        if name == "uncached":
            means = [scope for scope in means if (scope, Signal.CACHED_TOKENS) in has]
        if exact or means:
            lengths[name] = (exact[0], True) if exact else (means[0], False)
    loads = [s for s in _EDGES if (s, Signal.REQUESTS_ARRIVED) in has]
    loads += [s for s in ("decode", "mixed") if (s, Signal.REQUESTS_COMPLETED) in has]
    both = [s for s in _PROMPT if {(s, Signal.INPUT_TOKENS), (s, Signal.CACHED_TOKENS)} <= has]
    either = [s for s in _PROMPT if (s, Signal.INPUT_TOKENS) in has]
    return Places(
        load=next(iter(loads), ""),
        tokens=next(iter((*both, *either)), ""),
        lengths=lengths,
        pools=tuple(s for s in ("prefill", "decode", "mixed") if (s, Signal.RUNNING) in has),
    )


def part_of(windows: Mapping[str, Window], places: Places, zone: str) -> Part:
    """The part of the windows (by scope) that end together."""
    lengths = {name: found for name in LENGTHS if (found := _lengths(windows, places, name)).count}
    requests, hours, method = 0.0, {}, ""
    load = windows.get(places.load)
    if load is not None and load.seconds > 0:
        is_edge = places.load in _EDGES
        arrivals = _increase(
            load, Signal.REQUESTS_ARRIVED if is_edge else Signal.REQUESTS_COMPLETED
        )
        if arrivals is not None:
            in_flight, method = _in_flight(windows, places, load)
            requests = arrivals
            middle = load.start + (load.end - load.start) / 2
            known = load.seconds if in_flight is not None else 0.0
            hours[hour_of_week(middle, zone)] = HourLoad(
                load.seconds, arrivals, known, (in_flight or 0.0) * known
            )
    counted = windows.get(places.tokens)
    whole = _increase(counted, Signal.INPUT_TOKENS) if counted else None
    cached = _increase(counted, Signal.CACHED_TOKENS) if counted else None
    return Part(requests, whole or 0.0, cached, lengths, hours, method)


def _lengths(windows: Mapping[str, Window], places: Places, name: str) -> Lengths:
    """The place's histogram, or its tokens over the requests that ended there."""
    scope, is_histogram = places.lengths.get(name, ("", False))
    window = windows.get(scope)
    if window is None:
        return Lengths()
    if is_histogram:
        found = window.values.get(_SIGNALS[name][0])
        if isinstance(found, HistogramIncrease) and found.bounds:
            return Lengths(found.count, found.total, found.bounds, tuple(found.counts))
        return Lengths()
    ended, tokens = _increase(window, Signal.REQUESTS_COMPLETED), _length_tokens(window, name)
    return Lengths(ended, tokens) if ended and tokens is not None else Lengths()


def _length_tokens(window: Window, name: str) -> float | None:
    if name == "output":
        return _increase(window, Signal.OUTPUT_TOKENS)
    tokens = _increase(window, Signal.INPUT_TOKENS)
    if name == "input" or tokens is None:
        return tokens
    cached = _increase(window, Signal.CACHED_TOKENS)
    return None if cached is None else max(0.0, tokens - cached)


def _in_flight(
    windows: Mapping[str, Window], places: Places, load: Window
) -> tuple[float | None, str]:
    """Mean requests in flight. By Little's law the seconds that ended requests spent, per second;
    else what runs in all pools, which leaves out those that wait."""
    spent = load.values.get(Signal.E2E)
    if isinstance(spent, HistogramIncrease) and places.load in _EDGES:
        return spent.total / load.seconds, LITTLE
    gauges = [
        windows[scope].values.get(Signal.RUNNING) for scope in places.pools if scope in windows
    ]
    running = [gauge.total for gauge in gauges if isinstance(gauge, GaugeValue)]
    if not running or len(running) < len(places.pools):
        return None, ""
    return sum(running), RUNNING


def _increase(window: Window, signal: Signal) -> float | None:
    found = window.values.get(signal)
    return found.increase if isinstance(found, CounterIncrease) else None


@dataclass(frozen=True, slots=True)
class Grown:
    """A profile's content: all up to a day ago, and the last day by UTC hour (oldest first)."""

    base: Part
    recent: tuple[tuple[datetime, Part], ...]

    @property
    def whole(self) -> Part:
        result = self.base
        for _, part in self.recent:
            result = result.plus(part)
        return result

    @property
    def last_day(self) -> Part:
        result = Part()
        for _, part in self.recent:
            result = result.plus(part)
        return result


def grow(grown: Grown, at: datetime, part: Part) -> Grown:
    """Add the part of windows that end at `at`; hours older than a day join the base."""
    hour = at.replace(minute=0, second=0, microsecond=0)
    recent = dict(grown.recent)
    recent[hour] = recent.get(hour, Part()).plus(part)
    newest = max(recent)
    base = grown.base
    for old in sorted(recent):
        if old <= newest - RECENT:
            base = base.plus(recent.pop(old))
    return Grown(base, tuple(sorted(recent.items())))


def drifted(grown: Grown) -> str:
    """The length (`input`, `output`) whose last day differs strongly from all before, or empty."""
    last = grown.last_day
    for name in ("input", "output"):
        before, now = grown.base.lengths.get(name), last.lengths.get(name)
        if before is None or now is None or min(before.count, now.count) < DRIFT_REQUESTS:
            continue
        if before.bounds and before.bounds == now.bounds:
            is_other = stability_index(before.counts, now.counts) > DRIFT_INDEX
        else:
            ratio = (now.mean or 0.0) / before.mean if before.mean else 1.0
            is_other = not 1 / DRIFT_RATIO <= ratio <= DRIFT_RATIO
        if is_other:
            return name
    return ""


def stability_index(before: Sequence[float], now: Sequence[float]) -> float:
    """Population stability index of two sets of counts over the same buckets; an empty bucket
    counts as half an observation, so that it neither divides by zero nor decides alone."""
    whole, part = sum(before), sum(now)
    total = 0.0
    for old, new in zip(before, now, strict=True):
        if old <= 0 and new <= 0:
            continue
        p, q = max(old, 0.5) / whole, max(new, 0.5) / part
        total += (q - p) * math.log(q / p)
    return total


@dataclass(frozen=True, slots=True)
class RoleSpan:
    """A worker's role over `[start, end)`; None = still."""

    role: str
    start: datetime
    end: datetime | None


def splits(spans: Iterable[RoleSpan], planned: frozenset[str]) -> list[tuple[datetime, str]]:
    """When the set of planned roles that have workers became what, oldest first ("decode+prefill",
    "mixed"); moments without any worker keep the one before."""
    known = [span for span in spans if span.role in planned]
    edges = sorted({span.start for span in known} | {s.end for s in known if s.end is not None})
    found: list[tuple[datetime, str]] = []
    for edge in edges:
        roles = {s.role for s in known if s.start <= edge and (s.end is None or edge < s.end)}
        name = "+".join(sorted(roles))
        if name and (not found or found[-1][1] != name):
            found.append((edge, name))
    return found
