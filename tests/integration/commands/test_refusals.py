"""Everything that stops a command, before and on the way."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from apps.accounts import services as accounts
from apps.accounts.domain.authorize import SYSTEM, Role, ScopeKind
from apps.accounts.models import RoleBinding, User
from apps.accounts.selectors import viewer_for
from apps.backends.protocol import Outcome, StepKind
from apps.commands import selectors, services
from apps.commands.domain.proof import Load
from apps.commands.models import Command, CommandEvent, Reservation
from apps.commands.services import errors
from apps.fleet import selectors as fleet
from apps.fleet import services as fleet_services
from apps.fleet.models import Backend, Deployment, Pool, Worker

from .world import T0, Stage, add_worker, recommendation


def refused(stage: Stage, kind: type[errors.CommandError], **more: Any) -> errors.CommandError:
    """`propose` raises this and changes nothing."""
    revision, wanted = stage.revision, stage.wanted()
    count = Command.objects.count()
    with pytest.raises(kind) as raised:
        stage.propose(**more)
    assert (stage.revision, stage.wanted()) == (revision, wanted)
    assert Command.objects.count() == count and stage.world.mutations == []
    assert raised.value.what_to_do and str(raised.value)
    return raised.value


def test_targets_that_no_pool_allows(stage: Stage) -> None:
    below = refused(stage, errors.TargetBelowMinimum, targets={"decode": 0})
    assert below.params == {"role": "decode", "target": 0, "minimum": 1}
    Pool.objects.filter(deployment=stage.deployment, role="decode").update(min_workers=4)
    refused(stage, errors.TargetBelowMinimum)
    Pool.objects.filter(deployment=stage.deployment, role="decode").update(min_workers=1)
    Pool.objects.filter(deployment=stage.deployment, role="prefill").update(max_workers=2)
    refused(stage, errors.TargetAboveMaximum)
    refused(stage, errors.UnknownPool, targets={"encode": 1})
    refused(stage, errors.BadTarget, targets={"decode": -1})
    refused(stage, errors.BadTarget, targets={"decode": True})
    refused(stage, errors.NothingToChange, targets={"prefill": 2, "decode": 4})


def test_a_stale_revision_shows_the_present_state(stage: Stage) -> None:
    fleet_services.set_wanted(
        actor=SYSTEM,
        now=T0,
        deployment_id=stage.deployment.pk,
        wanted={"decode": 4},
        expected_revision=1,
    )
    stale = refused(stage, errors.StaleRevision, expected_revision=1)
    assert stale.http_status == 409
    assert stale.params == {"expected": 1, "current": 2, "wanted": {"prefill": 2, "decode": 4}}


def test_one_active_command(stage: Stage) -> None:
    first = stage.propose()
    again = refused(stage, errors.ActiveCommandExists)
    assert again.params == {"command": first.number}
    services.cancel(actor=stage.people["alice"], now=stage.now, command_id=first.pk)
    second = stage.propose()
    assert second.number == "C-2"


def test_the_database_itself_allows_one_active_command(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The check passed for both of two requests; the constraint decides."""
    from apps.commands.services import checks

    first = stage.propose()
    monkeypatch.setattr(checks, "active_number", lambda deployment: None)
    with pytest.raises(errors.ActiveCommandExists) as raised:
        stage.propose()
    assert raised.value.params == {"command": first.number}


def test_the_world_refuses(stage: Stage) -> None:
    stage.world.readable = False
    refused(stage, errors.BackendUnreachable)
    stage.world.readable = True
    stage.world.denials = ("router_denied",)
    refused(stage, errors.PreflightDenied)
    stage.world.denials = ()
    stage.facts.age_s = 400
    refused(stage, errors.DataStale)
    stage.facts.age_s = None
    refused(stage, errors.DataStale)
    stage.facts.age_s = 1
    Deployment.objects.update(mode="recommend")
    refused(stage, errors.ModeTooLow)
    Deployment.objects.update(mode="auto")
    Worker.objects.filter(name__startswith="d-").update(ended_at=T0)
    unknown = refused(stage, errors.UnknownWorker)
    assert unknown.params["url"].startswith("http://d-")


def test_growth_alone_needs_no_fresh_measurements(make_stage: Callable[..., Stage]) -> None:
    stage = make_stage(devices=8)
    add_worker(stage.deployment, stage.world, "d-9", "decode", listed=False)
    stage.facts.age_s = None
    assert stage.propose({"decode": 5}).state == "PROPOSED"


def test_an_unknown_unit_is_not_guessed(stage: Stage) -> None:
    Pool.objects.filter(deployment=stage.deployment, role="decode").update(devices_per_worker=None)
    unknown = refused(stage, errors.InfeasiblePlan)
    assert unknown.params["error"] == "unknown_unit"


def test_a_passing_state_must_not_breach_what_holds(stage: Stage) -> None:
    stage.facts.load = {"decode": Load(busy=0.8, workers=4, holds=True)}
    breach = refused(stage, errors.InfeasiblePlan)
    assert breach.params["error"] == "passing_breach"
    stage.facts.load = {"decode": Load(busy=0.8, workers=4, holds=False)}
    assert stage.propose().state == "PROPOSED", "what is broken already may be passed through"


def test_only_who_may(stage: Stage) -> None:
    refused(stage, errors.NotAllowed, actor=stage.people["charlie"])
    refused(stage, errors.NotAllowed, actor=stage.people["bob"])
    stranger = accounts.create_user(actor=SYSTEM, now=T0, username="mallory", password=None)
    with pytest.raises(fleet.NotVisible):
        stage.propose(actor=viewer_for(stranger))


def test_the_idempotency_key(stage: Stage) -> None:
    first = stage.propose(idempotency_key="k-1")
    assert stage.propose(idempotency_key="k-1").pk == first.pk
    with pytest.raises(errors.IdempotencyConflict):
        stage.propose({"prefill": 4, "decode": 2}, idempotency_key="k-1")
    assert Command.objects.count() == 1


# --- approval


def approve(stage: Stage, command: Command, who: str, **more: Any) -> Command:
    actor = more.pop("actor", None) or stage.people[who]
    return services.approve(
        actor=actor,
        now=stage.now,
        command_id=command.pk,
        plan_hash=more.pop("plan_hash", command.plan_hash),
        **more,
    )


def test_two_people_for_production(stage: Stage) -> None:
    user = User.objects.get(username="alice")
    accounts.bind_role(
        actor=SYSTEM,
        now=T0,
        user=user,
        role=Role.APPROVER,
        scope_kind=ScopeKind.INSTALLATION,
        scope_id=None,
    )
    stage.people["alice"] = viewer_for(user)
    command = stage.propose()
    with pytest.raises(errors.OwnProposal):
        approve(stage, command, "alice")
    with pytest.raises(errors.NotAllowed):
        approve(stage, command, "charlie")
    with pytest.raises(errors.TokenMayNotApprove):
        approve(stage, command, "", actor=replace(stage.people["bob"], via_token=True))
    with pytest.raises(errors.CommandNotFound):
        approve(stage, command, "", actor=replace(stage.people["bob"], is_active=False))
    with pytest.raises(errors.NotAllowed):
        approve(stage, command, "", actor=SYSTEM)
    with pytest.raises(errors.PlanChanged):
        approve(stage, command, "bob", plan_hash="0" * 64)
    command.refresh_from_db()
    assert command.state == "PROPOSED"
    approve(stage, command, "bob")
    approve(stage, command, "bob")  # a doubled click
    assert command.approvals.count() == 1


def test_an_edited_recommendation_belongs_to_its_editor(stage: Stage) -> None:
    rec = recommendation(stage)
    edited = services.propose(
        actor=stage.people["alice"],
        now=stage.now,
        recommendation_id=rec.id,
        targets={"prefill": 4, "decode": 2},
    )
    assert isinstance(edited, Command)
    assert [one["name"] for one in edited.proposers] == ["alice"]
    assert edited.predicted == {}, "the planner predicted another change"


def test_a_demo_needs_one_person(make_stage: Callable[..., Stage]) -> None:
    stage = make_stage(environment="demo")
    user = User.objects.get(username="alice")
    accounts.bind_role(
        actor=SYSTEM,
        now=T0,
        user=user,
        role=Role.APPROVER,
        scope_kind=ScopeKind.DEPLOYMENT,
        scope_id=stage.deployment.pk,
    )
    stage.people["alice"] = replace(viewer_for(user), via_token=True)
    command = stage.propose()
    approve(stage, command, "alice")
    command = stage.run(command, until=lambda c: c.state == "SOAK")
    back = services.rollback(actor=stage.people["alice"], now=stage.now, command_id=command.pk)
    assert back.state == "APPROVED"


def test_rejected_expired_and_cancelled(stage: Stage) -> None:
    with pytest.raises(errors.NotAllowed):
        services.reject(actor=stage.people["alice"], now=stage.now, command_id=stage.propose().pk)
    first = Command.objects.get()
    services.reject(actor=stage.people["bob"], now=stage.now, command_id=first.pk, reason="no")
    first.refresh_from_db()
    assert (first.state, first.error_params["by"]) == ("REJECTED", "bob")
    with pytest.raises(errors.WrongState):
        approve(stage, first, "bob")

    second = stage.propose()
    stage.wait(301)
    with pytest.raises(errors.WrongState):
        approve(stage, second, "bob")
    second.refresh_from_db()
    assert (second.state, second.error_code) == ("EXPIRED", "expired")

    third = stage.propose()
    stage.wait(301)
    stage.drive(third)
    third.refresh_from_db()
    assert third.state == "EXPIRED"

    late = stage.approved()
    stage.wait(301)
    stage.drive(late)
    late.refresh_from_db()
    assert (late.state, late.error_code) == ("EXPIRED", "expired")
    assert stage.world.mutations == [] and stage.revision == 1


def test_auto_mode_approves_only_what_the_planner_proposed(stage: Stage) -> None:
    Deployment.objects.update(mode="auto")
    rec = recommendation(stage)
    made = services.propose(actor=SYSTEM, now=stage.now, recommendation_id=rec.id)
    assert isinstance(made, Command)
    assert approve(stage, made, "", actor=SYSTEM).state == "APPROVED"


def test_a_scheduled_command_waits_for_its_time(stage: Stage) -> None:
    command = stage.propose(not_before=T0 + timedelta(seconds=600))
    assert approve(stage, command, "bob").state == "SCHEDULED"
    assert services.due_ids(stage.now) == []
    assert stage.drive(command).next_s == 600
    stage.wait(600)
    assert services.due_ids(stage.now) == [command.pk]
    assert stage.run(command).state == "SUCCEEDED"


def test_auto_mode_applies_what_is_open(stage: Stage) -> None:
    recommendation(stage)
    assert services.apply_open_recommendations(now=stage.now) == [], "mode approve waits"
    Deployment.objects.update(mode="auto")
    (made,) = services.apply_open_recommendations(now=stage.now)
    assert made.state == "APPROVED" and made.proposers == [{"id": "", "name": "fulcrum"}]
    assert services.apply_open_recommendations(now=stage.now) == [], "one at a time"
    assert stage.run(made).state == "SUCCEEDED"


def test_a_recommendation_that_closed_meanwhile_is_not_applied(stage: Stage) -> None:
    rec = recommendation(stage)
    made = services.propose(actor=stage.people["alice"], now=stage.now, recommendation_id=rec.id)
    assert isinstance(made, Command)
    approve(stage, made, "bob")
    stage.facts.rec = replace(rec, state="superseded")
    done = dispatched(stage, made)
    assert (done.state, done.error_code) == ("DENIED", "not_open")
    assert stage.revision == 1, "the start was taken back whole"
    with pytest.raises(errors.RecommendationClosed):
        services.propose(actor=stage.people["alice"], now=stage.now, recommendation_id=rec.id)
    stage.facts.rec = rec
    stage.facts.refusing = ("cooldown",)
    with pytest.raises(errors.GuardrailRefused):
        services.propose(actor=stage.people["alice"], now=stage.now, recommendation_id=rec.id)


# --- dispatch


def dispatched(stage: Stage, command: Command) -> Command:
    stage.drive(command)
    command.refresh_from_db()
    assert stage.world.mutations == []
    assert not Reservation.objects.filter(released_at__isnull=True).exists()
    return command


def test_everything_is_checked_again_at_dispatch(stage: Stage) -> None:
    def after(change: Callable[[], object]) -> tuple[str, str]:
        command = stage.approved()
        change()
        done = dispatched(stage, command)
        return done.state, done.error_code

    assert after(
        lambda: services.set_kill_switch(
            actor=stage.people["bob"],
            now=stage.now,
            scope_kind=ScopeKind.DEPLOYMENT,
            scope_id=stage.deployment.pk,
            on=True,
        )
    ) == ("DENIED", "kill_switch")
    from apps.commands.models import KillSwitch

    KillSwitch.objects.update(on=False)

    assert after(lambda: Deployment.objects.update(mode="recommend")) == (
        "DENIED",
        "mode",
    )
    Deployment.objects.update(mode="approve")
    assert after(lambda: setattr(stage.facts, "age_s", 900.0)) == ("DENIED", "stale_data")
    stage.facts.age_s = 1.0
    assert after(lambda: stage.facts.policy.update(revision=4)) == ("DENIED", "plan_changed")
    assert after(lambda: Backend.objects.update(address="http://other")) == (
        "DENIED",
        "plan_changed",
    )
    assert after(lambda: Pool.objects.filter(role="decode").update(min_workers=2)) == (
        "DENIED",
        "plan_changed",
    )
    assert after(lambda: setattr(stage.world, "denials", ("router_denied",))) == (
        "DENIED",
        "backend_refused",
    )
    stage.world.denials = ()
    assert after(lambda: RoleBinding.objects.filter(user__username="bob").delete()) == (
        "DENIED",
        "approver_lost_role",
    )
    assert stage.revision == 1


def test_a_moved_revision_and_a_moved_fence(stage: Stage) -> None:
    command = stage.approved()
    fleet_services.set_wanted(
        actor=SYSTEM,
        now=T0,
        deployment_id=stage.deployment.pk,
        wanted={"decode": 4},
        expected_revision=1,
    )
    assert dispatched(stage, command).state == "SUPERSEDED"
    assert command.error_params == {"expected": 1, "current": 2}

    command = stage.approved()
    gone = next(url for url, role in stage.world.members.items() if role == "prefill")
    del stage.world.members[gone]
    assert dispatched(stage, command).error_code == "foreign_writer"
    assert command.error_params["changes"] == [
        {"url": gone, "change": "removed", "was": "prefill", "found": ""}
    ]


def test_an_unreachable_backend_is_tried_again_while_the_approval_lives(stage: Stage) -> None:
    command = stage.approved()
    stage.world.readable = False
    driven = stage.drive(command)
    assert (driven.state, driven.next_s) == ("PREFLIGHT", 5.0)
    stage.wait(5)
    stage.world.readable = True
    stage.run(command, until=lambda c: c.state == "SOAK")


# --- on the way


def test_a_second_writer_stops_the_command(stage: Stage) -> None:
    stage.world.owners = ("keda",)
    command = stage.approved()
    command = stage.run(
        command, until=lambda c: c.steps.filter(kind="wait_idle", state="DONE").exists()
    )
    stranger = next(url for url, role in stage.world.members.items() if role == "prefill")
    stage.world.members[stranger] = "decode"
    command = stage.run(command)
    assert command.state == "SUPERSEDED"
    assert command.error_params["who"] == "keda"
    change = command.error_params["changes"][0]
    assert (change["name"], change["was"], change["found"]) == ("p-0", "prefill", "decode")
    assert [kind for kind, _ in stage.world.mutations] == ["set_drain_time", "remove_worker"]
    state = fleet.change_state(stage.deployment.pk)
    assert state.foreign_change is not None and state.foreign_change["command"] == "C-1"
    assert command.true_now == {"prefill": 1, "decode": 4}
    assert stage.wanted() == {"prefill": 1, "decode": 4}


def test_a_second_writer_during_the_soak(stage: Stage) -> None:
    command = stage.run(stage.approved(), until=lambda c: c.state == "SOAK")
    gone = next(url for url, role in stage.world.members.items() if role == "decode")
    del stage.world.members[gone]
    assert stage.run(command).state == "SUPERSEDED"


@pytest.mark.parametrize("how", ["row", "file"])
def test_the_kill_switch_on_the_way(stage: Stage, settings: Any, how: str) -> None:
    """The step under way is still resolved, no further one begins, nothing rolls back."""
    command = stage.approved()
    command = stage.run(
        command, until=lambda c: c.steps.filter(kind="wait_idle", state="VERIFYING").exists()
    )
    if how == "row":
        services.set_kill_switch(
            actor=stage.people["alice"],
            now=stage.now,
            scope_kind=ScopeKind.DEPLOYMENT,
            scope_id=stage.deployment.pk,
            on=True,
            reason="stop",
        )
    else:
        (settings.STATE_DIR / "STOP").touch()
    command = stage.run(command)
    assert (command.state, command.error_code) == ("PARTIAL", "kill_switch")
    assert command.steps.get(kind="wait_idle").state == "DONE", "the wait under way was finished"
    assert [kind for kind, _ in stage.world.mutations] == ["set_drain_time", "remove_worker"]
    assert command.true_now == {"prefill": 2, "decode": 3}
    assert stage.wanted() == {"prefill": 2, "decode": 3}
    assert not command.rollbacks.exists()
    with pytest.raises(errors.KillSwitchOn):
        services.rollback(actor=stage.people["alice"], now=stage.now, command_id=command.pk)


def test_an_unreadable_kill_switch_sends_nothing(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    from django.db import DatabaseError

    from apps.commands.services import execute

    command = stage.run(stage.approved(), until=lambda c: c.state == "RUNNING")

    def broken(deployment: Deployment) -> str | None:
        raise DatabaseError("gone")

    monkeypatch.setattr(execute, "stop_reason", broken)
    with pytest.raises(DatabaseError):
        stage.drive(command)
    assert stage.world.mutations == []


def test_the_kill_switch_needs_two_people_to_release(stage: Stage) -> None:
    def switch(who: str, on: bool) -> bool:
        return services.set_kill_switch(
            actor=stage.people[who],
            now=stage.now,
            scope_kind=ScopeKind.DEPLOYMENT,
            scope_id=stage.deployment.pk,
            on=on,
        ).on

    with pytest.raises(errors.NotAllowed):
        switch("charlie", True)
    assert switch("alice", True)
    refused(stage, errors.KillSwitchOn)
    assert selectors.kill_switch_for(stage.deployment) == "deployment"
    with pytest.raises(errors.NotAllowed):
        switch("alice", False)
    assert switch("bob", False), "the first only asks"
    assert switch("bob", False), "asking twice is still one person"
    user = User.objects.get(username="charlie")
    accounts.bind_role(
        actor=SYSTEM,
        now=T0,
        user=user,
        role=Role.APPROVER,
        scope_kind=ScopeKind.DEPLOYMENT,
        scope_id=stage.deployment.pk,
    )
    stage.people["charlie"] = viewer_for(user)
    assert not switch("charlie", False)
    assert stage.propose().state == "PROPOSED"


def test_cancel_between_steps(stage: Stage) -> None:
    command = stage.run(stage.approved(), until=lambda c: c.state == "RUNNING")
    services.cancel(actor=stage.people["alice"], now=stage.now, command_id=command.pk)
    command = stage.run(command)
    assert (command.state, stage.world.mutations) == ("CANCELLED", [])
    assert stage.wanted() == {"prefill": 2, "decode": 4}, "as if nothing had been asked"

    command = stage.approved()
    command = stage.run(
        command, until=lambda c: c.steps.filter(kind="remove_worker", state="DONE").exists()
    )
    services.cancel(actor=stage.people["alice"], now=stage.now, command_id=command.pk)
    command = stage.run(command)
    assert (command.state, command.error_code) == ("PARTIAL", "cancelled")
    assert command.true_now == {"prefill": 2, "decode": 3}


def test_a_denied_step_is_taken_back(stage: Stage) -> None:
    """The engine refuses the switch: the donor goes back to where it was."""
    stage.world.answers = {StepKind.SWITCH_ROLE: [(Outcome.DENIED, False)]}
    command = stage.run(stage.approved(), until=lambda c: c.state == "ROLLING_BACK")
    assert command.error_code == "step_failed"
    assert command.error_params["kind"] == "switch_role"
    assert command.steps.get(kind="switch_role").attempts == 1, "no retry of a denial"
    back = command.rollbacks.get()
    assert back.is_automatic and back.state == "APPROVED"
    stage.run(back)
    command.refresh_from_db()
    assert command.state == "ROLLED_BACK"
    assert stage.counts() == {"prefill": 2, "decode": 4}
    assert stage.wanted() == {"prefill": 2, "decode": 4}
    assert stage.world.mutations[-1][0] == "add_worker"


def test_a_conflict_is_tried_three_times(stage: Stage) -> None:
    stage.world.answers = {StepKind.SWITCH_ROLE: [(Outcome.CONFLICT, False)] * 2}
    command = stage.run(stage.approved(), until=lambda c: c.state == "SOAK")
    assert command.steps.get(kind="switch_role").attempts == 3
    stage.world.mutations.clear()
    stage.run(command)

    stage.wait(300)
    stage.world.answers = {StepKind.SWITCH_ROLE: [(Outcome.CONFLICT, False)] * 3}
    command = stage.run(
        stage.approved({"prefill": 4, "decode": 2}), until=lambda c: c.state == "ROLLING_BACK"
    )
    assert command.steps.get(kind="switch_role").state == "FAILED"


def test_a_worker_that_never_gets_idle_ends_at_its_deadline(stage: Stage) -> None:
    command = stage.approved()
    busy = command.plan[0]["worker"]["url"]
    stage.world.in_flight[busy] = 2
    command = stage.run(command, until=lambda c: c.state == "ROLLING_BACK", pieces=900)
    step = command.steps.get(kind="wait_idle")
    assert (step.state, step.reason) == ("FAILED", "deadline:requests_in_flight")
    back = stage.run(command.rollbacks.get())
    assert back.state == "SUCCEEDED" and stage.counts() == {"prefill": 2, "decode": 4}
    assert [k for k, _ in stage.world.mutations].count("switch_role") == 0


def test_a_rollback_that_fails_asks_for_a_person(stage: Stage) -> None:
    stage.world.answers = {
        StepKind.SWITCH_ROLE: [(Outcome.DENIED, False)],
        StepKind.ADD_WORKER: [(Outcome.DENIED, False)],
    }
    command = stage.run(stage.approved(), until=lambda c: c.state == "ROLLING_BACK")
    back = stage.run(command.rollbacks.get())
    command.refresh_from_db()
    assert (back.state, command.state) == ("FAILED", "ROLLBACK_FAILED")
    assert CommandEvent.objects.filter(command=command, code="needs_a_person").exists()
    assert command.true_now == {"prefill": 2, "decode": 3}

    # A person tries again: a new plan from what is true now.
    retry = services.rollback(actor=stage.people["alice"], now=stage.now, command_id=command.pk)
    assert retry.state == "PROPOSED"
    approve(stage, retry, "bob")
    stage.run(retry)
    command.refresh_from_db()
    assert (command.state, stage.counts()) == ("ROLLED_BACK", {"prefill": 2, "decode": 4})


# --- rollback


def test_worse_than_doing_nothing_goes_back_by_itself(stage: Stage) -> None:
    rec = recommendation(stage)
    made = services.propose(actor=stage.people["alice"], now=stage.now, recommendation_id=rec.id)
    assert isinstance(made, Command)
    approve(stage, made, "bob")
    command = stage.run(made, until=lambda c: c.state == "SOAK")
    stage.facts.goodput = 0.30
    command = stage.run(command, until=lambda c: c.bad_windows == 1)
    assert command.state == "SOAK", "one window is not enough"
    command = stage.run(command, until=lambda c: c.state == "ROLLING_BACK")
    assert command.error_code == "worse_than_doing_nothing"
    assert command.measured["goodput"]["value"] == 0.30
    assert selectors.active_for(stage.deployment) == command.rollbacks.get()
    stage.run(command.rollbacks.get())
    command.refresh_from_db()
    assert (command.state, stage.counts()) == ("ROLLED_BACK", {"prefill": 2, "decode": 4})
    assert selectors.accuracy(stage.people["alice"]).inside == 1, "a failed change is scored too"


def test_a_person_rolls_a_finished_command_back(stage: Stage) -> None:
    command = stage.run(stage.approved())
    assert command.state == "SUCCEEDED"
    with pytest.raises(errors.NotAllowed):
        services.rollback(actor=stage.people["charlie"], now=stage.now, command_id=command.pk)
    back = services.rollback(actor=stage.people["alice"], now=stage.now, command_id=command.pk)
    assert (back.kind, back.state, back.rollback_of_id) == ("rollback", "PROPOSED", command.pk)
    assert back.before == {"prefill": 3, "decode": 3}
    assert back.targets == {"prefill": 2, "decode": 4}
    same = services.rollback(actor=stage.people["alice"], now=stage.now, command_id=command.pk)
    assert same.pk == back.pk
    approve(stage, back, "bob")
    back = stage.run(back, until=lambda c: c.state == "RUNNING")
    command.refresh_from_db()
    assert command.state == "ROLLING_BACK"
    stage.run(back)
    command.refresh_from_db()
    assert command.state == "ROLLED_BACK"


def test_a_person_rolls_a_running_command_back(stage: Stage) -> None:
    command = stage.approved()
    command = stage.run(
        command, until=lambda c: c.steps.filter(kind="switch_role", state="DONE").exists()
    )
    services.rollback(actor=stage.people["alice"], now=stage.now, command_id=command.pk)
    command = stage.run(command, until=lambda c: c.state == "ROLLING_BACK")
    stage.run(command.rollbacks.get())
    command.refresh_from_db()
    assert (command.state, stage.counts()) == ("ROLLED_BACK", {"prefill": 2, "decode": 4})
    moved = command.plan[0]["worker"]["url"]
    assert stage.world.engines[moved] == "decode"
    assert Worker.objects.get(url=moved).role == "decode"
