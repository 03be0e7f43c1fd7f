"""The Connect wizard on real metric servers: the whole way, bad input, secrets, who may."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.apps import apps as django_apps
from django.http import HttpResponse
from django.test import Client

from apps.accounts import services as accounts
from apps.accounts.domain.authorize import SYSTEM, Permission, Role, ScopeKind
from apps.accounts.models import User
from apps.audit.models import AuditEvent
from apps.common.clock import utcnow
from apps.cost import selectors as cost
from apps.fleet.models import Cluster, Deployment
from apps.slo.models import Objective
from apps.telemetry import services as telemetry
from apps.telemetry.models import ConnectDraft, Source, StoredWindow
from apps.telemetry.services import drafts
from tests.integration.telemetry.conftest import Fleet, metric_fleet  # noqa: F401
from tests.support import builders

CANARY = "canary-secret-4b1d"
STEPS = ("source", "find", "coverage", "prices", "commands")
ROOMS = ("accounts", "audit", "fleet", "slo", "cost", "telemetry")


def everything() -> dict[str, list[Any]]:
    """All rows of the rooms, to show that a request changed nothing."""
    return {
        model._meta.label: [
            {k: v for k, v in row.items() if k != "last_login"}
            for row in model._default_manager.order_by("pk").values()
        ]
        for room in ROOMS
        for model in django_apps.get_app_config(room).get_models()
    }


@dataclass
class Wizard:
    """A person's browser in the wizard; forms are sent as the page would send them."""

    client: Client
    fleet: Fleet

    def see(self, step: str, expect: int = 200) -> str:
        answer = self.client.get(f"/connect/{step}/")
        assert answer.status_code == expect, (step, answer.status_code, answer.get("Location"))
        return answer.content.decode()

    def send(self, step: str, do: str, **fields: str) -> HttpResponse:
        """Everything that the page's form holds, with these fields changed."""
        page = self.client.get(f"/connect/{step}/")
        data = form(page.content.decode()) | {k.replace("__", "-"): v for k, v in fields.items()}
        return self.client.post(f"/connect/{step}/", {**data, "do": do})

    def go(self, step: str, do: str, to: str, **fields: str) -> None:
        answer = self.send(step, do, **fields)
        assert answer.status_code == 302, errors(answer)
        assert answer["Location"] == f"/connect/{to}/", errors(answer)

    @property
    def source(self) -> dict[str, str]:
        lines = "\n".join(server.metrics_url for server in self.fleet.servers.values())
        return {
            "kind": "scrape",
            "addresses": lines,
            "cluster_name": "Edge",
            "cluster_slug": "edge",
            "interval_s": "5",
        }

    def find(self) -> str:
        """Walk to step 2; returns the key of the deployment that was found."""
        self.go("source", "test", "source", **self.source)
        self.go("source", "next", "find")
        (item,) = ConnectDraft.objects.get().found["deployments"]
        return str(item["key"])

    def gpus(self) -> dict[str, str]:
        page = self.see("find")
        return dict.fromkeys(re.findall(r'name="(accelerator-\w+)"', page), "h200-sxm") | (
            dict.fromkeys(re.findall(r'name="(gpus-\w+)"', page), "2")
        )

    def to_commands(self, **fields: str) -> str:
        key = self.find()
        chosen = {name.replace("-", "__"): value for name, value in self.gpus().items()}
        chosen |= {f"environment__{key}": "demo", f"slug__{key}": "edge-chat"} | fields
        self.go("find", "next", "coverage", **chosen)
        self.go("coverage", "next", "prices")
        self.go("prices", "next", "commands", price__h200__sxm="4.59")
        return key


def form(page: str) -> dict[str, str]:
    """The fields of the wizard's form as a browser would send them."""
    body = page[page.index('class="wz-f"') :]
    data: dict[str, str] = {}
    for tag in re.findall(r"<input [^>]*>", body):
        name = re.search(r'name="([^"]+)"', tag)
        if name is None or "disabled" in tag:
            continue
        kind = re.search(r'type="(\w+)"', tag)
        value = re.search(r'value="([^"]*)"', tag)
        if kind and kind[1] in ("radio", "checkbox") and " checked" not in tag:
            continue
        data[name[1]] = value[1] if value else ""
    for name, text in re.findall(r'<textarea name="([^"]+)"[^>]*>([^<]*)</textarea>', body):
        data[name] = text
    for name, options in re.findall(r'<select name="([^"]+)"[^>]*>(.*?)</select>', body, re.S):
        all_of = re.findall(r"<option([^>]*)>([^<]*)<", options)
        picked = next((o for o in all_of if "selected" in o[0]), all_of[0] if all_of else ("", ""))
        value = re.search(r'value="([^"]*)"', picked[0])
        data[name] = value[1] if value else picked[1]
    data.pop("csrfmiddlewaretoken", None)
    return data


def errors(answer: HttpResponse) -> list[str]:
    text = answer.content.decode()
    found = re.findall(r'class="err"[^>]*>(.*?)</span>', text) + re.findall(
        r'class="banner crit refused".*?<span>(.*?)</span>', text
    )
    return [re.sub(r"<[^>]*>", "", item).strip() for item in found]


@pytest.fixture()
def admin(db: Any) -> User:
    return builders.person("alice", Role.ADMIN)


@pytest.fixture()
def wizard(admin: User, metric_fleet: Fleet) -> Iterator[Wizard]:  # noqa: F811
    client = Client()
    client.force_login(admin)
    yield Wizard(client, metric_fleet)


def test_the_whole_way_connects_and_windows_arrive(wizard: Wizard) -> None:
    for _ in range(3):
        wizard.fleet.serve()
    key = wizard.to_commands()
    done = wizard.send("commands", "finish")
    assert (done.status_code, done.get("Location")) == (302, "/fleet/"), errors(done)
    made = Deployment.objects.get(slug="edge-chat")
    assert (made.cluster.slug, made.mode, made.served_model) == ("edge", "observe", "qwen3-32b")
    assert made.cluster.mode_cap == "observe"
    pools = {
        p.role: (p.engine, p.accelerator.slug, p.devices_per_worker, p.wanted_workers)
        for p in made.pools.all()
    }
    assert pools == dict.fromkeys(("prefill", "decode"), ("sglang", "h200-sxm", Decimal(2), 2))
    assert {w.url: w.role for w in made.workers.all()} == {
        wizard.fleet.url(n): "prefill" if n[0] == "p" else "decode"
        for n in ("p0", "p1", "d0", "d1")
    }
    assert made.backend.parameters["metrics_url"] == wizard.fleet.servers["router"].metrics_url
    assert cost.prices_at(utcnow()) == {"h200-sxm": Decimal("4.59")}
    # No TTFT below the router's own ladder: 2 s is a bound of it, 50 ms is moved to one.
    assert {o.signal: o.threshold_s for o in Objective.objects.filter(deployment=made)} == {
        "ttft": 2.0,
        "tpot": 0.04,
    }
    source = Source.objects.get(cluster=made.cluster)
    assert (source.kind, source.interval_s, source.deployment_id) == ("scrape", 5, None)
    actions = list(AuditEvent.objects.filter(actor_name="alice").values_list("action", flat=True))
    assert {
        "source.test", "source.find", "cluster.register", "deployment.register", "pool.declare",
        "backend.connect", "source.create", "price.set", "objective.set", "connect.finish",
    } <= set(actions)  # fmt: skip
    assert not ConnectDraft.objects.exists()

    now = utcnow()
    for second in (0, 5, 10):
        wizard.fleet.serve()
        at = now + timedelta(seconds=second)
        result = telemetry.collect_source(source_id=source.pk, now=at, owner="test")
        assert result is not None
        assert result.error == ""
    scopes = set(StoredWindow.objects.filter(deployment=made).values_list("scope", flat=True))
    assert scopes >= {"prefill", "decode", "router"}
    assert wizard.client.get("/deployments/edge-chat/").status_code == 200
    assert key not in wizard.client.get("/fleet/").content.decode()


def test_finishing_twice_creates_once(wizard: Wizard) -> None:
    wizard.to_commands()
    page = wizard.see("commands")
    before = Deployment.objects.count()
    assert wizard.send("commands", "finish").status_code == 302
    again = wizard.client.post("/connect/commands/", {**form(page), "do": "finish"})
    assert again.status_code == 422
    assert Deployment.objects.count() == before + 1
    assert Cluster.objects.filter(slug="edge").count() == 1


def test_reading_changes_nothing_and_asks_nobody(wizard: Wizard) -> None:
    wizard.to_commands()
    before = everything(), [s.requests for s in wizard.fleet.servers.values()]
    for step in STEPS:
        wizard.see(step)
    wizard.client.get("/connect/")
    assert (everything(), [s.requests for s in wizard.fleet.servers.values()]) == before


def test_a_first_look_stores_no_draft(wizard: Wizard) -> None:
    assert wizard.client.get("/connect/")["Location"] == "/connect/source/"
    wizard.see("source")
    assert not ConnectDraft.objects.exists()


def test_leaving_and_coming_back_continues(wizard: Wizard, admin: User) -> None:
    key = wizard.find()
    wizard.send("find", "save", **{f"name__{key}": "Chat of the west"})
    fresh = Client()
    fresh.force_login(admin)
    assert fresh.get("/connect/")["Location"] == "/connect/find/"
    assert "Chat of the west" in fresh.get("/connect/find/").content.decode()
    for later in ("coverage", "prices", "commands"):
        # Nothing says yet which GPUs the workers use.
        assert fresh.get(f"/connect/{later}/")["Location"] == "/connect/find/"
    fresh.post("/connect/find/", {"do": "restart"})
    assert not ConnectDraft.objects.exists()


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ({"kind": "prometheus", "url": ""}, "Fill this in."),
        ({"kind": "prometheus", "url": "prom:9090"}, "Not a plain address"),
        ({"kind": "prometheus", "url": "http://10.0.0.1", "instance_label": "a b"}, "label name"),
        ({"kind": "prometheus", "url": "http://10.0.0.1", "interval_s": "soon"}, "1 to 300"),
        ({"kind": "prometheus", "url": "http://10.0.0.1", "interval_s": "NaN"}, "1 to 300"),
        ({"kind": "scrape", "addresses": ""}, "Fill this in."),
        ({"kind": "scrape", "addresses": "http://[broken"}, "not a plain address"),
        (
            {"kind": "scrape", "addresses": "10.0.0.1:8000", "router_url": "x"},
            "Not a plain address",
        ),
    ],
)
def test_a_bad_source_is_told_at_its_field_and_kept(
    wizard: Wizard, typed: dict[str, str], said: str
) -> None:
    answer = wizard.send("source", "test", **{"cluster_name": "Edge", **typed})
    assert answer.status_code == 422
    assert any(said in item for item in errors(answer)), errors(answer)
    kept = ConnectDraft.objects.get().typed["source"]
    assert {name: kept[name] for name in typed} == typed
    page = wizard.see("source")
    assert all(value in page for value in typed.values())


def test_a_failing_test_does_not_lead_on(wizard: Wizard) -> None:
    wizard.go(
        "source", "test", "source", kind="prometheus", url="http://127.0.0.1:1", cluster_name="E"
    )
    assert "lies outside the allowed networks" in wizard.see("source")
    answer = wizard.send("source", "next")
    assert answer.status_code == 422
    assert "Test the source first" in errors(answer)[-1]


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ({"cluster_name": ""}, "Fill this in."),
        ({"cluster_name": "X", "cluster_slug": "Not A Slug"}, "Small letters"),
        ({"cluster_name": "X", "cluster_slug": "lab"}, "has this short name already"),
        ({"cluster": "nowhere"}, "no such cluster"),
    ],
)
def test_a_bad_cluster_is_told(wizard: Wizard, typed: dict[str, str], said: str) -> None:
    answer = wizard.send("source", "next", **{**wizard.source, **typed})
    assert answer.status_code == 422
    assert any(said in item for item in errors(answer)), errors(answer)


def test_bad_findings_are_told_and_kept(wizard: Wizard) -> None:
    key = wizard.find()
    bare = wizard.send("find", "next")
    assert bare.status_code == 422
    assert any("Choose the accelerator" in item for item in errors(bare))
    good = {name.replace("-", "__"): value for name, value in wizard.gpus().items()}
    pools = sorted(name for name in good if name.startswith("gpus"))
    for typed, said in (
        ({f"slug__{key}": "chat"}, "has, or had, this short name"),
        ({f"slug__{key}": "No!"}, "Small letters"),
        ({f"name__{key}": ""}, "Fill this in."),
        ({f"environment__{key}": "moon"}, "one of the environments"),
        ({f"team__{key}": "ghosts"}, "no such team"),
        ({pools[0]: "-1"}, "How many GPUs"),
        ({pools[0]: "1e400"}, "How many GPUs"),
        ({f"include__{key}": ""}, "some fields are not right"),
    ):
        answer = wizard.send("find", "next", **{**good, **typed})
        assert answer.status_code == 422, typed
        assert any(said.lower() in item.lower() for item in errors(answer)), (typed, errors(answer))
        kept = ConnectDraft.objects.get().typed["find"]
        assert all(kept[n.replace("__", "-")] == v for n, v in typed.items())
        wizard.send(
            "find", "save",
            **{f"name__{key}": "chat", f"slug__{key}": "edge-chat", f"team__{key}": "",
               f"environment__{key}": "production", f"include__{key}": "1"},
        )  # fmt: skip


def test_a_draft_holds_as_many_deployments_as_a_form_can(wizard: Wizard, monkeypatch: Any) -> None:
    monkeypatch.setattr("apps.console.connecting.acts.MAX_DEPLOYMENTS", 0)
    wizard.go("source", "test", "source", **wizard.source)
    wizard.go("source", "next", "find")
    page = wizard.see("find")
    assert "1 more deployment was found than one draft holds" in page
    assert 'name="include-' not in page


def test_what_is_connected_already_is_told(wizard: Wizard) -> None:
    wizard.find()
    assert "Its workers are connected already, as chat." in wizard.see("find")


def test_roles_are_editable_by_group_and_by_worker(wizard: Wizard) -> None:
    wizard.find()
    page = wizard.see("find")
    assert "the engine&#x27;s label engine_type=prefill" in page
    singles = re.findall(r'name="(worker-\w+)"', page)
    assert len(singles) == 4
    roles = {name.replace("-", "__"): "mixed" for name in re.findall(r'name="(role-\w+)"', page)}
    gpus = {name.replace("-", "__"): value for name, value in wizard.gpus().items()}
    wizard.go(
        "find", "next", "coverage", **roles, **gpus, **{singles[0].replace("-", "__"): "none"}
    )
    for step, to in (("coverage", "prices"), ("prices", "commands")):
        wizard.go(step, "next", to)
    assert wizard.send("commands", "finish").status_code == 302
    made = Deployment.objects.get(cluster__slug="edge")
    assert {p.role: p.wanted_workers for p in made.pools.all()} == {"mixed": 3}


def test_groups_of_one_role_must_be_one_pool(wizard: Wizard) -> None:
    wizard.find()
    page = wizard.see("find")
    roles = {name.replace("-", "__"): "decode" for name in re.findall(r'name="(role-\w+)"', page)}
    gpus = {name.replace("-", "__"): value for name, value in wizard.gpus().items()}
    first = next(name for name in gpus if name.startswith("gpus"))
    answer = wizard.send("find", "next", **{**roles, **gpus, first: "4"})
    assert any("Workers of one role are one pool" in item for item in errors(answer))


def test_coverage_names_levels_effects_and_what_to_copy(wizard: Wizard) -> None:
    wizard.fleet.serve()
    wizard.to_commands()
    page = wizard.see("coverage")
    assert "Level 2 of 4: explain" in page
    assert "GPU activity and power are not shown" in page
    before = wizard.fleet.servers["p0"].requests
    wizard.go("coverage", "find", "coverage")
    assert wizard.fleet.servers["p0"].requests > before


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("price__h200__sxm", "-1", "at least 0"),
        ("price__h200__sxm", "free", "at least 0"),
        ("price__h200__sxm", "Infinity", "at least 0"),
        ("ttft__{key}", "0", "above 0"),
        ("tpot__{key}", "9e9", "above 0"),
    ],
)
def test_bad_prices_and_objectives_are_told(
    wizard: Wizard, name: str, text: str, said: str
) -> None:
    key = wizard.to_commands()
    answer = wizard.send("prices", "next", **{name.format(key=key): text})
    assert answer.status_code == 422
    assert any(said in item for item in errors(answer))


def test_an_objective_between_two_bounds_is_warned_of(wizard: Wizard) -> None:
    wizard.fleet.serve()
    key = wizard.to_commands()
    wizard.go("prices", "save", "prices", **{f"ttft__{key}": "2.2"})
    assert "lies between two bucket bounds" in wizard.see("prices")
    wizard.go("prices", "save", "prices", **{f"ttft__{key}": "90"})
    assert "The largest bound is" in wizard.see("prices")


def test_nothing_above_observe_outside_a_demo(wizard: Wizard) -> None:
    wizard.find()
    gpus = {name.replace("-", "__"): value for name, value in wizard.gpus().items()}
    wizard.go("find", "next", "coverage", **gpus)
    wizard.go("coverage", "next", "prices")
    wizard.go("prices", "next", "commands")
    key = ConnectDraft.objects.get().found["deployments"][0]["key"]
    for mode in ("recommend", "approve", "auto", "everything"):
        answer = wizard.send("commands", "finish", **{f"mode__{key}": mode})
        assert answer.status_code == 422, mode
    assert not Cluster.objects.filter(slug="edge").exists()
    # Disabled with the reason in words, never hidden.
    page = wizard.see("commands")
    assert page.count('name="mode-') == 4
    assert "takes a second person" in page


def test_a_command_mode_needs_a_dry_run_that_passed(wizard: Wizard) -> None:
    key = wizard.to_commands()
    refused = wizard.send("commands", "finish", **{f"mode__{key}": "approve"})
    assert any("dry run has to pass" in item for item in errors(refused))
    wizard.go("commands", f"dry_run:{key}", "commands", **{f"mode__{key}": "observe"})
    assert "There is no backend to try" in wizard.see("commands")
    # A metric server is no router: reading its list of workers fails, and nothing passes.
    backend = {
        f"adapter__{key}": "router_workers",
        f"address__{key}": wizard.fleet.url("router"),
        f"control__{key}": CANARY,
    }
    wizard.go("commands", f"dry_run:{key}", "commands", **backend)
    page = wizard.see("commands")
    assert "The backend cannot be read" in page
    assert CANARY not in page
    again = wizard.send("commands", "finish", **{f"mode__{key}": "approve"})
    assert again.status_code == 422
    assert not Cluster.objects.filter(slug="edge").exists()
    # Recommend needs no dry run in a demo.
    done = wizard.send("commands", "finish", **{f"mode__{key}": "recommend"})
    assert done.status_code == 302, errors(done)
    made = Deployment.objects.get(slug="edge-chat")
    assert (made.mode, made.cluster.mode_cap) == ("recommend", "recommend")
    assert made.backend.credential_sealed
    assert CANARY not in str(everything())


def test_secrets_are_never_shown_kept_in_clear_or_sent_on(wizard: Wizard) -> None:
    typed = {**wizard.source, "kind": "prometheus", "url": "http://10.255.0.1:1"}
    wizard.send("source", "save", **typed, token=CANARY)
    assert CANARY not in str(everything())
    page = wizard.see("source")
    assert CANARY not in page
    assert "stored; type to replace" in page
    draft = ConnectDraft.objects.get()
    assert drafts.secret(draft, "token") == CANARY
    # Another save keeps it; another address forgets it.
    wizard.send("source", "save")
    assert drafts.secret(ConnectDraft.objects.get(), "token") == CANARY
    wizard.send("source", "save", url="http://10.255.0.2:1")
    assert ConnectDraft.objects.get().sealed == {}
    # So does the person.
    wizard.send("source", "save", token=CANARY)
    wizard.send("source", "save", forget_token="1")
    assert ConnectDraft.objects.get().sealed == {}


def test_a_password_in_an_address_is_removed_and_told(wizard: Wizard) -> None:
    for typed in (
        {"kind": "prometheus", "url": f"http://me:{CANARY}@10.0.0.1:9090/"},
        {"kind": "scrape", "router_url": f"http://10.0.0.1/?key={CANARY}", "addresses": "10.0.0.2"},
        {"kind": "scrape", "addresses": f"http://x:{CANARY}@10.0.0.1/metrics"},
    ):
        answer = wizard.send("source", "save", **typed)
        assert answer.status_code == 422
        assert "It was removed and not stored" in errors(answer)[-1]
        assert CANARY not in answer.content.decode()
        assert CANARY not in str(everything())


def test_a_prometheus_token_is_sealed_for_the_source_it_becomes(wizard: Wizard) -> None:
    from apps.fleet import connect as box
    from apps.telemetry.services.sources import bound_to

    wizard.to_commands()
    draft = ConnectDraft.objects.get()
    typed = {**draft.typed["source"], "kind": "prometheus", "url": "http://10.0.0.1:9090"}
    drafts.type_in(
        actor=wizard_actor(wizard), now=utcnow(), step="source", fields=typed,
        secrets={"token": CANARY},
    )  # fmt: skip
    assert wizard.send("commands", "finish").status_code == 302
    source = Source.objects.get(cluster__slug="edge")
    opened = box.secret_box().open(source.credential_sealed, bound_to=bound_to(source.pk))
    assert opened == CANARY
    assert CANARY not in str(everything())
    assert CANARY not in wizard.client.get("/api/v1/sources/").content.decode()


def wizard_actor(wizard: Wizard) -> Any:
    from apps.accounts.selectors import viewer_for

    return viewer_for(User.objects.get(username="alice"))


def people(fleet: Fleet) -> dict[str, Client]:
    """Everybody who may not connect: by role, of another team, nobody, with a token."""
    found: dict[str, Client] = {"anonymous": Client()}
    for role in (Role.VIEWER, Role.OPERATOR, Role.APPROVER):
        found[role.value] = Client()
        found[role.value].force_login(builders.person(role.value, role))
    found["nobody"] = Client()
    found["nobody"].force_login(builders.person("charlie"))
    team = accounts.create_team(actor=SYSTEM, now=builders.NOW, slug="west", name="West")
    other = builders.person("bob")
    for kind, scope in ((ScopeKind.TEAM, team.pk), (ScopeKind.DEPLOYMENT, fleet.deployment.pk)):
        accounts.bind_role(
            actor=SYSTEM, now=builders.NOW, user=other, role=Role.ADMIN, scope_kind=kind,
            scope_id=scope,
        )  # fmt: skip
    found["other_team"] = Client()
    found["other_team"].force_login(other)
    admin = User.objects.get(username="alice")
    _, token = accounts.issue_token(
        actor=SYSTEM, now=utcnow(), user=admin, name="t", permissions=list(Permission),
        life=timedelta(days=1),
    )  # fmt: skip
    found["token"] = Client(headers={"Authorization": f"Bearer {token}"})
    return found


def test_every_view_is_denied_to_everybody_else_and_changes_nothing(wizard: Wizard) -> None:
    key = wizard.to_commands()
    clients = people(wizard.fleet)
    before = everything(), [s.requests for s in wizard.fleet.servers.values()]
    acts = ("save", "next", "test", "find", f"dry_run:{key}", "finish", "restart")
    for name, client in clients.items():
        expected = 302 if name in ("anonymous", "token") else 403
        for address in ("/connect/", *(f"/connect/{step}/" for step in STEPS)):
            answer = client.get(address)
            assert answer.status_code == expected, (name, address)
            assert expected == 403 or answer["Location"].startswith("/signin/")
        for step in STEPS:
            for do in acts:
                answer = client.post(f"/connect/{step}/", {**wizard.source, "do": do})
                assert answer.status_code == expected, (name, step, do)
    assert (everything(), [s.requests for s in wizard.fleet.servers.values()]) == before


def test_another_admin_has_a_draft_of_their_own(wizard: Wizard) -> None:
    wizard.to_commands()
    other = Client()
    other.force_login(builders.person("bob", Role.ADMIN))
    assert other.get("/connect/commands/")["Location"] == "/connect/source/"
    other.post("/connect/source/", {"do": "restart"})
    assert ConnectDraft.objects.count() == 1


def test_forms_need_their_csrf_token(wizard: Wizard, admin: User) -> None:
    strict = Client(enforce_csrf_checks=True)
    strict.force_login(admin)
    assert strict.post("/connect/source/", {"do": "save"}).status_code == 403
    assert not ConnectDraft.objects.exists()


def test_an_admin_of_a_cluster_adds_to_it_and_sets_no_price(
    wizard: Wizard,
    metric_fleet: Fleet,  # noqa: F811
) -> None:
    cluster = metric_fleet.deployment.cluster
    bob = builders.person("bob")
    accounts.bind_role(
        actor=SYSTEM, now=builders.NOW, user=bob, role=Role.ADMIN, scope_kind=ScopeKind.CLUSTER,
        scope_id=cluster.pk,
    )  # fmt: skip
    client = Client()
    client.force_login(bob)
    mine = Wizard(client, metric_fleet)
    page = mine.see("source")
    assert "a new cluster" not in page
    refused = mine.send("source", "next", **mine.source, cluster="")
    assert any("A new cluster needs an administrator" in item for item in errors(refused))
    mine.go("source", "test", "source", **mine.source, cluster="lab")
    mine.go("source", "next", "find")
    gpus = {name.replace("-", "__"): value for name, value in mine.gpus().items()}
    mine.go("find", "next", "coverage", **gpus)
    mine.go("coverage", "next", "prices")
    assert "needs an administrator of it" in mine.see("prices")
    answer = client.post("/connect/prices/", {"do": "next", "price-h200-sxm": "0.01"})
    assert answer.status_code == 302
    done = mine.send("commands", "finish")
    assert done.status_code == 302, errors(done)
    assert Deployment.objects.get(slug="qwen3-32b").cluster == cluster
    assert cost.prices_at(utcnow()) == {}


def test_texts_that_no_database_takes_are_no_error(wizard: Wizard) -> None:
    answer = wizard.send("source", "test", kind="prometheus", url="http://[::1\0", jobs="a\0b")
    assert answer.status_code == 422
    assert ConnectDraft.objects.get().typed["source"]["jobs"] == "ab"


def test_an_unknown_step_or_act_is_not_found(wizard: Wizard) -> None:
    wizard.to_commands()
    assert wizard.client.get("/connect/nowhere/").status_code == 404
    assert wizard.client.post("/connect/find/", {"do": "fly"}).status_code == 404
    assert wizard.client.post("/connect/commands/", {"do": "dry_run:xyz"}).status_code == 404
    assert wizard.client.put("/connect/source/").status_code == 405


@pytest.mark.parametrize("role", [Role.ADMIN, Role.VIEWER])
def test_the_fleet_page_offers_it_or_says_why_not(db: Any, role: Role) -> None:
    client = Client()
    client.force_login(builders.person("alice", role))
    page = client.get("/fleet/").content.decode()
    assert ('href="/connect/"' in page) is (role is Role.ADMIN)
    assert ("needs the right to configure it" in page) is (role is not Role.ADMIN)
    assert "Connect a cluster" in page
