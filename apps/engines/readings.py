"""The raw state of one target at one scrape, cut down to what its profile reads.

Compact enough to keep for a quarter of an hour: cumulative values as exported, per series.
"""

from __future__ import annotations

import math
from collections.abc import Container, Mapping
from dataclasses import dataclass, field
from typing import Any

from .deltas import Buckets
from .exposition import (
    Exposition,
    Labels,
    NotAnExposition,
    OverLimit,
    Series,
    bound,
    holds_metrics,
    parse,
    spellings,
)
from .schema import Profile
from .window import Kind

__all__ = ["Matching", "NotAnExposition", "OverLimit", "Reading", "from_json", "read", "to_json"]

Matching = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Reading:
    """`values` and `buckets` map a profile's metric name to its series; `siblings` are the
    presence-only metrics that were there. `defects` counts what was not used: `malformed` lines,
    `refused` numbers (infinite or impossibly large), `broken` histograms."""

    values: Mapping[str, Mapping[Labels, float]]
    buckets: Mapping[str, Mapping[Labels, Buckets]]
    siblings: frozenset[str] = field(default_factory=frozenset)
    defects: Mapping[str, int] = field(default_factory=dict)


def read(text: str, profile: Profile, match: Matching | None = None) -> Reading:
    """Parse an exposition for a profile. `match` keeps only series whose label, if present, has
    this value (case ignored: Dynamo lower-cases model names). Raises NotAnExposition, and its
    kind OverLimit."""
    plain, histograms, siblings = _wanted(profile)
    wanted = {*siblings, *(s for forms in plain.values() for s in forms)}
    for base in (s for forms in histograms.values() for s in forms):
        wanted |= {f"{base}_bucket", f"{base}_sum"}
    found = parse(text, wanted)
    if not found.series and not found.dropped and not holds_metrics(text):
        raise NotAnExposition("the answer holds no metrics")
    by_name: dict[str, list[Series]] = {}
    for series in found.series:
        if _matches(series.labels, match):
            by_name.setdefault(series.name, []).append(series)
    present = frozenset(siblings[s.name] for s in found.series if s.name in siblings)
    values = {
        name: {series.labels: series.value for series in by_name[spelling]}
        for name, spelling in _spelled(plain, by_name).items()
    }
    buckets: dict[str, dict[Labels, Buckets]] = {}
    broken = 0
    bases = {name.removesuffix("_bucket") for name in by_name if name.endswith("_bucket")}
    for name, spelling in _spelled(histograms, bases).items():
        states, lost = _histograms(spelling, by_name, found)
        broken += lost
        if states:
            buckets[name] = states
    counted = {"malformed": found.malformed, "refused": found.refused, "broken": broken}
    return Reading(values, buckets, present, {k: n for k, n in counted.items() if n})


def _wanted(
    profile: Profile,
) -> tuple[dict[str, tuple[str, ...]], dict[str, tuple[str, ...]], dict[str, str]]:
    """The spellings of plain series and of histogram bases, best first; and of siblings the name
    that each spelling stands for."""
    plain: dict[str, tuple[str, ...]] = {}
    histograms: dict[str, tuple[str, ...]] = {}
    for name, kind in dict.fromkeys((ref.name, kind) for kind, _, ref in profile.refs()):
        into = histograms if kind is Kind.HISTOGRAM else plain
        forms = spellings(name, is_counter=kind is Kind.COUNTER)
        into[name] = tuple(dict.fromkeys((*into.get(name, ()), *forms)))
    siblings = {s: n for n in profile.siblings() for s in spellings(n, is_counter=True)}
    return plain, histograms, siblings


def _spelled(spelled: Mapping[str, tuple[str, ...]], present: Container[str]) -> dict[str, str]:
    """The one spelling under which each name is read: an exporter and its re-export, whose labels
    may differ, must not count twice."""
    chosen = {
        name: next((form for form in forms if form in present), None)
        for name, forms in spelled.items()
    }
    return {name: form for name, form in chosen.items() if form is not None}


def _histograms(
    base: str, by_name: Mapping[str, list[Series]], found: Exposition
) -> tuple[dict[Labels, Buckets], int]:
    """The states of one histogram's series, and how many were left out because a bucket or the
    sum is no number: its quantiles or its mean would be wrong."""
    raw: dict[Labels, dict[float, float]] = {}
    for series in by_name[f"{base}_bucket"]:
        text = dict(series.labels).get("le")
        if text is None:
            continue
        try:
            edge = bound(text)
        except ValueError:
            continue
        if not math.isnan(edge):
            raw.setdefault(_without_le(series.labels), {})[edge] = series.value
    unusable = {
        _without_le(labels)
        for name, labels in found.dropped
        if name in (f"{base}_bucket", f"{base}_sum")
    }
    sums = {series.labels: series.value for series in by_name.get(f"{base}_sum", ())}
    states = {
        labels: _buckets(by_bound, sums.get(labels, 0.0))
        for labels, by_bound in raw.items()
        if math.inf in by_bound and labels not in unusable
    }
    return states, len(unusable)


def _without_le(labels: Labels) -> Labels:
    return tuple(pair for pair in labels if pair[0] != "le")


def _buckets(by_bound: Mapping[float, float], total: float) -> Buckets:
    bounds = tuple(sorted(by_bound))
    return Buckets(bounds[:-1], tuple(by_bound[b] for b in bounds), total)


def _matches(labels: Labels, match: Matching | None) -> bool:
    if not match:
        return True
    present = dict(labels)
    return all(
        name not in present or present[name].lower() == value.lower()
        for name, value in match.items()
    )


def to_json(reading: Reading) -> dict[str, Any]:
    """For storage: `v` plain values, `h` histograms, `s` siblings, `d` defects (if any)."""
    defects = {"d": dict(reading.defects)} if reading.defects else {}
    return defects | {
        "v": {
            name: [[dict(labels), value] for labels, value in series.items()]
            for name, series in reading.values.items()
        },
        "h": {
            name: [
                [dict(labels), list(b.bounds), list(b.cumulative), b.total]
                for labels, b in series.items()
            ]
            for name, series in reading.buckets.items()
        },
        "s": sorted(reading.siblings),
    }


def from_json(data: Mapping[str, Any]) -> Reading:
    """The reverse of `to_json`."""
    return Reading(
        values={
            name: {_labels(labels): float(value) for labels, value in rows}
            for name, rows in data.get("v", {}).items()
        },
        buckets={
            name: {
                _labels(labels): Buckets(tuple(bounds), tuple(cumulative), total)
                for labels, bounds, cumulative, total in rows
            }
            for name, rows in data.get("h", {}).items()
        },
        siblings=frozenset(data.get("s", [])),
        defects={str(k): int(n) for k, n in data.get("d", {}).items()},
    )


def _labels(data: Mapping[str, str]) -> Labels:
    return tuple(sorted(data.items()))
