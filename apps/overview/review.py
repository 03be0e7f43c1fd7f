"""The Review page: checks now, steps, undo, and whether this person may apply."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal, InvalidOperation
from typing import Any

from apps.accounts.domain.authorize import Permission, Viewer
from apps.commands import services as commands
from apps.commands.domain import approvals
from apps.fleet import selectors as fleet
from apps.planning import selectors as planning

from . import deployment, recommendation
from .commands import step_text
from .domain.types import Check, PlannedStep, ReviewPage, Text
from .loaded import Loaded


def page(viewer: Viewer, number: str, now: datetime) -> ReviewPage:
    """Observes the backend and plans afresh, exactly as Apply will. Raises NotVisible."""
    found = planning.recommendation_by_number(viewer, number)
    loaded = Loaded(viewer, fleet.deployment_by_id(found.deployment_id), now)
    view = recommendation.view(loaded, found)
    rule = approvals.rule_for(loaded.deployment.environment)
    may_propose = viewer.can(Permission.PROPOSE, loaded.scope)
    may_approve = viewer.can(Permission.APPROVE, loaded.scope)
    dry, refused = _dry_run(viewer, found, now) if may_propose else (None, None)
    checks = tuple(_checks(loaded, found, dry))
    blocked = view.blocked or refused
    all_pass = dry is not None and all(c.ok for c in dry.checks if c.is_blocking)
    return ReviewPage(
        deployment=deployment.build(loaded),
        recommendation=view,
        checks=checks,
        steps=tuple(_steps(dry)),
        lowest_capacity=dict(dry.lowest) if dry else {},
        rollback=Text(
            "rollback.auto", {"soak_s": loaded.defaults.soak_s, "targets": dict(found.current)}
        ),
        expected_revision=found.expected_revision,
        plan_hash=dry.plan_hash if dry else "",
        may_apply=may_propose and blocked is None and all_pass,
        one_person_may=rule.own_proposal and may_approve,
        why_not=view.why_not or blocked or (None if all_pass else Text("why_not.blocked")),
    )


def _dry_run(
    viewer: Viewer, found: Any, now: datetime
) -> tuple[commands.DryRun | None, Text | None]:
    try:
        done = commands.propose(
            actor=viewer,
            now=now,
            recommendation_id=found.pk,
            expected_revision=found.expected_revision,
            dry_run=True,
        )
    except commands.CommandError as error:
        return None, Text(f"error.{error.code}", dict(error.params))
    assert isinstance(done, commands.DryRun)
    if done.error is not None:
        return done, Text(f"error.{done.error.code}", dict(done.error.params))
    return done, None


def _checks(loaded: Loaded, found: Any, dry: commands.DryRun | None) -> list[Check]:
    rows = [
        Check(
            "revision",
            loaded.topology.revision == found.expected_revision,
            Text("check.revision", {"revision": loaded.topology.revision})
            if loaded.topology.revision == found.expected_revision
            else Text(
                "check.revision_changed",
                {"expected": found.expected_revision, "current": loaded.topology.revision},
            ),
        ),
        Check(
            "fresh_data",
            not loaded.is_stale,
            Text("check.age", {"age_s": loaded.age_s}) if loaded.age_s is not None else None,
        ),
    ]
    seen = {row.code for row in rows}
    for item in dry.checks if dry else ():
        if item.code in seen:
            if not item.ok:
                rows = [Check(r.code, r.code != item.code and r.passed, r.detail) for r in rows]
            continue
        seen.add(item.code)
        rows.append(Check(item.code, item.ok, _detail(item)))
    return rows


def _detail(item: Any) -> Text | None:
    params = dict(getattr(item, "params", {}) or {})
    if "free" in params and "needed" in params:
        try:
            free, needed = Decimal(str(params["free"])), Decimal(str(params["needed"]))
        except InvalidOperation:
            return None
        return Text("check.gpus", {"gpus_free": free, "gpus_needed": needed})
    if params.get("number"):
        return Text("check.command", {"command": str(params["number"])})
    return None


def _steps(dry: commands.DryRun | None) -> list[PlannedStep]:
    return [
        PlannedStep(
            index=int(spec["index"]),
            kind=str(spec["kind"]),
            worker=str(spec["worker"]["name"]),
            state="PLANNED",
            text=step_text(str(spec["kind"]), str(spec["worker"]["name"]), spec),
            expected_s=None,
        )
        for spec in (dry.steps if dry else ())
    ]
