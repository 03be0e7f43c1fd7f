"""Objectives as spans, with the cast."""

from __future__ import annotations

from datetime import timedelta

import pytest

from apps.accounts import services as accounts
from apps.accounts.domain.authorize import SYSTEM, NotAllowed, Role, ScopeKind
from apps.audit.models import AuditEvent
from apps.slo import selectors, services
from apps.slo.domain.objective import InvalidObjective, ObjectiveSignal
from apps.slo.models import Objective
from tests.support.builders import NOW, world

pytestmark = pytest.mark.django_db
LATER = NOW + timedelta(hours=1)


def test_an_operator_and_a_stranger_may_not_set_one() -> None:
    w = world()
    for user in (w.alice, w.bob, w.charlie):
        with pytest.raises(NotAllowed):
            services.set_objective(
                actor=w.viewer(user),
                now=NOW,
                deployment_id=w.deployment.pk,
                signal=ObjectiveSignal.TTFT,
                threshold_s=2.5,
            )
    assert not Objective.objects.exists()


def test_an_admin_sets_replaces_and_history_is_kept() -> None:
    w = world()
    accounts.bind_role(
        actor=SYSTEM,
        now=NOW,
        user=w.bob,
        role=Role.ADMIN,
        scope_kind=ScopeKind.CLUSTER,
        scope_id=w.cluster.pk,
    )
    admin = w.viewer(w.bob)
    for now, threshold in ((NOW, 2.5), (LATER, 2.0)):
        services.set_objective(
            actor=admin,
            now=now,
            deployment_id=w.deployment.pk,
            signal=ObjectiveSignal.TTFT,
            threshold_s=threshold,
        )
    active = selectors.objectives(w.deployment)
    assert active[ObjectiveSignal.TTFT].threshold_s == 2.0
    assert active[ObjectiveSignal.TTFT].target_share == 0.95
    before = selectors.objectives_at(w.deployment.pk, NOW + timedelta(minutes=30))
    assert before[ObjectiveSignal.TTFT].threshold_s == 2.5
    events = AuditEvent.objects.filter(action="objective.set").order_by("sequence")
    assert [e.before and e.before["threshold_s"] for e in events] == [None, 2.5]


def test_the_same_numbers_change_nothing() -> None:
    w = world()
    first, second = (
        services.set_objective(
            actor=SYSTEM,
            now=now,
            deployment_id=w.deployment.pk,
            signal=ObjectiveSignal.TPOT,
            threshold_s=0.025,
        )
        for now in (NOW, LATER)
    )
    assert first == second
    assert Objective.objects.count() == 1


def test_nonsense_changes_nothing() -> None:
    w = world()
    with pytest.raises(InvalidObjective):
        services.set_objective(
            actor=SYSTEM,
            now=NOW,
            deployment_id=w.deployment.pk,
            signal=ObjectiveSignal.TTFT,
            threshold_s=-1,
        )
    assert not Objective.objects.exists()


def test_a_stranger_sees_none() -> None:
    w = world()
    services.set_objective(
        actor=SYSTEM,
        now=NOW,
        deployment_id=w.deployment.pk,
        signal=ObjectiveSignal.TTFT,
        threshold_s=2.5,
    )
    assert selectors.objectives_for(w.viewer(w.alice)).count() == 1
    assert selectors.objectives_for(w.viewer(w.charlie)).count() == 0
