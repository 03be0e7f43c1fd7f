"""Reads the Prometheus text format, as exporters really write it.

Tolerated: blank lines, timestamps, exemplars, escaped label values, duplicate series (the last
one counts). Dropped: NaN (no answer, never 0) and lines that cannot be read, which are counted.
Why not the client library's parser: it renames samples (it appends `_total` to any counter whose
name lacks it and strips it from family names), and it stops at the first broken line.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Final

Labels = tuple[tuple[str, str], ...]

_NAME: Final = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_LABEL: Final = re.compile(r'\s*([a-zA-Z_][a-zA-Z0-9_]*)\s*=\s*"((?:[^"\\]|\\.)*)"\s*,?')
_ESCAPE: Final = re.compile(r"\\(.)")
_ESCAPED: Final = {"n": "\n", "\\": "\\", '"': '"'}
_HISTOGRAM_PARTS: Final = ("_bucket", "_sum", "_count")


@dataclass(frozen=True, slots=True)
class Series:
    """One sample. `labels` are sorted by name; empty values are left out (equal to missing)."""

    name: str
    labels: Labels
    value: float


@dataclass(frozen=True, slots=True)
class Exposition:
    """What a target answered; `malformed` counts lines that could not be read."""

    series: tuple[Series, ...]
    malformed: int


def parse(text: str, wanted: Collection[str] | None = None) -> Exposition:
    """All samples, or those whose name is in `wanted`."""
    found: dict[tuple[str, Labels], float] = {}
    malformed = 0
    for line in text.split("\n"):  # not splitlines(): label values may hold other line breaks
        line = line.strip()
        if not line or line[0] == "#":
            continue
        match = _NAME.match(line)
        if match is None:
            malformed += 1
            continue
        name = match.group()
        if wanted is not None and name not in wanted:
            continue
        try:
            labels, rest = _labels(line, match.end())
            value = float(rest.split()[0])
        except (ValueError, IndexError):
            malformed += 1
            continue
        if math.isnan(value):
            found.pop((name, labels), None)
            continue
        found[(name, labels)] = value
    return Exposition(tuple(Series(n, lb, v) for (n, lb), v in found.items()), malformed)


def _labels(line: str, at: int) -> tuple[Labels, str]:
    """The labels that start at `at`, and what follows them; raises ValueError."""
    if at >= len(line) or line[at] != "{":
        return (), line[at:]
    at += 1
    pairs: dict[str, str] = {}
    while at < len(line) and line[at : at + 1] != "}":
        match = _LABEL.match(line, at)
        if match is None:
            if line[at].isspace():
                at += 1
                continue
            raise ValueError("broken label")
        value = match.group(2)
        if "\\" in value:
            value = _ESCAPE.sub(lambda m: _ESCAPED.get(m.group(1), m.group(0)), value)
        if value:
            pairs[match.group(1)] = value
        at = match.end()
    if at >= len(line):
        raise ValueError("labels do not end")
    return tuple(sorted(pairs.items())), line[at + 1 :]


def bound(text: str) -> float:
    """The number of an `le` label: "1", "1.0", "1e0" and "+Inf" all read as numbers."""
    return float(text)


def spellings(name: str, *, is_counter: bool = False) -> tuple[str, ...]:
    """Forms under which pipelines re-export one metric, the true one first.

    Colons become underscores (gateways, OpenTelemetry), a platform prefix appears; on counters
    `_total` is appended, doubled or stripped.
    """
    return tuple(dict.fromkeys(_spellings(name, is_counter)))


def _spellings(name: str, is_counter: bool) -> Iterator[str]:
    for stem in (name, name.replace(":", "_"), f"kserve_{name}" if ":" in name else name):
        yield stem
        if not is_counter or stem.endswith(_HISTOGRAM_PARTS):
            continue
        if stem.endswith("_total"):
            yield from (stem.removesuffix("_total"), f"{stem}_total")
        else:
            yield f"{stem}_total"
