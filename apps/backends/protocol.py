"""What every backend adapter speaks (source: research on backends, §3.1 and §3.4).

Pure data in and out; adapters do I/O, know no Django, and hold no state between calls. UNKNOWN is
never 0; an incomplete snapshot forbids writes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from enum import StrEnum
from typing import Final, Protocol

#: Status of a known worker that the control interface does not list.
ABSENT: Final = "absent"
#: Keys of `Verified.detail` with this prefix are kept by the caller in the step's `expected` and
#: come back with the next `verify`; adapters hold no state between calls.
BASELINE: Final = "baseline_"


class StepKind(StrEnum):
    """One external mutation, or one wait, each."""

    SET_DRAIN_TIME = "set_drain_time"
    REMOVE_WORKER = "remove_worker"
    WAIT_IDLE = "wait_idle"
    SWITCH_ROLE = "switch_role"
    ADD_WORKER = "add_worker"
    WAIT_SERVING = "wait_serving"
    VERIFY_DATA_PLANE = "verify_data_plane"


class Outcome(StrEnum):
    """Answer to `apply` (DESIGN §5: ACCEPTED is not done)."""

    ACCEPTED = "accepted"
    NOOP = "noop"
    CONFLICT = "conflict"
    DENIED = "denied"
    UNSUPPORTED = "unsupported"
    RETRYABLE = "retryable"
    UNKNOWN = "unknown"


class Progress(StrEnum):
    """Answer to `verify`."""

    CONVERGED = "converged"
    PROGRESSING = "progressing"
    STALLED = "stalled"
    SUPERSEDED = "superseded"
    UNREADABLE = "unreadable"


@dataclass(frozen=True, slots=True)
class WorkerRef:
    """How a worker is addressed, whatever its id is today."""

    url: str
    name: str
    role: str
    bootstrap_port: int | None = None


@dataclass(frozen=True, slots=True)
class WorkerView:
    """One worker as the control interface and its engine report it. None means unknown.

    A known worker that the control interface does not list has status `ABSENT`, an empty
    `router_id`, and the role its engine reports (else the role it was known by).
    """

    url: str
    router_id: str
    role: str
    status: str
    is_healthy: bool
    engine_role: str | None = None
    in_flight: int | None = None
    engine_version: str | None = None
    instance_id: str | None = None
    load: int | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    name: str = ""
    bootstrap_port: int | None = None


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What a backend reports now. `fence` changes whenever the set of workers changes."""

    observed_at: datetime
    workers: tuple[WorkerView, ...]
    complete: bool
    fence: str
    version: str = ""
    owners: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()

    def by_url(self, url: str) -> WorkerView | None:
        return next((worker for worker in self.workers if worker.url == url), None)

    def count(self, role: str) -> int:
        """Workers of the role that the control interface lists."""
        return sum(1 for w in self.workers if w.role == role and w.status != ABSENT)


@dataclass(frozen=True, slots=True)
class StepSpec:
    """One step of a plan, absolute and self-contained.

    `gpus_during` is the deployment's GPU use while the step runs, `serving_during` maps role to
    serving workers while it runs; both are proved against budget and minimums before approval.
    `expected["from_role"]` is the role the step replaces; `expected["confirmations"]` is how many
    CONVERGED readings in a row the step needs (1 if absent).
    """

    index: int
    kind: StepKind
    worker: WorkerRef
    target_role: str
    deadline_s: float
    gpus_during: Decimal
    serving_during: Mapping[str, int]
    expected: Mapping[str, str] = field(default_factory=dict)
    compensates: int | None = None


@dataclass(frozen=True, slots=True)
class Applied:
    """Result of one external call. `answer` is safe to show (no secrets)."""

    outcome: Outcome
    reference: str = ""
    reason: str = ""
    retry_after_s: float | None = None
    request: str = ""
    answer: str = ""


@dataclass(frozen=True, slots=True)
class Verified:
    """Result of a read-back. `control` and `data` are the two independent readings, in words."""

    progress: Progress
    reason: str = ""
    control: str = ""
    data: str = ""
    detail: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Capabilities:
    """Probed abilities of a backend, shown in the UI."""

    can_write: bool
    cas: bool
    dry_run: bool
    drain: bool
    role_flip: bool
    choose_victim: bool
    add: bool
    remove: bool


@dataclass(frozen=True, slots=True)
class Preflight:
    """Typed denials before the first call; empty means ready."""

    denials: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Connection:
    """Where and with which secrets an adapter acts. Secrets never reach a repr."""

    address: str
    metrics_address: str = ""
    credential: str = field(default="", repr=False)
    engine_credential: str = field(default="", repr=False)
    parameters: Mapping[str, str] = field(default_factory=dict)
    fetch: Callable[..., object] | None = field(default=None, repr=False)


class Adapter(Protocol):
    """A backend adapter. `known` names the workers Fulcrum already knows, for engine reads."""

    name: str

    def capabilities(self) -> Capabilities: ...

    def observe(self, now: datetime, known: Sequence[WorkerRef] = ()) -> Snapshot: ...

    def plan(
        self, snapshot: Snapshot, targets: Mapping[str, int], gpus_per_worker: Mapping[str, Decimal]
    ) -> tuple[StepSpec, ...]: ...

    def preflight(self, steps: Sequence[StepSpec], snapshot: Snapshot) -> Preflight: ...

    def apply(self, step: StepSpec, *, key: str, epoch: int) -> Applied: ...

    def verify(self, step: StepSpec, *, since: datetime, now: datetime) -> Verified: ...

    def rollback_plan(
        self, snapshot: Snapshot, before: Mapping[str, int], gpus_per_worker: Mapping[str, Decimal]
    ) -> tuple[StepSpec, ...]: ...
