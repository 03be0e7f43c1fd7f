"""Reads the Prometheus text format, as exporters really write it.

Tolerated: blank lines, timestamps, exemplars, escaped label values, duplicate series (the last
one counts), OpenMetrics (its `# EOF` and `_created`), names quoted inside the braces. TYPE lines
are not believed: exporters type rates as counters and histograms as counters. Dropped: NaN (no
answer, never 0), infinite and impossibly large numbers (a sentinel or an overflow, counted), and
lines that cannot be read, which are counted too. Label text is hostile: NUL is replaced and long
values are cut.
Why not the client library's parser: it renames samples (it appends `_total` to any counter whose
name lacks it and strips it from family names), and it stops at the first broken line.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Final

Labels = tuple[tuple[str, str], ...]

#: Larger numbers are sentinels (2^63 - 16 is a driver's "not available") or overflows. A counter
#: of bytes needs years at 50 GB/s to get here.
LARGEST: Final = 9.0e18
#: Longer label values are cut; what follows is replaced by a digest, so that two stay two.
LABEL_CHARACTERS: Final = 1024
#: Series of one target that a profile reads; an engine has some hundreds.
SERIES_LIMIT: Final = 50_000

_NAME: Final = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_QUOTED_NAME: Final = re.compile(r'\{\s*"((?:[^"\\]|\\.)+)"\s*,?')
_LABEL: Final = re.compile(r'\s*([a-zA-Z_][a-zA-Z0-9_]*)\s*=\s*"((?:[^"\\]|\\.)*)"\s*,?')
_ESCAPE: Final = re.compile(r"\\(.)")
_ESCAPED: Final = {"n": "\n", "\\": "\\", '"': '"'}
_HISTOGRAM_PARTS: Final = ("_bucket", "_sum", "_count")


class NotAnExposition(ValueError):
    """The answer holds no metric at all (an error page, JSON, or an empty body)."""


class OverLimit(NotAnExposition):
    """The answer holds more series than one target may have; nothing of it is used."""

    code = "over_limit"


@dataclass(frozen=True, slots=True)
class Series:
    """One sample. `labels` are sorted by name; empty values are left out (equal to missing)."""

    name: str
    labels: Labels
    value: float


@dataclass(frozen=True, slots=True)
class Exposition:
    """What a target answered. `malformed` counts lines that could not be read, `refused` numbers
    that are infinite or impossibly large; `dropped` are the series without a usable number (NaN
    or refused)."""

    series: tuple[Series, ...]
    malformed: int
    refused: int = 0
    dropped: frozenset[tuple[str, Labels]] = frozenset()


def parse(
    text: str, wanted: Collection[str] | None = None, *, limit: int = SERIES_LIMIT
) -> Exposition:
    """All samples, or those whose name is in `wanted`; raises OverLimit."""
    found: dict[tuple[str, Labels], float] = {}
    dropped: set[tuple[str, Labels]] = set()
    malformed = refused = 0
    for line in text.split("\n"):  # not splitlines(): label values may hold other line breaks
        line = line.strip()
        if not line or line[0] == "#":
            continue
        name, at = _name(line)
        if not name:
            malformed += 1
            continue
        if wanted is not None and name not in wanted:
            continue
        try:
            labels, rest = _labels(line, at)
            value = float(rest.split()[0])
        except (ValueError, IndexError):
            malformed += 1
            continue
        key = (name, labels)
        if math.isnan(value) or abs(value) > LARGEST:
            refused += not math.isnan(value)
            found.pop(key, None)
            dropped.add(key)
            continue
        dropped.discard(key)
        found[key] = value
        if len(found) > limit:
            raise OverLimit(f"over_limit: the target has more than {limit} series of one profile")
    series = tuple(Series(n, lb, v) for (n, lb), v in found.items())
    return Exposition(series, malformed, refused, frozenset(dropped))


def holds_metrics(text: str) -> bool:
    """True if at least one line is a sample."""
    return any(
        parse(line).series or parse(line).dropped
        for line in text.split("\n")
        if line.strip() and not line.lstrip().startswith("#")
    )


def _name(line: str) -> tuple[str, int]:
    """The metric's name and where its labels start; an empty name if there is none."""
    match = _NAME.match(line)
    if match is not None:
        return match.group(), match.end()
    quoted = _QUOTED_NAME.match(line)
    if quoted is None:
        return "", 0
    # The brace is given back: the labels go on after the name.
    return _unescaped(quoted.group(1)), quoted.end() - 1


def _labels(line: str, at: int) -> tuple[Labels, str]:
    """The labels that start at `at`, and what follows them; raises ValueError."""
    if at >= len(line) or (line[at] != "{" and line[0] != "{"):
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
        value = _harmless(_unescaped(match.group(2)))
        if value:
            pairs[match.group(1)] = value
        at = match.end()
    if at >= len(line):
        raise ValueError("labels do not end")
    return tuple(sorted(pairs.items())), line[at + 1 :]


def _unescaped(value: str) -> str:
    if "\\" not in value:
        return value
    return _ESCAPE.sub(lambda m: _ESCAPED.get(m.group(1), m.group(0)), value)


def _harmless(value: str) -> str:
    """Label text that can be stored and compared: no NUL (databases refuse it), not endless."""
    value = value.replace("\x00", "\ufffd")
    if len(value) <= LABEL_CHARACTERS:
        return value
    digest = hashlib.sha256(value.encode("utf-8", "replace")).hexdigest()[:12]
    return f"{value[:LABEL_CHARACTERS]}…{digest}"


def bound(text: str) -> float:
    """The number of an `le` label: "1", "1.0", "1e0" and "+Inf" all read as numbers."""
    return float(text)


def spellings(name: str, *, is_counter: bool = False) -> tuple[str, ...]:
    """Forms under which pipelines re-export one metric, the true one first.

    Colons become underscores (gateways, OpenTelemetry), a platform prefix appears; on counters
    `_total` is appended, doubled or stripped; on gauges OpenTelemetry appends the unit.
    """
    return tuple(dict.fromkeys(_spellings(name, is_counter)))


def _spellings(name: str, is_counter: bool) -> Iterator[str]:
    for stem in (name, name.replace(":", "_"), f"kserve_{name}" if ":" in name else name):
        yield stem
        if not is_counter or stem.endswith(_HISTOGRAM_PARTS):
            for ending, unit in _UNITS:
                if stem.endswith(ending):
                    yield f"{stem}_{unit}"
            continue
        if stem.endswith("_total"):
            yield from (stem.removesuffix("_total"), f"{stem}_total")
        else:
            yield f"{stem}_total"


#: What OpenTelemetry appends to a name whose unit is not already its last word.
_UNITS: Final = (
    ("_perc", "ratio"),
    ("_percent", "ratio"),
    ("_usage", "ratio"),
    ("_ms", "milliseconds"),
)
