"""The direct collector over several scrapes of real HTTP servers, up to the figures."""

from __future__ import annotations

from datetime import timedelta

import pytest

from apps.common.measurement import Drive, Place, State
from apps.engines.window import Signal
from apps.fleet import services as fleet
from apps.fleet.models import AttributeSource, Worker
from apps.telemetry import selectors, services
from apps.telemetry.models import Sample, Source, SourceState, StoredWindow, Target

from .conftest import Fleet

pytestmark = pytest.mark.django_db


def stored(fleet: Fleet, scope: str):
    row = StoredWindow.objects.get(deployment=fleet.deployment, scope=scope, end=fleet.at)
    return selectors.window_of(row)


def load(fleet: Fleet, ticks: int, requests: int = 40, **options) -> None:
    for _ in range(ticks):
        for index in range(requests):
            fleet.serve(
                prefill=f"p{index % 2}", decode=f"d{index % 2}",
                ttft_s=0.55 if index % 10 else 2.2, **options,
            )  # fmt: skip
        fleet.collect()


def test_figures_of_a_serving_fleet(metric_fleet):
    metric_fleet.collect()
    load(metric_fleet, 6)
    now = metric_fleet.at + timedelta(seconds=1)
    found = selectors.figures(metric_fleet.deployment, now)

    assert found.at == metric_fleet.at
    assert found.span_s == 30
    assert (found.ttft.p95.state, found.ttft.p95.place) == (State.OK, Place.ROUTER)
    assert (found.ttft.p95.lower, found.ttft.p95.upper) == (2, 2.5)
    assert found.ttft.p95.sample_count == 240
    assert found.ttft.p50.value == pytest.approx(0.555, abs=0.05)
    assert found.ttft.mean.value == pytest.approx(0.9 * 0.55 + 0.1 * 2.2)
    assert (found.tpot.p95.place, found.tpot.p95.state) == (Place.ENGINE, State.OK)
    assert (found.tpot.p95.lower, found.tpot.p95.upper) == (0.015, 0.02)
    assert found.arrivals_per_s.value == pytest.approx(8)
    assert found.completions_per_s.value == pytest.approx(8)
    assert (found.failures_per_s.value, found.failures_per_s.state) == (0, State.OK)
    assert found.input_tokens_per_s.value == pytest.approx(8000)
    assert found.output_tokens_per_s.value == pytest.approx(1600)
    assert (found.cached_tokens_per_s.value, found.cached_tokens_per_s.state) == (0, State.OK)
    assert found.uncached_input_tokens_per_s.value == pytest.approx(8000)
    assert found.mean_input_tokens.value == pytest.approx(1000)
    assert found.mean_output_tokens.value == pytest.approx(200)
    assert "smg_pd_ttft_seconds" in found.ttft.p95.trace.query
    assert found.ttft.p95.trace.source == "chat (direct scrape)"
    assert found.mixed is None


def test_figures_of_the_pools(metric_fleet):
    metric_fleet.collect()
    for name in ("p0", "p1"):
        metric_fleet.engine(name).gauges(running=1, queue=4, usage=0.3)
    metric_fleet.engine("d0").gauges(running=20, queue=0, usage=0.5)
    metric_fleet.engine("d1").gauges(running=10, queue=0, usage=0.7)
    load(metric_fleet, 6)
    found = selectors.figures(metric_fleet.deployment, metric_fleet.at)

    prefill, decode = found.prefill, found.decode
    assert prefill is not None and decode is not None
    assert prefill.waiting.value == 2 * (4 + 1 + 2)
    assert prefill.transferring.value == 4
    assert decode.waiting.value == 2 * 3
    assert decode.running.value == 30
    assert decode.kv_used.value == pytest.approx(0.6)
    assert decode.kv_capacity_tokens.value == 120_000
    assert (decode.max_running.value, decode.max_running.place) == (96, Place.ROUTER)
    assert prefill.forward_seconds_per_s.value == pytest.approx(0.8)
    assert prefill.forward_seconds_per_s.method == "engine_time"
    assert prefill.queue_time_mean.value == pytest.approx((0.9 * 0.55 + 0.1 * 2.2) / 2)
    assert prefill.stage_time_mean.value == pytest.approx(0.1)
    assert prefill.kv_transfer_mean.value == pytest.approx(0.02)
    assert decode.stage_time_mean.value == pytest.approx(0.018)
    assert prefill.tokens_per_s.value == pytest.approx(8000)
    assert decode.tokens_per_s.value == pytest.approx(1600)
    assert (prefill.workers_wanted, prefill.workers_serving, prefill.workers_reporting) == (2, 2, 2)
    p0 = prefill.workers[0]
    assert (p0.name, p0.is_reporting, p0.waiting.value) == ("p0", True, 7)
    assert p0.seconds_per_token.value == pytest.approx(0.1 / 1000)
    assert p0.tokens_per_s.value == pytest.approx(4000)
    assert p0.forward_share.value == pytest.approx(0.4)


def test_nothing_but_gauges_at_the_first_tick(metric_fleet):
    metric_fleet.collect()
    found = selectors.figures(metric_fleet.deployment, metric_fleet.at)
    assert found.arrivals_per_s.state is State.NO_DATA
    assert found.ttft.p95.state is State.NO_DATA
    assert found.decode.running.value == 0


def test_no_traffic_is_not_missing(metric_fleet):
    for _ in range(3):
        metric_fleet.collect()
    found = selectors.figures(metric_fleet.deployment, metric_fleet.at)
    assert found.arrivals_per_s.state is State.NO_TRAFFIC
    assert found.ttft.p95.state is State.NO_TRAFFIC
    assert found.tpot.p95.state is State.NO_TRAFFIC
    assert found.prefill.tokens_per_s.state is State.NO_TRAFFIC
    assert found.prefill.waiting.value == 2 * 3


def test_requests_in_flight_are_traffic_without_completions(metric_fleet):
    metric_fleet.collect()
    for _ in range(3):
        metric_fleet.serve(finish=False)
        metric_fleet.collect()
    found = selectors.figures(metric_fleet.deployment, metric_fleet.at)
    assert found.arrivals_per_s.value == pytest.approx(3 / 15)
    assert (found.completions_per_s.value, found.completions_per_s.state) == (0, State.OK)
    assert found.ttft.p95.state is State.TOO_FEW
    assert found.ttft.p95.sample_count == 3
    assert found.ttft.mean.value == pytest.approx(0.5)
    assert found.tpot.p95.state is State.NO_DATA


def test_cut_streams_are_failures(metric_fleet):
    metric_fleet.collect()
    metric_fleet.collect()
    for _ in range(4):
        metric_fleet.router.arrived()
        metric_fleet.router.completed()
    metric_fleet.router.cut()
    metric_fleet.router.completed(status=503)
    metric_fleet.collect()
    found = selectors.figures(metric_fleet.deployment, metric_fleet.at)
    assert found.completions_per_s.value == pytest.approx(4 / 10)
    assert found.failures_per_s.value == pytest.approx(2 / 10)


def test_percentiles_grow_their_window_until_there_are_enough(metric_fleet):
    metric_fleet.collect()
    load(metric_fleet, 24, requests=5)  # 1 req/s: 30 in the diagnosis window of 30 s, 100 needed
    found = selectors.figures(metric_fleet.deployment, metric_fleet.at)
    assert found.span_s == 30
    assert found.ttft.p95.state is State.OK
    assert found.ttft.p95.sample_count == 120
    assert "120s" in found.ttft.p95.trace.query
    assert found.arrivals_per_s.value == pytest.approx(1)
    assert "30s" in found.arrivals_per_s.trace.query


def test_an_answer_beyond_the_ladder_is_clamped(metric_fleet):
    metric_fleet.collect()
    for _ in range(120):
        metric_fleet.serve(ttft_s=90)
    metric_fleet.collect()
    found = selectors.figures(metric_fleet.deployment, metric_fleet.at).ttft.p95
    assert (found.state, found.value, found.lower, found.upper) == (State.CLAMPED, 60, 60, None)


def test_windows_tile_and_lose_nothing(metric_fleet):
    metric_fleet.collect()
    load(metric_fleet, 18, requests=3)
    found = selectors.figures_over(metric_fleet.deployment, metric_fleet.at, 90)
    assert found.span_s == 90
    assert found.arrivals_per_s.number() * 90 == pytest.approx(54)
    assert found.output_tokens_per_s.number() * 90 == pytest.approx(54 * 200)


def test_a_restarted_engine_loses_and_invents_nothing(metric_fleet):
    metric_fleet.collect()
    load(metric_fleet, 2, requests=10)
    metric_fleet.engine("d0").clear()
    metric_fleet.engine("d0").gauges()
    load(metric_fleet, 2, requests=10)
    tokens = stored(metric_fleet, "decode").values[Signal.OUTPUT_TOKENS]
    assert tokens.increase == 40 * 200
    assert tokens.by_worker == {metric_fleet.url("d0"): 4000, metric_fleet.url("d1"): 4000}


def test_one_engine_down_makes_its_pool_partial_and_no_other(metric_fleet):
    metric_fleet.collect()
    load(metric_fleet, 4)
    metric_fleet.servers["d1"].stop()
    metric_fleet.collect()
    result = metric_fleet.collect()
    assert (result.targets, result.answered) == (5, 4)
    found = selectors.figures(metric_fleet.deployment, metric_fleet.at)
    assert (found.tpot.p95.state, found.tpot.p95.coverage) == (State.PARTIAL, (1, 2))
    assert found.decode.running.state is State.PARTIAL
    assert found.ttft.p95.state is State.OK
    assert found.prefill.waiting.state is State.OK
    by_name = {worker.name: worker for worker in found.decode.workers}
    assert (by_name["d0"].is_reporting, by_name["d1"].is_reporting) == (True, False)
    assert by_name["d0"].running.state is State.OK
    assert by_name["d1"].running.state is State.NO_DATA
    target = Target.objects.get(worker=metric_fleet.workers["d1"])
    assert target.last_error == "the connection was refused"
    assert metric_fleet.source().state == SourceState.OK


def test_an_absent_worker_is_not_missed(metric_fleet):
    Worker.objects.filter(pk=metric_fleet.workers["d1"].pk).update(serving="absent")
    metric_fleet.servers["d1"].stop()
    metric_fleet.collect()
    load_one = selectors.figures(metric_fleet.deployment, metric_fleet.at).decode
    assert (load_one.running.state, load_one.running.coverage) == (State.OK, (1, 1))


def test_all_down_grows_stale_then_source_down_with_the_last_value(metric_fleet):
    metric_fleet.collect()
    load(metric_fleet, 6)
    last = metric_fleet.at
    for server in metric_fleet.servers.values():
        server.stop()
    metric_fleet.collect()
    assert metric_fleet.source().state == SourceState.DOWN
    assert metric_fleet.source().last_error == "the connection was refused"
    states = []
    for age in (5, 10, 20, 26, 3600):
        found = selectors.figures(metric_fleet.deployment, last + timedelta(seconds=age))
        states.append(found.ttft.p95.state)
        assert found.ttft.p95.observed_at == last
        assert found.ttft.p95.value is not None
        assert found.decode.running.state is found.ttft.p95.state
    assert states == [
        State.OK, State.STALE, State.STALE, State.SOURCE_DOWN, State.SOURCE_DOWN
    ]  # fmt: skip
    assert not any(found.ttft.p95.may_drive(drive) for drive in Drive)


def test_a_collector_that_stopped_leaves_no_value(metric_fleet):
    metric_fleet.collect()
    load(metric_fleet, 6)
    late = metric_fleet.at + timedelta(seconds=26)
    found = selectors.figures(metric_fleet.deployment, late)
    assert (found.ttft.p95.state, found.ttft.p95.value) == (State.NO_DATA, None)


def test_only_the_router_down(metric_fleet):
    metric_fleet.collect()
    load(metric_fleet, 6)
    metric_fleet.servers["router"].stop()
    for _ in range(6):
        metric_fleet.collect()
    found = selectors.figures(metric_fleet.deployment, metric_fleet.at)
    assert found.ttft.p95.state is State.SOURCE_DOWN
    assert found.ttft.p95.value is not None
    assert found.decode.running.state is State.OK


def test_an_error_page_is_no_answer(metric_fleet):
    metric_fleet.collect()
    metric_fleet.servers["p0"].status = 500
    metric_fleet.collect()
    target = Target.objects.get(worker=metric_fleet.workers["p0"])
    assert target.last_error == "the target answered HTTP 500"


def test_an_address_outside_the_policy_is_never_called(metric_fleet, settings):
    settings.FULCRUM_LOOPBACK_PORTS = frozenset()
    metric_fleet.collect()
    assert metric_fleet.source().last_error == "loopback addresses are not allowed"
    assert all(server.requests == 0 for server in metric_fleet.servers.values())


def test_a_role_flip_splits_the_work_between_pools(metric_fleet):
    """Increments go to the pool of the role the worker had; nothing crosses the change."""
    metric_fleet.collect()
    load(metric_fleet, 3, requests=4)
    flipped = metric_fleet.workers["d1"]
    metric_fleet.engine("d1").switch("prefill")
    fleet.record_role(
        now=metric_fleet.at + timedelta(seconds=2), worker_id=flipped.pk, role="prefill",
        source=AttributeSource.REPORTED,
    )  # fmt: skip
    for _ in range(2):
        for _ in range(5):
            metric_fleet.serve(prefill="d1", decode="d0")
        metric_fleet.collect()
    url = metric_fleet.url("d1")
    prefill, decode = stored(metric_fleet, "prefill"), stored(metric_fleet, "decode")
    assert prefill.values[Signal.INPUT_TOKENS].by_worker[url] == 10 * 1000
    assert decode.values[Signal.OUTPUT_TOKENS].by_worker[url] == 6 * 200
    assert url in prefill.expected and url in prefill.reported
    assert url not in decode.expected and url not in decode.reported
    assert url not in decode.values[Signal.RUNNING].by_worker
    total = sum(prefill.values[Signal.INPUT_TOKENS].by_worker.values())
    assert total == 22 * 1000
    found = selectors.figures(metric_fleet.deployment, metric_fleet.at)
    assert [w.name for w in found.prefill.workers] == ["d1", "p0", "p1"]
    assert found.prefill.waiting.state is State.OK


def test_targets_follow_the_inventory(metric_fleet):
    metric_fleet.collect()
    gone = metric_fleet.workers["p1"]
    Worker.objects.filter(pk=gone.pk).update(ended_at=metric_fleet.at)
    metric_fleet.collect()
    urls = {target.url for target in selectors.targets_of(metric_fleet.deployment)}
    assert len(urls) == 4
    assert gone.metrics_url not in urls
    Worker.objects.filter(pk=gone.pk).update(ended_at=None)
    metric_fleet.collect()
    assert selectors.targets_of(metric_fleet.deployment).count() == 5
    assert Target.objects.count() == 5


def test_a_tick_twice_writes_the_same_rows(metric_fleet):
    metric_fleet.collect()
    load(metric_fleet, 3, requests=2)
    before = (Sample.objects.count(), StoredWindow.objects.count())
    again = services.collect_source(
        source_id=metric_fleet.source().pk, now=metric_fleet.at, owner="other"
    )
    assert again is not None
    assert (Sample.objects.count(), StoredWindow.objects.count()) == before
    moment_later = metric_fleet.at + timedelta(seconds=1)
    assert services.collect_source(
        source_id=metric_fleet.source().pk, now=moment_later, owner="other"
    ) is None  # fmt: skip
    assert (Sample.objects.count(), StoredWindow.objects.count()) == before


def test_a_source_leased_by_another_is_left_alone(metric_fleet):
    Source.objects.update(lease_owner="other", lease_until=metric_fleet.at + timedelta(seconds=30))
    assert metric_fleet.collect() is None
    assert Sample.objects.count() == 0


def test_a_collect_that_lost_its_lease_writes_nothing(metric_fleet, monkeypatch):
    from apps.common import leases
    from apps.telemetry.services import through_scrape

    real = through_scrape.scrape

    def slow(*args, **options):
        answers = real(*args, **options)
        Source.objects.update(lease_epoch=99, lease_owner="other")
        return answers

    monkeypatch.setattr(through_scrape, "scrape", slow)
    with pytest.raises(leases.LeaseLost):
        metric_fleet.collect()
    assert Sample.objects.count() == 0
    assert StoredWindow.objects.count() == 0


def test_due_sources_are_claimed_once_and_keep_their_beat(metric_fleet):
    now = metric_fleet.at
    (claimed,) = services.claim_due_sources(now)
    assert claimed == metric_fleet.source().pk
    assert services.claim_due_sources(now) == []
    late = now + timedelta(seconds=7.3)
    assert services.claim_due_sources(late) == [claimed]
    assert metric_fleet.source().next_due_at == now + timedelta(seconds=10)


def test_a_collect_wakes_the_planner_after_its_commit(
    metric_fleet, django_capture_on_commit_callbacks
):
    with django_capture_on_commit_callbacks(execute=False) as callbacks:
        metric_fleet.collect()
    assert metric_fleet.woken == []
    for callback in callbacks:
        callback()
    assert metric_fleet.woken == [("planning.evaluate_deployment", str(metric_fleet.deployment.pk))]


def test_a_failed_collect_wakes_nobody(metric_fleet, django_capture_on_commit_callbacks):
    for server in metric_fleet.servers.values():
        server.stop()
    with django_capture_on_commit_callbacks(execute=True):
        metric_fleet.collect()
    assert metric_fleet.woken == []


def test_tasks_take_ids_and_call_their_service(metric_fleet, monkeypatch):
    from apps.telemetry import tasks

    enqueued = []
    monkeypatch.setattr(tasks.collect_source, "delay", enqueued.append)
    tasks.collect_due()
    assert enqueued == [str(metric_fleet.source().pk)]
    tasks.collect_source(enqueued[0])
    assert Sample.objects.count() == 5
    tasks.prune()
