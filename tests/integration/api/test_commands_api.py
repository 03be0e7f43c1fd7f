"""Commands over HTTP: what is refused, with which code and words, and the form of answers."""

from __future__ import annotations

from typing import Any

import pytest

from apps.commands import services as commands
from apps.commands.models import Approval, Command
from apps.fleet.models import Deployment

from .lab import SLUG, TARGETS, Lab, everything, furnish, problem

URL = "/api/v1/commands/"


def by_hand(lab: Lab, **more: Any) -> dict[str, Any]:
    return {"deployment": SLUG, "targets": TARGETS, "expected_revision": lab.revision} | more


# --- bad input


WRONG: tuple[tuple[dict[str, Any], int, str], ...] = (
    ({"deployment": "no-such"}, 404, "not_found"),
    ({"deployment": "not a slug"}, 400, "invalid"),
    ({"deployment": None}, 400, "invalid"),
    ({"targets": {"encode": 1}}, 422, "unknown_pool"),
    ({"targets": {"prefill": 0, "decode": 6}}, 422, "floor"),
    ({"targets": {"prefill": 2, "decode": 4}}, 422, "nothing_to_change"),
    ({"targets": {"prefill": "3", "decode": 3}}, 422, "bad_target"),
    ({"targets": {"prefill": 3.0, "decode": 3}}, 422, "bad_target"),
    ({"targets": {"prefill": 2.5, "decode": 3}}, 422, "bad_target"),
    ({"targets": {"prefill": True, "decode": 3}}, 422, "bad_target"),
    ({"targets": {"prefill": None, "decode": 3}}, 422, "bad_target"),
    ({"targets": {"prefill": [3], "decode": 3}}, 422, "bad_target"),
    ({"targets": {"prefill": -1, "decode": 3}}, 422, "bad_target"),
    ({"targets": {"prefill": 10**40, "decode": 3}}, 422, "bad_target"),
    ({"targets": {"prefill": 400, "decode": 4}}, 422, "infeasible"),
    ({"targets": {}}, 400, "invalid"),
    ({"targets": [3, 3]}, 400, "invalid"),
    ({"targets": {"\ud800": 3}}, 400, "invalid"),
    ({"targets": {"x" * 500: 3}}, 400, "invalid"),
    ({"targets": None}, 400, "invalid"),
    ({"expected_revision": "one"}, 400, "invalid"),
    ({"expected_revision": 0}, 400, "invalid"),
    ({"expected_revision": 10**30}, 400, "invalid"),
    ({"expected_revision": None}, 400, "invalid"),
    ({"dry_run": "perhaps"}, 400, "invalid"),
    ({"note": "a\x00b"}, 400, "invalid"),
    ({"note": "\ud800"}, 400, "invalid"),
    ({"note": "x" * 2001}, 400, "invalid"),
)


def test_a_wrong_request_is_named_and_changes_nothing(lab: Lab) -> None:
    before = everything()
    for change, status, code in WRONG:
        problem(lab.call("operator", "POST", URL, by_hand(lab, **change)), status, code)
    assert everything() == before
    assert lab.outside.mutations == []


def test_either_a_recommendation_or_targets(lab: Lab) -> None:
    furnish(lab)
    before = everything()
    for body in (
        {},
        {"deployment": SLUG},
        {"targets": TARGETS, "expected_revision": 1},
        {"recommendation": "R-1", "targets": TARGETS},
        {"recommendation": "R-1", "deployment": SLUG},
        by_hand(lab, recommendation="R-1"),
    ):
        found = problem(lab.call("operator", "POST", URL, body), 400, "invalid")
        assert "recommendation" in str(found["errors"])
    missing = problem(
        lab.call("operator", "POST", URL, {"deployment": SLUG, "targets": TARGETS}), 400, "invalid"
    )
    assert "expected_revision" in missing["errors"]
    assert everything() == before


def test_an_unknown_recommendation(lab: Lab) -> None:
    for name in ("R-99", "r 1", "00000000-0000-0000-0000-000000000007", "%", "7"):
        problem(lab.call("operator", "POST", URL, {"recommendation": name}), 404, "not_found")


BODIES = (
    (b"{", "application/json", 400, "parse_error"),
    (b"\xff\xfe", "application/json", 400, "parse_error"),
    (b'{"note": NaN}', "application/json", 400, "parse_error"),
    (b'{"note": -Infinity}', "application/json", 400, "parse_error"),
    (b"[" * 100_000, "application/json", 400, "parse_error"),
    (b"1" * 5000, "application/json", 400, "parse_error"),
    (b"[]", "application/json", 400, "invalid"),
    (b'"text"', "application/json", 400, "invalid"),
    (b"null", "application/json", 400, "invalid"),
    (b" " * 300_000, "application/json", 413, "too_large"),
    (b"deployment=chat-pd", "application/x-www-form-urlencoded", 415, "unsupported_media_type"),
    (b"<a/>", "text/xml", 415, "unsupported_media_type"),
)


def test_a_body_that_is_no_object(lab: Lab) -> None:
    for raw, content, status, code in BODIES:
        answer = lab.call("operator", "POST", URL, raw, **{"Content-Type": content})
        problem(answer, status, code)


# --- compare-and-swap


def test_a_stale_revision_shows_the_present_state(lab: Lab) -> None:
    before = everything()
    stale = lab.revision + 1
    for answer in (
        lab.call("operator", "POST", URL, by_hand(lab, expected_revision=stale)),
        lab.call(
            "operator",
            "POST",
            URL,
            {"deployment": SLUG, "targets": TARGETS},
            **{"If-Match": f'"{stale}"'},
        ),
    ):
        found = problem(answer, 409, "stale_revision")
        assert found["params"] == {
            "expected": stale,
            "current": lab.revision,
            "wanted": {"prefill": 2, "decode": 4},
        }
    assert everything() == before


def test_if_match_names_the_revision(lab: Lab) -> None:
    shown = lab.call("operator", "GET", f"/api/v1/deployments/{SLUG}/")
    tag = shown["ETag"]
    assert tag == f'"{lab.revision}"'
    body = {"deployment": SLUG, "targets": TARGETS, "dry_run": True}
    for value in (tag, f"W/{tag}", tag.strip('"')):
        assert lab.call("operator", "POST", URL, body, **{"If-Match": value}).status_code == 200
    for value in ("*", "²", "1.0", "-1", '"abc"', "9" * 40):
        problem(lab.call("operator", "POST", URL, body, **{"If-Match": value}), 400, "invalid")
    differ = lab.call("operator", "POST", URL, by_hand(lab), **{"If-Match": "77"})
    problem(differ, 400, "invalid")


def test_a_second_command_while_one_runs(lab: Lab) -> None:
    first = lab.propose()
    for state in ("PROPOSED", "RUNNING", "SOAK"):
        Command.objects.filter(pk=first.pk).update(state=state)
        found = problem(lab.call("operator", "POST", URL, by_hand(lab)), 409, "active_command")
        assert found["params"] == {"command": first.number}
    assert Command.objects.count() == 1


# --- dry run, idempotency


def test_a_dry_run_changes_nothing_and_says_what_would_happen(lab: Lab) -> None:
    before = everything()
    found = lab.call("operator", "POST", URL, by_hand(lab, dry_run=True)).json()
    assert everything() == before
    assert lab.outside.mutations == []
    assert (found["dry_run"], found["refused"]) == (True, None)
    assert (found["targets"], found["before"]) == (TARGETS, {"prefill": 2, "decode": 4})
    assert found["kind"] == "role_flip"
    assert [step["kind"] for step in found["steps"]][:2] == ["set_drain_time", "remove_worker"]
    assert found["lowest"] == {"prefill": 2, "decode": 3}
    assert {check["code"] for check in found["checks"]} >= {"mode", "kill_switch", "revision"}
    made = lab.call("operator", "POST", URL, by_hand(lab)).json()
    assert made["plan_hash"] == found["plan_hash"]


def test_a_dry_run_names_the_first_refusal(lab: Lab) -> None:
    commands.set_kill_switch(actor=lab.viewer("operator"), now=lab.now, on=True, slug=SLUG)
    found = lab.call("operator", "POST", URL, by_hand(lab, dry_run=True)).json()
    assert found["refused"]["code"] == "kill_switch"
    assert found["refused"]["what_to_do"]


def test_an_idempotency_key_replays_and_refuses_another_body(lab: Lab) -> None:
    key = {"Idempotency-Key": "deploy-2026-11-30"}
    first = lab.call("operator", "POST", URL, by_hand(lab), **key)
    again = lab.call("operator", "POST", URL, by_hand(lab), **key)
    assert (first.status_code, again.status_code) == (201, 201)
    assert first.json()["id"] == again.json()["id"]
    other = by_hand(lab, targets={"prefill": 2, "decode": 3})
    problem(lab.call("operator", "POST", URL, other, **key), 422, "idempotency")
    # The same key of somebody else is another key.
    problem(lab.call("viewer", "POST", URL, by_hand(lab), **key), 403, "not_allowed")
    assert Command.objects.count() == 1


def test_a_long_key_is_refused_not_cut(lab: Lab) -> None:
    for key in ("k" * 121, "é"):
        answer = lab.call("operator", "POST", URL, by_hand(lab), **{"Idempotency-Key": key})
        problem(answer, 400, "invalid")
    assert Command.objects.count() == 0


# --- a recommendation


def test_a_recommendation_is_applied_by_number_or_id(lab: Lab) -> None:
    found = lab.recommend()
    made = lab.call("operator", "POST", URL, {"recommendation": str(found.pk)})
    assert made.status_code == 201
    body = made.json()
    assert (body["recommendation_number"], body["targets"]) == (found.number, TARGETS)
    assert body["proposed_by"] == ["fulcrum"], "untouched, so the planner proposed it"
    assert body["predicted"]["ttft_p95"]["upper"] == 1.0
    found.refresh_from_db()
    shown = lab.call("viewer", "GET", f"/api/v1/recommendations/{found.pk}/").json()
    assert shown["number"] == found.number


def test_a_closed_recommendation_is_refused(lab: Lab) -> None:
    found = lab.recommend()
    url = f"/api/v1/recommendations/{found.number}/dismiss/"
    done = lab.call("operator", "POST", url, {"reason": "not today"}).json()
    assert done["state"] == "dismissed"
    twice = problem(lab.call("operator", "POST", url, {}), 409, "not_open")
    assert twice["params"] == {"state": "dismissed"}
    answer = lab.call("operator", "POST", URL, {"recommendation": found.number})
    problem(answer, 409, "not_open")


# --- decisions


def test_only_the_plan_that_was_read_is_approved(lab: Lab) -> None:
    made = lab.propose()
    url = f"{URL}{made.number}/approve/"
    before = everything()
    changed = problem(
        lab.call("approver", "POST", url, {"plan_hash": "0" * 64}), 409, "plan_changed"
    )
    assert changed["params"] == {"plan_hash": made.plan_hash}
    problem(lab.call("approver", "POST", url, {}), 400, "invalid")
    problem(lab.call("approver", "POST", url, {"plan_hash": "x" * 129}), 400, "invalid")
    assert everything() == before
    done = lab.call("approver", "POST", url, {"plan_hash": made.plan_hash})
    assert done.json()["state"] == "APPROVED"
    assert Approval.objects.get().via == "token"


def test_in_production_a_person_who_did_not_propose_approves(production: Lab) -> None:
    lab = production
    made = lab.propose()
    url, body = f"{URL}{made.number}/approve/", {"plan_hash": made.plan_hash}
    before = everything()
    problem(lab.call("approver", "POST", url, body), 403, "token")
    # alice gets the approver's role too: she still may not approve her own proposal.
    from apps.accounts import services as accounts
    from apps.accounts.domain.authorize import SYSTEM, Role, ScopeKind

    accounts.bind_role(
        actor=SYSTEM,
        now=lab.now,
        user=lab.users["operator"],
        role=Role.APPROVER,
        scope_kind=ScopeKind.INSTALLATION,
        scope_id=None,
    )
    own = lab.browser("operator").call("POST", url, body)
    assert problem(own, 403, "own_proposal")["params"] == {"environment": "production"}
    assert Command.objects.get().state == "PROPOSED"
    assert everything()["commands.Command"] == before["commands.Command"]
    done = lab.browser("approver").call("POST", url, body)
    assert (done.status_code, done.json()["state"]) == (200, "APPROVED")
    approval = Approval.objects.get()
    assert (approval.user_name, approval.via) == ("bob", "api")


def test_what_is_over_is_not_decided_again(lab: Lab) -> None:
    made = lab.propose()
    assert lab.call("approver", "POST", f"{URL}{made.number}/reject/", {}).status_code == 200
    for act in ("reject", "cancel", "rollback"):
        answer = lab.call("approver", "POST", f"{URL}{made.number}/{act}/", {})
        assert problem(answer, 409, "wrong_state")["params"] == {"state": "REJECTED"}


def test_rollback_is_a_command_of_its_own(lab: Lab) -> None:
    done = lab.finished()
    url = f"{URL}{done.number}/rollback/"
    made = lab.call("operator", "POST", url, {"reason": "worse"})
    assert made.status_code == 201
    body = made.json()
    assert (body["rollback_of"], body["targets"]) == (done.number, {"prefill": 2, "decode": 4})
    again = lab.call("operator", "POST", url, {})
    assert again.json()["id"] == body["id"]


def test_an_unknown_command(lab: Lab) -> None:
    for method, path in (("GET", "C-99/"), ("POST", "C-99/approve/"), ("POST", "%25/cancel/")):
        body = {"plan_hash": "x"} if method == "POST" else None
        problem(lab.call("approver", method, URL + path, body), 404, "not_found")


# --- what stops commands


def test_the_kill_switch_stops_proposals_until_it_is_released(production: Lab) -> None:
    lab, url = production, "/api/v1/kill-switch/"
    on = lab.call("operator", "POST", url, {"deployment": SLUG, "on": True, "reason": "fire"})
    assert (on.status_code, on.json()["on"]) == (200, True)
    found = problem(lab.call("operator", "POST", URL, by_hand(lab)), 409, "kill_switch")
    assert found["params"] == {"scope": "deployment"}
    off = {"deployment": SLUG, "on": False}
    problem(lab.call("operator", "POST", url, off), 403, "not_allowed")
    problem(lab.call("approver", "POST", url, off), 403, "token")
    asked = lab.browser("approver").call("POST", url, off).json()
    assert (asked["on"], asked["release_by"]) == (True, "bob"), "a second person must ask too"
    for body in ({"on": True, "deployment": SLUG, "cluster": "lab"}, {"deployment": SLUG}, {}):
        problem(lab.call("operator", "POST", url, body), 400, "invalid")
    for body in ({"on": True, "cluster": "no-such"}, {"on": True, "team": "no-such"}):
        problem(lab.call("operator", "POST", url, body), 404, "not_found")


@pytest.mark.parametrize("mode", ["observe", "recommend"])
def test_the_mode_is_asked(lab: Lab, mode: str) -> None:
    Deployment.objects.filter(pk=lab.deployment.pk).update(mode=mode)
    found = problem(lab.call("operator", "POST", URL, by_hand(lab)), 409, "mode")
    assert found["params"] == {"mode": mode}


def test_an_unreachable_backend_is_a_503_and_writes_nothing(lab: Lab) -> None:
    lab.outside.readable = False
    before = everything()
    problem(lab.call("operator", "POST", URL, by_hand(lab)), 503, "backend_unreachable")
    assert everything() == before


# --- forms of answers


def test_a_finished_command_shows_predicted_and_measured(lab: Lab) -> None:
    done = lab.finished()
    answer = lab.call("viewer", "GET", f"{URL}{done.number}/")
    body = answer.json()
    assert body["state"] == "SUCCEEDED"
    assert (
        body["predicted"]["ttft_p95"] | {"value": 0.8, "lower": 0.6, "upper": 1.0}
        == (body["predicted"]["ttft_p95"])
    )
    assert body["measured"]["cost_per_million"]["value"] == "0.70", "money is a string"
    assert body["measured"]["cost_per_million"]["unit"] == "USD/1M tok"
    assert lab.call("viewer", "GET", f"{URL}{done.pk}/").json()["number"] == done.number


def test_a_defect_is_a_logged_problem_without_details(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from django.test import Client

    def fail(*args: Any, **kwargs: Any) -> Any:
        raise RuntimeError("password=hunter2")

    monkeypatch.setattr("apps.commands.selectors.commands_for", fail)
    client = Client(raise_request_exception=False)
    answer = client.get(URL, headers={"Authorization": f"Bearer {lab.tokens['viewer']}"})
    problem(answer, 500, "internal")
    assert b"hunter2" not in answer.content and b"Traceback" not in answer.content
    assert "hunter2" in caplog.text
