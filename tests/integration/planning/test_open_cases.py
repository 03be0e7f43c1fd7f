"""Real reports of planners that misread their metrics, as input of ours: real exposition text
through collector, windows, figures, diagnosis and plan, up to what a command would be refused."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from apps.accounts.domain.authorize import SYSTEM
from apps.commands.services import planned
from apps.common.measurement import Measurement, State
from apps.fleet import selectors as fleet_selectors
from apps.fleet.models import Device, Pool, Worker
from apps.overview import inventory
from apps.overview.domain.types import Text
from apps.overview.loaded import Loaded
from apps.planning import selectors, services
from apps.planning.models import Evaluation, Recommendation
from apps.telemetry import selectors as telemetry

from .live_fleet import LiveFleet, live_fleet

pytestmark = pytest.mark.django_db


@pytest.fixture
def seven_and_one(db: None, settings: Any, monkeypatch: Any) -> Iterator[LiveFleet]:
    """What the planner of ai-dynamo/dynamo#6985 was left with: 7 prefill and 1 decode worker."""
    monkeypatch.setattr("celery.current_app.send_task", lambda *args, **options: None)
    with live_fleet(settings, prefill=7, decode=1, gpus=8, ttft_s=10, tpot_s=0.1) as found:
        yield found


@pytest.fixture
def two_and_two(db: None, settings: Any, monkeypatch: Any) -> Iterator[LiveFleet]:
    monkeypatch.setattr("celery.current_app.send_task", lambda *args, **options: None)
    with live_fleet(settings, prefill=2, decode=2, gpus=8) as found:
        yield found


#: Loads under which the fleet of the fixture is needed: 1.6 req/s of long prompts keep 7 prefill
#: workers two thirds busy; 12 req/s of short ones keep 2 so, and decode near its objective.
LONG_PROMPTS = {"per_tick": 8, "prompt": 28_000, "ttft_s": 4.0, "tpot_s": 0.015}
SHORT_PROMPTS = {"per_tick": 60, "prompt": 1_000, "ttft_s": 0.4, "tpot_s": 0.023}


def open_one(fleet: LiveFleet) -> Recommendation | None:
    return selectors.open_recommendation(fleet.deployment)


def loaded(fleet: LiveFleet) -> Loaded:
    deployment = fleet_selectors.deployment_by_id(fleet.deployment.pk)
    return Loaded(deployment=deployment, now=fleet.at, viewer=SYSTEM)


def step(fleet: LiveFleet, targets: dict[str, int]) -> None:
    """Carry a reduction out: workers leave router and inventory, their servers stop."""
    for role, count in targets.items():
        Pool.objects.filter(deployment=fleet.deployment, role=role).update(wanted_workers=count)
        mine = [n for n, w in fleet.workers.items() if w.role == role]
        for name in mine[count:]:
            Worker.objects.filter(pk=fleet.workers[name].pk).update(ended_at=fleet.at)
            fleet.servers[name].stop()
            del fleet.servers[name], fleet.workers[name]
    Recommendation.objects.filter(state="open").update(state="applied")


def test_idle_after_load_steps_down_to_the_floors(seven_and_one: LiveFleet) -> None:
    """ai-dynamo/dynamo#6985 (case 2) and #3131 (case 1): 1.5 req/s, then 0, with 7P/1D left; every
    tick was skipped because its averages were NaN. Here they are `no_traffic`, and the idle rule
    steps down, a quarter at a time, to the floors."""
    fleet = seven_and_one
    fleet.load(30, **LONG_PROMPTS)
    assert open_one(fleet) is None
    steps, evaluations = [7], []
    for _ in range(120):
        result = fleet.tick()
        evaluations.append(result.evaluation)
        found = open_one(fleet)
        if found is not None:
            assert found.reason == "spare_capacity"
            assert found.targets["decode"] == 1
            steps.append(found.targets["prefill"])
            step(fleet, found.targets)
        if steps[-1] == 1:
            break
    assert steps == [7, 6, 5, 4, 3, 2, 1]
    figures = telemetry.figures(fleet.deployment, fleet.at)
    assert figures.arrivals_per_s.state is State.NO_TRAFFIC
    assert figures.mean_input_tokens.state is State.NO_TRAFFIC
    assert figures.tpot.mean.state is State.NO_TRAFFIC
    assert not any(evaluation.stale for evaluation in evaluations), "no tick is skipped"
    for _ in range(4):
        fleet.tick()
    assert open_one(fleet) is None, "never below a floor"


def test_a_long_idleness_does_not_end_the_idle_rule(seven_and_one: LiveFleet) -> None:
    """Case 2, "never skip for ever": after half an hour without a request the lengths of the last
    ones are still what an empty fleet is judged with."""
    fleet = seven_and_one
    fleet.load(30, **LONG_PROMPTS)
    fleet.at += timedelta(minutes=45)
    fleet.idle(20)
    found = open_one(fleet)
    assert found is not None and found.targets == {"prefill": 6, "decode": 1}
    assert Evaluation.objects.latest("at").reason == "spare_capacity"


def test_nothing_is_proposed_before_the_idle_window_is_over(seven_and_one: LiveFleet) -> None:
    fleet = seven_and_one
    fleet.load(30, **LONG_PROMPTS)
    since = fleet.at
    while open_one(fleet) is None:
        fleet.tick()
        assert fleet.at - since < timedelta(minutes=5)
    hold = fleet_selectors.defaults_for(fleet.deployment).scale_down_hold_s
    assert (fleet.at - since).total_seconds() >= 0.5 * hold


@pytest.mark.parametrize("engines_only", [True, False], ids=["engines out", "all out"])
def test_an_outage_of_metrics_is_not_zero_requests(
    two_and_two: LiveFleet, engines_only: bool
) -> None:
    """ai-dynamo/dynamo#14575 (case 7): the outage was read as 0 requests, and the fleet shrank."""
    fleet = two_and_two
    fleet.load(24, **SHORT_PROMPTS)
    assert open_one(fleet) is None
    for name, server in fleet.servers.items():
        if name != "router" or not engines_only:
            server.stop()
    for _ in range(24):
        fleet.collect()
        fleet.saw_inventory(fleet.at)
        result = fleet.evaluate()
    figures = telemetry.figures(fleet.deployment, fleet.at)
    assert figures.mean_input_tokens.state is State.SOURCE_DOWN
    if not engines_only:
        assert figures.arrivals_per_s.state is State.SOURCE_DOWN
        assert figures.arrivals_per_s.number() > 0, "the last value, not 0"
    assert result.diagnosis.cause == "not_enough_signal"
    assert result.plan is not None and result.plan.reason == "data_not_fresh"
    assert open_one(fleet) is None


def test_a_floor_is_enforced_through_an_outage(two_and_two: LiveFleet) -> None:
    """Case 7: replicas below their minimum stayed there, because the planner waited for metrics.
    The inventory is enough; without a fresh one nothing is done."""
    fleet = two_and_two
    fleet.load(24, **SHORT_PROMPTS)
    assert open_one(fleet) is None
    for server in fleet.servers.values():
        server.stop()
    for _ in range(6):
        fleet.collect()
        fleet.evaluate()
    Pool.objects.filter(deployment=fleet.deployment, role="decode").update(min_workers=5)
    fleet.saw_inventory(fleet.at - timedelta(minutes=5))
    held = fleet.evaluate()
    assert held.plan is not None and held.plan.reason == "data_not_fresh"
    assert open_one(fleet) is None

    fleet.at += timedelta(seconds=5)
    fleet.saw_inventory(fleet.at)
    fleet.evaluate()
    found = open_one(fleet)
    assert found is not None and found.reason == "below_floor"
    # Two workers at a time: the limit of a step up. None of prefill is touched.
    assert found.targets == {"prefill": 2, "decode": 4}
    assert found.blocked == "" and found.predicted == {}
    checks = {g.code: g for g in services.recheck(found, fleet.at)}
    assert all(g.passed for g in checks.values()), checks
    assert checks["data_fresh"].detail == "inventory_fresh"

    fleet.at += timedelta(seconds=5)
    fleet.evaluate()
    kept = open_one(fleet)
    assert kept is not None and kept.number == found.number and kept.blocked == ""
    late = fleet.at + timedelta(minutes=2)
    checks = {g.code: g for g in services.recheck(kept, late)}
    assert (checks["data_fresh"].passed, checks["data_fresh"].detail) == (False, "inventory_old")


def test_a_floor_is_not_restored_with_gpus_that_nobody_has(two_and_two: LiveFleet) -> None:
    """Without a free GPU only the other pool could give, and its figures are lost."""
    fleet = two_and_two
    fleet.load(4, 20)
    Pool.objects.filter(deployment=fleet.deployment, role="decode").update(min_workers=3)
    Device.objects.filter(index__gte=4).delete()
    fleet.saw_inventory(fleet.at)
    for server in fleet.servers.values():
        server.stop()
    for _ in range(6):
        fleet.collect()
    fleet.saw_inventory(fleet.at)
    result = fleet.evaluate()
    assert result.plan is not None and result.plan.reason == "data_not_fresh"
    assert open_one(fleet) is None


def test_a_router_that_is_healthy_alone_moves_nothing(two_and_two: LiveFleet) -> None:
    """sgl-project/sglang#33740 (case 14): the router reports itself and its workers healthy while
    the prefill workers still load their model. What is ready is the least of both roles, and no
    scaling follows from the router's word."""
    fleet = two_and_two
    fleet.load(24, **SHORT_PROMPTS)
    assert open_one(fleet) is None
    for name in ("p0", "p1"):
        fleet.servers[name].stop()  # loading: the engine does not answer yet
    for _ in range(8):
        for _ in range(60):
            fleet.router.arrived()  # the router takes requests in all the same
        result = fleet.tick()
    figures = telemetry.figures(fleet.deployment, fleet.at)
    assert figures.arrivals_per_s.state is State.OK
    assert figures.prefill is not None and figures.decode is not None
    ready = min(figures.prefill.workers_reporting, figures.decode.workers_reporting)
    assert ready == 0
    assert result.diagnosis.cause == "not_enough_signal"
    assert result.plan is not None and result.plan.chosen is None
    assert open_one(fleet) is None


def test_hidden_gpus_do_not_shrink_the_inventory(two_and_two: LiveFleet) -> None:
    """kubecost/kubecost#1978, #1965 (case 20): a GPU count of 0 or a sparse one while pods use
    GPUs. Provisioned is what was declared, until a person retires it; more in use than provisioned
    is a defect of the data, and no free GPU comes of it."""
    fleet = two_and_two
    result = fleet.load(24, **SHORT_PROMPTS)
    cluster = fleet.deployment.cluster_id
    total = Measurement.from_json(result.evaluation.costs["total_per_hour"])
    assert fleet_selectors.gpus_provisioned(cluster, fleet.at) == 8
    for name in list(fleet.servers):
        fleet.servers[name].stop()
    for _ in range(8):
        fleet.collect()
    result = fleet.evaluate()
    after = Measurement.from_json(result.evaluation.costs["total_per_hour"])
    assert fleet_selectors.gpus_provisioned(cluster, fleet.at) == 8
    assert (after.value, after.state) == (total.value, total.state)
    assert list(inventory.banners(loaded(fleet))) == []

    Device.objects.filter(index__gte=3).delete()
    (told,) = inventory.banners(loaded(fleet))
    assert told.text == Text("banner.gpus_beyond_inventory", {"gpus_used": 4, "gpus_total": 3})
    assert planned.free_gpus(fleet.deployment, now=fleet.at) == -1, "not cut to 0"
    result = fleet.evaluate()
    again = Measurement.from_json(result.evaluation.costs["total_per_hour"])
    assert again.value == total.value, "what runs is still paid for"
