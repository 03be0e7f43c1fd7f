"""A small installation behind the API: one deployment with everything, one elsewhere, callers.

alice operates and bob approves everywhere, charlie holds no role. The others are named after their
role. The backend is the strict one in memory of the tests of commands.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from django.apps import apps as django_apps
from django.db import transaction
from django.http import HttpResponse
from django.test import Client

from apps.accounts import services as accounts
from apps.accounts.domain.authorize import SYSTEM, Permission, Role, ScopeKind, Viewer
from apps.accounts.models import ApiToken, User
from apps.accounts.selectors import viewer_for
from apps.backends import registry
from apps.commands import services as commands
from apps.commands.models import Command
from apps.commands.services import facts
from apps.commands.services.rooms import RoomFacts
from apps.common.measurement import Measurement, Place, State
from apps.common.units import Unit
from apps.cost import services as cost
from apps.fleet import services as fleet
from apps.fleet.models import Backend, Cluster, Deployment, ModelArchitecture, Node, Worker
from apps.planning.models import Recommendation, RecommendationCounter
from apps.slo import services as slo
from apps.slo.domain.objective import ObjectiveSignal
from apps.slo.models import Objective
from apps.telemetry import services as telemetry
from tests.integration.commands.world import MemoryAdapter
from tests.integration.commands.world import World as Outside
from tests.support import builders
from tests.support.builders import NOW

SLUG, ELSEWHERE = "chat-pd", "search-pd"
TARGETS = {"prefill": 3, "decode": 3}
EVERYTHING = tuple(Permission)


class FreshFacts(RoomFacts):
    """The rooms below as they are, with measurements that are always a second old."""

    def data_age_s(self, deployment: Deployment, now: datetime) -> float | None:
        return 1.0

    def recheck(self, recommendation_id: UUID, now: datetime) -> tuple[str, ...]:
        return ()


@dataclass
class Lab:
    """What was built, and how to call the API as somebody."""

    cluster: Cluster
    deployment: Deployment
    elsewhere: Deployment
    outside: Outside
    users: dict[str, User]
    tokens: dict[str, str]
    rows: dict[str, ApiToken]
    now: datetime = NOW
    numbers: dict[str, str] = field(default_factory=dict)
    client: Client = field(default_factory=lambda: Client(enforce_csrf_checks=True))

    def viewer(self, name: str) -> Viewer:
        return viewer_for(self.users[name])

    @property
    def revision(self) -> int:
        return Deployment.objects.values_list("revision", flat=True).get(pk=self.deployment.pk)

    def call(
        self, caller: str, method: str, path: str, body: Any = None, **headers: str
    ) -> HttpResponse:
        """A request with the caller's token; `anonymous` sends none."""
        if caller in self.tokens:
            headers.setdefault("Authorization", f"Bearer {self.tokens[caller]}")
        return send(self.client, method, path, body, **headers)

    def browser(self, caller: str, *, csrf: bool = True) -> Browser:
        """A signed-in browser; without `csrf` it sends no token on unsafe requests."""
        client = Client(enforce_csrf_checks=True)
        client.force_login(self.users[caller])
        return Browser(client, csrf)

    def propose(self, targets: Mapping[str, int] = TARGETS, caller: str = "operator") -> Command:
        made = commands.propose(
            actor=self.viewer(caller),
            now=self.now,
            deployment_id=self.deployment.pk,
            targets=dict(targets),
            expected_revision=self.revision,
        )
        assert isinstance(made, Command)
        return made

    def finished(self) -> Command:
        """A command that succeeded, of which the world shows the result."""
        made = self.recorded()
        Worker.objects.filter(deployment=self.deployment, name="d-0").update(role="prefill")
        url = Worker.objects.get(deployment=self.deployment, name="d-0").url
        self.outside.members[url] = self.outside.engines[url] = "prefill"
        fleet.set_wanted(
            actor=SYSTEM,
            now=self.now,
            deployment_id=self.deployment.pk,
            wanted=TARGETS,
            expected_revision=self.revision,
        )
        return made

    def recorded(self) -> Command:
        """The record of a success, while the world stays as it was."""
        made = self.propose()
        Command.objects.filter(pk=made.pk).update(
            state="SUCCEEDED",
            started_at=self.now,
            finished_at=self.now + timedelta(seconds=40),
            predicted={"ttft_p95": figure(0.8, 0.6, 1.0), "cost_per_million": money("0.69")},
            measured={"ttft_p95": figure(0.85), "cost_per_million": money("0.70")},
        )
        return Command.objects.get(pk=made.pk)

    def recommend(self, **more: Any) -> Recommendation:
        counter, _ = RecommendationCounter.objects.get_or_create(pk=1)
        counter.last += 1
        counter.save()
        values: dict[str, Any] = {
            "sequence": counter.last,
            "number": f"R-{counter.last}",
            "deployment": self.deployment,
            "created_at": self.now,
            "refreshed_at": self.now,
            "expires_at": self.now + timedelta(minutes=15),
            "kind": "rebalance",
            "reason": "prefill_saturated",
            "targets": TARGETS,
            "current": {"prefill": 2, "decode": 4},
            "expected_revision": self.revision,
            "plan_fingerprint": "f",
            "predicted": {"ttft_p95": {"now": figure(1.8), "after": figure(0.8, 0.6, 1.0)}},
            "chances": {"ttft_p95": 0.97},
            "do_nothing": {"ttft_p95": figure(2.1)},
            "confidence": "high",
            "policy": "demo",
        }
        return Recommendation.objects.create(**(values | more))


@dataclass
class Browser:
    """The console's session: cookies, and CSRF as its pages send it."""

    client: Client
    csrf: bool

    def call(self, method: str, path: str, body: Any = None, **headers: str) -> HttpResponse:
        if self.csrf:
            self.client.cookies["csrftoken"] = "a" * 32
            headers["X-CSRFToken"] = "a" * 32
        return send(self.client, method, path, body, **headers)


def send(client: Client, method: str, path: str, body: Any = None, **headers: str) -> HttpResponse:
    data = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
    content = headers.pop("Content-Type", "application/json")
    return client.generic(method, path, data, content, headers=headers)


def problem(answer: HttpResponse, status: int, code: str) -> dict[str, Any]:
    """The problem details, after all that holds for each of them."""
    assert answer["Content-Type"] == "application/problem+json", answer.content
    body: dict[str, Any] = json.loads(answer.content)
    assert (answer.status_code, body["status"], body["code"]) == (status, status, code), body
    assert body["type"] == "about:blank" and body["title"]
    # One sentence for what was wrong and one for what to do, or both in one.
    assert body["detail"][0].isupper() and body["detail"].endswith((".", "!")), body["detail"]
    assert len(body["detail"].split()) >= 6, body["detail"]
    return body


def figure(value: float, lower: float | None = None, upper: float | None = None) -> dict[str, Any]:
    place = Place.ROUTER if lower is None else Place.MODEL
    made = Measurement(value, Unit.SECONDS, State.OK, NOW, place, "", lower, upper)
    return made.to_json()


def money(text: str) -> dict[str, Any]:
    return Measurement(Decimal(text), Unit.USD_PER_MILLION_TOKENS, State.OK, NOW).to_json()


#: Whatever a request could have changed. `last_used_at` moves by looking at a token.
WATCHED = ("commands", "planning", "accounts", "audit", "fleet", "slo", "cost", "telemetry")
IGNORED = {"last_used_at", "last_login"}


def everything() -> dict[str, list[dict[str, Any]]]:
    """All rows of the rooms, to show that a request changed nothing."""
    found = {}
    for app in WATCHED:
        for model in django_apps.get_app_config(app).get_models():
            rows = model._default_manager.order_by("pk").values()
            found[model._meta.label] = [
                {key: value for key, value in row.items() if key not in IGNORED} for row in rows
            ]
    return found


@contextmanager
def undone() -> Iterator[None]:
    """What happens inside is rolled back."""
    with transaction.atomic():
        yield
        transaction.set_rollback(True)


def stand_in(monkeypatch: pytest.MonkeyPatch, settings: Any, state: Path) -> None:
    """What cannot run here: the backend in memory, fresh facts, a state folder of the test's."""
    settings.STATE_DIR = state
    monkeypatch.setitem(registry._BUILDERS, MemoryAdapter.name, MemoryAdapter)
    monkeypatch.setattr(facts, "provider", FreshFacts())


def build(environment: str = "demo") -> Lab:
    """The installation, at `builders.NOW`."""
    made = builders.world(environment=environment)
    annex = fleet.register_cluster(
        actor=SYSTEM, now=NOW, slug="annex", name="Annex", uid="annex-uid", mode_cap="auto"
    )
    other = builders.deployment(annex, ELSEWHERE, port=22_000)
    users = {"operator": made.alice, "approver": made.bob, "nobody": made.charlie}
    users["viewer"] = builders.person("viewer", Role.VIEWER)
    users["admin"] = builders.person("admin", Role.ADMIN)
    for name, roles in (("elsewhere", (Role.VIEWER,)), ("all_elsewhere", tuple(Role))):
        users[name] = accounts.create_user(actor=SYSTEM, now=NOW, username=name, password=None)
        for role in roles:
            accounts.bind_role(
                actor=SYSTEM,
                now=NOW,
                user=users[name],
                role=role,
                scope_kind=ScopeKind.CLUSTER,
                scope_id=annex.pk,
            )
    tokens, rows = {}, {}
    for name, user in users.items():
        rows[name], tokens[name] = issue(user, name)
    rows["read_only"], tokens["read_only"] = issue(made.alice, "read", (Permission.READ,))
    rows["expired"], tokens["expired"] = issue(made.alice, "old", at=NOW - timedelta(days=8))
    tokens["bad_token"] = "ful_0123456789ab.wrong"
    outside = Outside()
    MemoryAdapter.world = outside
    for index, worker in enumerate(Worker.objects.filter(deployment=made.deployment)):
        outside.members[worker.url] = outside.engines[worker.url] = worker.role
        outside.ports[worker.url] = 9000 + index
    Backend.objects.update_or_create(
        deployment=made.deployment, defaults={"adapter": "memory", "address": "http://router"}
    )
    return Lab(made.cluster, made.deployment, other, outside, users, tokens, rows)


def issue(
    user: User,
    name: str,
    permissions: tuple[Permission, ...] = EVERYTHING,
    at: datetime = NOW,
) -> tuple[ApiToken, str]:
    return accounts.issue_token(
        actor=SYSTEM,
        now=at,
        user=user,
        name=name,
        permissions=permissions,
        life=timedelta(days=7),
    )


def furnish(lab: Lab) -> None:
    """One row behind every endpoint; `lab.numbers` names the object of each detail address."""
    team = accounts.create_team(actor=SYSTEM, now=NOW, slug="chat", name="Chat")
    Deployment.objects.filter(pk=lab.deployment.pk).update(team=team)
    lab.deployment.refresh_from_db()
    model = ModelArchitecture.objects.create(slug="qwen3", name="Qwen3", hf_id="Qwen/Qwen3-32B")
    slo.set_objective(
        actor=SYSTEM,
        now=NOW,
        deployment_id=lab.deployment.pk,
        signal=ObjectiveSignal.TTFT,
        threshold_s=2.5,
    )
    book = cost.create_book(actor=SYSTEM, now=NOW, slug="list", name="List")
    cost.set_price(actor=SYSTEM, now=NOW, book_id=book.pk, key="h200-sxm", rate=Decimal("4.59"))
    source = telemetry.create_source(
        actor=SYSTEM,
        now=NOW,
        name="scrape",
        cluster=lab.cluster,
        deployment=lab.deployment,
        kind="scrape",
    )
    switch = commands.set_kill_switch(actor=SYSTEM, now=NOW, slug=SLUG, on=True)
    commands.set_kill_switch(actor=SYSTEM, now=NOW, slug=SLUG, on=False)
    node = Node.objects.get(cluster=lab.cluster)
    event = django_apps.get_model("audit", "AuditEvent").objects.filter(
        deployment_id=str(lab.deployment.pk)
    )
    device = node.devices.order_by("index").first()
    assert device is not None
    lab.numbers = {
        "clusters": str(lab.cluster.pk),
        "nodes": str(node.pk),
        "devices": str(device.pk),
        "accelerators": str(device.accelerator_id),
        "models": str(model.pk),
        "deployments": SLUG,
        "pools": str(lab.deployment.pools.get(role="prefill").pk),
        "workers": str(lab.deployment.workers.get(name="p-0").pk),
        "teams": str(team.pk),
        "sources": str(source.pk),
        "slos": str(Objective.objects.get(deployment=lab.deployment).pk),
        "kill-switch": str(switch.pk),
        "recommendations": lab.recommend().number,
        "price-books": str(book.pk),
        "audit-events": str(event.latest("sequence").pk),
        "tokens": str(lab.rows["read_only"].pk),
    }
