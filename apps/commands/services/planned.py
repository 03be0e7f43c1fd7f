"""From targets to a proved plan: what `propose`, `rollback` and the dispatch have in common."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal
from typing import Any

from django.db.models import Sum

from apps.backends.errors import BadConnection, PlanRefused, UnknownAdapter
from apps.backends.protocol import (
    ABSENT,
    Adapter,
    Snapshot,
    StepKind,
    StepSpec,
    WorkerRef,
    WorkerView,
)
from apps.common.fetch import FetchError
from apps.common.secretbox import SecretUnreadable
from apps.fleet import connect
from apps.fleet import selectors as fleet
from apps.fleet.domain.topology import Topology
from apps.fleet.models import Deployment

from ..domain import membership, proof, specs
from ..domain.plan_hash import PlanParts, plan_hash
from ..models import Command, Reservation
from . import errors, facts


@dataclass(frozen=True, slots=True)
class Seen:
    """A deployment and its backend as they are now."""

    deployment: Deployment
    topology: Topology
    adapter: Adapter
    snapshot: Snapshot

    @property
    def units(self) -> dict[str, Decimal]:
        """GPUs per worker of each pool whose unit is known."""
        return {
            role: pool.devices_per_worker
            for role, pool in self.topology.pools.items()
            if pool.devices_per_worker is not None
        }

    @property
    def members(self) -> dict[str, str]:
        return membership.members(self.snapshot)

    @property
    def serving(self) -> dict[str, int]:
        """Ready and healthy workers per role."""
        found: dict[str, int] = {}
        for view in self.snapshot.workers:
            if view.status == "ready" and view.is_healthy:
                found[view.role] = found.get(view.role, 0) + 1
        return found


@dataclass(frozen=True, slots=True)
class Planned:
    """A proved plan. `extra_gpus` is what it needs on the way beyond what is in use before."""

    steps: tuple[StepSpec, ...]
    rollback_steps: tuple[StepSpec, ...]
    rollback_refused: str
    parts: PlanParts
    digest: str
    lowest: dict[str, int]
    extra_gpus: Decimal


def adapter_of(deployment: Deployment) -> Adapter:
    """The adapter; raises BackendUnreachable when the stored connection cannot be used."""
    try:
        return connect.adapter_for(deployment)
    except (BadConnection, UnknownAdapter, SecretUnreadable) as error:
        raise errors.BackendUnreachable(error=str(error)) from error


def look(deployment: Deployment, now: datetime) -> Seen:
    """Observe afresh. Raises BackendUnreachable when the snapshot is not complete."""
    topology = fleet.topology(deployment)
    adapter = adapter_of(deployment)
    snapshot = observe(adapter, topology, now)
    if not snapshot.complete:
        raise errors.BackendUnreachable(error="; ".join(snapshot.problems)[:300])
    return Seen(deployment, topology, adapter, snapshot)


def observe(adapter: Adapter, topology: Topology, now: datetime) -> Snapshot:
    """One observation that also asks the engines of known workers the router may not list."""
    known = [WorkerRef(w.url, w.name, w.role, w.bootstrap_port) for w in topology.workers]
    try:
        return adapter.observe(now, known)
    except FetchError as error:
        return Snapshot(now, (), complete=False, fence="", problems=(str(error),))


def check_targets(topology: Topology, targets: Mapping[str, int]) -> None:
    """Roles exist, counts are whole and inside each pool's own limits."""
    if not targets:
        raise errors.NothingToChange()
    for role, target in targets.items():
        pool = topology.pools.get(role)
        if pool is None:
            raise errors.UnknownPool(role=role)
        if isinstance(target, bool) or not isinstance(target, int) or target < 0:
            raise errors.BadTarget(role=role, target=str(target))
        minimum = max(1, pool.min_workers)
        if target < minimum:
            raise errors.TargetBelowMinimum(role=role, target=target, minimum=minimum)
        if pool.max_workers is not None and target > pool.max_workers:
            raise errors.TargetAboveMaximum(role=role, target=target, maximum=pool.max_workers)


def make_plan(
    seen: Seen,
    *,
    kind: str,
    targets: Mapping[str, int],
    before: Mapping[str, int],
    expected_revision: int,
    now: datetime,
    loads: Mapping[str, proof.Load],
    is_rollback: bool = False,
    shown: Mapping[str, Any] | None = None,
) -> Planned:
    """Plan and prove; `shown` are the parts of a plan that a page showed, taken again if what it
    was made from still holds.

    Raises InfeasiblePlan, TargetBelowMinimum, UnknownWorker, InsufficientGpus.
    """
    again = shown is not None and _still_holds(shown, seen, kind, targets, expected_revision)
    if shown is not None and again:
        steps = tuple(specs.from_json(spec) for spec in shown["steps"])
    else:
        steps = _steps(seen, targets, is_rollback=is_rollback)
    listed = {worker.url for worker in seen.topology.workers}
    for step in steps:
        if step.worker.url not in listed:
            raise errors.UnknownWorker(url=step.worker.url)
    prove(seen, steps, targets, now=now, loads=loads)
    back, refused = _way_back(seen, steps, before)
    if shown is not None and again and shown["rollback"]["targets"] == dict(before):
        back = tuple(specs.from_json(spec) for spec in shown["rollback"]["steps"])
    rollback = {"targets": dict(before), "steps": specs.list_to_json(back)}
    parts = parts_of(
        seen,
        kind=kind,
        targets=targets,
        before=before,
        steps=specs.list_to_json(steps),
        expected_revision=expected_revision,
        rollback=rollback,
    )
    return Planned(
        steps=steps,
        rollback_steps=back,
        rollback_refused=refused,
        parts=parts,
        digest=plan_hash(parts),
        lowest=proof.lowest_capacity(steps),
        extra_gpus=extra_gpus(seen, steps),
    )


def _still_holds(
    shown: Mapping[str, Any],
    seen: Seen,
    kind: str,
    targets: Mapping[str, int],
    expected_revision: int,
) -> bool:
    made_from = {
        "deployment_id": str(seen.deployment.pk),
        "kind": kind,
        "targets": dict(targets),
        "expected_revision": expected_revision,
        "fence": seen.snapshot.fence,
    }
    return all(shown.get(name) == value for name, value in made_from.items())


def _steps(seen: Seen, targets: Mapping[str, int], *, is_rollback: bool) -> tuple[StepSpec, ...]:
    plan = seen.adapter.rollback_plan if is_rollback else seen.adapter.plan
    try:
        steps = plan(seen.snapshot, targets, seen.units)
    except PlanRefused as refused:
        if refused.code == "below_floor":
            raise errors.TargetBelowMinimum(
                role=refused.params.get("role", ""),
                target=refused.params.get("target", ""),
                minimum=refused.params.get("floor", "1"),
            ) from refused
        raise errors.InfeasiblePlan(**{**refused.params, "error": refused.code}) from refused
    names = {worker.url: worker.name for worker in seen.topology.workers}
    return tuple(
        replace(step, worker=replace(step.worker, name=names.get(step.worker.url, "")))
        if step.worker.name in ("", step.worker.url)
        else step
        for step in steps
    )


def prove(
    seen: Seen,
    steps: Sequence[StepSpec],
    targets: Mapping[str, int],
    *,
    now: datetime,
    loads: Mapping[str, proof.Load],
) -> None:
    """Raise InfeasiblePlan unless every passing state keeps GPUs, minimums and objectives."""
    pools = seen.topology.pools
    units = seen.units
    unknown = [role for role in targets if role not in units]
    if unknown:
        raise errors.InfeasiblePlan(error="unknown_unit", role=unknown[0])
    base, free = base_gpus(seen), free_gpus(seen.deployment, now=now)
    found = proof.violations(
        steps,
        targets,
        proof.Limits(
            # Unknown inventory refuses all growth (unknown is not enough).
            gpus=base + max(Decimal(0), free or Decimal(0)),
            minimum={r: max(1, p.min_workers) for r, p in pools.items() if r in targets},
            maximum={r: p.max_workers for r, p in pools.items()},
        ),
        loads,
        seen.serving,
    )
    if found:
        first = found[0]
        if first.code == "gpus":
            needed = proof.largest_gpus(steps) - base
            raise errors.InsufficientGpus(
                gpus_needed=str(needed),
                gpus_free="unknown" if free is None else str(max(free, Decimal(0))),
            )
        raise errors.InfeasiblePlan(
            error=first.code,
            role=first.role,
            step=first.step,
            value=first.value,
            limit=first.limit,
        )


def base_gpus(seen: Seen) -> Decimal:
    """GPUs of the deployment that the cluster's ledger counts already: the wanted workers, or the
    present ones where they are more."""
    pools = seen.topology.pools
    present = membership.counts(seen.members)
    return sum(
        (unit * max(pools[role].wanted, present.get(role, 0)) for role, unit in seen.units.items()),
        Decimal(0),
    )


def extra_gpus(seen: Seen, steps: Sequence[StepSpec]) -> Decimal:
    """GPUs of the largest intermediate state beyond those that the ledger counts already."""
    return max(Decimal(0), proof.largest_gpus(steps) - base_gpus(seen))


def free_gpus(
    deployment: Deployment, *, now: datetime, besides: Command | None = None
) -> Decimal | None:
    """Inventory - in use - reserved of the cluster; None when one of them is unknown."""
    provisioned = fleet.gpus_provisioned(deployment.cluster_id, now)
    in_use = fleet.gpus_in_use(deployment.cluster_id)
    if provisioned is None or in_use is None:
        return None
    rows = Reservation.objects.filter(cluster_id=deployment.cluster_id, released_at__isnull=True)
    if besides is not None:
        rows = rows.exclude(command=besides)
    reserved = rows.aggregate(total=Sum("gpus"))["total"] or Decimal(0)
    return provisioned - in_use - reserved


def _way_back(
    seen: Seen, steps: Sequence[StepSpec], before: Mapping[str, int]
) -> tuple[tuple[StepSpec, ...], str]:
    """The rollback of the finished plan, from the snapshot that its steps would leave."""
    try:
        back = seen.adapter.rollback_plan(_after(seen.snapshot, steps), before, seen.units)
    except PlanRefused as refused:
        return (), refused.code
    return back, ""


def _after(snapshot: Snapshot, steps: Sequence[StepSpec]) -> Snapshot:
    """The snapshot as it would be after the steps; loads stay as they are now."""
    views: dict[str, WorkerView] = {view.url: view for view in snapshot.workers}
    for step in steps:
        view = views[step.worker.url]
        if step.kind is StepKind.REMOVE_WORKER:
            view = replace(view, status=ABSENT, is_healthy=False, router_id="")
        elif step.kind is StepKind.SWITCH_ROLE:
            view = replace(view, engine_role=step.target_role, role=step.target_role)
        elif step.kind is StepKind.ADD_WORKER:
            labels = {**view.labels, "fulcrum_command": "planned"}
            view = replace(
                view,
                status="ready",
                is_healthy=True,
                role=step.target_role,
                in_flight=0,
                labels=labels,
            )
        views[step.worker.url] = view
    return replace(snapshot, workers=tuple(views.values()))


def parts_of(
    seen: Seen,
    *,
    kind: str,
    targets: Mapping[str, int],
    before: Mapping[str, int],
    steps: Sequence[Mapping[str, Any]],
    expected_revision: int,
    rollback: Mapping[str, Any],
) -> PlanParts:
    """Everything an approval covers, with the present fence, credential and limits."""
    deployment, pools = seen.deployment, seen.topology.pools
    backend = deployment.backend
    return PlanParts(
        deployment_id=str(deployment.pk),
        kind=kind,
        expected_revision=expected_revision,
        targets=dict(targets),
        before=dict(before),
        steps=list(steps),
        fence=seen.snapshot.fence,
        adapter=backend.adapter,
        credential_id=str(backend.credential_id or ""),
        preset=deployment.preset,
        guardrails={
            "address": backend.address,
            "pools": {
                role: {
                    "min": pool.min_workers,
                    "max": pool.max_workers,
                    "gpus_per_worker": None
                    if pool.devices_per_worker is None
                    else str(pool.devices_per_worker.normalize()),
                }
                for role, pool in sorted(pools.items())
            },
            "policy": dict(facts.provider.guardrails(deployment)),
        },
        rollback=dict(rollback),
    )
