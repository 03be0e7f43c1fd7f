"""The demo's story through the services, on a database: see, advise, move, settle, go back."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from decimal import Decimal

import pytest

from apps.accounts.domain.authorize import NotAllowed
from apps.common.measurement import Measurement, State
from apps.common.units import Unit
from apps.diagnosis import selectors as diagnosis
from apps.diagnosis.models import Calibration, DiagnosisRecord
from apps.fleet import selectors as fleet
from apps.fleet import services as fleet_services
from apps.fleet.models import Deployment
from apps.planning import selectors, services
from apps.planning.models import Evaluation, EvaluationTick, Recommendation
from tests.unit.diagnosis.builders import latency

from .conftest import Story
from .fluid import CALM, LONG

TO_PREFILL, TO_DECODE = {"prefill": 3, "decode": 3}, {"prefill": 2, "decode": 4}


def open_one(story: Story) -> Recommendation | None:
    return selectors.open_recommendation(story.deployment)


def to_the_recommendation(story: Story) -> Recommendation:
    story.run(120)
    story.fluid.load = LONG
    story.run(60)
    found = open_one(story)
    assert found is not None
    return found


def test_the_whole_story(story: Story) -> None:
    calm = story.run(120)
    assert open_one(story) is None
    assert {r.diagnosis.cause for r in calm[3:]} <= {"balanced", "idle_decode"}

    story.fluid.load = LONG
    shift = story.now
    while open_one(story) is None:
        story.run(5)
        assert story.now - shift < timedelta(seconds=60), "seen within a minute"
    found = open_one(story)
    assert found is not None
    assert (found.targets, found.current, found.number) == (TO_PREFILL, TO_DECODE, "R-1")
    assert (found.kind, found.reason) == ("rebalance", "prefill_saturated")
    assert found.blocked == "", found.guardrails
    assert found.diagnosis is not None and found.diagnosis.cause == "prefill_saturated"
    after = Measurement.from_json(found.predicted["ttft_p95"]["after"])
    assert after.number() < 2.5 and after.lower is not None
    now = Measurement.from_json(found.predicted["ttft_p95"]["now"])
    assert now.place.value == "router"

    story.run(40)
    kept = open_one(story)
    assert kept is not None and kept.number == "R-1", "the same change keeps its number"
    story.apply(kept)
    story.run(180)
    assert open_one(story) is None
    assert diagnosis.latest(story.deployment).cause == "balanced"  # type: ignore[union-attr]

    story.fluid.load = CALM
    back = story.now
    while open_one(story) is None:
        story.run(5)
        assert story.now - back < timedelta(seconds=240)
    reverse = open_one(story)
    assert reverse is not None
    assert (reverse.targets, reverse.reason) == (TO_DECODE, "load_returned")
    assert story.now - back >= timedelta(seconds=60), "not before the hold time"
    story.apply(reverse)
    story.run(300)
    assert open_one(story) is None
    assert Recommendation.objects.count() == 2, "no oscillation"


def test_two_cycles_make_four_changes(story: Story) -> None:
    changes = []
    story.run(90)
    for _ in range(2):
        for load, seconds in ((LONG, 240), (CALM, 300)):
            story.fluid.load = load
            end = story.now + timedelta(seconds=seconds)
            while story.now < end:
                story.run(5)
                found = open_one(story)
                if found is not None and not found.blocked:
                    changes.append(found.targets)
                    story.apply(found)
    assert changes == [TO_PREFILL, TO_DECODE, TO_PREFILL, TO_DECODE]


def test_one_window_is_not_enough_to_advise(story: Story) -> None:
    story.run(120)
    story.fluid.load = LONG
    for _ in range(12):
        story.run(5)
        if Evaluation.objects.order_by("-at").first().wanted:  # type: ignore[union-attr]
            break
    assert open_one(story) is None
    story.run(5)
    assert open_one(story) is not None


def test_calibration_comes_from_the_fleet(story: Story) -> None:
    story.run(120)
    rows = {row.phase: row for row in Calibration.objects.all()}
    assert rows["prefill"].basis == rows["decode"].basis == "calibrated"
    facts = diagnosis.calibrations(story.deployment)["prefill"]
    a, b, c = facts.coefficients
    assert a + b * 1150 + c * 1150**2 * 2 == pytest.approx(0.1188, rel=0.05)


def test_old_data_pause_the_open_one_and_fresh_data_resume_it(story: Story) -> None:
    to_the_recommendation(story)
    stale = {"ttft": latency(8.0, state=State.STALE)}
    story.transform = lambda f: replace(f, **stale)  # type: ignore[arg-type]
    story.run(10)
    found = open_one(story)
    assert found is not None and found.blocked == "data_stale"
    checks = {g.code: g.passed for g in services.recheck(found, story.now)}
    assert not checks["data_fresh"]
    story.transform = lambda f: f
    story.run(15)
    found = open_one(story)
    assert found is not None and found.blocked == ""
    checks = {g.code: g.passed for g in services.recheck(found, story.now)}
    assert all(checks.values()), checks


def test_without_fresh_data_it_expires(story: Story) -> None:
    found = to_the_recommendation(story)
    story.transform = lambda f: replace(f, at=found.refreshed_at)
    story.run(310)
    found.refresh_from_db()
    assert (found.state, found.closed_reason) == ("expired", "life_over")
    assert open_one(story) is None


def test_when_the_load_goes_by_itself_the_advice_goes_too(story: Story) -> None:
    found = to_the_recommendation(story)
    story.fluid.load, story.fluid.backlog = CALM, 0.0
    story.run(90)
    found.refresh_from_db()
    assert (found.state, found.closed_reason) == ("superseded", "no_longer_needed")


def test_a_change_by_somebody_else_supersedes(story: Story) -> None:
    from apps.accounts.domain.authorize import SYSTEM

    found = to_the_recommendation(story)
    fleet_services.set_wanted(
        actor=SYSTEM,
        now=story.now,
        deployment_id=story.deployment.pk,
        wanted={"prefill": 2, "decode": 3},
        expected_revision=found.expected_revision,
    )
    checks = {g.code: g.passed for g in services.recheck(found, story.now)}
    assert not checks["revision"]
    story.run(5)
    found.refresh_from_db()
    assert (found.state, found.closed_reason) == ("superseded", "plan_changed")


def test_observe_gives_no_advice_and_takes_back_what_is_open(story: Story) -> None:
    found = to_the_recommendation(story)
    Deployment.objects.filter(pk=story.deployment.pk).update(mode="observe")
    story.run(10)
    found.refresh_from_db()
    assert (found.state, found.closed_reason) == ("superseded", "mode_observe")
    assert open_one(story) is None
    assert selectors.latest_evaluation(story.deployment).reason == "prefill_saturated"  # type: ignore[union-attr]


def test_the_clusters_cap_binds(story: Story) -> None:
    story.run(60)
    cluster = story.world.cluster
    type(cluster).objects.filter(pk=cluster.pk).update(mode_cap="observe")
    story.fluid.load = LONG
    story.run(90)
    assert not Recommendation.objects.exists()


def test_dismissing_keeps_the_same_advice_away_for_a_while(story: Story) -> None:
    found = to_the_recommendation(story)
    w = story.world
    with pytest.raises(fleet.NotVisible):
        services.dismiss(
            actor=w.viewer(w.charlie), now=story.now, recommendation_id=found.pk, reason="no"
        )
    with pytest.raises(NotAllowed):
        services.dismiss(
            actor=w.viewer(w.bob), now=story.now, recommendation_id=found.pk, reason="no"
        )
    until = story.now + timedelta(seconds=60)
    gone = services.dismiss(
        actor=w.viewer(w.alice),
        now=story.now,
        recommendation_id=found.pk,
        reason="a deploy is running",
        until=until,
    )
    assert (gone.state, gone.dismissed_by_name) == ("dismissed", "alice")
    story.run(50)
    assert open_one(story) is None
    story.run(30)
    again = open_one(story)
    assert again is not None and again.number == "R-2"


def test_it_can_be_applied_once(story: Story) -> None:
    from uuid import uuid4

    found = to_the_recommendation(story)
    w = story.world
    services.mark_applied(
        actor=w.viewer(w.alice), now=story.now, recommendation_id=found.pk, command_id=uuid4()
    )
    with pytest.raises(services.NotOpen) as error:
        services.mark_applied(
            actor=w.viewer(w.alice),
            now=story.now,
            recommendation_id=found.pk,
            command_id=uuid4(),
        )
    assert error.value.state == "applied"
    story.run(30)
    assert open_one(story) is None, "no second one while the command waits for approval"


def test_an_evaluation_may_run_twice(story: Story) -> None:
    to_the_recommendation(story)
    before = [m.objects.count() for m in (Evaluation, DiagnosisRecord, Recommendation)]
    services.evaluate(deployment_id=story.deployment.pk, now=story.now)
    after = [m.objects.count() for m in (Evaluation, DiagnosisRecord, Recommendation)]
    assert before == after


def test_what_pages_read(story: Story) -> None:
    story.run(60)
    row = selectors.latest_evaluation(story.deployment)
    assert row is not None
    total = Measurement.from_json(row.costs["total_per_hour"])
    assert total.value == Decimal("27.54")
    good = Measurement.from_json(row.goodput["share"])
    assert good.lower is not None and 0.85 < good.number() <= 1.0
    busy = Measurement.from_json(row.busy["prefill"])
    assert busy.number() == pytest.approx(5.5 * 0.1192 / 2, rel=0.05)
    assert row.attainment["ttft"]["warning"] == ""
    between = selectors.evaluations_between(
        story.deployment, story.now - timedelta(seconds=20), story.now
    )
    assert len(between) == 4


def test_numbers_are_found_by_those_who_may_see_them(story: Story) -> None:
    to_the_recommendation(story)
    w = story.world
    assert selectors.recommendation_by_number(w.viewer(w.alice), "R-1").number == "R-1"
    with pytest.raises(fleet.NotVisible):
        selectors.recommendation_by_number(w.viewer(w.charlie), "R-1")


def test_a_prediction_is_scored(story: Story) -> None:
    found = to_the_recommendation(story)
    truth = Measurement(1.4, Unit.SECONDS, State.OK, story.now)
    result = services.score_prediction(
        now=story.now, recommendation_id=found.pk, measured={"ttft_p95": truth}
    )
    assert result.inside["ttft_p95"] is True
    count, error = selectors.similar_changes(story.deployment)
    assert count == 1 and error is not None and error < 1.0
    assert selectors.width_scale(story.deployment) == 1.0


def test_each_due_deployment_is_handed_out_once_and_leased(story: Story) -> None:
    story.run(5)
    now = story.now
    assert services.claim_due(now=now) == [story.deployment.pk]
    assert services.claim_due(now=now) == []
    assert services.claim_due(now=now + timedelta(seconds=4)) == []
    assert services.claim_due(now=now + timedelta(seconds=5)) == [story.deployment.pk]
    # A clock that was an hour ahead does not make the next evaluation wait for that hour.
    hour = timedelta(hours=1)
    assert services.claim_due(now=now + hour) == [story.deployment.pk]
    assert services.claim_due(now=now + timedelta(seconds=6)) == [story.deployment.pk]
    assert services.claim_due(now=now + timedelta(seconds=7)) == []
    tick = EvaluationTick.objects.get()
    tick.lease_owner, tick.lease_until = "other", now + timedelta(seconds=60)
    tick.save()
    pk = story.deployment.pk
    assert not services.evaluate_leased(deployment_id=pk, owner="me", now=now)
    late = now + timedelta(seconds=61)
    assert services.evaluate_leased(deployment_id=pk, owner="me", now=late)
    assert EvaluationTick.objects.get().lease_owner == ""
    # What new data woke needs no beat for one and a half intervals.
    assert services.claim_due(now=late + timedelta(seconds=7)) == []
    assert services.claim_due(now=late + timedelta(seconds=8)) == [pk]


def test_the_number_of_queries_of_an_evaluation_is_bounded(
    story: Story, django_assert_max_num_queries
) -> None:  # type: ignore[no-untyped-def]
    story.run(60)
    with django_assert_max_num_queries(60):
        story.run(5)
