"""Where parts of the telemetry meet: windows and roles, pools and single workers, late windows and
hardware, stored windows and roll-ups."""

from __future__ import annotations

import json
import threading
import time
from datetime import timedelta
from types import SimpleNamespace

import pytest
from django.db import close_old_connections, connection, transaction

from apps.accounts.domain.authorize import SYSTEM
from apps.common.fetch import FetchError
from apps.common.measurement import State
from apps.engines import loader
from apps.engines.window import CounterIncrease, HistogramIncrease, Signal, Window
from apps.fleet import selectors as fleet
from apps.fleet import services as inventory
from apps.fleet.services import record_role
from apps.telemetry import selectors, services
from apps.telemetry.collectors.pooled import PoolAnswers
from apps.telemetry.domain.windows import TargetHistory
from apps.telemetry.models import RollUp1h, RollUpMark, Source, StoredWindow
from apps.telemetry.services import backfill, collect, hardware, tick
from apps.telemetry.services.pool_windows import with_pools
from apps.telemetry.services.sources import sync_targets
from apps.telemetry.services.store import store_windows

from .conftest import T0, Fleet
from .test_prometheus_client import Server


def window(
    start_s: float, end_s: float, *, scope: str = "router", histogram: bool = True
) -> Window:
    """One arrival a second, each with a TTFT."""
    count = end_s - start_s
    values = {Signal.REQUESTS_ARRIVED: CounterIncrease(count)}
    if histogram:
        values[Signal.TTFT] = HistogramIncrease((1.0,), (count, 0.0), 0.5 * count, count)
    times = T0 + timedelta(seconds=start_s), T0 + timedelta(seconds=end_s)
    return Window(scope, *times, values, ("a",), ("a",))


@pytest.mark.django_db
def test_roles_are_known_over_a_window_that_slow_scrapes_have_widened(metric_fleet: Fleet):
    """A Prometheus that scrapes every 60 s makes windows of 240 s."""
    Source.objects.update(kind="prometheus", parameters={"scrape_interval_s": 60})
    now = T0 + timedelta(hours=1)
    worker = metric_fleet.workers["p0"]
    record_role(
        now=now - timedelta(seconds=100), worker_id=worker.pk, role="decode", source="router"
    )
    targets = sync_targets(metric_fleet.deployment)
    found = tick.prepare(metric_fleet.source(), metric_fleet.deployment, targets, now)
    target = next(target for target in targets if target.worker_id == worker.pk)
    history = tick.history_of(found, target, [])
    assert history.role_at(now) == "decode"
    assert history.role_at(now - timedelta(seconds=200)) == "prefill"


def test_workers_outside_a_pool_keep_their_histograms_beside_it():
    """Two workers carry the labels that name their pool, a third has none and is read alone."""
    profile = loader.load("vllm")
    (name,) = {
        ref.key for row in profile.rows(Signal.TPOT, "decode") for term in row.terms[:1]
        for ref in term.any_of[:1]
    }  # fmt: skip
    answers = PoolAnswers()
    key = (profile.profile, name, ("chat", "decode"), "")
    answers.buckets[key] = {0.1: 4.0, float("inf"): 6.0}
    answers.totals[key] = 1.5
    answers.owns[key[2]] = {"": None}
    single = HistogramIncrease((0.1,), (3.0, 0.0), 0.2, 3.0, {"c": 0.2}, {"c": 3.0})
    times = T0, T0 + timedelta(seconds=60)
    before = Window("decode", *times, {Signal.TPOT: single}, ("a", "b", "c"), ("a", "b", "c"))
    histories = {url: TargetHistory(url, "engine", profile, (), "decode") for url in "abc"}
    members = dict.fromkeys("ab", ("chat", "decode"))
    whole = with_pools(before, members, histories, answers).values[Signal.TPOT]
    assert isinstance(whole, HistogramIncrease)
    assert (whole.counts, whole.count) == ((7.0, 2.0), 9.0)
    assert whole.total == pytest.approx(1.7)
    assert whole.count_by_worker["c"] == 3.0


@pytest.mark.django_db
def test_a_collect_without_histograms_never_replaces_one_with_them(metric_fleet: Fleet):
    store_windows([(metric_fleet.deployment.pk, window(0, 60))])
    StoredWindow.objects.update(reported_count=0)
    late = window(0, 60, histogram=False)
    assert not backfill._is_better(metric_fleet.deployment.pk, late)
    assert backfill._is_better(metric_fleet.deployment.pk, window(0, 60))


@pytest.mark.django_db
def test_history_of_a_fleet_that_staggers_its_histograms_has_every_slot(metric_fleet: Fleet):
    """Histograms tile from 15 s on, counters from 0: slots of 5 min reach into each other."""
    found = [window(at, at + 60, histogram=False) for at in range(0, 3600, 60)]
    found += [window(at, at + 60) for at in range(15, 3600, 60)]
    store_windows([(metric_fleet.deployment.pk, item) for item in found])
    end = T0 + timedelta(hours=1)
    services.roll_up(now=end + timedelta(hours=2))
    StoredWindow.objects.all().delete()
    figures = selectors.figures_over(metric_fleet.deployment, end, 3600)
    assert figures.arrivals_per_s.number() == pytest.approx(1)
    assert figures.span_s > 3500
    assert figures.ttft.p95.sample_count == 3540  # the last one ends after the hour


@pytest.mark.django_db(transaction=True)
def test_storing_a_window_again_waits_for_a_roll_up_of_it(metric_fleet: Fleet):
    """Both touch the mark and the window; in one order, or they would lock each other out."""
    if connection.vendor != "postgresql":
        pytest.skip("SQLite has one writer at a time")
    again = (metric_fleet.deployment.pk, window(0, 60))
    store_windows([again])
    failed: list[BaseException] = []

    def collect() -> None:
        try:
            store_windows([again])
        except BaseException as error:
            failed.append(error)
        finally:
            connection.close()

    thread = threading.Thread(target=collect)
    with transaction.atomic():
        assert len(RollUpMark.objects.select_for_update()) == 1
        thread.start()
        deadline = time.monotonic() + 20
        with connection.cursor() as cursor:
            waiting = 0
            while not waiting and time.monotonic() < deadline:
                time.sleep(0.05)
                cursor.execute("SELECT count(*) FROM pg_locks WHERE NOT granted")
                (waiting,) = cursor.fetchone()
        assert waiting
        StoredWindow.objects.update(tile=3)
    thread.join(20)
    close_old_connections()
    assert failed == []


@pytest.mark.django_db
def test_an_exporter_with_a_password_in_its_address_is_refused(metric_fleet: Fleet):
    source = metric_fleet.source()
    exporters = [{"profile": "dcgm", "url": "http://alice:secret@10.0.0.1:9400/metrics"}]
    with pytest.raises(FetchError, match="must not hold a password"):
        services.change_source(
            actor=SYSTEM, now=T0, source_id=source.pk, parameters={"exporters": exporters}
        )
    source.refresh_from_db()
    assert source.parameters == {}


def test_the_longest_collect_keeps_its_lease():
    """Hardware is asked after the Prometheus; what both brought is read and written after that."""
    waiting = collect.PROMETHEUS_DEADLINE_S + hardware.DEADLINE_S
    assert waiting + 15 <= collect.LEASE_S


@pytest.mark.django_db
def test_gauges_of_exporters_may_be_two_slow_scrapes_old(metric_fleet: Fleet, settings):
    """Scrapes every 60 s make windows of 240 s; the fresh span of a tick would be 30 s or less."""
    server = Server()
    try:
        row = {"metric": {"__name__": "DCGM_FI_DEV_POWER_USAGE"}, "value": [1, "1"]}
        data = {"resultType": "vector", "result": [row]}
        server.body = json.dumps({"status": "success", "data": data}).encode()
        settings.FULCRUM_LOOPBACK_PORTS = frozenset({server.port})
        source = metric_fleet.source()
        source.kind, source.url = "prometheus", f"http://127.0.0.1:{server.port}"
        span = T0, T0 + timedelta(seconds=240)
        prepared = tick.prepare(source, metric_fleet.deployment, (), span[1])
        spans = {metric_fleet.deployment.pk: span}
        hardware._through_prometheus(source, {}, spans, {}, [prepared])
    finally:
        server.stop()
    asked = [form["query"][0] for _, _, form, _ in server.seen]
    oldest = span[1].timestamp() - 120
    gauges = [query for query in asked if "POWER_USAGE" in query and "timestamp" in query]
    assert gauges and all(f">= {oldest:.3f}" in query for query in gauges)


@pytest.mark.django_db
def test_a_block_that_cannot_be_read_stops_no_other(metric_fleet: Fleet):
    """As a newer release, or a broken disk, may leave one."""
    owner = metric_fleet.deployment.pk
    store_windows([(owner, window(0, 60))])
    now = T0 + timedelta(hours=30)
    services.roll_up(now=now)
    RollUp1h.objects.update(is_sealed=True, payload=b"not a block")
    store_windows([(owner, window(60, 120)), (owner, window(86_400, 86_460))])
    found = services.roll_up(now=now)
    assert found.refused >= 1
    assert RollUp1h.objects.filter(start__gt=T0).exists()


@pytest.mark.django_db
def test_gaps_are_seen_whoever_was_connected_first(metric_fleet: Fleet):
    """Deployments without windows, however many, do not stand for those that have some."""
    chat = metric_fleet.deployment
    defaults = fleet.defaults_for(chat)
    idle = [
        inventory.register_deployment(
            actor=SYSTEM, now=T0, cluster=chat.cluster, slug=f"idle-{number}",
            name=f"idle-{number}", served_model="m", environment="demo", preset="demo",
        )
        for number in range(5)
    ]  # fmt: skip
    store_windows([(chat.pk, window(0, 60)), (chat.pk, window(120, 180))])
    present = [SimpleNamespace(deployment=item, defaults=defaults) for item in (*idle, chat)]
    now = T0 + timedelta(minutes=5)
    found = backfill._missing(metric_fleet.source(), present, now, T0 - timedelta(hours=1))
    hole = T0 + timedelta(seconds=60), T0 + timedelta(seconds=120)
    assert (found[0].start, found[-1].end) == hole


@pytest.mark.django_db
def test_histograms_whose_beat_is_not_known_yet_are_old_as_soon_as_the_rest(metric_fleet: Fleet):
    """The first window had none (nobody had asked anything yet), one came, then the source died."""
    found = [window(0, 30, histogram=False), window(5, 35)]
    store_windows([(metric_fleet.deployment.pk, item) for item in found])
    at = T0 + timedelta(seconds=35)
    assert selectors.figures(metric_fleet.deployment, at).ttft.mean.state is State.OK
    later = selectors.figures(metric_fleet.deployment, at + timedelta(seconds=11))
    assert {later.arrivals_per_s.state, later.ttft.mean.state} == {State.STALE}
