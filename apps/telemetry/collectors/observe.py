"""Looks at targets beside their signals: role labels, and the names they export.

Seldom (minutes apart), and apart from the collect, so that it never slows a tick.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from apps.common.fetch import FetchError, FetchPolicy, fetch
from apps.engines.exposition import spellings
from apps.engines.schema import Profile
from apps.engines.window import Kind, Signal

from ..domain import observed
from ..domain.observed import Observed
from . import promql
from .client import Prometheus
from .prometheus import Labels
from .promql import Matcher, Selector

_ACCEPT = {"Accept": "text/plain;version=0.0.4"}
#: Signals whose series carry an engine's role label, where it has one.
_LABELLED = (Signal.RUNNING, Signal.REQUESTS_COMPLETED)


@dataclass(frozen=True, slots=True)
class Look:
    """One target to look at: its key, address, instance label, profile and role (or scope)."""

    key: str
    url: str
    instance: str
    profile: Profile
    role: str


def by_scrape(
    looks: Sequence[Look], *, policy: FetchPolicy, deadline_s: float
) -> dict[str, Observed]:
    """One after the other until the deadline; a target that does not answer is left out."""
    ends = time.monotonic() + deadline_s
    found: dict[str, Observed] = {}
    for look in looks:
        left = ends - time.monotonic()
        if left <= 0:
            break
        try:
            result = fetch(
                look.url, policy=policy, headers=_ACCEPT, connect_s=min(3.0, left), total_s=left
            )
        except FetchError:
            continue
        if result.status == 200:
            found[look.key] = observed.from_text(result.text(), look.profile, look.role)
    return found


def by_prometheus(
    looks: Sequence[Look], client: Prometheus, labels: Labels, at: datetime
) -> dict[str, Observed]:
    """The targets' own labels (of `up`), role labels of their series, and the names that one
    target of each profile and role exports: 1 + 2 queries per profile and role, however many
    targets. Raises SourceFailed."""
    if not looks:
        return {}
    moment = at.timestamp()
    up = Selector(("up",), _matchers(labels, (look.instance for look in looks)))
    pods: dict[str, dict[str, str]] = {}
    for row in client.query(str(up), moment):
        instance = row.labels.get(labels.instance, "")
        pods.setdefault(instance, {}).update(observed.pod_labels(row.labels))
    groups: dict[tuple[str, str], list[Look]] = {}
    for look in looks:
        groups.setdefault((look.profile.profile, look.role), []).append(look)
    found: dict[str, Observed] = {}
    for group in groups.values():
        present = [look for look in group if look.instance in pods]
        if not present:
            continue
        names = _names(client, labels, present[0], moment)
        near = observed.near(present[0].profile, present[0].role, names)
        roles = _role_labels(client, labels, present, moment)
        for look in present:
            found[look.key] = Observed(
                pod_labels=pods[look.instance],
                metric_labels=roles.get(look.instance, {}),
                near=near,
                names=len(observed.families(names)),
            )
    return found


def _matchers(labels: Labels, instances: Iterable[str]) -> tuple[Matcher, ...]:
    wanted = Matcher(labels.instance, "=~", promql.any_of(sorted(set(instances))))
    if not labels.jobs:
        return (wanted,)
    return (wanted, Matcher(labels.job, "=~", promql.any_of(labels.jobs)))


def _names(client: Prometheus, labels: Labels, look: Look, moment: float) -> set[str]:
    inside = ",".join(str(matcher) for matcher in _matchers(labels, (look.instance,)))
    rows = client.query(f"group by (__name__) ({{{inside}}})", moment)
    return {row.labels.get("__name__", "") for row in rows} - {""}


def _role_labels(
    client: Prometheus, labels: Labels, group: Sequence[Look], moment: float
) -> Mapping[str, Mapping[str, tuple[str, ...]]]:
    profile = group[0].profile
    if profile.role_label is None or profile.scope != "engine":
        return {}
    names: dict[str, None] = {}
    for signal in _LABELLED:
        rows = profile.signals.get(signal)
        for row in rows.rows if rows else ():
            for ref in (ref for term in row.terms for ref in term.any_of):
                is_counter = rows is not None and rows.kind is Kind.COUNTER
                names.update(dict.fromkeys(spellings(ref.name, is_counter=is_counter)))
    if not names:
        return {}
    label = profile.role_label.name
    selector = Selector(tuple(names), _matchers(labels, (look.instance for look in group)))
    groups = f"{promql.label(labels.instance)},{promql.label(label)}"
    query = f"group by ({groups}) ({selector})"
    found: dict[str, set[str]] = {}
    for answer in client.query(query, moment):
        value = answer.labels.get(label)
        if value:
            found.setdefault(answer.labels.get(labels.instance, ""), set()).add(value)
    return {instance: {label: tuple(sorted(values))} for instance, values in found.items()}
