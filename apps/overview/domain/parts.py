"""Parts that several read models share: statuses, texts, figures, diffs, predictions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from enum import StrEnum
from typing import Any

from apps.common.measurement import Measurement


class Status(StrEnum):
    """How bad. Each has its own shape, word and colour."""

    OK = "ok"
    WARN = "warn"
    CRIT = "crit"
    UNKNOWN = "unknown"
    PAUSED = "paused"
    INFO = "info"


class Phase(StrEnum):
    """Which part of a request."""

    QUEUE = "queue"
    PREFILL = "prefill"
    KV_TRANSFER = "kv_transfer"
    PREFILL_AND_KV = "prefill_and_kv"
    DECODE = "decode"


@dataclass(frozen=True, slots=True)
class Text:
    """A message code and its parameters (numbers, Measurements, datetimes, names, Decimals)."""

    code: str
    params: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Evidence:
    """One measurement behind a diagnosis. `comparison` is what it is compared with."""

    code: str
    status: Status
    measurement: Measurement
    comparison: Text | None = None


@dataclass(frozen=True, slots=True)
class DiagnosisView:
    """`cause` is an API code of DESIGN §5; `sentence` the second line; `wont_help` the advice that
    must be given with it."""

    cause: str
    status: Status
    sentence: Text
    since: datetime | None
    for_s: float | None
    evidence: tuple[Evidence, ...]
    wont_help: Text | None
    worker: str = ""


@dataclass(frozen=True, slots=True)
class Stage:
    """One box of the path of a request; mean time of the stage, its share of TTFT, usual."""

    phase: Phase
    mean: Measurement
    share: float | None
    usual_s: float | None
    is_hot: bool
    detail: Text | None
    stream: Text | None = None


@dataclass(frozen=True, slots=True)
class PathView:
    total: Measurement
    usual_total_s: float | None
    requests: float | None
    span_s: float
    stages: tuple[Stage, ...]


@dataclass(frozen=True, slots=True)
class Figure:
    """A key figure. `series` is the sparkline (None = gap); `objective` in the figure's unit."""

    code: str
    measurement: Measurement
    status: Status | None
    objective: float | None
    detail: Text | None
    series: tuple[float | None, ...] = ()


@dataclass(frozen=True, slots=True)
class DiffLine:
    """`sign` is '-' or '+'; workers and GPUs of one role before or after."""

    sign: str
    role: str
    workers: int
    gpus: Decimal | None


@dataclass(frozen=True, slots=True)
class PredictedRow:
    """One row of the predicted table; `after.lower/upper` is the 90 % range."""

    code: str
    now: Measurement
    after: Measurement
    objective: float | None
    meets_objective: bool | None
    measured: Measurement | None = None
    inside_range: bool | None = None


@dataclass(frozen=True, slots=True)
class Guardrail:
    code: str
    passed: bool
    detail: Text | None = None


@dataclass(frozen=True, slots=True)
class Alternative:
    """A rejected option: its targets (role to workers), its predicted rows, and why not."""

    title: Text
    targets: Mapping[str, int]
    rows: tuple[PredictedRow, ...]
    reason: Text
