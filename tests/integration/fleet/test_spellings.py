"""A router that spells a worker's address otherwise does not make another worker."""

from __future__ import annotations

from datetime import timedelta

import pytest

from apps.backends.protocol import ABSENT, Snapshot, WorkerView
from apps.fleet import connect, services
from apps.fleet.models import Backend, Worker
from tests.support.builders import NOW, World, world

pytestmark = pytest.mark.django_db


class Listing:
    """An adapter that answers one list."""

    def __init__(self, *views: WorkerView, at) -> None:
        self._snapshot = Snapshot(at, views, complete=True, fence="1")

    def observe(self, now, known=()):
        return self._snapshot


def view(url: str, status: str = "serving", role: str = "decode") -> WorkerView:
    return WorkerView(url, "r-1", role, status, is_healthy=status != ABSENT)


def observe(w: World, monkeypatch, *views: WorkerView) -> None:
    later = NOW + timedelta(seconds=30)
    Backend.objects.get_or_create(deployment=w.deployment, defaults={"adapter": "router_workers"})
    monkeypatch.setattr(connect, "adapter_for", lambda deployment: Listing(*views, at=later))
    assert services.observe_backend(deployment_id=w.deployment.pk, now=later) is not None


def test_another_spelling_is_the_same_worker(monkeypatch) -> None:
    w = world()
    worker = Worker.objects.get(name="d-0")
    before = Worker.objects.count()
    written = worker.url.replace("http://", "HTTP://") + "/"
    observe(w, monkeypatch, view(written), view(worker.url, ABSENT))
    worker.refresh_from_db()
    assert Worker.objects.count() == before
    assert (worker.serving, worker.router_worker_id) == ("serving", "r-1")
    assert Worker.objects.filter(serving="absent").count() == before - 1, "the others are gone"


def test_one_engine_listed_twice_is_discovered_once(monkeypatch) -> None:
    w = world()
    before = Worker.objects.count()
    observe(w, monkeypatch, view("http://new-1:80"), view("http://new-1/"))
    assert Worker.objects.count() == before + 1


def test_a_router_that_names_no_role_does_not_vouch_for_one(monkeypatch) -> None:
    w = world()
    Worker.objects.filter(name="d-0").update(role_source="metric_label")
    worker = Worker.objects.get(name="d-0")
    observe(w, monkeypatch, view(worker.url, role=""))
    worker.refresh_from_db()
    assert (worker.role, worker.role_source) == ("decode", "metric_label")
    observe(w, monkeypatch, view(worker.url))
    worker.refresh_from_db()
    assert worker.role_source == "reported"
