"""The clock of the control plane jumps by an hour and back (M12): no tick twice, none lost."""

from __future__ import annotations

from datetime import timedelta

import pytest

from apps.common.measurement import State
from apps.engines.window import Signal
from apps.fleet.models import Backend
from apps.fleet.selectors import due_backend_ids
from apps.telemetry import selectors, services
from apps.telemetry.models import StoredWindow

from .test_scraping import load, stored

pytestmark = pytest.mark.django_db

HOUR = timedelta(hours=1)


def beat(fleet, seconds: float = 5) -> int:
    """One run of the dispatcher and its collects; how many windows of the router there are."""
    fleet.at += timedelta(seconds=seconds)
    for source_id in services.claim_due_sources(fleet.at):
        services.collect_source(source_id=source_id, now=fleet.at, owner="test")
    return StoredWindow.objects.filter(scope="router").count()


def test_a_clock_that_was_ahead_does_not_stop_the_collecting(metric_fleet):
    """Ticks were written an hour ahead; back in the present, they are not waited for."""
    fleet = metric_fleet
    for _ in range(3):
        beat(fleet)
    fleet.at += HOUR
    beat(fleet)
    ahead = fleet.source().next_due_at
    fleet.at -= HOUR
    before = beat(fleet)
    assert fleet.source().next_due_at < ahead - timedelta(minutes=59)
    for _ in range(3):
        for _ in range(4):
            fleet.serve()
        assert beat(fleet) == before + 1, "each beat one tick"
        before += 1
        assert services.claim_due_sources(fleet.at) == [], "and no tick twice"
    found = selectors.figures(fleet.deployment, fleet.at)
    assert found.arrivals_per_s.state is State.OK
    assert found.arrivals_per_s.observed_at == fleet.at, "not the hour ahead"
    assert stored(fleet, "router").values[Signal.REQUESTS_ARRIVED].increase == 12


def test_a_jump_ahead_invents_nothing(metric_fleet):
    fleet = metric_fleet
    beat(fleet)
    load(fleet, 2, requests=4)
    fleet.at += HOUR
    beat(fleet)
    beat(fleet)
    last = StoredWindow.objects.filter(scope="router").latest("end")
    assert last.end - last.start < timedelta(minutes=1), "no window over the hour"
    assert selectors.figures(fleet.deployment, fleet.at).arrivals_per_s.state is State.NO_TRAFFIC


def test_a_clock_that_was_ahead_does_not_stop_the_observation(metric_fleet):
    fleet, now = metric_fleet, metric_fleet.at
    own = Backend.objects.filter(deployment=fleet.deployment)
    for due_in_s, is_due in ((-1, True), (1, False), (19, False), (3600, True)):
        own.update(
            adapter="router_workers",
            observe_interval_s=10,
            next_due_at=now + timedelta(seconds=due_in_s),
        )
        assert (fleet.deployment.pk in due_backend_ids(now)) is is_due, due_in_s
