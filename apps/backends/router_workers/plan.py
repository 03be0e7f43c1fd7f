"""Plans over router membership: pure, absolute, proved step by step (no I/O).

Recipe of a role flip (research on the demo fleet §6): drain time, DELETE, wait until the entry is
gone and the engine is idle twice, engine switch, POST, ready, first request in the new role. A PUT
to the new role is never used: the router would send prefill legs to an engine that still decodes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Final

from ..errors import PlanRefused
from ..protocol import ABSENT, Snapshot, StepKind, StepSpec, WorkerRef, WorkerView

PREFILL: Final = "prefill"
#: Roles that may be planned; others a router reports are kept and never moved.
PLANNED: Final = (PREFILL, "decode", "mixed")
#: One worker of every planned role that serves now stays (DESIGN §4a, floors).
FLOOR: Final = 1


@dataclass(frozen=True, slots=True)
class Options:
    """Times in seconds. `kv_lease_s` None means: 5 for SGLang, whose own queue of transfers is
    waited for, and 30 elsewhere (the lease of vLLM's NIXL connector)."""

    drain_settle_s: int = 1
    kv_lease_s: float | None = None
    drain_deadline_s: float = 300.0
    switch_deadline_s: float = 120.0
    serve_deadline_s: float = 120.0
    data_deadline_s: float = 120.0
    quiet_s: float = 45.0
    role_flip: bool = True


@dataclass(slots=True)
class _Builder:
    """Counts while the plan grows."""

    serving: dict[str, int]
    gpus: Decimal
    steps: list[StepSpec] = field(default_factory=list)

    def add(
        self,
        kind: StepKind,
        worker: WorkerRef,
        target_role: str,
        deadline_s: float,
        **expected: str,
    ) -> None:
        self.steps.append(
            StepSpec(
                index=len(self.steps),
                kind=kind,
                worker=worker,
                target_role=target_role,
                deadline_s=deadline_s,
                gpus_during=self.gpus,
                serving_during=dict(self.serving),
                expected={"from_role": worker.role, **expected},
            )
        )


def plan_change(
    snapshot: Snapshot,
    targets: Mapping[str, int],
    gpus_per_worker: Mapping[str, Decimal],
    options: Options,
) -> tuple[StepSpec, ...]:
    """Steps from what is to absolute `targets` (roles that are not named keep their count).

    The donor shrinks first; workers move one by one. Raises PlanRefused with one of the codes
    `incomplete_snapshot`, `unplanned_role`, `below_floor`, `unknown_unit`, `unit_mismatch`,
    `in_flight_unknown`, `no_spare_worker`, `no_bootstrap_port`, `role_flip_off`, `drain_running`.
    """
    if not snapshot.complete:
        raise PlanRefused("incomplete_snapshot", problems="; ".join(snapshot.problems)[:200])
    _check_targets(snapshot, targets, gpus_per_worker)
    delta = {role: count - _listed(snapshot, role) for role, count in targets.items()}
    builder = _Builder(
        serving={role: _serving(snapshot, role) for role in PLANNED if _listed(snapshot, role)},
        gpus=sum(
            (unit * _listed(snapshot, role) for role, unit in gpus_per_worker.items()), Decimal(0)
        ),
    )
    for role in targets:
        builder.serving.setdefault(role, 0)
    growing = [role for role in targets for _ in range(max(0, delta[role]))]
    leaving = _leaving(snapshot, delta)
    spares = _spares(snapshot)
    # Workers that left half-way come first: they are out of service already, so bringing them
    # back costs nobody capacity, and a broken flip is undone or finished before a new one starts.
    growing, comebacks = _match_spares(growing, spares, gpus_per_worker, len(leaving))
    for view, role in comebacks:
        _grow(builder, view, role, gpus_per_worker[role], options)
    moves = list(zip(leaving, growing, strict=False))
    for view, role in moves:
        if not options.role_flip:
            raise PlanRefused("role_flip_off", worker=view.name or view.url)
        if gpus_per_worker[view.role] != gpus_per_worker[role]:
            raise PlanRefused("unit_mismatch", donor=view.role, receiver=role)
        _flip(builder, view, role, options)
    for view in leaving[len(moves) :]:
        _shrink(builder, view, gpus_per_worker[view.role], options)
    if growing[len(moves) :]:
        raise PlanRefused(
            "no_spare_worker", role=growing[len(moves)], missing=str(len(growing) - len(moves))
        )
    return tuple(builder.steps)


def _check_targets(
    snapshot: Snapshot, targets: Mapping[str, int], gpus_per_worker: Mapping[str, Decimal]
) -> None:
    for role, count in targets.items():
        if role not in PLANNED:
            raise PlanRefused("unplanned_role", role=role)
        if count < FLOOR and _listed(snapshot, role):
            raise PlanRefused("below_floor", role=role, target=str(count), floor=str(FLOOR))
        if gpus_per_worker.get(role) is None:
            raise PlanRefused("unknown_unit", role=role)


def _listed(snapshot: Snapshot, role: str) -> int:
    """Workers of the role that the router keeps; one that drains has left already."""
    return sum(
        1 for w in snapshot.workers if w.role == role and w.status not in (ABSENT, "draining")
    )


def _serving(snapshot: Snapshot, role: str) -> int:
    return sum(
        1 for w in snapshot.workers if w.role == role and w.status == "ready" and w.is_healthy
    )


def _leaving(snapshot: Snapshot, delta: Mapping[str, int]) -> list[WorkerView]:
    """The victims: least in flight; an unknown count is never taken for 0."""
    chosen: list[WorkerView] = []
    for role, change in delta.items():
        if change >= 0:
            continue
        candidates = sorted(
            (
                w
                for w in snapshot.workers
                if w.role == role and w.status not in (ABSENT, "draining")
                if w.in_flight is not None
            ),
            # Among equals the worker that a command moved last goes first, so an undo undoes.
            key=lambda w: (w.in_flight, w.load or 0, "fulcrum_command" not in w.labels, w.url),
        )
        if len(candidates) < -change:
            raise PlanRefused("in_flight_unknown", role=role)
        chosen += candidates[:-change]
    return chosen


def _spares(snapshot: Snapshot) -> list[WorkerView]:
    """Workers outside the router whose engine answers."""
    return [
        w
        for w in snapshot.workers
        if w.status in (ABSENT, "draining") and w.engine_role is not None
    ]


def _match_spares(
    growing: list[str],
    spares: list[WorkerView],
    gpus_per_worker: Mapping[str, Decimal],
    donors: int,
) -> tuple[list[str], list[tuple[WorkerView, str]]]:
    """Which growth is served from outside the router, beyond what donors can give.

    A spare whose engine has the wanted role comes first, then an idle one. With donors at hand
    only as many spares are used as the donors cannot cover.
    """
    left = list(growing)
    matched: list[tuple[WorkerView, str]] = []
    free = list(spares)
    while free and len(left) > donors:
        role = left[0]
        free.sort(key=lambda w: (w.engine_role != role, w.in_flight or 0, w.url))
        view = free.pop(0)
        if gpus_per_worker.get(view.engine_role or "") != gpus_per_worker[role]:
            continue
        matched.append((view, role))
        left.pop(0)
    return left, matched


def _ref(view: WorkerView, role: str) -> WorkerRef:
    return WorkerRef(
        url=view.url, name=view.name or view.url, role=role, bootstrap_port=view.bootstrap_port
    )


def _flip(builder: _Builder, view: WorkerView, role: str, options: Options) -> None:
    _need_port(view, role)
    worker = _ref(view, view.role)
    _take_out(builder, view, worker, role, options)
    builder.add(StepKind.SWITCH_ROLE, worker, role, options.switch_deadline_s)
    _bring_in(builder, worker, role, options)


def _shrink(builder: _Builder, view: WorkerView, unit: Decimal, options: Options) -> None:
    _take_out(builder, view, _ref(view, view.role), "", options)
    builder.gpus -= unit


def _grow(builder: _Builder, view: WorkerView, role: str, unit: Decimal, options: Options) -> None:
    _need_port(view, role)
    builder.gpus += unit
    worker = _ref(view, view.engine_role or view.role)
    if view.engine_role != role:
        if not options.role_flip:
            raise PlanRefused("role_flip_off", worker=worker.name)
        _wait_idle(builder, view, worker, role, options)
        builder.add(StepKind.SWITCH_ROLE, worker, role, options.switch_deadline_s)
    _bring_in(builder, worker, role, options)


def _take_out(
    builder: _Builder, view: WorkerView, worker: WorkerRef, role: str, options: Options
) -> None:
    builder.add(StepKind.SET_DRAIN_TIME, worker, role, 30.0, seconds=str(options.drain_settle_s))
    if view.status == "ready" and view.is_healthy:
        builder.serving[view.role] -= 1
    builder.add(StepKind.REMOVE_WORKER, worker, role, 60.0)
    _wait_idle(builder, view, worker, role, options)


def _wait_idle(
    builder: _Builder, view: WorkerView, worker: WorkerRef, role: str, options: Options
) -> None:
    lease_s = 0.0
    if worker.role == PREFILL:
        usual = 5.0 if view.labels.get("runtime_type") == "sglang" else 30.0
        lease_s = usual if options.kv_lease_s is None else options.kv_lease_s
    builder.add(
        StepKind.WAIT_IDLE,
        worker,
        role,
        options.drain_deadline_s,
        confirmations="2",
        lease_s=f"{lease_s:g}",
    )


def _bring_in(builder: _Builder, worker: WorkerRef, role: str, options: Options) -> None:
    builder.add(StepKind.ADD_WORKER, worker, role, options.serve_deadline_s)
    builder.add(StepKind.WAIT_SERVING, worker, role, options.serve_deadline_s)
    builder.serving[role] = builder.serving.get(role, 0) + 1
    builder.add(
        StepKind.VERIFY_DATA_PLANE,
        worker,
        role,
        options.data_deadline_s,
        quiet_s=f"{options.quiet_s:g}",
    )


def _need_port(view: WorkerView, role: str) -> None:
    if role == PREFILL and view.bootstrap_port is None:
        raise PlanRefused("no_bootstrap_port", worker=view.name or view.url)
