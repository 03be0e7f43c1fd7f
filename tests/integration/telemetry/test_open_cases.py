"""Reports that need a fleet over time: real servers, scrapes, stored windows, checks, figures."""

from __future__ import annotations

import pytest

from apps.common.measurement import State
from apps.fleet import selectors as fleet_selectors
from apps.fleet.models import Worker
from apps.planning.domain.data import data_state
from apps.telemetry import coverage, selectors, services
from apps.telemetry.domain.figures import DeploymentFigures
from apps.telemetry.models import StoredFinding

from .conftest import Fleet

pytestmark = pytest.mark.django_db


def doubted(fleet: Fleet) -> DeploymentFigures:
    """The figures as the checks of credibility leave them."""
    found = selectors.figures(fleet.deployment, fleet.at)
    newest = {
        scope: windows[-1]
        for scope, windows in coverage.recent_windows(fleet.deployment, fleet.at).items()
    }
    return coverage.doubted(found, fleet.deployment, newest, fleet.at)


def data(fleet: Fleet, found: DeploymentFigures):
    interval = fleet_selectors.defaults_for(fleet.deployment).collect_interval_s
    return data_state(found, fleet.at, interval)


def busy_minutes(fleet: Fleet, *, queue: float) -> None:
    """Two and a half minutes of 4 requests/s that wait 2 s each before prefill: 8 at any time."""
    fleet.collect()
    for tick in range(30):
        for index in range(20):
            fleet.serve(ttft_s=4.0, prefill=f"p{index % 2}", decode=f"d{index % 2}")
        for name in ("p0", "p1"):
            fleet.engine(name).gauges(running=1, queue=queue, usage=0.1 + tick / 1000)
        for name in ("d0", "d1"):
            fleet.engine(name).gauges(running=7, usage=0.2 + tick / 1000)
        fleet.collect()
    services.check_deployment(deployment_id=fleet.deployment.pk, now=fleet.at)


def test_queue_gauges_that_stay_0_under_load_drive_nothing(metric_fleet: Fleet) -> None:
    """sgl-project/sglang#8627, #7317 (case 13)."""
    for name in ("p0", "p1"):
        registry = metric_fleet.engine(name)
        for gauge in ("num_prefill_bootstrap_queue_reqs", "num_prefill_inflight_queue_reqs"):
            registry.set(f"sglang:{gauge}", 0, **registry.rank)
    silence(metric_fleet)
    busy_minutes(metric_fleet, queue=0)
    assert StoredFinding.objects.filter(code="zero_under_load", signal="waiting").exists()
    found = doubted(metric_fleet)
    assert found.prefill is not None
    assert found.prefill.waiting.state is State.CONFLICT
    state = data(metric_fleet, found)
    assert "prefill_waiting" in state.stale and not state.may_grow and not state.may_reduce


def test_queue_gauges_that_tell_the_truth_are_believed(metric_fleet: Fleet) -> None:
    silence(metric_fleet)
    busy_minutes(metric_fleet, queue=4)
    found = doubted(metric_fleet)
    assert found.prefill is not None
    assert found.prefill.waiting.state is State.OK
    assert data(metric_fleet, found).stale == ()


def silence(fleet: Fleet) -> None:
    """The queues of the transfer stay empty in this fleet, whatever `gauges` writes."""
    for name in ("p0", "p1"):
        registry = fleet.engine(name)
        write = registry.set

        def only(name: str, value: float, write=write, **labels: str) -> None:
            write(name, 0 if "prefill_" in name and "queue" in name else value, **labels)

        registry.set = only  # type: ignore[method-assign]


def test_a_deleted_pod_that_still_answers_is_not_read(metric_fleet: Fleet) -> None:
    """llm-d/llm-d-autoscaling#380, fixed by #385 (case 15): without load, series of deleted pods
    went on, and every loop added a replica. Targets follow the living inventory: what such a pod
    says reaches no figure, whatever the loop."""
    metric_fleet.collect()
    for _ in range(3):
        metric_fleet.collect()
    gone = metric_fleet.workers["d1"]
    Worker.objects.filter(pk=gone.pk).update(ended_at=metric_fleet.at)
    asked = metric_fleet.servers["d1"].requests
    metric_fleet.engine("d1").gauges(running=96, queue=500, usage=0.99)
    states = []
    for _ in range(8):
        metric_fleet.engine("d1").decode(prompt=1000, tokens=5000, tpot_s=0.2)
        metric_fleet.collect()
        found = selectors.figures(metric_fleet.deployment, metric_fleet.at)
        assert found.decode is not None
        assert [worker.name for worker in found.decode.workers] == ["d0"]
        assert found.decode.waiting.value == 3, "the living worker's own"
        assert found.decode.kv_used.value == pytest.approx(0.1)
        states.append((found.arrivals_per_s.state, found.decode.tokens_per_s.state))
    assert metric_fleet.servers["d1"].requests == asked, "not scraped any more"
    assert states[-1] == (State.NO_TRAFFIC, State.NO_TRAFFIC)


def test_a_router_alone_says_nothing_of_readiness(metric_fleet: Fleet) -> None:
    """sgl-project/sglang#33740 (case 14): `smg_worker_health` is 1 while prefill still loads. Both
    roles must answer themselves; the router's word brings none of their figures."""
    for name in ("p0", "p1"):
        metric_fleet.servers[name].stop()
    for _ in range(4):
        metric_fleet.router.arrived()
        metric_fleet.collect()
    found = selectors.figures(metric_fleet.deployment, metric_fleet.at)
    assert found.arrivals_per_s.state is State.OK
    assert found.prefill is not None and found.decode is not None
    assert (found.prefill.workers_reporting, found.decode.workers_reporting) == (0, 2)
    assert found.prefill.waiting.value is None
    state = data(metric_fleet, found)
    assert "prefill_waiting" in state.stale
    assert (state.may_grow, state.may_reduce, state.donors) == (False, False, frozenset())
