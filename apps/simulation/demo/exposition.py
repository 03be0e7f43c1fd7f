"""A small writer of the Prometheus text format (0.0.4) for the demo engines.

Why not the client library: the engines need label sets that come and go with the engine's role, the
exact label order and number style of the recordings, and histograms that are cheap to observe.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import isnan

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def label_text(labels: Mapping[str, str]) -> str:
    """Labels as they stand between the braces, sorted by name, values escaped."""
    parts = []
    for name in sorted(labels):
        value = labels[name].replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
        parts.append(f'{name}="{value}"')
    return ",".join(parts)


def number(value: float) -> str:
    """A sample value as the Python client writes it: always with a point, NaN by that name."""
    return "NaN" if isnan(value) else repr(float(value))


class Counter:
    """A number that only grows; `name` ends in `_total`."""

    kind = "counter"
    __slots__ = ("_created", "_head", "value")

    def __init__(self, name: str, labels: Mapping[str, str], created: float | None = None) -> None:
        self.value = 0.0
        self._head = f"{name}{{{label_text(labels)}}} "
        self._created = created

    def inc(self, amount: float = 1.0) -> None:
        """Add `amount` (not negative)."""
        self.value += amount

    def lines(self) -> list[str]:
        """The sample line."""
        return [self._head + number(self.value)]

    def created_lines(self, name: str) -> list[str]:
        """The `_created` gauge line (Unix seconds), where the engine's client writes one."""
        return _created_line(self._head, name, self._created)


class Gauge:
    """A number that is read at scrape time from `read`, or set."""

    kind = "gauge"
    __slots__ = ("_head", "read", "value")

    def __init__(
        self, name: str, labels: Mapping[str, str], read: Callable[[], float] | None = None
    ) -> None:
        self.value = 0.0
        self.read = read
        self._head = f"{name}{{{label_text(labels)}}} "

    def lines(self) -> list[str]:
        """The sample line."""
        return [self._head + number(self.value if self.read is None else self.read())]

    def created_lines(self, name: str) -> list[str]:
        """Gauges have no creation time."""
        return []


class Histogram:
    """Counts of observations per bucket; `bounds` are upper bounds without +Inf."""

    kind = "histogram"
    __slots__ = ("_bounds", "_counts", "_created", "_heads", "_sum_head", "_total_head", "sum")

    def __init__(
        self,
        name: str,
        labels: Mapping[str, str],
        bounds: Sequence[float],
        created: float | None = None,
    ) -> None:
        self._bounds = tuple(bounds)
        self._counts = [0] * (len(bounds) + 1)
        self.sum = 0.0
        marks = [repr(float(bound)) for bound in bounds] + ["+Inf"]
        self._heads = [f"{name}_bucket{{{label_text({**labels, 'le': mark})}}} " for mark in marks]
        plain = label_text(labels)
        self._total_head = f"{name}_count{{{plain}}} "
        self._sum_head = f"{name}_sum{{{plain}}} "
        self._created = created

    def observe(self, value: float, times: int = 1) -> None:
        """Count `value` `times` times."""
        self._counts[bisect_left(self._bounds, value)] += times
        self.sum += value * times

    @property
    def count(self) -> int:
        """Observations so far."""
        return sum(self._counts)

    def lines(self) -> list[str]:
        """Cumulative bucket lines, then count and sum."""
        lines = []
        running = 0
        for head, count in zip(self._heads, self._counts, strict=True):
            running += count
            lines.append(f"{head}{running}.0")
        lines.append(f"{self._total_head}{running}.0")
        lines.append(self._sum_head + number(self.sum))
        return lines

    def created_lines(self, name: str) -> list[str]:
        """The `_created` gauge line (Unix seconds), where the engine's client writes one."""
        return _created_line(self._total_head, name, self._created)


Series = Counter | Gauge | Histogram


def _created_line(head: str, name: str, created: float | None) -> list[str]:
    if created is None:
        return []
    labels = head[head.index("{") :]
    return [f"{name}_created{labels}{created!r}"]


class Registry:
    """The series of one engine under one role. `created` (Unix s) switches `_created` gauges on."""

    def __init__(self, created: float | None = None) -> None:
        self._created = created
        self.families: dict[str, tuple[str, str, list[Series]]] = {}

    def _add(self, name: str, text: str, series: Series) -> None:
        family = self.families.setdefault(name, (series.kind, text, []))
        family[2].append(series)

    def counter(self, name: str, text: str, labels: Mapping[str, str]) -> Counter:
        """A new counter series of family `name`."""
        series = Counter(name, labels, self._created)
        self._add(name, text, series)
        return series

    def gauge(
        self,
        name: str,
        text: str,
        labels: Mapping[str, str],
        read: Callable[[], float] | None = None,
    ) -> Gauge:
        """A new gauge series of family `name`."""
        series = Gauge(name, labels, read)
        self._add(name, text, series)
        return series

    def histogram(
        self, name: str, text: str, labels: Mapping[str, str], bounds: Sequence[float]
    ) -> Histogram:
        """A new histogram series of family `name`."""
        series = Histogram(name, labels, bounds, self._created)
        self._add(name, text, series)
        return series


def render(registries: Iterable[Registry]) -> str:
    """The text of all registries; a family that several hold is written once, samples together."""
    merged: dict[str, tuple[str, str, list[Series]]] = {}
    for registry in registries:
        for name, (kind, text, series) in registry.families.items():
            merged.setdefault(name, (kind, text, []))[2].extend(series)
    lines: list[str] = []
    for name, (kind, text, series) in merged.items():
        lines.append(f"# HELP {name} {text}")
        lines.append(f"# TYPE {name} {kind}")
        for one in series:
            lines.extend(one.lines())
        base = name.removesuffix("_total") if kind == "counter" else name
        created = [line for one in series for line in one.created_lines(base)]
        if created:
            lines.append(f"# HELP {base}_created {text}")
            lines.append(f"# TYPE {base}_created gauge")
            lines.extend(created)
    return "\n".join(lines) + "\n"
