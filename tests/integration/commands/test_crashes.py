"""kill -9 at every point: the next owner observes, and each change from outside happens once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from apps.backends.protocol import Outcome, StepKind, StepSpec
from apps.commands.domain.states import StepState
from apps.commands.models import Step
from apps.commands.services import engine as drive_module
from apps.commands.services import execute, log

from .world import Crash, Stage

MUTATIONS = [
    StepKind.SET_DRAIN_TIME,
    StepKind.REMOVE_WORKER,
    StepKind.SWITCH_ROLE,
    StepKind.ADD_WORKER,
]


@pytest.fixture
def abandon(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """From now on a crashed owner gives nothing back: its lease runs out by itself."""
    real = drive_module._give_back

    def kept(command: Any, lease: Any, now: Any, next_s: float | None) -> None:
        if next_s is not None:
            real(command, lease, now, next_s)

    def install() -> None:
        monkeypatch.setattr(drive_module, "_give_back", kept)

    return install


def crash_once(stage: Stage, command: Any) -> None:
    """Drive until the crash, then let the lease run out."""
    with pytest.raises(Crash):
        stage.run(command, owner="w1")
    assert stage.drive(command, owner="w2").did == "not_claimed", "the lease is still held"
    stage.wait(drive_module.LEASE_S + 1)


def once_each(stage: Stage) -> None:
    kinds = Counter(kind for kind, _ in stage.world.mutations)
    assert kinds == Counter({kind.value: 1 for kind in MUTATIONS})
    assert stage.counts() == {"prefill": 3, "decode": 3}


@pytest.mark.parametrize("kind", MUTATIONS)
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_crash_around_the_call(
    stage: Stage, abandon: Callable[[], None], kind: StepKind, when: str
) -> None:
    """SENT is committed; nobody knows whether the call arrived."""
    abandon()
    command = stage.approved()

    def crash(step: StepSpec) -> None:
        if step.kind is kind:
            stage.world.before_call = stage.world.after_call = None
            raise Crash

    setattr(stage.world, f"{when}_call", crash)
    crash_once(stage, command)
    step = command.steps.get(kind=kind.value)
    assert step.state == StepState.SENT
    command = stage.run(command, until=lambda c: c.state == "SOAK", owner="w2")
    if kind is StepKind.SET_DRAIN_TIME and when == "before":
        # It cannot be read back, so it counts as sent; the worker only drains in its usual time.
        stage.world.mutations.insert(0, (kind.value, ""))
    once_each(stage)
    step.refresh_from_db()
    assert step.state == StepState.DONE


@pytest.mark.parametrize("state", [StepState.INTENT, StepState.SENT, StepState.ACCEPTED])
@pytest.mark.parametrize("kind", MUTATIONS)
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_crash_around_the_commit_of_a_step_state(
    stage: Stage,
    abandon: Callable[[], None],
    monkeypatch: pytest.MonkeyPatch,
    kind: StepKind,
    state: StepState,
    when: str,
) -> None:
    abandon()
    command = stage.approved()
    real = log.move_step

    def crashing(step: Step, to: StepState, **values: Any) -> None:
        hit = step.kind == kind.value and to is state
        if hit and when == "before":
            monkeypatch.setattr(execute, "move_step", real)
            raise Crash
        real(step, to, **values)
        if hit:
            monkeypatch.setattr(execute, "move_step", real)
            raise Crash

    monkeypatch.setattr(execute, "move_step", crashing)
    crash_once(stage, command)
    command = stage.run(command, until=lambda c: c.state == "SOAK", owner="w2")
    if kind is StepKind.SET_DRAIN_TIME and (state, when) == (StepState.SENT, "after"):
        stage.world.mutations.insert(0, (kind.value, ""))
    once_each(stage)
    assert set(command.steps.values_list("state", flat=True)) == {"DONE"}


def test_a_crash_between_preflight_and_the_start(
    stage: Stage, abandon: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    from apps.commands.services import dispatch

    abandon()
    command = stage.approved()
    real = dispatch._begin

    def crashing(*arguments: Any) -> None:
        monkeypatch.setattr(dispatch, "_begin", real)
        raise Crash

    monkeypatch.setattr(dispatch, "_begin", crashing)
    crash_once(stage, command)
    command.refresh_from_db()
    assert (command.state, stage.revision) == ("PREFLIGHT", 1)
    stage.run(command, until=lambda c: c.state == "SOAK", owner="w2")
    once_each(stage)
    assert stage.revision == 2


def test_a_late_owner_cannot_write_any_more(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first owner stalls inside its call; a second one takes over and finishes."""
    command = stage.approved()
    command = stage.run(command, until=lambda c: c.steps.filter(kind="remove_worker", state="DONE"))

    def stall(step: StepSpec) -> None:
        stage.world.after_call = None
        stage.wait(drive_module.LEASE_S + 1)
        stage.run(command, until=lambda c: c.state == "SOAK", owner="w2")

    stage.world.after_call = stall
    stage.run(command, until=lambda c: c.steps.filter(kind="wait_idle", state="DONE").exists())
    driven = stage.drive(command, owner="w1")
    assert driven.did == "lost"
    once_each(stage)
    command.refresh_from_db()
    assert command.state == "SOAK"
    assert command.steps.get(kind="switch_role").epoch > 0


@pytest.mark.parametrize("kind", MUTATIONS[1:])
@pytest.mark.parametrize("effect", [True, False])
def test_a_time_out_is_unknown_and_resolved_by_looking(
    stage: Stage, kind: StepKind, effect: bool
) -> None:
    stage.world.answers = {kind: [(Outcome.UNKNOWN, effect)]}
    command = stage.approved()
    command = stage.run(command, until=lambda c: c.steps.filter(state="UNKNOWN").exists())
    sent_at = command.steps.get(kind=kind.value).sent_at
    command = stage.run(command, until=lambda c: c.state == "SOAK")
    once_each(stage)
    step = command.steps.get(kind=kind.value)
    assert step.attempts == (1 if effect else 2)
    assert sent_at is not None and step.accepted_at is not None
    if not effect:
        waited = (step.accepted_at - sent_at).total_seconds()
        assert waited >= execute.RESEND_AFTER.total_seconds(), "no blind retry"


def test_two_drivers_at_once(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    command = stage.approved()
    inner: list[str] = []

    def race(step: StepSpec) -> None:
        inner.append(stage.drive(command, owner="w2").did)

    stage.world.before_call = race
    stage.run(command, until=lambda c: c.state == "SOAK")
    assert inner and set(inner) == {"not_claimed"}
    once_each(stage)


def test_a_lost_rollback_settlement_is_made_good(
    stage: Stage, abandon: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rollback ended but its original was not told: the sweeper's drive settles it."""
    from apps.commands import services
    from apps.commands.services import finish

    command = stage.run(stage.approved(), until=lambda c: c.state == "SOAK")
    back = services.rollback(actor=stage.people["alice"], now=stage.now, command_id=command.pk)
    monkeypatch.setattr(finish, "_settle_original", lambda *a, **k: None)
    stage.run(back)
    command.refresh_from_db()
    assert command.state == "ROLLING_BACK"
    stage.wait(60)
    assert services.due_ids(stage.now) == [command.pk]
    stage.drive(command)
    command.refresh_from_db()
    assert command.state == "ROLLED_BACK"
