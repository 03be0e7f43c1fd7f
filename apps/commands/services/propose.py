"""`propose`: everything is checked and planned afresh, then one row is written, or none."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from apps.accounts.domain.authorize import NotAllowed as RoleMissing
from apps.accounts.domain.authorize import Permission, Viewer, require
from apps.fleet import selectors as fleet

from ..domain import approvals, specs
from ..domain.plan_hash import canonical
from ..domain.states import CommandState, Kind
from ..models import Command
from . import decide, errors, facts, shown
from .checks import Check, Request, gates
from .log import wake
from .planned import Planned, Seen, check_targets, look, make_plan
from .writing import insert, same_request


@dataclass(frozen=True, slots=True)
class DryRun:
    """What `propose` would do. `error` is the first reason why it would be refused now; then
    `steps` may be empty. `lowest` is the fewest serving workers per role on the way."""

    deployment_id: UUID
    kind: str
    targets: Mapping[str, int]
    before: Mapping[str, int]
    expected_revision: int
    steps: tuple[Mapping[str, Any], ...]
    rollback_steps: tuple[Mapping[str, Any], ...]
    rollback_refused: str
    plan_hash: str
    lowest: Mapping[str, int]
    extra_gpus: str
    checks: tuple[Check, ...]
    predicted: Mapping[str, Any]
    error: errors.CommandError | None


def propose(
    *,
    actor: Viewer,
    now: datetime,
    deployment_id: UUID | None = None,
    targets: Mapping[str, int] | None = None,
    recommendation_id: UUID | None = None,
    recommendation: str = "",
    expected_revision: int | None = None,
    plan_hash: str = "",
    note_text: str = "",
    note: str = "",
    dry_run: bool = False,
    idempotency_key: str = "",
    not_before: datetime | None = None,
    via: str = "console",
) -> Command | DryRun:
    """Propose absolute `targets` (workers per role), or apply a recommendation (by id or number),
    or both (then the targets were edited and whoever edited them is the proposer).

    `plan_hash` is that of a dry run the person read: exactly that plan is proposed, or PlanChanged
    is raised; where the environment lets one person decide, sending it approves it too.
    `note` and `note_text` are the same.

    Raises a CommandError without any change. With `dry_run` nothing is written; a wrong request
    (unknown pool, below the minimum, stale revision) still raises, what the world would refuse
    now stands in `DryRun.error` and `DryRun.checks`.
    """
    note_text = note_text or note
    if recommendation and recommendation_id is None:
        recommendation_id = facts.provider.recommendation_id(actor, recommendation)
    asked = _understand(
        actor, deployment_id, targets, recommendation_id, expected_revision, now=now
    )
    digest = _digest(asked, note_text)
    key = f"{actor.user_id or actor.name}:{idempotency_key}" if idempotency_key else ""
    if key and not dry_run:
        earlier = Command.objects.filter(idempotency_key=key).first()
        if earlier is not None:
            return same_request(earlier, digest)
    topology = fleet.topology(asked.deployment)
    check_targets(topology, asked.targets)
    _check_revision(asked)
    checks, refused = gates(asked, now)
    checks = (Check("revision", True, params={"revision": asked.expected_revision}), *checks)
    seen, planned, world = _plan(asked, now, plan_hash)
    checks = (*checks, *world.checks)
    refused = refused or world.error
    if dry_run:
        if planned is not None:
            shown.remember(planned.digest, planned.parts.to_json())
        return _dry(asked, seen, planned, checks, refused)
    if refused is not None:
        raise refused
    assert seen is not None and planned is not None  # else there is an error
    if plan_hash and planned.digest != plan_hash:
        raise errors.PlanChanged(plan_hash=planned.digest)
    made = _write(
        actor,
        now,
        asked,
        seen,
        planned,
        note_text=note_text,
        key=key,
        digest=digest,
        not_before=not_before,
        via=via,
    )
    if plan_hash and _one_person_decides(actor, made):
        return decide.approve(
            actor=actor, now=now, command_id=made.pk, plan_hash=made.plan_hash, via=via
        )
    return made


def _one_person_decides(actor: Viewer, command: Command) -> bool:
    own = approvals.rule_for(command.deployment.environment).own_proposal
    return own and decide.may_approve(actor, command) is None


# --- reading the request


def _understand(
    actor: Viewer,
    deployment_id: UUID | None,
    targets: Mapping[str, int] | None,
    recommendation_id: UUID | None,
    expected_revision: int | None,
    *,
    now: datetime,
) -> Request:
    found = None
    if recommendation_id is not None:
        found = facts.provider.recommendation(recommendation_id)
        if found is None:
            raise errors.RecommendationClosed(number="", state="unknown")
        deployment_id = found.deployment_id
    rows = fleet.deployments_for(actor)
    deployment = rows.filter(pk=deployment_id).first() if deployment_id is not None else None
    if deployment is None:
        raise fleet.NotVisible(str(deployment_id))
    try:
        require(actor, Permission.PROPOSE, fleet.object_scope(deployment))
    except RoleMissing as missing:
        raise errors.NotAllowed(permission=missing.permission.value) from missing
    wanted = dict(targets) if targets is not None else dict(found.targets) if found else {}
    untouched = found is not None and (targets is None or dict(targets) == dict(found.targets))
    if expected_revision is None:
        expected_revision = found.expected_revision if found else deployment.revision
    if found is not None and untouched:
        predicted, nothing = dict(found.predicted), dict(found.do_nothing)
    else:
        predicted, nothing = facts.provider.predict(deployment, wanted, now)
    return Request(deployment, wanted, expected_revision, found, untouched, predicted, nothing)


def _digest(asked: Request, note_text: str) -> str:
    body = {
        "deployment": str(asked.deployment.pk),
        "targets": asked.targets,
        "revision": asked.expected_revision,
        "recommendation": str(asked.recommendation.id) if asked.recommendation else "",
        "note": note_text,
    }
    return hashlib.sha256(canonical(body).encode()).hexdigest()


def _check_revision(asked: Request) -> None:
    deployment = asked.deployment
    if asked.expected_revision != deployment.revision:
        pools = fleet.topology(deployment).pools
        raise errors.StaleRevision(
            expected=asked.expected_revision,
            current=deployment.revision,
            wanted={role: pool.wanted for role, pool in pools.items()},
        )


# --- the world


@dataclass(slots=True)
class _World:
    checks: tuple[Check, ...] = ()
    error: errors.CommandError | None = None


def _plan(
    asked: Request, now: datetime, plan_hash: str
) -> tuple[Seen | None, Planned | None, _World]:
    """Observe, plan, prove, preflight. A refusal of the world comes back; nothing raises but what
    is wrong with the request itself."""
    world = _World()
    try:
        seen = look(asked.deployment, now)
    except errors.BackendUnreachable as error:
        world.checks = (Check("backend_reachable", False, True, dict(error.params)),)
        world.error = error
        return None, None, world
    checks = [Check("backend_reachable", True)]
    before = {role: seen.snapshot.count(role) for role in asked.targets}
    if all(before[role] == count for role, count in asked.targets.items()) and all(
        seen.topology.pools[role].wanted == count for role, count in asked.targets.items()
    ):
        raise errors.NothingToChange()
    planned: Planned | None = None
    try:
        planned = make_plan(
            seen,
            kind=kind_of(before, asked.targets),
            targets=asked.targets,
            before=before,
            expected_revision=asked.expected_revision,
            now=now,
            # The planner's guardrails judge the passing states of its own recommendation.
            loads={} if asked.untouched else facts.provider.loads(asked.deployment, now),
            shown=shown.recall(plan_hash) if plan_hash else None,
        )
        checks.append(Check("floor", True, params={"lowest": planned.lowest}))
        checks.append(Check("objective_on_the_way", True))
        checks.append(Check("gpu_inventory", True, params={"extra": str(planned.extra_gpus)}))
    except errors.InsufficientGpus as error:
        checks.append(Check("gpu_inventory", False, True, dict(error.params)))
        world.error = error
    except (errors.InfeasiblePlan, errors.UnknownWorker) as error:
        breach = error.params.get("error") == "passing_breach"
        code = "objective_on_the_way" if breach else "floor"
        checks.append(Check(code, False, True, dict(error.params)))
        world.error = error
    if planned is not None:
        denials = seen.adapter.preflight(planned.steps, seen.snapshot).denials
        params = {"denials": list(denials)}
        checks.append(Check("dry_run", not denials, True, params))
        if denials:
            world.error = errors.PreflightDenied(error=", ".join(denials))
    world.checks = tuple(checks)
    return seen, planned, world


def kind_of(before: Mapping[str, int], targets: Mapping[str, int]) -> Kind:
    """A single worker that changes sides is a role flip, more are a rebalance, else it scales."""
    changes = [count - before.get(role, 0) for role, count in targets.items()]
    if any(c > 0 for c in changes) and any(c < 0 for c in changes):
        one = sum(changes) == 0 and sum(abs(c) for c in changes) == 2
        return Kind.ROLE_FLIP if one else Kind.REBALANCE
    return Kind.SCALE


def _dry(
    asked: Request,
    seen: Seen | None,
    planned: Planned | None,
    checks: tuple[Check, ...],
    error: errors.CommandError | None,
) -> DryRun:
    before = {r: seen.snapshot.count(r) for r in asked.targets} if seen is not None else {}
    return DryRun(
        deployment_id=asked.deployment.pk,
        kind=kind_of(before, asked.targets).value,
        targets=asked.targets,
        before=before,
        expected_revision=asked.expected_revision,
        steps=tuple(specs.list_to_json(planned.steps)) if planned else (),
        rollback_steps=tuple(specs.list_to_json(planned.rollback_steps)) if planned else (),
        rollback_refused=planned.rollback_refused if planned else "",
        plan_hash=planned.digest if planned else "",
        lowest=planned.lowest if planned else {},
        extra_gpus=str(planned.extra_gpus) if planned else "0",
        checks=checks,
        predicted=asked.predicted,
        error=error,
    )


# --- writing


def _write(
    actor: Viewer,
    now: datetime,
    asked: Request,
    seen: Seen,
    planned: Planned,
    *,
    note_text: str,
    key: str,
    digest: str,
    not_before: datetime | None,
    via: str,
) -> Command:
    found = asked.recommendation
    who = approvals.proposers_of(
        str(actor.user_id or ""), actor.name, untouched_recommendation=asked.untouched
    )
    life_s = fleet.defaults_for(asked.deployment).recommendation_life_s
    values: dict[str, Any] = {
        "state": CommandState.PROPOSED.value,
        "note": note_text,
        "proposers": [one.to_json() for one in who],
        "recommendation_id": found.id if found else None,
        "recommendation_number": found.number if found else "",
        "predicted": asked.predicted,
        "do_nothing": asked.do_nothing,
        "idempotency_key": key,
        "request_digest": digest,
        "not_before": not_before,
        "requested_via": via,
        "next_drive_at": now + timedelta(seconds=life_s),
    }
    command = insert(actor, now, seen, planned, values)
    wake(command.pk)
    return command
