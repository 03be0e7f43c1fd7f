"""Signing in, preferences, health."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client

PASSWORD = "a long enough password"


def test_signing_in_returns_to_the_address_asked_for(
    alice: Any, client: Client, sample: Any
) -> None:
    first = client.get("/commands/C-0914/")
    page = client.get(first["Location"])
    assert 'name="next" value="/commands/C-0914/"' in page.content.decode()
    answer = client.post(
        "/signin/", {"login": "alice", "password": PASSWORD, "next": "/commands/C-0914/"}
    )
    assert answer["Location"] == "/commands/C-0914/"
    assert client.get("/commands/C-0914/").status_code == 200


def test_a_wrong_password_stays_on_the_page(alice: Any, client: Client, sample: Any) -> None:
    answer = client.post("/signin/", {"login": "alice", "password": "wrong"})
    assert answer.status_code == 200
    assert 'role="alert"' in answer.content.decode()
    assert client.get("/fleet/").status_code == 302


def test_nobody_signs_up(client: Client, db: Any) -> None:
    assert client.get("/signup/").status_code == 404
    assert "sign up" not in client.get("/signin/").content.decode().lower()


def test_no_redirect_to_another_host_after_signing_in(alice: Any, client: Client) -> None:
    answer = client.post(
        "/signin/", {"login": "alice", "password": PASSWORD, "next": "https://elsewhere.example/"}
    )
    assert answer["Location"] == "/fleet/"


def test_signing_out_needs_a_form(browser: Client, sample: Any) -> None:
    assert browser.get("/signout/").status_code == 405
    assert browser.post("/signout/")["Location"] == "/signin/"
    assert browser.get("/fleet/").status_code == 302


def test_the_language_is_kept_on_the_account_and_in_a_cookie(
    browser: Client, alice: Any, sample: Any
) -> None:
    answer = browser.post("/preferences/language/", {"language": "zh-hans", "next": "/fleet/"})
    assert answer["Location"] == "/fleet/"
    alice.refresh_from_db()
    assert alice.language == "zh-hans"
    assert "总览" in browser.get("/fleet/").content.decode()


def test_the_language_follows_a_person_to_another_browser(
    alice: Any, client: Client, sample: Any
) -> None:
    alice.language = "zh-hans"
    alice.save()
    client.post("/signin/", {"login": "alice", "password": PASSWORD})
    assert "总览" in client.get("/fleet/").content.decode()


@pytest.mark.parametrize(
    ("address", "form"),
    [
        ("/preferences/language/", {"language": "xx"}),
        ("/preferences/theme/", {"theme": "pink"}),
        ("/preferences/time-zone/", {"time_zone": "Mars/Olympus"}),
    ],
)
def test_unknown_choices_are_refused(address: str, form: dict[str, str], browser: Client) -> None:
    assert browser.post(address, form).status_code == 400


@pytest.mark.parametrize(
    ("theme", "attribute"), [("dark", 'data-theme="dark"'), ("light", 'data-theme="light"')]
)
def test_the_theme_is_in_the_first_answer(
    theme: str, attribute: str, browser: Client, sample: Any
) -> None:
    browser.post("/preferences/theme/", {"theme": theme})
    assert attribute in browser.get("/fleet/").content.decode().split("<head>")[0]
    browser.post("/preferences/theme/", {"theme": "system"})
    assert "data-theme" not in browser.get("/fleet/").content.decode().split("<head>")[0]


def test_the_zone_is_the_persons_else_the_browsers_else_utc(
    browser: Client, alice: Any, sample: Any
) -> None:
    def zone() -> str:
        html = browser.get("/fleet/").content.decode()
        return html.split('<p class="num zone">')[1].split("<")[0]

    assert zone() == "UTC"
    browser.cookies["tz"] = "Asia/Shanghai"
    assert zone() == "Asia/Shanghai (UTC+8)"
    browser.post("/preferences/time-zone/", {"time_zone": "America/New_York"})
    alice.refresh_from_db()
    assert alice.time_zone == "America/New_York"
    assert zone() == "America/New_York (UTC−5)"
    browser.post("/preferences/time-zone/", {"time_zone": ""})
    assert zone() == "Asia/Shanghai (UTC+8)"
    browser.cookies["tz"] = "../../etc/passwd"
    assert zone() == "UTC"


def test_single_keys_can_be_turned_off(browser: Client, sample: Any) -> None:
    assert 'data-keys="on"' in browser.get("/fleet/").content.decode()
    browser.post("/preferences/keys/", {"keys": "off"})
    assert 'data-keys="off"' in browser.get("/fleet/").content.decode()


def test_the_process_is_alive_without_database_or_session(client: Client) -> None:
    """No database mark: asking one would fail this test."""
    answer = client.get("/healthz")
    assert (answer.status_code, answer.json()) == (200, {"status": "ok"})
    assert "sessionid" not in answer.cookies


def test_ready_tells_database_broker_and_collector(client: Client, sample: Any, db: Any) -> None:
    answer = client.get("/readyz")
    assert answer.status_code == 200
    assert answer.json() == {
        "status": "ok",
        "database": {"ok": True},
        "broker": {"ok": True, "kind": "memory"},
        "collector": {"age_s": 4.0},
    }


def test_an_unreachable_broker_makes_it_unready(
    client: Client, sample: Any, db: Any, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kombu.exceptions import OperationalError

    from controlplane.celery import app

    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise OperationalError("refused")

    settings.CELERY_BROKER_URL = "redis://127.0.0.1:1/0"
    monkeypatch.setattr(app, "connection_for_read", refuse)
    answer = client.get("/readyz")
    assert answer.status_code == 503
    assert answer.json()["broker"] == {"ok": False, "error": "OperationalError"}
