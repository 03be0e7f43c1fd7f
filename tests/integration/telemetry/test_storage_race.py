"""Roll-ups beside each other and beside the collector: nothing is lost, nothing counted twice."""

from __future__ import annotations

import threading
from datetime import timedelta

import pytest
from django.db import close_old_connections, connection

from apps.engines.window import Signal
from apps.telemetry import services
from apps.telemetry.models import RollUp5m, RollUpMark

from .conftest import T0
from .test_storage import arrived, minutes, slots, store


@pytest.mark.django_db(transaction=True)
def test_two_runs_and_a_collector_at_once(metric_fleet):
    if connection.vendor != "postgresql":
        pytest.skip("SQLite has one writer at a time")
    found = minutes(T0, 120)
    now = T0 + timedelta(hours=6)
    store(metric_fleet, *found[::2])
    failed: list[BaseException] = []

    def run(work) -> None:
        try:
            work()
        except BaseException as error:
            failed.append(error)
        finally:
            connection.close()

    def collect() -> None:
        for window in found[1::2]:
            store(metric_fleet, window)

    def roll_up() -> None:
        for _ in range(15):
            services.roll_up(now=now)

    threads = [threading.Thread(target=run, args=(work,)) for work in (roll_up, roll_up, collect)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    close_old_connections()
    assert failed == []
    services.roll_up(now=now)
    assert not RollUpMark.objects.filter(due_at__lte=now).exists()
    assert arrived(RollUp5m) == 120 * 60
    assert all(slot.histograms[Signal.TTFT].count == 300 for slot in slots(RollUp5m))
