"""A role flip from the proposal to its score."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

from apps.audit.models import AuditEvent
from apps.commands import selectors, services
from apps.commands.domain.states import CommandState
from apps.commands.models import Command, Reservation
from apps.fleet import selectors as fleet
from apps.fleet.models import ChangeState, Worker

from .world import T0, Stage, recommendation


def test_a_recommendation_is_applied_and_scored(stage: Stage) -> None:
    rec = recommendation(stage)
    made = services.propose(actor=stage.people["alice"], now=stage.now, recommendation_id=rec.id)
    assert isinstance(made, Command)
    assert (made.number, made.kind, made.state) == ("C-1", "role_flip", "PROPOSED")
    assert made.proposers == [{"id": "", "name": "fulcrum"}]
    assert made.before == {"prefill": 2, "decode": 4}
    assert len(made.plan) == 7 and len(made.rollback_plan) == 7
    assert stage.world.mutations == [], "a proposal changes nothing"

    services.approve(
        actor=stage.people["bob"], now=stage.now, command_id=made.pk, plan_hash=made.plan_hash
    )
    command = stage.run(made, until=lambda c: c.state == "SOAK")
    assert stage.counts() == {"prefill": 3, "decode": 3}
    moved = command.plan[0]["worker"]["url"]
    assert stage.world.mutations == [
        ("set_drain_time", moved),
        ("remove_worker", moved),
        ("switch_role", moved),
        ("add_worker", moved),
    ]
    assert all(key.startswith("C-1.") for key in stage.world.keys)
    assert fleet.change_state(stage.deployment.pk).active_command_id == command.pk
    assert stage.facts.applied == ["C-1"]
    assert stage.wanted() == {"prefill": 3, "decode": 3}
    assert (command.running_revision, stage.revision) == (2, 2)
    worker = Worker.objects.get(url=moved)
    assert worker.role == "prefill"
    assert fleet.role_at(worker.pk, T0) == "decode"
    assert fleet.role_at(worker.pk, stage.now) == "prefill"

    command = stage.run(command)
    assert command.state == CommandState.SUCCEEDED
    assert command.soak_until is not None and command.converged_at is not None
    assert command.soak_until - command.converged_at == timedelta(seconds=60)
    assert command.measured["goodput"]["value"] == 0.97
    assert command.worst["ttft_p95"]["value"] == 0.8
    assert command.recovery_s == 0.0
    assert stage.facts.scored == [["goodput", "ttft_p95"]]
    assert Reservation.objects.get(command=command).released_at is not None
    state = ChangeState.objects.get(pk=stage.deployment.pk)
    assert (state.active_command_id, state.last_converged) == (None, {"prefill": 3, "decode": 3})
    assert state.last_direction == "prefill_up"
    found = selectors.accuracy(stage.people["alice"])
    assert (found.count, found.inside) == (2, 2)
    assert found.median_error is not None and round(found.median_error, 4) == 0.0052

    actions = list(
        AuditEvent.objects.filter(object_id=str(command.pk)).values_list("action", flat=True)
    )
    assert actions[::-1] == [
        "command.propose",
        "command.decide",
        "command.approved",
        "command.preflight",
        "command.running",
        "command.soak",
        "command.succeeded",
    ]


def test_the_worst_window_and_the_time_to_recover_are_kept(stage: Stage) -> None:
    rec = recommendation(stage)
    made = services.propose(actor=stage.people["alice"], now=stage.now, recommendation_id=rec.id)
    assert isinstance(made, Command)
    services.approve(
        actor=stage.people["bob"], now=stage.now, command_id=made.pk, plan_hash=made.plan_hash
    )
    stage.facts.ttft, stage.facts.goodput, stage.facts.failing = 9.0, 0.5, 0.02
    stage.facts.goodput = 0.65  # below the prediction, above doing nothing: no rollback
    command = stage.run(made, until=lambda c: c.state == "SOAK")
    stage.facts.ttft, stage.facts.goodput, stage.facts.failing = 0.9, 0.97, 0.0
    command = stage.run(command)
    assert command.state == CommandState.SUCCEEDED
    assert command.worst["ttft_p95"]["value"] == 9.0
    assert command.worst["goodput"]["value"] == 0.65
    assert command.worst["error_share"]["value"] == 0.02
    assert command.recovery_s is not None and 10 < command.recovery_s < 90


def test_scaling_down_and_up(make_stage: Callable[..., Stage]) -> None:
    stage = make_stage(devices=6)
    down = stage.run(stage.approved({"decode": 2}))
    assert (down.kind, down.state, stage.counts()["decode"]) == ("scale", "SUCCEEDED", 2)
    reserved = Reservation.objects.get(command=down)
    assert reserved.gpus == 0

    stage.wait(60)
    up = stage.approved({"decode": 4})
    assert up.plan[0]["kind"] == "add_worker"
    up = stage.run(up)
    assert (up.state, stage.counts()["decode"]) == ("SUCCEEDED", 4)


def test_a_scale_down_holds_its_gpus_until_the_worker_is_idle(stage: Stage) -> None:
    stage.world.in_flight = dict.fromkeys(stage.world.members, 3)
    command = stage.approved({"decode": 3})
    command = stage.run(
        command, until=lambda c: c.steps.filter(kind="wait_idle", state="VERIFYING").exists()
    )
    assert Reservation.objects.get(command=command).gpus == 1
    assert fleet.gpus_in_use(stage.deployment.cluster_id) == 5
    stage.world.in_flight = {}
    command = stage.run(command, until=lambda c: c.state == "SOAK")
    assert Reservation.objects.get(command=command).gpus == 0


def test_growth_without_free_gpus_is_refused(make_stage: Callable[..., Stage]) -> None:
    from .world import add_worker

    stage = make_stage(devices=6)
    add_worker(stage.deployment, stage.world, "d-9", "decode", listed=False)
    dry = services.propose(
        actor=stage.people["alice"],
        now=stage.now,
        deployment_id=stage.deployment.pk,
        targets={"decode": 5},
        dry_run=True,
    )
    assert isinstance(dry, services.DryRun)
    assert dry.error is not None and dry.error.code == "no_gpus"
    assert dry.error.params == {"gpus_needed": "1.0000", "gpus_free": "0.0000"}


def test_growth_reserves_what_another_command_cannot_take(
    make_stage: Callable[..., Stage],
) -> None:
    from .world import add_worker

    stage = make_stage(devices=7)
    add_worker(stage.deployment, stage.world, "d-9", "decode", listed=False)
    command = stage.approved({"decode": 5})
    command = stage.run(command, until=lambda c: c.state == "RUNNING")
    assert fleet.gpus_in_use(stage.deployment.cluster_id) == 7
    command = stage.run(command)
    assert (command.state, stage.counts()["decode"]) == ("SUCCEEDED", 5)


def test_a_dry_run_writes_nothing_and_shows_the_checks(stage: Stage) -> None:
    before = AuditEvent.objects.count()
    dry = services.propose(
        actor=stage.people["alice"],
        now=stage.now,
        deployment_id=stage.deployment.pk,
        targets={"prefill": 3, "decode": 3},
        dry_run=True,
    )
    assert isinstance(dry, services.DryRun)
    assert dry.error is None and all(check.ok for check in dry.checks)
    assert {check.code for check in dry.checks} == {
        "mode",
        "kill_switch",
        "no_active_command",
        "freeze",
        "fresh_data",
        "backend_reachable",
        "floor",
        "objective_on_the_way",
        "gpu_inventory",
        "dry_run",
        "revision",
    }
    assert dry.lowest == {"prefill": 2, "decode": 3}
    assert Command.objects.count() == 0 and AuditEvent.objects.count() == before
    assert dry.plan_hash == stage.propose().plan_hash, "what was shown is what is approved"
