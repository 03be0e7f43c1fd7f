"""Read models of pages that cross rooms. Codes and figures only: words are added by `console`.

A `Text` is a message code with parameters; the console turns it into a whole sentence in the
reader's language (no sentence is glued from parts, none is stored).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from typing import Any

from apps.common.measurement import Measurement

from .parts import (
    Alternative,
    DiagnosisView,
    DiffLine,
    Evidence,
    Figure,
    Guardrail,
    PathView,
    Phase,
    PredictedRow,
    Stage,
    Status,
    Text,
)

__all__ = [
    "Alternative",
    "ApprovalLine",
    "Banner",
    "Change",
    "Check",
    "CommandList",
    "CommandView",
    "CostLine",
    "CostView",
    "DeploymentPage",
    "DiagnosisView",
    "DiffLine",
    "Evidence",
    "Figure",
    "FleetPage",
    "FleetRow",
    "Guardrail",
    "Meter",
    "PathView",
    "Phase",
    "PlannedStep",
    "PoolView",
    "PredictedRow",
    "RecommendationView",
    "ReviewPage",
    "SourceLine",
    "Stage",
    "Status",
    "Sync",
    "Text",
    "WorkerCell",
]


@dataclass(frozen=True, slots=True)
class RecommendationView:
    id: str
    number: str
    state: str
    created_at: datetime
    age_s: float
    valid_s: float
    title: Text
    reason: Text
    diff: tuple[DiffLine, ...]
    revision_from: int
    predicted: tuple[PredictedRow, ...]
    confidence: str
    similar_changes: int
    median_error: float | None
    guardrails: tuple[Guardrail, ...]
    notes: tuple[Text, ...]
    blocked: Text | None
    approvals_needed: int
    may_propose: bool
    may_approve: bool
    may_dismiss: bool
    why_not: Text | None
    alternatives: tuple[Alternative, ...]
    terms: Mapping[str, Any]
    applied_command: str = ""


@dataclass(frozen=True, slots=True)
class WorkerCell:
    """A cell of the worker strip; `fill` 0..1 (or more), None when unknown."""

    name: str
    url: str
    gpus: Decimal | None
    fill: Measurement
    serving: str
    waiting: Measurement
    running: Measurement


@dataclass(frozen=True, slots=True)
class Meter:
    """A bar with an optional usual tick and limit mark, all as ratios 0..1."""

    code: str
    measurement: Measurement
    usual: float | None = None
    limit: float | None = None
    status: Status | None = None


@dataclass(frozen=True, slots=True)
class PoolView:
    role: str
    status: Status
    headline: Text
    ready: int
    wanted: int
    parallelism: str
    gpus: Decimal | None
    accelerator: str
    cost_per_hour: Measurement
    role_source: str
    meters: tuple[Meter, ...]
    cells: tuple[WorkerCell, ...]
    facts: tuple[Figure, ...]


@dataclass(frozen=True, slots=True)
class CostLine:
    """A component of cost: money per hour, share of the total, per 1M good tokens."""

    code: str
    per_hour: Measurement
    share: float | None
    per_million: Measurement


@dataclass(frozen=True, slots=True)
class CostView:
    total_per_hour: Measurement
    lines: tuple[CostLine, ...]
    unit_costs: tuple[Figure, ...]
    idle_share: Measurement
    price_book: str
    missing_prices: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Change:
    at: datetime
    status: Status
    title: Text
    detail: Text | None
    who: str
    link: str = ""


@dataclass(frozen=True, slots=True)
class SourceLine:
    name: str
    kind: str
    status: Status
    state: str
    observed_at: datetime | None
    age_s: float | None
    error: str = ""


@dataclass(frozen=True, slots=True)
class Banner:
    status: Status
    text: Text
    link: str = ""
    link_text: Text | None = None


@dataclass(frozen=True, slots=True)
class Sync:
    """`kind`: in_sync, out_of_sync, applying, unknown."""

    kind: str
    revision: int
    command: str = ""
    wanted: Mapping[str, int] = field(default_factory=dict)
    serving: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class DeploymentPage:
    """Everything the deployment page shows, from stored rows only."""

    id: str
    slug: str
    name: str
    model: str
    engine: str
    cluster: str
    environment: str
    mode: str
    gpus: Decimal | None
    accelerator: str
    revision: int
    status: Status
    status_text: Text
    sync: Sync
    as_of: datetime | None
    age_s: float | None
    interval_s: float
    is_stale: bool
    banners: tuple[Banner, ...]
    diagnosis: DiagnosisView
    path: PathView
    figures: tuple[Figure, ...]
    recommendation: RecommendationView | None
    no_recommendation: Text
    pools: tuple[PoolView, ...]
    cost: CostView
    changes: tuple[Change, ...]
    sources: tuple[SourceLine, ...]
    signals_found: int
    signals_required: int
    may_propose: bool
    may_approve: bool
    may_kill: bool
    kill_switch_on: bool
    etag: str


@dataclass(frozen=True, slots=True)
class FleetRow:
    slug: str
    name: str
    model: str
    cluster: str
    status: Status
    limited_by: Text
    limited_detail: Text | None
    ttft_p95: Measurement
    ttft_objective: float | None
    tpot_p95: Measurement
    tpot_objective: float | None
    prefill_gpus: Decimal | None
    decode_gpus: Decimal | None
    total_gpus: Decimal | None
    prefill_busy: Measurement
    decode_busy: Measurement
    good_share: Measurement
    cost_per_million_good: Measurement
    next_step: Text | None
    next_link: str
    is_stale: bool
    budget_left: Measurement | None = None
    cause: str = ""


@dataclass(frozen=True, slots=True)
class FleetPage:
    rows: tuple[FleetRow, ...]
    shown: int
    visible: int
    clusters: int
    strip: tuple[Figure, ...]
    cards: tuple[FleetRow, ...]
    sources: tuple[SourceLine, ...]
    banners: tuple[Banner, ...]
    as_of: datetime | None
    age_s: float | None
    etag: str


@dataclass(frozen=True, slots=True)
class Check:
    """One line of "Checks now" on Review; a failing one blocks Apply."""

    code: str
    passed: bool
    detail: Text | None = None


@dataclass(frozen=True, slots=True)
class ReviewPage:
    deployment: DeploymentPage
    recommendation: RecommendationView
    checks: tuple[Check, ...]
    steps: tuple[PlannedStep, ...]
    lowest_capacity: Mapping[str, int]
    rollback: Text
    expected_revision: int
    plan_hash: str
    may_apply: bool
    one_person_may: bool
    why_not: Text | None


@dataclass(frozen=True, slots=True)
class PlannedStep:
    """A step as a person reads it, before or while it runs."""

    index: int
    kind: str
    worker: str
    state: str
    text: Text
    expected_s: float | None
    started_at: datetime | None = None
    ended_at: datetime | None = None
    request: str = ""
    answer: str = ""
    waiting_for: Text | None = None
    error: str = ""


@dataclass(frozen=True, slots=True)
class ApprovalLine:
    who: str
    at: datetime
    decision: str
    reason: str


@dataclass(frozen=True, slots=True)
class CommandView:
    """A command, in the list and on its page."""

    id: str
    number: str
    deployment_slug: str
    deployment_name: str
    kind: str
    title: Text
    state: str
    status: Status
    state_text: Text
    diff: tuple[DiffLine, ...]
    proposed_by: tuple[str, ...]
    proposed_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    duration_s: float | None
    deadline_at: datetime | None
    soak_elapsed_s: float | None
    soak_s: float | None
    plan_hash: str
    expected_revision: int
    approvals_needed: int
    approvals: tuple[ApprovalLine, ...]
    steps: tuple[PlannedStep, ...]
    compared: tuple[PredictedRow, ...]
    worst: tuple[Figure, ...]
    recovered_after_s: float | None
    true_now: Mapping[str, int]
    next_action: Text | None
    error: Text | None
    log: tuple[Change, ...]
    rollback_of: str
    rolled_back_by: str
    may_approve: bool
    may_reject: bool
    may_cancel: bool
    may_roll_back: bool
    why_not: Text | None
    recommendation_number: str
    is_live: bool
    etag: str


@dataclass(frozen=True, slots=True)
class CommandList:
    rows: tuple[CommandView, ...]
    visible: int
    predictions: int
    inside_range: int
    median_error: float | None
