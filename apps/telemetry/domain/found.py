"""What discovery found, as data that a draft keeps: deployments, groups of workers, edges. Pure.

A *group* is what one row of the wizard shows: workers of one deployment that look alike (same role
on the same evidence, same engine, same GPUs). Groups that a person gives one role become one pool.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from decimal import Decimal
from typing import Any


@dataclass(frozen=True, slots=True)
class ScrapedTarget:
    """One target as its source sees it. `labels` are the target's own (after relabelling),
    `sample_at` a Unix time, `interval_s` the scrape interval where the source tells it, `role`
    what a router says of it."""

    instance: str
    job: str = ""
    url: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    is_up: bool = True
    error: str = ""
    sample_at: float | None = None
    interval_s: float | None = None
    role: str = ""


@dataclass(frozen=True, slots=True)
class SeriesLabels:
    """One series of a metric that a profile knows."""

    instance: str
    name: str
    labels: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Observation:
    """All that was read for one discovery: targets, names per instance, labels of some series, and
    the bucket bounds of latencies by profile and `ttft` or `tpot` (in seconds)."""

    targets: tuple[ScrapedTarget, ...]
    names: Mapping[str, frozenset[str]]
    series: tuple[SeriesLabels, ...]
    at: float
    ladders: Mapping[str, Mapping[str, tuple[float, ...]]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class FoundWorker:
    """One engine. `role_source` and the evidence say why the role was guessed; `against` names
    evidence for another role. `signals` are the canonical signals that its names answer,
    `age_s` the age of its newest sample at discovery. `devices` is None when nobody told."""

    instance: str
    url: str
    metrics_url: str
    name: str
    role: str
    role_source: str
    evidence: str = ""
    evidence_value: str = ""
    against: tuple[str, ...] = ()
    profile: str = ""
    pod: str = ""
    accelerator: str = ""
    devices: str | None = None
    age_s: float | None = None
    signals: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class FoundGroup:
    key: str
    role: str
    role_source: str
    evidence: str
    evidence_value: str
    profile: str
    accelerator: str
    devices: str | None
    workers: tuple[FoundWorker, ...]

    @property
    def devices_per_worker(self) -> Decimal | None:
        return None if self.devices is None else Decimal(self.devices)


@dataclass(frozen=True, slots=True)
class FoundEdge:
    """A router or frontend. `models` are the model names it exports; `match` keeps the series of
    one deployment where it serves several models."""

    instance: str
    metrics_url: str
    scope: str
    profile: str
    models: tuple[str, ...] = ()
    match: Mapping[str, str] = field(default_factory=dict)
    signals: tuple[str, ...] = ()
    age_s: float | None = None


@dataclass(frozen=True, slots=True)
class FoundDeployment:
    key: str
    namespace: str
    model: str
    name: str
    slug: str
    groups: tuple[FoundGroup, ...]
    edges: tuple[FoundEdge, ...] = ()

    @property
    def workers(self) -> tuple[FoundWorker, ...]:
        return tuple(worker for group in self.groups for worker in group.workers)


@dataclass(frozen=True, slots=True)
class Unread:
    """Targets of one job that no profile reads, or that are down. `reason`: `no_profile`,
    `down`, `counted_already` (a second port of an engine that is found elsewhere), `hardware`
    (read by a profile of GPUs or hosts), `no_workers` (an edge without any worker)."""

    job: str
    reason: str
    count: int
    examples: tuple[str, ...]
    error: str = ""


@dataclass(frozen=True, slots=True)
class Discovery:
    deployments: tuple[FoundDeployment, ...]
    unread: tuple[Unread, ...]
    ladders: Mapping[str, Mapping[str, tuple[float, ...]]] = field(default_factory=dict)

    def deployment(self, key: str) -> FoundDeployment | None:
        return next((item for item in self.deployments if item.key == key), None)

    def to_json(self) -> dict[str, Any]:
        """Plain JSON data."""
        found: dict[str, Any] = asdict(self)
        return found


def discovery_from_json(data: Mapping[str, Any]) -> Discovery:
    """The inverse of `Discovery.to_json`, also after a round through JSON."""
    return Discovery(
        deployments=tuple(_deployment(item) for item in data["deployments"]),
        unread=tuple(
            Unread(**{**item, "examples": tuple(item["examples"])}) for item in data["unread"]
        ),
        ladders={
            profile: {code: tuple(bounds) for code, bounds in codes.items()}
            for profile, codes in data.get("ladders", {}).items()
        },
    )


def _deployment(data: Mapping[str, Any]) -> FoundDeployment:
    groups = tuple(
        FoundGroup(**{**item, "workers": tuple(_worker(w) for w in item["workers"])})
        for item in data["groups"]
    )
    edges = tuple(
        FoundEdge(**{**item, "models": tuple(item["models"]), "signals": tuple(item["signals"])})
        for item in data["edges"]
    )
    return FoundDeployment(**{**data, "groups": groups, "edges": edges})


def _worker(data: Mapping[str, Any]) -> FoundWorker:
    return FoundWorker(
        **{**data, "against": tuple(data["against"]), "signals": tuple(data["signals"])}
    )
