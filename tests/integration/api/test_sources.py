"""Sources by the API: testing, finding, creating, changing; secrets go in and never come out."""

from __future__ import annotations

import json
from typing import Any

import pytest

from apps.accounts.domain.authorize import Permission
from apps.audit.models import AuditEvent
from apps.telemetry.models import Source
from tests.integration.telemetry.metric_servers import MetricServer, Sglang

from .lab import Lab, everything, issue, problem

CANARY = "canary-credential-77aa"
LINK_LOCAL = "http://169.254.169.254/"


@pytest.fixture()
def server(settings: Any) -> Any:
    one = MetricServer(Sglang("decode"))
    settings.FULCRUM_LOOPBACK_PORTS = frozenset({one.port})
    yield one
    one.stop()


def test_a_test_names_the_problem(lab: Lab) -> None:
    body = {"kind": "prometheus", "url": LINK_LOCAL, "credential": CANARY}
    answer = lab.call("admin", "POST", "/api/v1/sources/test/", body)
    found = json.loads(answer.content)
    assert (answer.status_code, found["problem"]) == (200, "denied")
    assert found["skew_s"] is None and found["intervals"] == []
    assert answer["Cache-Control"] == "private, no-store"
    assert CANARY not in answer.content.decode() + str(everything())


def test_addresses_are_tested_and_searched_without_being_stored(lab: Lab, server: Any) -> None:
    body = {"kind": "scrape", "addresses": [server.metrics_url]}
    tested = json.loads(lab.call("admin", "POST", "/api/v1/sources/test/", body).content)
    assert [row["profile"] for row in tested["addresses"]] == ["sglang"]
    before = {k: v for k, v in everything().items() if not k.startswith("audit.")}
    found = json.loads(lab.call("admin", "POST", "/api/v1/sources/find/", body).content)
    (group,) = found["deployments"][0]["groups"]
    assert (group["role"], group["evidence"], group["evidence_value"]) == (
        "decode", "engine_type", "decode",
    )  # fmt: skip
    assert before == {k: v for k, v in everything().items() if not k.startswith("audit.")}
    assert AuditEvent.objects.filter(action="source.find", actor_name="admin").count() == 1


@pytest.mark.parametrize(
    "body",
    [
        {"kind": "prometheus"},
        {"kind": "scrape"},
        {"kind": "scrape", "addresses": ["x"] * 201},
        {"kind": "file", "url": "http://10.0.0.1"},
        [],
    ],
)
def test_incomplete_questions_are_refused(lab: Lab, body: Any) -> None:
    problem(lab.call("admin", "POST", "/api/v1/sources/test/", body), 400, "invalid")


def test_a_label_that_is_none_is_refused(lab: Lab) -> None:
    body = {"url": "http://10.255.0.1:1", "parameters": {"instance_label": "x'} or vector(1) #"}}
    problem(lab.call("admin", "POST", "/api/v1/sources/find/", body), 400, "invalid")


def test_a_search_that_fails_is_a_problem(lab: Lab) -> None:
    answer = lab.call("admin", "POST", "/api/v1/sources/find/", {"url": LINK_LOCAL})
    assert problem(answer, 422, "source_denied")["params"]["problem"] == "denied"


def test_creating_and_changing_a_source(lab: Lab) -> None:
    body = {
        "cluster": lab.cluster.slug, "kind": "prometheus", "url": "http://10.0.0.1:9090",
        "credential": CANARY, "parameters": {"jobs": ["engines"]},
    }  # fmt: skip
    made = lab.call("admin", "POST", "/api/v1/sources/", body)
    assert made.status_code == 201, made.content
    row = Source.objects.get(pk=json.loads(made.content)["id"])
    assert row.credential_sealed and row.parameters["jobs"] == ["engines"]
    address = f"/api/v1/sources/{row.pk}/"
    kept = lab.call("admin", "PATCH", address, {"interval_s": 30})
    assert json.loads(kept.content)["interval_s"] == 30
    row.refresh_from_db()
    assert row.credential_sealed
    lab.call("admin", "PATCH", address, {"url": "http://10.0.0.2:9090"})
    row.refresh_from_db()
    assert (row.url, row.credential_sealed) == ("http://10.0.0.2:9090", "")
    assert CANARY not in made.content.decode() + kept.content.decode() + str(everything())
    problem(lab.call("admin", "POST", "/api/v1/sources/", body), 409, "source_exists")


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({"kind": "prometheus", "url": LINK_LOCAL}, 422, "address_refused"),
        ({"kind": "prometheus", "url": "http://[::1"}, 422, "address_refused"),
        ({"kind": "scrape", "url": "http://10.0.0.1"}, 400, "invalid"),
        ({"kind": "scrape", "interval_s": 0}, 400, "invalid"),
        ({"kind": "scrape", "cluster": "nowhere"}, 404, "not_found"),
        ({"kind": "scrape", "deployment": "search-pd"}, 404, "not_found"),
    ],
)
def test_bad_sources_are_refused_and_change_nothing(
    lab: Lab, body: dict[str, Any], status: int, code: str
) -> None:
    before = everything()
    answer = lab.call("admin", "POST", "/api/v1/sources/", {"cluster": lab.cluster.slug, **body})
    problem(answer, status, code)
    assert everything() == before


def test_a_token_without_configure_may_not_ask(lab: Lab, server: Any) -> None:
    _, lab.tokens["reader"] = issue(lab.users["admin"], "reader", (Permission.READ,))
    before = server.requests
    body = {"kind": "scrape", "addresses": [server.metrics_url]}
    for path in ("test", "find"):
        problem(lab.call("reader", "POST", f"/api/v1/sources/{path}/", body), 403, "not_allowed")
    assert server.requests == before
