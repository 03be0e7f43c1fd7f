"""After the change: windows are judged, worse than doing nothing goes back, the rest is scored."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta

from django.db import transaction

from apps.common.leases import Lease
from apps.common.measurement import Measurement
from apps.fleet import selectors as fleet

from ..domain import rollback_rule, soak
from ..domain.states import CommandState
from ..models import Command
from . import decide, facts, finish, way_back
from .log import note

#: Windows kept for the worst one on the way; more than any command's life holds.
_MAX_SAMPLES = 400


def watch(command: Command, lease: Lease, now: datetime) -> float:
    """One look during the soak; returns the seconds until the next one."""
    defaults = fleet.defaults_for(command.deployment)
    counts, snapshot = finish.true_counts(command, now)
    if snapshot is not None:
        done = [step.spec for step in command.steps.all()]
        foreign = finish.foreign_in(command, done, None, snapshot)
        if foreign:
            return finish.superseded(command, lease, now, foreign, snapshot)
    assert command.converged_at is not None and command.soak_until is not None  # state SOAK
    if soak.window_due(
        converged_at=command.converged_at,
        last_judged_at=command.judged_at,
        now=now,
        window_s=defaults.window_s,
    ) and _judge(command, lease, now, defaults.window_s, defaults.rollback_windows):
        return 0.0
    if now < command.soak_until:
        left = (command.soak_until - now).total_seconds()
        return min(defaults.collect_interval_s, max(0.5, left))
    span_s = min(defaults.diagnosis_window_s, defaults.soak_s)
    measured = facts.provider.measured(command.deployment, now, span_s)
    with transaction.atomic():
        finish.end(
            command,
            CommandState.SUCCEEDED,
            now=now,
            lease=lease,
            counts=counts,
            **finish.score(command, now, measured),
        )
        _tell_planning(command, now, measured)
    return 0.0


def _tell_planning(command: Command, now: datetime, measured: Mapping[str, Measurement]) -> None:
    """Its ranges learn from every outcome of its own recommendations."""
    if decide.untouched(command) and command.recommendation_id is not None:
        facts.provider.score(command.recommendation_id, now=now, measured=measured)


def _judge(
    command: Command, lease: Lease, now: datetime, window_s: float, windows_needed: int
) -> bool:
    """Judge the window that ends now; True when the command was rolled back."""
    measured = facts.provider.measured(command.deployment, now, window_s)
    verdict = rollback_rule.judge(
        attainment=measured.get("goodput"),
        predicted=finish.predictions(command.predicted).get("goodput"),
        do_nothing=finish.predictions(command.do_nothing).get("goodput"),
        bad_before=command.bad_windows,
        windows_needed=windows_needed,
    )
    finish.leases_held(lease)
    Command.objects.filter(pk=command.pk, lease_epoch=lease.epoch).update(
        judged_at=now, bad_windows=verdict.bad_windows
    )
    command.judged_at, command.bad_windows = now, verdict.bad_windows
    if verdict.bad_windows or verdict.reason != "ok":
        note(command, now, f"window.{verdict.reason}", bad=verdict.bad_windows)
    if not verdict.roll_back:
        return False
    scored = finish.score(command, now, measured)
    if not way_back.automatic(command, lease, now, "worse_than_doing_nothing"):
        return False
    Command.objects.filter(pk=command.pk).update(
        error_code="worse_than_doing_nothing",
        error_params={"windows": verdict.bad_windows},
        **scored,
    )
    _tell_planning(command, now, measured)
    return True


def sample(command: Command, now: datetime) -> None:
    """Keep a window on the way, at most one in two collections."""
    defaults = fleet.defaults_for(command.deployment)
    if command.samples:
        last = datetime.fromisoformat(command.samples[-1]["at"])
        if now - last < timedelta(seconds=2 * defaults.collect_interval_s):
            return
    found = facts.provider.sample(command.deployment, now, defaults.window_s)
    command.samples = [*command.samples, found.to_json()][-_MAX_SAMPLES:]
    Command.objects.filter(pk=command.pk).update(samples=command.samples)
