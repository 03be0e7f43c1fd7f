"""The whole engine against a real smg: propose, approve, drive, and back again."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from apps.accounts.domain.authorize import SYSTEM
from apps.commands import services
from apps.commands.models import Command
from apps.fleet import services as fleet
from apps.fleet.models import Backend, Worker
from tests.contract.backends.stand_in import (
    ADMIN_KEY,
    ENGINE_KEY,
    Engine,
    Router,
    router_with,
)

from .world import Stage

pytestmark = pytest.mark.live


@pytest.fixture
def engines() -> Iterator[dict[str, Engine]]:
    names = ["p-0", "p-1", "d-0", "d-1", "d-2", "d-3"]
    found = {name: Engine("prefill" if name[0] == "p" else "decode") for name in names}
    yield found
    for engine in found.values():
        engine.close()


@pytest.fixture
def router(engines: dict[str, Engine]) -> Iterator[Router]:
    prefill = [engine for name, engine in engines.items() if name[0] == "p"]
    decode = [engine for name, engine in engines.items() if name[0] == "d"]
    with router_with(prefill, decode) as running:
        yield running


def drive(stage: Stage, router: Router, command: Command, *states: str) -> Command:
    """Drive in real time, with a little traffic."""
    deadline = time.monotonic() + 40
    while time.monotonic() < deadline:
        now = datetime.now(UTC)
        driven = services.drive(command_id=command.pk, owner="w", now=now)
        command.refresh_from_db()
        if command.state in states:
            return command
        router.chat()
        time.sleep(min(0.3, driven.next_s or 0))
    raise AssertionError((command.state, command.error_code, command.error_params))


def test_a_flip_and_back_on_a_real_router(
    stage: Stage, engines: dict[str, Engine], router: Router, settings: Any
) -> None:
    ports = {router.url, router.metrics_url, *(e.url for e in engines.values())}
    settings.FULCRUM_LOOPBACK_PORTS = frozenset(
        int(url.removesuffix("/metrics").rsplit(":", 1)[1]) for url in ports
    )
    for name, engine in engines.items():
        Worker.objects.filter(name=name).update(
            url=engine.url, bootstrap_port=engine.bootstrap_port
        )
    Backend.objects.filter(deployment=stage.deployment).delete()
    fleet.connect_backend(
        actor=SYSTEM,
        now=stage.now,
        deployment=stage.deployment,
        adapter="router_workers",
        address=router.url,
        parameters={"metrics_url": router.metrics_url, "kv_lease_s": "0.2", "role_flip": "1"},
        credential=ADMIN_KEY,
        engine_credential=ENGINE_KEY,
    )
    stage.now = datetime.now(UTC)
    engines["d-0"].running = engines["d-1"].running = engines["d-3"].running = 2
    command = stage.approved()
    assert command.plan[0]["worker"]["name"] == "d-2"
    command = drive(stage, router, command, "SOAK")
    listed = router.workers()
    assert listed[engines["d-2"].url]["worker_type"] == "prefill"
    assert listed[engines["d-2"].url]["labels"]["fulcrum_command"].startswith("C-1.")
    assert engines["d-2"].switches == ["prefill"]
    assert Worker.objects.get(name="d-2").role == "prefill"
    calls = [s.request for s in command.steps.all()]
    assert [c.split()[0] for c in calls if c] == ["PATCH", "DELETE", "POST", "POST"]
    assert all(k not in c for c in calls for k in (ADMIN_KEY, ENGINE_KEY))

    back = services.rollback(
        actor=stage.people["alice"], now=datetime.now(UTC), command_id=command.pk
    )
    drive(stage, router, back, "SUCCEEDED")
    command.refresh_from_db()
    assert command.state == "ROLLED_BACK"
    assert router.workers()[engines["d-2"].url]["worker_type"] == "decode"
    assert engines["d-2"].switches == ["prefill", "decode"]
    assert Worker.objects.get(name="d-2").role == "decode"
