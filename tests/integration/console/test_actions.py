"""Acts: one service each, CSRF, refusals with the fresh page and their status."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

import pytest
from django.test import Client

from apps.accounts.domain.authorize import NotAllowed, Permission
from apps.commands.services import errors
from apps.console import acts
from apps.fleet.selectors import NotVisible
from apps.planning.services import NotOpen


class Services:
    """Records calls; raises `error` when set."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.error: Exception | None = None
        self.errors: dict[str, Exception] = {}

    def __getattr__(self, name: str) -> Any:
        def call(**given: Any) -> Any:
            self.calls.append((name, given))
            error = self.errors.get(name) or self.error
            if error is not None:
                raise error
            return SimpleNamespace(number="C-0914", pk="c1")

        return call


@pytest.fixture()
def services(monkeypatch: pytest.MonkeyPatch, sample: Any) -> Services:
    found = Services()
    for name in ("propose", "approve", "reject", "cancel", "rollback", "set_kill_switch"):
        monkeypatch.setattr(acts.commands, name, getattr(found, name))
    monkeypatch.setattr(acts.planning, "dismiss", found.dismiss)
    row = SimpleNamespace(pk="00000000-0000-0000-0000-000000000001")
    monkeypatch.setattr(acts.command_selectors, "command_by_number", lambda viewer, number: row)
    monkeypatch.setattr(acts.planning_selectors, "recommendation_by_number", lambda v, n: row)
    monkeypatch.setattr(acts.fleet, "deployment_by_slug", lambda viewer, slug: row)
    return found


APPLY = {
    "expected_revision": "41",
    "plan_hash": "9f2c",
    "idempotency_key": "k1",
    "note": " go ",
}
ACTS = {
    "/recommendations/R-2187/apply/": (APPLY, "propose"),
    "/recommendations/R-2187/dismiss/": ({"reason": "no"}, "dismiss"),
    "/commands/C-0915/approve/": ({"plan_hash": "9f2c"}, "approve"),
    "/commands/C-0915/reject/": ({"reason": "no"}, "reject"),
    "/commands/C-0914/cancel/": ({}, "cancel"),
    "/commands/C-0914/rollback/": ({}, "rollback"),
    "/kill-switch/assist-chat-prod/": ({"on": "1"}, "set_kill_switch"),
}


@pytest.mark.parametrize("address", ACTS)
def test_each_act_calls_its_service_once_and_redirects(
    address: str, browser: Client, services: Services
) -> None:
    form, name = ACTS[address]
    answer = browser.post(address, form)
    assert answer.status_code == 302
    assert [call for call, _given in services.calls] == [name]
    assert services.calls[0][1]["actor"].name == "alice"


def test_apply_sends_what_the_person_saw(browser: Client, services: Services) -> None:
    answer = browser.post("/recommendations/R-2187/apply/", APPLY)
    assert answer["Location"] == "/commands/C-0914/"
    given = services.calls[0][1]
    assert given["expected_revision"] == 41
    assert given["idempotency_key"] == "k1"
    assert given["note_text"] == "go"


def test_exactly_the_plan_that_was_read_is_proposed(browser: Client, services: Services) -> None:
    browser.post("/recommendations/R-2187/apply/", APPLY)
    assert services.calls[0][1]["plan_hash"] == "9f2c"


def test_another_plan_by_now_is_shown_again(browser: Client, services: Services) -> None:
    services.error = errors.PlanChanged(plan_hash="other")
    answer = browser.post("/recommendations/R-2187/apply/", APPLY)
    html = answer.content.decode()
    assert answer.status_code == 409
    assert "Review R-2187" in html and "The plan changed meanwhile." in html


@pytest.mark.parametrize("address", ACTS)
def test_nothing_changes_on_get(address: str, browser: Client, services: Services) -> None:
    assert browser.get(address).status_code == 405
    assert services.calls == []


@pytest.mark.parametrize("address", ACTS)
def test_nothing_changes_without_a_csrf_token(address: str, alice: Any, services: Services) -> None:
    strict = Client(enforce_csrf_checks=True)
    strict.force_login(alice)
    answer = strict.post(address, ACTS[address][0])
    assert answer.status_code == 403
    assert "The form has expired" in answer.content.decode()
    assert services.calls == []


@pytest.mark.parametrize("address", ACTS)
def test_the_anonymous_are_sent_to_sign_in_and_back(
    address: str, client: Client, services: Services, db: Any
) -> None:
    answer = client.post(address, ACTS[address][0])
    page = "%2F".join(address.split("/")[:3]).replace("kill-switch", "deployments") + "%2F"
    assert answer["Location"] == f"/signin/?next={page}"
    assert services.calls == []


REFUSALS = [
    (errors.StaleRevision(expected=41, current=42), 409, "planned on revision 41, now 42"),
    (errors.ActiveCommandExists(command="C-0913"), 409, "C-0913 is still running"),
    (errors.KillSwitchOn(scope="deployment"), 409, "The kill switch is on."),
    (errors.InsufficientGpus(gpus_needed="2", gpus_free="0"), 409, "Needs 2 GPUs more, 0 are free"),
    (errors.TargetBelowMinimum(role="decode"), 422, "decode would fall below its floor"),
    (errors.NotAllowed(permission="propose"), 403, "You need the permission to propose here."),
    (NotAllowed(Permission.APPROVE), 403, "You need the permission to approve here."),
    (errors.BackendUnreachable(error="timed out"), 503, "The backend did not answer: timed out"),
    (errors.DeploymentFrozen(until="2026-11-29T20:00:00+00:00", reason="x"), 409,
     "Changes are frozen until 20:00."),
    (errors.CommandError(), 409, "Refused. Nothing was changed."),
]  # fmt: skip


@pytest.mark.parametrize(("error", "status", "words"), REFUSALS)
def test_a_refusal_shows_the_review_with_its_status(
    error: Exception, status: int, words: str, browser: Client, services: Services
) -> None:
    services.error = error
    answer = browser.post("/recommendations/R-2187/apply/", APPLY)
    html = answer.content.decode()
    assert answer.status_code == status
    assert words in html
    assert "Review R-2187" in html
    assert 'role="alert"' in html


@pytest.mark.parametrize("address", [a for a in ACTS if a.startswith("/commands/")])
def test_a_refusal_shows_the_command_again(
    address: str, browser: Client, services: Services
) -> None:
    services.error = errors.WrongState(state="SUCCEEDED")
    answer = browser.post(address, ACTS[address][0])
    html = answer.content.decode()
    assert answer.status_code == 409
    assert "Not possible while it is Done. Nothing was changed." in html
    assert address.split("/")[2] in html


def test_a_closed_recommendation_is_told(browser: Client, services: Services) -> None:
    services.error = NotOpen("R-2187", "expired")
    answer = browser.post("/recommendations/R-2187/dismiss/", {})
    assert answer.status_code == 409
    assert "It is no longer open." in answer.content.decode()


@pytest.mark.parametrize("error", [NotVisible("x"), errors.CommandNotFound(number="x")])
def test_what_may_not_be_seen_cannot_be_acted_on(
    error: Exception, browser: Client, services: Services
) -> None:
    services.error = error
    assert browser.post("/commands/C-0914/cancel/", {}).status_code == 404


def test_an_unexpected_failure_is_not_swallowed(browser: Client, services: Services) -> None:
    services.error = RuntimeError("a defect")
    with pytest.raises(RuntimeError):
        browser.post("/commands/C-0914/cancel/", {})


@pytest.mark.parametrize("revision", ["", "x", "41.5"])
def test_a_broken_form_is_refused(revision: str, browser: Client, services: Services) -> None:
    answer = browser.post(
        "/recommendations/R-2187/apply/", {**APPLY, "expected_revision": revision}
    )
    assert answer.status_code == 422
    assert services.calls == []


@pytest.mark.parametrize(
    "to", ["https://elsewhere.example/", "//elsewhere.example/", "javascript:1"]
)
def test_no_redirect_to_another_host(to: str, browser: Client, services: Services) -> None:
    answer = browser.post("/recommendations/R-2187/dismiss/", {"next": to})
    assert answer["Location"] == "/recommendations/R-2187/"


def test_forms_carry_revision_hash_and_a_fresh_key(browser: Client, services: Services) -> None:
    html = [browser.get("/recommendations/R-2187/").content.decode() for _ in range(2)]
    keys = [re.search(r'name="idempotency_key" value="([0-9a-f]{32})"', one) for one in html]
    assert keys[0] and keys[1] and keys[0][1] != keys[1][1]
    assert 'name="expected_revision" value="41"' in html[0]
    assert 'name="plan_hash" value="9f2c7d51ab3e48a0b1c2"' in html[0]
