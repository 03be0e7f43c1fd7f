"""What a coverage report rests on. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from apps.engines.window import HistogramIncrease, Signal, Window
from apps.fleet.domain.topology import Topology

from .credibility import Finding
from .observed import Observed

EDGES: Final = ("frontend", "router")
ENDING: Final = ("decode", "mixed")
PROMPT: Final = ("prefill", "mixed")


@dataclass(frozen=True, slots=True)
class SignalCoverage:
    """Whether a signal that a scope's profile can read was found in its newest window.

    `state`: `found`, `missing` (the profile knows it, the target does not export it), `absent`
    (this engine has none; `reason` says why).
    """

    scope: str
    profile: str
    signal: str
    state: str
    name: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class TargetFacts:
    """One active target: a role's or an edge's scope, its worker's URL (empty: none), whether the
    last collect reached it, what was seen of it."""

    scope: str
    profile: str
    worker: str
    is_up: bool
    observed: Observed = field(default_factory=Observed)


@dataclass(frozen=True, slots=True)
class BackendFacts:
    """How a deployment is commanded. `is_fresh`: its last observation succeeded a moment ago;
    `can_write`: it has a credential that may write; `dry_run`: it can rehearse a change."""

    adapter: str
    is_fresh: bool
    can_write: bool
    dry_run: bool
    error: str = ""


@dataclass(frozen=True, slots=True)
class RoleFinding:
    """A disagreement about a worker's role that has lasted."""

    code: str
    worker: str
    since: datetime
    params: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CoverageFacts:
    """Everything a report rests on. `thresholds` are objectives in seconds by `ttft` and `tpot`;
    `windows` the newest per scope."""

    topology: Topology
    now: datetime
    interval_s: float
    signals: Sequence[SignalCoverage]
    targets: Sequence[TargetFacts]
    windows: Mapping[str, Window]
    thresholds: Mapping[str, float] = field(default_factory=dict)
    findings: Sequence[Finding] = ()
    role_findings: Sequence[RoleFinding] = ()
    backend: BackendFacts | None = None


def roles(facts: CoverageFacts) -> set[str]:
    """Roles of pools and of workers."""
    return {*facts.topology.pools, *(worker.role for worker in facts.topology.workers)}


def workers_of(window: Window, signal: Signal) -> set[str]:
    """Workers that gave a signal."""
    value = window.values.get(signal)
    if value is None:
        return set()
    if isinstance(value, HistogramIncrease):
        return set(value.count_by_worker)
    return set(value.by_worker)


def entry_of(facts: CoverageFacts, scope: str, signal: Signal) -> SignalCoverage | None:
    """What is known of a signal in a scope."""
    for entry in facts.signals:
        if entry.scope == scope and entry.signal == signal.value:
            return entry
    return None


def profile_of(facts: CoverageFacts, scope: str) -> str:
    """The profile that reads a scope, else its pool's engine."""
    found = next((entry.profile for entry in facts.signals if entry.scope == scope), "")
    pool = facts.topology.pools.get(scope)
    return found or (pool.engine if pool else "")


def place_of(scope: str) -> str:
    """Where a scope is measured."""
    return scope if scope in EDGES else "engine"


def name_of(facts: CoverageFacts, url: str) -> str:
    """A worker's name; its address where the inventory has none."""
    return next((w.name for w in facts.topology.workers if w.url == url), url)
