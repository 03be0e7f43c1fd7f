"""Roles from labels and behaviour, and what contradicts them, on real metric servers."""

from __future__ import annotations

from datetime import timedelta

import pytest

from apps.engines.codec import window_to_json
from apps.engines.window import CounterIncrease, HistogramIncrease, Signal, Window
from apps.fleet.models import Span, Worker
from apps.fleet.services import record_role
from apps.telemetry import coverage, services
from apps.telemetry.models import Source, StoredFinding, StoredWindow, Target

pytestmark = pytest.mark.django_db


def check(fleet) -> int:
    return services.check_deployment(deployment_id=fleet.deployment.pk, now=fleet.at)


def store(fleet, scope: str, url: str, *, computed: float, transferred: float) -> None:
    """Five minutes of a worker's own counters, as a collect stores them."""
    defaults_s = 30
    for index in range(5):
        end = fleet.at - timedelta(seconds=defaults_s * (4 - index))
        values = {
            Signal.COMPUTED_TOKENS: CounterIncrease(computed, {url: computed}),
            Signal.TRANSFERRED_TOKENS: CounterIncrease(transferred, {url: transferred}),
            Signal.LEG_TTFT: HistogramIncrease((1.0,), (30, 0), 3.0, 30, {url: 3.0}, {url: 30}),
            Signal.ITL: HistogramIncrease((1.0,), (900, 0), 9.0, 900, {url: 9.0}, {url: 900}),
        }
        window = Window(scope, end - timedelta(seconds=defaults_s), end, values, (url,), (url,))
        StoredWindow.objects.update_or_create(
            deployment=fleet.deployment, scope=scope, end=end,
            defaults={"start": window.start, "payload": window_to_json(window)},
        )  # fmt: skip


def test_targets_are_looked_at_once_in_a_while(metric_fleet) -> None:
    fleet = metric_fleet
    fleet.collect()
    check(fleet)
    rows = {row.url: row for row in Target.objects.all()}
    seen = rows[fleet.servers["d0"].metrics_url].observed
    assert seen["metric_labels"] == {"engine_type": ["decode"]}
    assert seen["names"] > 3
    assert rows[fleet.servers["router"].metrics_url].observed["metric_labels"] == {}
    first = rows[fleet.servers["d0"].metrics_url].observed_at
    fleet.at += timedelta(seconds=60)
    check(fleet)
    assert Target.objects.get(pk=rows[fleet.servers["d0"].metrics_url].pk).observed_at == first
    fleet.at += timedelta(seconds=300)
    check(fleet)
    assert Target.objects.get(pk=rows[fleet.servers["d0"].metrics_url].pk).observed_at == fleet.at


def test_a_role_that_only_a_label_names_is_stored_with_its_source(metric_fleet) -> None:
    fleet = metric_fleet
    worker = fleet.workers["d1"]
    Worker.objects.filter(pk=worker.pk).update(role="decode", role_source="unknown")
    fleet.collect()
    check(fleet)
    worker.refresh_from_db()
    assert (worker.role, worker.role_source) == ("decode", "metric_label")
    Worker.objects.filter(pk=worker.pk).update(role="prefill", role_source="unknown")
    fleet.at += timedelta(seconds=600)
    check(fleet)
    worker.refresh_from_db()
    assert (worker.role, worker.role_source) == ("decode", "metric_label")
    span = Span.objects.filter(subject_id=worker.pk, attribute="role").latest("valid_from")
    assert span.value == "decode"


def test_the_inventory_is_not_overruled_by_a_label(metric_fleet) -> None:
    """A label that contradicts is a finding, told after ten minutes, not a new role."""
    fleet = metric_fleet
    fleet.collect()
    fleet.engine("d0").switch("prefill")
    fleet.engine("d0").values = {
        key: value for key, value in fleet.engine("d0").values.items() if "decode" not in key[1]
    }
    check(fleet)
    worker = Worker.objects.get(pk=fleet.workers["d0"].pk)
    assert (worker.role, worker.role_source) == ("decode", "declared")
    found = StoredFinding.objects.get(code="label_contradicts")
    assert (found.worker, found.params["says"]) == (fleet.url("d0"), "prefill")
    assert coverage.role_findings(fleet.deployment, fleet.at) == []
    fleet.at += timedelta(minutes=10)
    (told,) = coverage.role_findings(fleet.deployment, fleet.at)
    assert (told.code, told.since) == ("label_contradicts", found.since)


def test_a_decode_worker_that_prefills_is_kept_with_its_since_time(metric_fleet) -> None:
    fleet = metric_fleet
    url = fleet.url("d0")
    fleet.collect()
    store(fleet, "decode", url, computed=500, transferred=9000)
    check(fleet)
    found = StoredFinding.objects.get(code="decode_prefills")
    assert found.since == fleet.at
    assert found.params["computed_share"] == pytest.approx(500 / 9500)
    for _ in range(5):
        fleet.at += timedelta(seconds=150)
        store(fleet, "decode", url, computed=500, transferred=9000)
        check(fleet)
    found.refresh_from_db()
    assert found.ended_at is None and found.seen_at == fleet.at
    (told,) = coverage.role_findings(fleet.deployment, fleet.at)
    assert told.code == "decode_prefills"
    lines = coverage.report(fleet.deployment, fleet.at).lines
    (line,) = [line for line in lines if line.code == "finding.decode_prefills"]
    assert line.params["worker"] == "d0"

    # Silence proves nothing; honest work ends it.
    StoredWindow.objects.all().delete()
    fleet.at += timedelta(seconds=60)
    check(fleet)
    found.refresh_from_db()
    assert found.ended_at is None
    store(fleet, "decode", url, computed=0, transferred=9000)
    check(fleet)
    found.refresh_from_db()
    assert found.ended_at == fleet.at
    assert coverage.role_findings(fleet.deployment, fleet.at) == []


def test_labels_seen_before_a_role_change_contradict_nothing(metric_fleet) -> None:
    fleet = metric_fleet
    fleet.collect()
    check(fleet)
    fleet.at += timedelta(seconds=30)
    record_role(now=fleet.at, worker_id=fleet.workers["d0"].pk, role="prefill", source="reported")
    fleet.at += timedelta(seconds=30)
    check(fleet)
    assert not StoredFinding.objects.exists()
    fleet.at += timedelta(seconds=300)
    check(fleet)
    assert StoredFinding.objects.get().code == "label_contradicts", "its engine still says decode"


def test_checking_twice_writes_the_same(metric_fleet) -> None:
    fleet = metric_fleet
    fleet.collect()
    store(fleet, "decode", fleet.url("d0"), computed=500, transferred=9000)
    assert check(fleet) == check(fleet)
    assert StoredFinding.objects.filter(code="decode_prefills").count() == 1


def test_what_does_not_answer_is_not_waited_for(metric_fleet) -> None:
    """A dead source or target costs a check nothing: the collect tells when it is back."""
    fleet = metric_fleet
    fleet.servers["d1"].stop()
    fleet.collect()
    assert services.observe_targets(deployment=fleet.deployment, now=fleet.at) == 4
    assert services.observe_targets(deployment=fleet.deployment, now=fleet.at) == 0
    Source.objects.update(state="down")
    fleet.at += timedelta(hours=1)
    assert services.observe_targets(deployment=fleet.deployment, now=fleet.at) == 0
