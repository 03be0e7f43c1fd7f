"""Pages and charts are answered from stored rows: no request opens a connection to a source."""

from __future__ import annotations

import socket
from datetime import timedelta
from typing import Any

import pytest

from apps.accounts.domain.authorize import SYSTEM
from apps.overview import selectors as overview
from apps.telemetry import services
from apps.telemetry.models import Source

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
