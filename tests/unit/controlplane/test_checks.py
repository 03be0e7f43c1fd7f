"""Ways of running that would lose work are refused with what to do."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from controlplane import checks


class Conf(SimpleNamespace):
    def get(self, name: str, default: Any) -> Any:
        return getattr(self, name, default)


@pytest.fixture
def production(settings: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(checks, "_is_production", lambda: True)
    settings.SECRET_KEY = "k" * checks.SHORTEST_SECRET
    settings.CELERY_BROKER_URL = "redis://127.0.0.1:6379/0"
    monkeypatch.setattr(checks, "connection", SimpleNamespace(vendor="postgresql"))
    return settings


def found() -> list[str | None]:
    messages = [*checks.secret_key_is_long(None), *checks.database_fits_the_way_of_running(None)]
    assert all(message.hint for message in messages)
    return [message.id for message in messages]


def test_a_sound_production_passes(production: Any) -> None:
    assert found() == []


def test_each_mixture_is_named(production: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    production.SECRET_KEY = "k" * (checks.SHORTEST_SECRET - 1)
    production.CELERY_BROKER_URL = "memory://"
    monkeypatch.setattr(checks, "connection", SimpleNamespace(vendor="sqlite"))
    assert found() == ["fulcrum.E001", "fulcrum.E002", "fulcrum.E003"]
    monkeypatch.setattr(checks, "_is_production", lambda: False)
    assert found() == []


@pytest.mark.parametrize(
    ("broker", "vendor", "said"),
    [("memory://", "postgresql", "FULCRUM_BROKER_URL"), ("redis://x", "sqlite", "DATABASE_URL")],
)
def test_a_worker_of_its_own_is_refused(
    production: Any,
    monkeypatch: pytest.MonkeyPatch,
    broker: str,
    vendor: str,
    said: str,
) -> None:
    monkeypatch.setattr(checks, "connection", SimpleNamespace(vendor=vendor))
    with pytest.raises(SystemExit, match=said):
        checks.refuse_a_worker_beside_the_memory_broker(conf=Conf(broker_url=broker))
    embedded = Conf(broker_url=broker, fulcrum_embedded=True)
    checks.refuse_a_worker_beside_the_memory_broker(conf=embedded)


def test_a_worker_with_redis_and_postgresql_starts(production: Any) -> None:
    checks.refuse_a_worker_beside_the_memory_broker(conf=Conf(broker_url="redis://x"))
