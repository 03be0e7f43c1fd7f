"""Windows of the release before roll-ups are carried over, on either database."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from django.db import connection
from django.db.migrations.executor import MigrationExecutor

from apps.accounts.domain.authorize import SYSTEM
from apps.engines.codec import window_to_json
from apps.engines.window import CounterIncrease, Signal, Window
from apps.fleet import services as fleet
from apps.telemetry import selectors, services
from apps.telemetry.domain.levels import RAW
from apps.telemetry.models import RollUp5m, RollUpMark, StoredWindow
from apps.telemetry.services import partitions
from apps.telemetry.services.store import store_windows

DAY0 = datetime(2026, 11, 2, tzinfo=UTC)


@pytest.fixture
def old_layout(transactional_db):
    """Telemetry's tables as the first release had them; back to the newest at the end."""
    executor = MigrationExecutor(connection)
    newest = [key for key in executor.loader.graph.leaf_nodes() if key[0] == "telemetry"]
    executor.migrate([("telemetry", "0001_initial")])
    yield executor.loader.project_state([("telemetry", "0001_initial")]).apps
    executor = MigrationExecutor(connection)
    executor.migrate(newest)


def window(end: datetime, seconds: float) -> Window:
    values = {Signal.REQUESTS_ARRIVED: CounterIncrease(seconds, {"a": seconds})}
    return Window("router", end - timedelta(seconds=seconds), end, values, ("a",), ("a",), "old")


@pytest.mark.django_db(transaction=True)
def test_rows_of_the_old_layout_are_rolled_up_and_not_lost(old_layout):
    cluster = fleet.register_cluster(
        actor=SYSTEM, now=DAY0, slug="lab", name="Lab", uid="lab", mode_cap="auto"
    )
    deployment = fleet.register_deployment(
        actor=SYSTEM, now=DAY0, cluster=cluster, slug="chat", name="chat",
        served_model="m", environment="demo", preset="demo",
    )  # fmt: skip
    # Five-minute tiles of an old day, which the first release kept among the windows; then minutes.
    old = [window(DAY0 + timedelta(minutes=5 * i), 300) for i in range(1, 25)]
    recent = [window(DAY0 + timedelta(days=9, minutes=i), 60) for i in range(1, 91)]
    rows = old_layout.get_model("telemetry", "StoredWindow").objects
    rows.bulk_create(
        rows.model(
            deployment_id=deployment.pk, scope=w.scope, start=w.start, end=w.end,
            payload=window_to_json(w), expected_count=1, reported_count=1,
        )
        for w in (*old, *recent)
    )  # fmt: skip
    executor = MigrationExecutor(connection)
    executor.migrate(executor.loader.graph.leaf_nodes())

    assert StoredWindow.objects.count() == 114
    assert StoredWindow.objects.filter(has_histograms=True, tile=0).count() == 114
    assert selectors.window_of(StoredWindow.objects.earliest("end")) == old[0]
    if partitions.is_partitioned():
        assert len(partitions.existing(RAW)) == 2
    assert RollUpMark.objects.count() == 4  # two hours then, an hour and a half now
    now = DAY0 + timedelta(days=9, hours=3)
    found = services.prune(now=now)
    assert (found.refused, StoredWindow.objects.count()) == (0, 90)
    assert RollUp5m.objects.count() == 4
    end = DAY0 + timedelta(hours=2)
    points = selectors.series(deployment, DAY0, end, 300)
    assert [point.arrivals_per_s for point in points] == [1.0] * 24
    # New windows get ids of their own.
    store_windows([(deployment.pk, window(now, 60))])
    assert StoredWindow.objects.count() == 91
