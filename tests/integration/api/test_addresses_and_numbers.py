"""Addresses that are none, and what answers never hold: NaN, rounded money, passwords, caches."""

from __future__ import annotations

import json
from decimal import Decimal

import pytest

from apps.api.urls import ENDPOINTS
from apps.api.v1 import deployments
from apps.fleet.models import Worker

from .lab import SLUG, Lab, furnish, problem

# --- addresses


def test_an_unknown_address(lab: Lab) -> None:
    for path in ("", "v1/", "v1/no-such/", "v2/clusters/", "v1/commands/C-1/x/"):
        for caller in ("anonymous", "operator"):
            for method in ("GET", "POST", "DELETE"):
                problem(lab.call(caller, method, f"/api/{path}"), 404, "not_found")
        page = lab.call("anonymous", "GET", f"/api/{path}", Accept="text/html,*/*;q=0.8")
        assert (page.status_code, page["Content-Type"]) == (404, "text/html; charset=utf-8")


def test_an_address_without_its_slash(lab: Lab) -> None:
    moved = lab.call("operator", "GET", "/api/v1/commands?state=FAILED")
    assert (moved.status_code, moved["Location"]) == (301, "/api/v1/commands/?state=FAILED")
    refused = problem(lab.call("operator", "POST", "/api/v1/commands", {}), 404, "not_found")
    assert "/api/v1/commands/" in refused["detail"]


def test_a_key_that_is_none_is_not_found(lab: Lab) -> None:
    for name in ("clusters", "nodes", "pools", "workers", "slos", "tokens", "audit-events"):
        for key in ("x", "0", "9" * 40, "%F0%9F%92%A9", "a%00b", "..", "-1"):
            for method in ("GET", "DELETE"):
                answer = lab.call("operator", method, f"/api/v1/{name}/{key}/")
                assert answer.status_code in (404, 405), answer.content
                assert answer["Content-Type"] == "application/problem+json"


def test_a_browser_gets_json_too(lab: Lab) -> None:
    for name in ENDPOINTS:
        asked = lab.call("operator", "GET", f"/api/v1/{name}/", Accept="text/html,*/*;q=0.8")
        assert (asked.status_code, asked["Content-Type"]) == (200, "application/json"), name
        problem(lab.call("operator", "GET", f"/api/v1/{name}/?format=api"), 404, "not_found")


# --- numbers


def test_no_nan_leaves_even_if_a_read_model_holds_one(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = {
        "as_of": None,
        "step": float("nan"),
        "panels": {"ttft": {"p95": [1.5, float("inf"), float("-inf")]}, "n": 2**60, "small": 7},
        "cost": Decimal("1E+2"),
        "words": "\ud800",
    }
    monkeypatch.setattr(deployments.overview, "deployment_series", lambda *a, **k: made)
    answer = lab.call("viewer", "GET", f"/api/v1/deployments/{SLUG}/series/")
    assert b"NaN" not in answer.content and b"Infinity" not in answer.content
    found = json.loads(answer.content, parse_constant=lambda name: pytest.fail(name))
    assert found == {
        "as_of": None,
        "step": None,
        "panels": {"ttft": {"p95": [1.5, None, None]}, "n": str(2**60), "small": 7},
        "cost": "100",
        "words": "?",
    }


def test_money_is_an_exact_string(lab: Lab) -> None:
    furnish(lab)
    books = lab.call("viewer", "GET", "/api/v1/price-books/").json()["results"]
    assert [price["rate"] for price in books[0]["prices"]] == ["4.59"]
    pools = lab.call("viewer", "GET", "/api/v1/pools/").json()["results"]
    assert {row["devices_per_worker"] for row in pools} == {"1.0000"}


def test_an_address_never_shows_a_password(lab: Lab) -> None:
    Worker.objects.filter(name="p-0").update(url="http://admin:secret@10.0.0.1:8000/x@y")
    text = lab.call("viewer", "GET", "/api/v1/workers/").content.decode()
    assert "secret" not in text
    assert "http://10.0.0.1:8000/x@y" in text


KEPT_BY_NO_CACHE = (
    ("viewer", "clusters/", 200),
    ("viewer", f"deployments/{SLUG}/", 200),
    ("viewer", "clusters/no-such/", 404),
    ("viewer", "clusters/?no=such", 400),
    ("nobody", "clusters/", 403),
    ("anonymous", "clusters/", 401),
)


@pytest.mark.parametrize(("caller", "path", "status"), KEPT_BY_NO_CACHE)
def test_answers_are_kept_by_no_cache(lab: Lab, caller: str, path: str, status: int) -> None:
    answer = lab.call(caller, "GET", f"/api/v1/{path}")
    assert (answer.status_code, answer["Cache-Control"]) == (status, "private, no-store")
