"""The adapter of every new deployment: it changes nothing and claims to see nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from decimal import Decimal

from ..errors import PlanRefused
from ..protocol import (
    Applied,
    Capabilities,
    Connection,
    Outcome,
    Preflight,
    Progress,
    Snapshot,
    StepSpec,
    Verified,
    WorkerRef,
)


class NoopAdapter:
    """Recommendation only. Its snapshot is never complete, so nothing can be written by it."""

    name = "noop"

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def capabilities(self) -> Capabilities:
        return Capabilities(
            can_write=False,
            cas=False,
            dry_run=False,
            drain=False,
            role_flip=False,
            choose_victim=False,
            add=False,
            remove=False,
        )

    def observe(self, now: datetime, known: Sequence[WorkerRef] = ()) -> Snapshot:
        return Snapshot(
            observed_at=now,
            workers=(),
            complete=False,
            fence="",
            problems=("no_control_interface",),
        )

    def plan(
        self, snapshot: Snapshot, targets: Mapping[str, int], gpus_per_worker: Mapping[str, Decimal]
    ) -> tuple[StepSpec, ...]:
        raise PlanRefused("read_only_backend", adapter=self.name)

    def preflight(self, steps: Sequence[StepSpec], snapshot: Snapshot) -> Preflight:
        return Preflight(denials=("read_only_backend",))

    def apply(self, step: StepSpec, *, key: str, epoch: int) -> Applied:
        return Applied(Outcome.UNSUPPORTED, reason="read_only_backend")

    def verify(self, step: StepSpec, *, since: datetime, now: datetime) -> Verified:
        return Verified(Progress.UNREADABLE, reason="read_only_backend")

    def rollback_plan(
        self, snapshot: Snapshot, before: Mapping[str, int], gpus_per_worker: Mapping[str, Decimal]
    ) -> tuple[StepSpec, ...]:
        raise PlanRefused("read_only_backend", adapter=self.name)
