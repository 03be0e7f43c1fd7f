"""The calls of the console: numbers instead of ids, and the plan that the page showed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.core.cache import cache

from apps.accounts import services as accounts
from apps.accounts.domain.authorize import SYSTEM, Role, ScopeKind
from apps.accounts.models import User
from apps.accounts.selectors import viewer_for
from apps.commands import services
from apps.commands.models import Command
from apps.commands.services import errors

from .world import T0, Stage, recommendation


@pytest.fixture
def demo(make_stage: Callable[..., Stage]) -> Stage:
    """Alice may propose and approve, as the demo's own person."""
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
    stage.people["alice"] = viewer_for(user)
    recommendation(stage)
    cache.clear()
    return stage


def ask(stage: Stage, **more: Any) -> Any:
    return services.propose(
        actor=stage.people["alice"],
        now=stage.now,
        recommendation="R-7",
        expected_revision=1,
        note="pressed",
        **more,
    )


def test_the_plan_that_was_read_is_applied_though_loads_moved(demo: Stage) -> None:
    demo.world.in_flight = {"http://d-0": 5, "http://d-1": 1, "http://d-2": 5, "http://d-3": 5}
    shown = ask(demo, dry_run=True)
    assert shown.steps[0]["worker"]["name"] == "d-1"
    demo.world.in_flight = {"http://d-0": 0, "http://d-1": 2, "http://d-2": 5, "http://d-3": 5}
    made = ask(demo, plan_hash=shown.plan_hash, idempotency_key="form-1")
    assert isinstance(made, Command)
    assert made.plan[0]["worker"]["name"] == "d-1" and made.plan_hash == shown.plan_hash
    assert (made.state, made.note) == ("APPROVED", "pressed"), "one press, one person"
    assert ask(demo, plan_hash=shown.plan_hash, idempotency_key="form-1").pk == made.pk
    demo.world.in_flight = {}
    assert demo.run(made).state == "SUCCEEDED"


def test_without_the_hash_the_press_only_proposes(demo: Stage) -> None:
    assert ask(demo).state == "PROPOSED"


def test_a_plan_whose_ground_moved_is_shown_again(demo: Stage) -> None:
    shown = ask(demo, dry_run=True)
    demo.facts.policy = {"revision": 4}
    with pytest.raises(errors.PlanChanged) as raised:
        ask(demo, plan_hash=shown.plan_hash)
    assert raised.value.params["plan_hash"] != shown.plan_hash
    assert Command.objects.count() == 0


def test_in_production_the_press_waits_for_the_second_person(stage: Stage) -> None:
    shown = services.propose(
        actor=stage.people["alice"],
        now=stage.now,
        deployment_id=stage.deployment.pk,
        targets={"prefill": 3, "decode": 3},
        dry_run=True,
    )
    assert isinstance(shown, services.DryRun)
    made = stage.propose(plan_hash=shown.plan_hash)
    assert made.state == "PROPOSED"


def test_everything_by_number(demo: Stage) -> None:
    alice = demo.people["alice"]
    made = ask(demo)
    services.reject(actor=alice, now=demo.now, number=made.number, reason="no")
    second = ask(demo)
    services.approve(
        actor=alice, now=demo.now, number=second.number, plan_hash=second.plan_hash, reason=""
    )
    services.cancel(actor=alice, now=demo.now, number=second.number, reason="")
    third = ask(demo)
    services.approve(actor=alice, now=demo.now, number="c-3", plan_hash=third.plan_hash)
    demo.run(third, until=lambda c: c.state == "SOAK")
    back = services.rollback(
        actor=alice, now=demo.now, number=third.number, idempotency_key="k", reason=""
    )
    demo.run(back, until=lambda c: c.state == "RUNNING")
    again = services.rollback(
        actor=alice, now=demo.now, number=third.number, idempotency_key="k", reason=""
    )
    assert again.pk == back.pk
    with pytest.raises(errors.CommandNotFound):
        services.cancel(actor=alice, now=demo.now, number="C-99")
    switch = services.set_kill_switch(
        actor=alice, now=demo.now, slug="assist-chat", on=True, reason="drill"
    )
    assert switch.on and switch.scope_id == demo.deployment.pk
    off = services.set_kill_switch(actor=alice, now=demo.now, slug="assist-chat", on=False)
    assert not off.on, "a demo needs one person"
