"""The raw state of one target at one scrape, cut down to what its profile reads.

Compact enough to keep for a quarter of an hour: cumulative values as exported, per series.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from .deltas import Buckets
from .exposition import Labels, Series, bound, parse, spellings
from .schema import Profile
from .window import Kind

Matching = Mapping[str, str]


class NotAnExposition(ValueError):
    """The answer holds no metric at all (an error page, JSON, or an empty body)."""


@dataclass(frozen=True, slots=True)
class Reading:
    """`values` and `buckets` map a profile's metric name to its series; `siblings` are the
    presence-only metrics that were there."""

    values: Mapping[str, Mapping[Labels, float]]
    buckets: Mapping[str, Mapping[Labels, Buckets]]
    siblings: frozenset[str] = field(default_factory=frozenset)


def read(text: str, profile: Profile, match: Matching | None = None) -> Reading:
    """Parse an exposition for a profile. `match` keeps only series whose label, if present, has
    this value (case ignored: Dynamo lower-cases model names). Raises NotAnExposition."""
    plain, histograms, siblings = _wanted(profile)
    wanted = {*plain, *siblings}
    for name in histograms:
        wanted |= {f"{name}_bucket", f"{name}_sum"}
    found = parse(text, wanted)
    if not found.series and not parse(text).series:
        raise NotAnExposition("the answer holds no metrics")
    values: dict[str, dict[Labels, float]] = {}
    raw: dict[str, dict[Labels, dict[float, float]]] = {}
    sums: dict[str, dict[Labels, float]] = {}
    present: set[str] = set()
    for series in found.series:
        if series.name in siblings:
            present.add(siblings[series.name])
        if not _matches(series.labels, match):
            continue
        if series.name in plain:
            _keep_first(values, plain[series.name], series)
        _histogram_part(series, histograms, raw, sums)
    buckets = {
        name: {
            labels: _buckets(by_bound, sums.get(name, {}).get(labels, 0.0))
            for labels, by_bound in by_labels.items()
            if math.inf in by_bound
        }
        for name, by_labels in raw.items()
    }
    return Reading(values, {k: v for k, v in buckets.items() if v}, frozenset(present))


def _wanted(profile: Profile) -> tuple[dict[str, str], dict[str, str], dict[str, str]]:
    """Spelling to profile name, for plain series, histogram bases and siblings."""
    plain: dict[str, str] = {}
    histograms: dict[str, str] = {}
    for kind, _, ref in profile.refs():
        into = histograms if kind is Kind.HISTOGRAM else plain
        for spelling in spellings(ref.name, is_counter=kind is Kind.COUNTER):
            into.setdefault(spelling, ref.name)
    siblings = {s: n for n in profile.siblings() for s in spellings(n, is_counter=True)}
    return plain, histograms, siblings


def _keep_first(values: dict[str, dict[Labels, float]], name: str, series: Series) -> None:
    # Two spellings of one metric (an exporter and its re-export) must not count twice.
    if series.name == name:
        values.setdefault(name, {})[series.labels] = series.value
    else:
        values.setdefault(name, {}).setdefault(series.labels, series.value)


def _histogram_part(
    series: Series,
    histograms: Mapping[str, str],
    raw: dict[str, dict[Labels, dict[float, float]]],
    sums: dict[str, dict[Labels, float]],
) -> None:
    if series.name.endswith("_bucket"):
        name = histograms.get(series.name.removesuffix("_bucket"))
        text = dict(series.labels).get("le")
        if name is None or text is None:
            return
        labels = tuple(pair for pair in series.labels if pair[0] != "le")
        try:
            raw.setdefault(name, {}).setdefault(labels, {})[bound(text)] = series.value
        except ValueError:
            return
    elif series.name.endswith("_sum"):
        name = histograms.get(series.name.removesuffix("_sum"))
        if name is not None:
            sums.setdefault(name, {})[series.labels] = series.value


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
    """For storage: `v` plain values, `h` histograms, `s` siblings."""
    return {
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
    )


def _labels(data: Mapping[str, str]) -> Labels:
    return tuple(sorted(data.items()))
