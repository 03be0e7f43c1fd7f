"""Law 15 over HTTP: every endpoint × method × caller, generated from the table of addresses.

A new endpoint, action or method without a row here fails. A refused unsafe request changed nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from typing import Any
from uuid import uuid4

import pytest

from apps.api.urls import router

from .lab import ELSEWHERE, SLUG, TARGETS, Lab, everything, furnish, undone

CALLERS = (
    "anonymous",
    "bad_token",
    "expired",
    "nobody",
    "viewer",
    "read_only",
    "operator",
    "approver",
    "admin",
    "elsewhere",
    "all_elsewhere",
)
UNKNOWN_CALLERS = ("anonymous", "bad_token", "expired")
METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
Row = Mapping[str, int]
Body = Callable[[Lab], Any]


def answers(everyone: int, **but: int) -> Row:
    """Status by caller: 401 without a valid token, 403 for whoever holds no role."""
    row = {caller: 401 if caller in UNKNOWN_CALLERS else everyone for caller in CALLERS}
    return row | {"nobody": 403} | but


#: Lists show what is in scope, which may be nothing; details of what is not are not found.
LIST = answers(200)
PUBLIC_FACT = answers(200)
DETAIL = answers(200, elsewhere=404, all_elsewhere=404)
AUDIT_LIST = answers(200, viewer=403, read_only=403, elsewhere=403)
AUDIT_DETAIL = AUDIT_LIST | {"all_elsewhere": 404}
NO_METHOD = answers(405)
NO_METHOD_OF_AUDIT = answers(405, viewer=403, read_only=403, elsewhere=403)


def act(done: int, *who: str) -> Row:
    """An unsafe act on the deployment that only these callers may do."""
    hidden = {"elsewhere": 404, "all_elsewhere": 404}
    return answers(403, **hidden) | dict.fromkeys(who, done)


#: (endpoint, action, method) -> who may, and what is sent.
TABLE: dict[tuple[str, str, str], tuple[Row, Body | None]] = {
    ("accelerators", "detail", "GET"): (PUBLIC_FACT, None),
    ("models", "detail", "GET"): (PUBLIC_FACT, None),
    ("price-books", "detail", "GET"): (PUBLIC_FACT, None),
    ("audit-events", "list", "GET"): (AUDIT_LIST, None),
    ("audit-events", "detail", "GET"): (AUDIT_DETAIL, None),
    ("commands", "list", "POST"): (
        act(201, "operator"),
        lambda lab: {"deployment": SLUG, "targets": TARGETS, "expected_revision": lab.revision},
    ),
    ("commands", "approve", "POST"): (
        act(200, "approver"),
        lambda lab: {"plan_hash": lab.numbers["plan_hash"]},
    ),
    ("commands", "reject", "POST"): (act(200, "approver"), lambda lab: {"reason": "no"}),
    ("commands", "cancel", "POST"): (act(200, "operator", "approver"), lambda lab: {}),
    ("commands", "rollback", "POST"): (act(201, "operator", "approver"), lambda lab: {}),
    ("recommendations", "dismiss", "POST"): (act(200, "operator"), lambda lab: {"reason": "no"}),
    ("kill-switch", "list", "POST"): (
        act(200, "operator", "approver", "admin"),
        lambda lab: {"deployment": SLUG, "on": True},
    ),
    ("sources", "list", "POST"): (
        act(201, "admin"),
        lambda lab: {"cluster": lab.cluster.slug, "kind": "scrape"},
    ),
    ("sources", "detail", "PATCH"): (act(200, "admin"), lambda lab: {"interval_s": 30}),
    # Whoever configures any cluster may ask; this address is refused before anything is sent.
    ("sources", "test", "POST"): (
        answers(403, admin=200, all_elsewhere=200),
        lambda lab: {"kind": "prometheus", "url": "http://169.254.169.254/"},
    ),
    ("sources", "find", "POST"): (
        answers(403, admin=422, all_elsewhere=422),
        lambda lab: {"kind": "prometheus", "url": "http://169.254.169.254/"},
    ),
    # Everybody holds a token here, and no token makes another.
    ("tokens", "list", "POST"): (
        answers(403),
        lambda lab: {"name": "more", "permissions": ["read"], "days": 1},
    ),
    # The token of the address belongs to the operator and is the one that `read_only` sends.
    ("tokens", "detail", "GET"): (answers(404, operator=200, read_only=200), None),
    ("tokens", "detail", "DELETE"): (answers(404, operator=403, read_only=204), None),
}
#: Actions of a list, about no row of it.
OF_NO_OBJECT = {("sources", "test"), ("sources", "find")}
DEFAULTS = {"list": LIST, "detail": DETAIL}


def routes() -> list[tuple[str, str, frozenset[str]]]:
    """(endpoint, action, methods) of every address of the router."""
    found = []
    for pattern in router.urls:
        endpoint = next(
            name for name, _, base in router.registry if pattern.name.startswith(f"{base}-")
            and pattern.name.removeprefix(f"{base}-") in _suffixes(name)
        )  # fmt: skip
        suffix = pattern.name.removeprefix(f"{endpoint}-")
        methods = frozenset(method.upper() for method in pattern.callback.actions)
        found.append((endpoint, suffix, methods - {"HEAD"}))
    return found


def _suffixes(endpoint: str) -> set[str]:
    viewset = next(view for name, view, _ in router.registry if name == endpoint)
    return {"list", "detail", *(action.url_name for action in viewset.get_extra_actions())}


ROUTES = routes()


def row_of(endpoint: str, action: str, method: str, methods: frozenset[str]) -> Row | None:
    if method not in methods:
        return NO_METHOD_OF_AUDIT if endpoint == "audit-events" else NO_METHOD
    if (endpoint, action, method) in TABLE:
        return TABLE[endpoint, action, method][0]
    if method != "GET":
        return None
    # Sub-resources of a deployment are details too.
    return DEFAULTS.get(action, DETAIL if endpoint == "deployments" else None)


def test_every_address_has_a_row() -> None:
    missing = [
        (endpoint, action, method)
        for endpoint, action, methods in ROUTES
        for method in methods
        if row_of(endpoint, action, method, methods) is None
    ]
    assert missing == []
    known = {(endpoint, action, m) for endpoint, action, methods in ROUTES for m in methods}
    assert set(TABLE) - known == set(), "rows of addresses that are gone"
    assert len({endpoint for endpoint, _, _ in ROUTES}) == len(router.registry)


def address(lab: Lab, endpoint: str, action: str) -> str:
    if action == "list":
        return f"/api/v1/{endpoint}/"
    if (endpoint, action) in OF_NO_OBJECT:
        return f"/api/v1/{endpoint}/{action}/"
    detail = f"/api/v1/{endpoint}/{lab.numbers[endpoint]}/"
    return detail if action == "detail" else f"{detail}{action}/"


def prepare(lab: Lab, endpoint: str, action: str) -> str:
    """The address, with the object in the state that the action is about."""
    if endpoint == "commands" and action != "list":
        command = lab.finished() if action == "rollback" else lab.propose()
        lab.numbers |= {"commands": command.number, "plan_hash": command.plan_hash}
    return address(lab, endpoint, action)


@pytest.mark.parametrize("endpoint", sorted(name for name, _, _ in router.registry))
def test_who_may_do_what(lab: Lab, endpoint: str) -> None:
    furnish(lab)
    for name, action, methods in ROUTES:
        if name == endpoint:
            with undone():
                walk(lab, endpoint, action, methods)


def walk(lab: Lab, endpoint: str, action: str, methods: frozenset[str]) -> None:
    """Every method by every caller; what is allowed is undone, what is refused changes nothing."""
    path = prepare(lab, endpoint, action)
    before = everything()
    for method in METHODS:
        expected = row_of(endpoint, action, method, methods)
        assert expected is not None
        make = TABLE.get((endpoint, action, method), (None, None))[1]
        body = make(lab) if make else None
        found: dict[str, int] = {}
        for caller in CALLERS:
            allowed = expected[caller] < 400
            with undone() if allowed else nullcontext():
                answer = lab.call(caller, method, path, body)
            found[caller] = answer.status_code
            if not allowed:
                assert answer["Content-Type"] == "application/problem+json", answer.content
            if answer.status_code == 401:
                assert answer["WWW-Authenticate"].startswith("Bearer")
        assert found == expected, f"{method} {path}"
        if method != "OPTIONS":
            assert everything() == before, f"a refused {method} {path} changed something"
    assert lab.outside.mutations == []


def test_a_session_needs_csrf(lab: Lab) -> None:
    furnish(lab)
    browsers = [lab.browser(c, csrf=False) for c in ("operator", "approver", "admin", "nobody")]
    for endpoint, action, methods in ROUTES:
        for method in sorted(methods - {"GET"}):
            with undone():
                path = prepare(lab, endpoint, action)
                make = TABLE[endpoint, action, method][1]
                body = make(lab) if make else None
                before = everything()
                for browser in browsers:
                    answer = browser.call(method, path, body)
                    assert (answer.status_code, answer.json()["code"]) == (403, "csrf"), path
                    assert answer["Content-Type"] == "application/problem+json"
                assert everything() == before


def test_a_session_with_csrf_acts(lab: Lab) -> None:
    furnish(lab)
    body = {"deployment": SLUG, "targets": TARGETS, "expected_revision": lab.revision}
    answer = lab.browser("operator").call("POST", "/api/v1/commands/", body)
    assert answer.status_code == 201
    assert lab.browser("viewer").call("GET", "/api/v1/commands/").status_code == 200


def test_a_bad_token_is_not_saved_by_a_session(lab: Lab) -> None:
    browser = lab.browser("operator")
    for header in ("Bearer ful_0123456789ab.wrong", "Basic YTpi", "Bearer", "Bearer \x7f"):
        answer = browser.call("GET", "/api/v1/clusters/", Authorization=header)
        assert (answer.status_code, answer.json()["code"]) == (401, "authentication_failed")


def test_tokens_are_made_in_a_session_and_shown_once(lab: Lab) -> None:
    body = {"name": "ci", "permissions": ["read"], "days": 1}
    made = lab.browser("viewer").call("POST", "/api/v1/tokens/", body)
    assert made.status_code == 201
    assert "no-store" in made["Cache-Control"]
    text = made.json()["token"]
    lab.tokens["new"] = text
    assert lab.call("new", "GET", "/api/v1/clusters/").status_code == 200
    listed = lab.call("new", "GET", "/api/v1/tokens/").content.decode()
    assert text.split(".")[1] not in listed and "digest" not in listed and 'token"' not in listed
    again = lab.call("new", "POST", "/api/v1/tokens/", body)
    assert (again.status_code, again.json()["code"]) == (403, "token")
    # It may end itself, and is then refused.
    own = made.json()["id"]
    assert lab.call("new", "DELETE", f"/api/v1/tokens/{own}/").status_code == 204
    assert lab.call("new", "GET", "/api/v1/clusters/").status_code == 401


def test_a_token_narrows_roles_and_never_widens_them(lab: Lab) -> None:
    body = {"name": "all", "permissions": ["read", "propose", "approve"], "days": 1}
    lab.tokens["new"] = lab.browser("viewer").call("POST", "/api/v1/tokens/", body).json()["token"]
    wanted = {"deployment": SLUG, "targets": TARGETS, "expected_revision": lab.revision}
    assert lab.call("new", "POST", "/api/v1/commands/", wanted).status_code == 403
    assert lab.call("read_only", "POST", "/api/v1/commands/", wanted).status_code == 403
    assert lab.call("read_only", "GET", "/api/v1/audit-events/").status_code == 403


def test_what_is_hidden_reads_like_what_does_not_exist(lab: Lab) -> None:
    furnish(lab)
    hidden = lab.propose().number
    pairs = [
        ("GET", f"/api/v1/deployments/{SLUG}/", "/api/v1/deployments/no-such/", None, None),
        ("GET", f"/api/v1/clusters/{lab.cluster.pk}/", f"/api/v1/clusters/{uuid4()}/", None, None),
        ("GET", "/api/v1/recommendations/R-1/", "/api/v1/recommendations/R-99/", None, None),
        (
            "POST",
            "/api/v1/commands/",
            "/api/v1/commands/",
            {"deployment": SLUG, "targets": TARGETS, "expected_revision": 1},
            {"deployment": "no-such", "targets": TARGETS, "expected_revision": 1},
        ),
        (
            "POST",
            "/api/v1/commands/",
            "/api/v1/commands/",
            {"recommendation": "R-1"},
            {"recommendation": "R-99"},
        ),
        (
            "POST",
            "/api/v1/kill-switch/",
            "/api/v1/kill-switch/",
            {"cluster": "lab", "on": True},
            {"cluster": "no-such", "on": True},
        ),
    ]
    for method, real, unreal, first, second in pairs:
        one = lab.call("all_elsewhere", method, real, first)
        two = lab.call("all_elsewhere", method, unreal, second)
        assert one.status_code == two.status_code == 404
        assert one.content == two.content
    one = lab.call("all_elsewhere", "POST", f"/api/v1/commands/{hidden}/approve/", {})
    two = lab.call("all_elsewhere", "POST", "/api/v1/commands/C-99/approve/", {})
    assert one.content.replace(hidden.encode(), b"C-99") == two.content


def test_lists_hold_only_what_is_in_scope(lab: Lab) -> None:
    furnish(lab)
    lab.propose()
    for endpoint, _, _ in router.registry:
        text = lab.call("elsewhere", "GET", f"/api/v1/{endpoint}/").content.decode()
        mine = lab.numbers.get(endpoint, SLUG)
        if endpoint in ("accelerators", "models", "price-books"):
            assert mine in text
        else:
            assert mine not in text, endpoint
            assert f'"{SLUG}"' not in text, endpoint


def test_audit_needs_its_own_permission_on_the_deployment(lab: Lab) -> None:
    """A role on one deployment does not open the audit of another that may only be read."""
    from apps.accounts import services as accounts
    from apps.accounts.domain.authorize import SYSTEM, Role, ScopeKind

    furnish(lab)
    accounts.bind_role(
        actor=SYSTEM,
        now=lab.now,
        user=lab.users["all_elsewhere"],
        role=Role.VIEWER,
        scope_kind=ScopeKind.DEPLOYMENT,
        scope_id=lab.deployment.pk,
    )
    page = lab.call("all_elsewhere", "GET", "/api/v1/audit-events/?page_size=200").json()
    assert str(lab.deployment.pk) not in {row["object_id"] for row in page["results"]}
    assert str(lab.elsewhere.pk) in {row["object_id"] for row in page["results"]}
    seen = lab.call("all_elsewhere", "GET", "/api/v1/deployments/").json()["results"]
    assert [row["slug"] for row in seen] == [SLUG, ELSEWHERE]


@pytest.mark.parametrize("path", ["/api/openapi.yaml", "/api/docs/"])
def test_the_description_of_the_api_is_public(lab: Lab, path: str) -> None:
    for caller in CALLERS:
        assert lab.call(caller, "GET", path).status_code == 200
    assert lab.call("operator", "POST", path).status_code in (403, 405)
