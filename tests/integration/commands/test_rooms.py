"""The real door to the rooms below, with nothing measured and with a little."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from uuid import uuid4

import pytest

from apps.accounts.domain.authorize import SYSTEM
from apps.commands import services
from apps.commands.domain.scoring import KEYS
from apps.commands.models import Command
from apps.commands.services import errors
from apps.commands.services import facts as facts_module
from apps.commands.services.rooms import RoomFacts
from apps.common.measurement import Measurement, State
from apps.common.units import Unit
from apps.fleet.selectors import NotVisible
from apps.planning.models import Evaluation, PredictionScore, Recommendation
from apps.slo import services as slo
from apps.slo.domain.objective import ObjectiveSignal
from apps.telemetry import selectors as telemetry
from tests.unit.diagnosis.builders import figures

from .world import T0, Stage, figure


@pytest.fixture
def rooms(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> RoomFacts:
    provider = RoomFacts()
    monkeypatch.setattr(facts_module, "provider", provider)
    return provider


def recommend(stage: Stage) -> Recommendation:
    after = {
        "goodput": figure(0.96, Unit.RATIO, 0.92, 0.99),
        "ttft_p95": figure(0.8, Unit.SECONDS, 0.6, 1.0),
    }
    return Recommendation.objects.create(
        sequence=12,
        number="R-12",
        deployment=stage.deployment,
        created_at=T0,
        refreshed_at=T0,
        expires_at=T0 + timedelta(minutes=5),
        kind="rebalance",
        reason="ttft_breach",
        targets={"prefill": 3, "decode": 3},
        current={"prefill": 2, "decode": 4},
        expected_revision=1,
        plan_fingerprint="f",
        predicted={
            key: {"now": value.to_json(), "after": value.to_json()} for key, value in after.items()
        },
        do_nothing={"goodput": figure(0.6, Unit.RATIO).to_json()},
        confidence="medium",
        policy="default",
    )


def test_without_measurements_nothing_is_invented(stage: Stage, rooms: RoomFacts) -> None:
    deployment = stage.deployment
    assert rooms.data_age_s(deployment, T0) is None
    assert rooms.loads(deployment, T0) == {}
    measured = rooms.measured(deployment, T0, 30)
    assert set(measured) == set(KEYS)
    assert all(not one.is_known for one in measured.values())
    sample = rooms.sample(deployment, T0, 30)
    assert (sample.ttft_p95, sample.goodput, sample.error_share) == (None, None, None)
    assert rooms.predict(deployment, {"prefill": 3, "decode": 3}, T0) == ({}, {})
    assert rooms.recommendation(uuid4()) is None
    assert rooms.appliable(deployment) is None
    with pytest.raises(errors.DataStale):
        stage.propose()


@pytest.mark.parametrize("state", [State.NO_DATA, State.CONFLICT])
def test_a_figure_that_fresh_windows_lack_or_contradict_is_no_ground_for_a_reduction(
    stage: Stage, rooms: RoomFacts, monkeypatch: pytest.MonkeyPatch, state: State
) -> None:
    """Its window is new, so that its age alone would say "fresh" (DESIGN law 1)."""
    found = figures(at=T0)
    monkeypatch.setattr(telemetry, "figures", lambda *_: found)
    fresh = rooms.data_age_s(stage.deployment, T0)
    assert fresh is not None
    assert found.decode is not None
    lacking = found.decode.kv_used.with_state(state)
    found = replace(found, decode=replace(found.decode, kv_used=lacking))
    assert rooms.data_age_s(stage.deployment, T0) is None


def test_a_recommendation_goes_through_the_door(stage: Stage, rooms: RoomFacts) -> None:
    row = recommend(stage)
    alice = stage.people["alice"]
    assert rooms.recommendation_id(alice, "R-12") == row.pk
    assert rooms.recommendation_id(alice, str(row.pk)) == row.pk
    with pytest.raises(NotVisible):
        rooms.recommendation_id(alice, "R-99")
    found = rooms.recommendation(row.pk)
    assert found is not None and (found.number, found.state) == ("R-12", "open")
    assert Measurement.from_json(found.predicted["goodput"]).lower == 0.92
    assert rooms.appliable(stage.deployment) == row.pk
    assert "data_fresh" in rooms.recheck(row.pk, T0), "nothing was measured"
    with pytest.raises(errors.GuardrailRefused):
        services.propose(actor=alice, now=stage.now, recommendation="R-12")

    command_id = uuid4()
    assert rooms.mark_applied(row.pk, actor=SYSTEM, now=T0, command_id=command_id)
    assert not rooms.mark_applied(row.pk, actor=SYSTEM, now=T0, command_id=command_id)
    row.refresh_from_db()
    assert (row.state, row.applied_command_id) == ("applied", command_id)
    rooms.score(row.pk, now=T0, measured={"ttft_p95": figure(0.9, Unit.SECONDS)})
    assert PredictionScore.objects.get(recommendation=row).inside == {"ttft_p95": True}


def test_busy_shares_of_the_newest_evaluation(stage: Stage, rooms: RoomFacts) -> None:
    for signal, threshold in ((ObjectiveSignal.TTFT, 2.5), (ObjectiveSignal.TPOT, 0.025)):
        slo.set_objective(
            actor=SYSTEM,
            now=T0,
            deployment_id=stage.deployment.pk,
            signal=signal,
            threshold_s=threshold,
        )
    stage.deployment.workers.update(serving="serving")
    Evaluation.objects.create(
        deployment=stage.deployment,
        at=T0,
        attainment={
            "ttft": {"share": figure(0.5, Unit.RATIO).to_json()},
            "tpot": {"share": figure(0.99, Unit.RATIO).to_json()},
        },
        busy={
            "prefill": figure(0.9, Unit.RATIO).to_json(),
            "decode": figure(0.8, Unit.RATIO).to_json(),
        },
    )
    loads = rooms.loads(stage.deployment, T0)
    assert (loads["prefill"].holds, loads["decode"].holds) == (False, True)
    assert (loads["decode"].busy, loads["decode"].workers) == (0.8, 4)
    assert rooms.loads(stage.deployment, T0 + timedelta(seconds=26)) == {}, "too old to decide by"
    model_only = Measurement(0.8, Unit.RATIO, State.OK, T0, method="model only")
    Evaluation.objects.update(busy={"decode": model_only.to_json()})
    assert rooms.loads(stage.deployment, T0) == {}, "a model may flag, not command"


def test_loosening_an_objective_voids_the_approval(stage: Stage, rooms: RoomFacts) -> None:
    before = rooms.guardrails(stage.deployment)
    slo.set_objective(
        actor=SYSTEM,
        now=T0,
        deployment_id=stage.deployment.pk,
        signal=ObjectiveSignal.TTFT,
        threshold_s=2.5,
    )
    assert rooms.guardrails(stage.deployment) != before
    assert Command.objects.count() == 0
