"""The recording rules that we ship, made from the profiles so that they never drift from them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import yaml

from apps.engines import loader
from apps.engines.window import Kind

from .pooled import (
    INCREASE,
    RULE_INTERVAL_S,
    RULE_WINDOW_S,
    SERIES,
    Grouping,
    increase_query,
    rule_name,
    series_query,
)
from .promql import Matcher

#: Labels that name (deployment, role) where Kubernetes relabelling is as we recommend it.
POOL_LABELS: Final = ("namespace", "role")
_HEAD: Final = (
    "# Recording rules for Fulcrum, written by `manage.py prometheus_rules`; do not edit.\n"
    "# They add up histogram increases per pool, so that a large fleet is read in seconds.\n"
)


def rules_yaml(pool_labels: Sequence[str] = POOL_LABELS) -> str:
    """The rules file for pools that are named by these target labels."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for name, read in _histograms().items():
        family = name.replace(":", "_").split("_")[0]
        groups.setdefault(family, []).extend(_rules(name, read, tuple(pool_labels)))
    data = [
        {"name": f"fulcrum_{family}", "interval": f"{RULE_INTERVAL_S}s", "rules": rules}
        for family, rules in sorted(groups.items())
    ]
    return _HEAD + yaml.safe_dump({"groups": data}, sort_keys=False, width=100)


@dataclass(slots=True)
class _Read:
    """What the profiles need of one histogram; several read the same one (Dynamo passes the
    engines' metrics on)."""

    totals: dict[str, None] = field(default_factory=dict)
    copies: dict[str, None] = field(default_factory=dict)
    extra: dict[str, None] = field(default_factory=dict)


def _histograms() -> dict[str, _Read]:
    found: dict[str, _Read] = {}
    for name in loader.names():
        profile = loader.load(name)
        if profile.scope != "engine":
            continue
        for kind, _, ref in profile.refs():
            if kind is not Kind.HISTOGRAM:
                continue
            read = found.setdefault(ref.name, _Read())
            read.totals |= dict.fromkeys(profile.totals)
            read.copies |= dict.fromkeys(profile.collapse)
            read.extra |= dict.fromkeys([*ref.labels, *ref.without])
            if profile.role_label:
                read.extra[profile.role_label.name] = None
    return found


def _rules(name: str, read: _Read, pools: tuple[str, ...]) -> list[dict[str, Any]]:
    totals = tuple(Matcher(label, "=", "") for label in read.totals)
    grouping = Grouping(pools, tuple(read.copies), extra=tuple(read.extra))
    bucket = f"{name}_bucket"
    rules = [
        {
            "record": rule_name(stored, INCREASE),
            "expr": increase_query(stored, totals, "up", RULE_WINDOW_S, grouping),
        }
        for stored in (bucket, f"{name}_sum")
    ]
    count = series_query(bucket, totals, Grouping(pools, ()))
    return [*rules, {"record": rule_name(bucket, SERIES), "expr": count}]
