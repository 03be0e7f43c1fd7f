"""Checks that need no backend: may a command be proposed on this deployment now?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from apps.fleet import selectors as fleet
from apps.fleet.models import Deployment

from ..domain.states import ACTIVE
from ..models import Command
from . import errors, facts, kill_switch


@dataclass(frozen=True, slots=True)
class Check:
    """One line of "checks now". A failed one that is not blocking is only shown."""

    code: str
    ok: bool
    is_blocking: bool = True
    params: Mapping[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class Request:
    """What was asked, once its defaults are filled in."""

    deployment: Deployment
    targets: dict[str, int]
    expected_revision: int
    recommendation: facts.RecommendationFacts | None
    untouched: bool
    predicted: dict[str, Any]
    do_nothing: dict[str, Any]


def gates(asked: Request, now: datetime) -> tuple[tuple[Check, ...], errors.CommandError | None]:
    """Checks that need no backend. Returns all of them and the first that refuses."""
    deployment = asked.deployment
    found: list[Check] = []
    refusals: list[errors.CommandError] = []

    def gate(code: str, error: errors.CommandError | None, *, blocking: bool = True) -> None:
        params = dict(error.params) if error else {}
        found.append(Check(code, error is None, blocking, params))
        if error is not None and blocking:
            refusals.append(error)

    mode = fleet.effective_mode(deployment)
    gate("mode", None if mode in ("approve", "auto") else errors.ModeTooLow(mode=mode))
    stopped = kill_switch.stop_reason(deployment)
    gate("kill_switch", errors.KillSwitchOn(scope=stopped) if stopped else None)
    active = active_number(deployment)
    gate("no_active_command", errors.ActiveCommandExists(command=active) if active else None)
    closed, refusing = _recommendation_refusals(asked, now)
    if asked.recommendation is not None:
        gate("not_expired", closed)
        gate("guardrails", refusing)
    state = fleet.change_state(deployment.pk)
    frozen = state.frozen_until is not None and state.frozen_until > now
    gate(
        "freeze",
        errors.DeploymentFrozen(until=str(state.frozen_until), reason=state.frozen_reason)
        if frozen
        else None,
        # The freeze stops automation; a person who sets targets by hand sees it and may go on.
        blocking=asked.recommendation is not None,
    )
    gate("fresh_data", data_refusal(deployment, asked.targets, now))
    return tuple(found), (refusals[0] if refusals else None)


def _recommendation_refusals(
    asked: Request, now: datetime
) -> tuple[errors.CommandError | None, errors.CommandError | None]:
    found = asked.recommendation
    if found is None:
        return None, None
    if found.state != "open":
        return errors.RecommendationClosed(number=found.number, state=found.state), None
    reasons = facts.provider.recheck(found.id, now)
    return None, errors.GuardrailRefused(guardrail=", ".join(reasons)) if reasons else None


def data_refusal(
    deployment: Deployment, targets: Mapping[str, int], now: datetime
) -> errors.DataStale | None:
    """A reduction rests on fresh measurements (DESIGN law 1); pure growth on inventory alone."""
    pools = fleet.topology(deployment).pools
    reduces = any(role in pools and count < pools[role].wanted for role, count in targets.items())
    if not reduces:
        return None
    age = facts.provider.data_age_s(deployment, now)
    defaults = fleet.defaults_for(deployment)
    limit = defaults.fresh_intervals * defaults.collect_interval_s
    if age is not None and age <= limit:
        return None
    stale = errors.DataStale(age_s="unknown" if age is None else round(age), limit_s=limit)
    stale.is_gone = age is None or age > defaults.gone_intervals * defaults.collect_interval_s
    return stale


def active_number(deployment: Deployment) -> str | None:
    """The number of the active command, if any."""
    return (
        Command.objects.filter(deployment=deployment, state__in=[s.value for s in ACTIVE])
        .values_list("number", flat=True)
        .first()
    )
