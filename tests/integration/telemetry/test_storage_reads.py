"""Pages and charts are answered from stored rows: no request opens a connection to a source."""

from __future__ import annotations

import socket
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from apps.accounts.domain.authorize import SYSTEM
from apps.fleet import services as fleet
from apps.fleet.models import Deployment
from apps.overview import fleet as fleet_view
from apps.overview import selectors as overview
from apps.overview.deployment import build_status
from apps.overview.loaded import Loaded
from apps.planning.services import evaluate
from apps.telemetry import services
from apps.telemetry.models import LatestFigures, Source
from apps.telemetry.services.store import store_windows

from .conftest import T0
from .test_storage import minutes, store

pytestmark = pytest.mark.django_db


@pytest.fixture
def no_connections(monkeypatch) -> list[Any]:
    """Every attempt to connect a socket fails and is noted."""
    tried: list[Any] = []

    def connect(self: socket.socket, address: Any) -> None:
        tried.append(address)
        raise ConnectionRefusedError(f"a read wanted to connect to {address}")

    monkeypatch.setattr(socket.socket, "connect", connect)
    monkeypatch.setattr(socket.socket, "connect_ex", connect)
    return tried


def test_pages_and_series_ask_no_source(metric_fleet, no_connections):
    store(metric_fleet, *minutes(T0, 120), *minutes(T0, 120, scope="decode"))
    services.roll_up(now=T0 + timedelta(hours=2))
    Source.objects.update(kind="prometheus", url="http://127.0.0.1:9/")
    now = T0 + timedelta(hours=2, seconds=5)
    overview.fleet_page(SYSTEM, now, {})
    overview.deployment_page(SYSTEM, "chat", now)
    for hours in (0.25, 3, 24, 24 * 7, 24 * 30, 24 * 90):
        found = overview.deployment_series(
            SYSTEM, "chat", now, panels=("ttft", "tpot", "busy", "flow", "tokens", "queue"),
            start=now - timedelta(hours=hours), end=now,
        )  # fmt: skip
        assert 0 < found["n"] <= 400
        assert any(value is not None for value in found["panels"]["ttft"]["p95"])
    assert no_connections == []


def test_the_guard_itself_notices_a_connection(metric_fleet, no_connections):
    services.collect_source(source_id=metric_fleet.source().pk, now=T0, owner="test")
    assert no_connections


def test_a_fleet_row_says_what_the_deployment_itself_says(metric_fleet):
    """Rows are read for all deployments at once, and their figures were kept by an evaluation."""
    for _ in range(8):
        for _ in range(30):
            metric_fleet.serve()
        metric_fleet.collect()
    deployment, at = metric_fleet.deployment, metric_fleet.at
    for age_s, kept in ((1, False), (1, True), (12, True), (60, True)):
        now = at + timedelta(seconds=age_s)
        if kept and age_s == 1:
            evaluate(deployment_id=deployment.pk, now=now)
            assert LatestFigures.objects.get().kept_at == now
        (found,) = overview.fleet_page(SYSTEM, now, {}).rows
        single = Loaded(SYSTEM, Deployment.objects.select_related("cluster").get(), now)
        assert found == fleet_view.row(single, *build_status(single))
        assert (found.ttft_p95.value is None) == (age_s == 60)


def test_kept_figures_that_are_behind_are_made_again(metric_fleet):
    for _ in range(8):
        for _ in range(30):
            metric_fleet.serve()
        metric_fleet.collect()
    evaluate(deployment_id=metric_fleet.deployment.pk, now=metric_fleet.at)
    for _ in range(8):
        for _ in range(30):
            metric_fleet.serve(ttft_s=4)
        metric_fleet.collect()
    (found,) = overview.fleet_page(SYSTEM, metric_fleet.at, {}).rows
    assert found.ttft_p95.observed_at == metric_fleet.at
    assert found.ttft_p95.number() > 3


def test_the_fleet_needs_as_many_queries_for_many_as_for_one(metric_fleet):
    metric_fleet.collect()
    evaluate(deployment_id=metric_fleet.deployment.pk, now=metric_fleet.at)

    def queries() -> int:
        with CaptureQueriesContext(connection) as found:
            overview.fleet_page(SYSTEM, metric_fleet.at, {})
        return len(found)

    one = queries()
    for index in range(6):
        row = fleet.register_deployment(
            actor=SYSTEM, now=T0, cluster=metric_fleet.deployment.cluster, slug=f"more-{index}",
            name=f"more {index}", served_model="m", environment="demo", preset="demo",
        )  # fmt: skip
        store_windows(
            (row.pk, found) for found in minutes(metric_fleet.at - timedelta(minutes=3), 3)
        )
        evaluate(deployment_id=row.pk, now=metric_fleet.at)
    assert queries() == one <= 10


def test_a_change_of_bounds_is_marked_on_the_charts_m19(metric_fleet):
    """From the stored windows to the answer of the series: the line and a sentence."""
    change = T0 + timedelta(minutes=3)
    store(metric_fleet, *minutes(T0, 3), *minutes(change, 3, bounds=(8.0, 9.0)))
    now = T0 + timedelta(minutes=6)

    def events(start):
        found = overview.deployment_series(
            SYSTEM, "chat", now, panels=("ttft",), start=start, end=now
        )
        return found["events"]

    (event,) = events(T0 - timedelta(minutes=10))
    assert (event["kind"], event["latencies"]) == ("ladder_change", ["ttft"])
    assert change < datetime.fromisoformat(event["t"]) <= change + timedelta(minutes=1)
    assert event["label"].startswith("The bucket bounds of TTFT changed here")
    assert events(change + timedelta(minutes=1)) == [], "one ladder only: nothing to mark"
