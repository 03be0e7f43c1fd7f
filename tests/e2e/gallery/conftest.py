"""A browser on the console with sample pages: fixed clock, no request to another host.

Every page fails its test on a console error, a page error, a CSP report or a foreign request.
Screenshots go to `FULCRUM_SHOTS` when set, else to the test's own folder.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from django.contrib.auth import get_user_model
from django.test import Client
from playwright.sync_api import Browser, Page, Playwright, sync_playwright

from apps.console import data
from tests.support import pages
from tests.support.browser import launch

# Playwright's synchronous interface runs a loop in this thread; Django's rows are made beside it.
os.environ.setdefault("DJANGO_ALLOW_ASYNC_UNSAFE", "true")

SIZES = {"desktop": (1440, 900), "phone": (390, 844), "narrow": (320, 700)}


@pytest.fixture(scope="session")
def playwright() -> Iterator[Playwright]:
    with sync_playwright() as started:
        yield started


@pytest.fixture(scope="session")
def chromium(playwright: Playwright) -> Iterator[Browser]:
    browser = launch(playwright, "--force-color-profile=srgb")
    yield browser
    browser.close()


@pytest.fixture()
def sample(monkeypatch: pytest.MonkeyPatch, settings: Any) -> pages.Selectors:
    found = pages.Selectors()
    settings.FULCRUM_GALLERY = True
    monkeypatch.setattr(data, "selectors", lambda: found)
    monkeypatch.setattr("apps.console.viewer.utcnow", lambda: pages.NOW)
    return found


@pytest.fixture()
def session_cookie(transactional_db: Any) -> str:
    alice = get_user_model().objects.create_user("alice", password="a long enough password")
    client = Client()
    client.force_login(alice)
    return client.cookies["sessionid"].value


Open = Callable[..., Page]


@pytest.fixture()
def visit(
    chromium: Browser, live_server: Any, sample: pages.Selectors, session_cookie: str
) -> Iterator[Open]:
    """Open an address as alice; `size`, `theme`, `language`, `signed_in` vary."""
    contexts = []
    problems: list[str] = []

    def note(message: Any, expect: int, allow: tuple[str, ...]) -> None:
        """Errors of the console, but for the status the test expects and what it allows."""
        text = message.text
        expected = (expect != 200 and str(expect) in text) or any(part in text for part in allow)
        if message.type == "error" and not expected:
            problems.append(f"console: {text}")

    def go(
        address: str,
        *,
        size: str = "desktop",
        theme: str = "light",
        language: str = "en",
        signed_in: bool = True,
        bypass_csp: bool = False,
        expect: int = 200,
        touch: bool = False,
        allow: tuple[str, ...] = (),
    ) -> Page:
        width, height = SIZES[size]
        context = chromium.new_context(
            viewport={"width": width, "height": height},
            timezone_id="Asia/Shanghai",
            locale="en-GB",
            bypass_csp=bypass_csp,
            reduced_motion="reduce",
            has_touch=touch,
            is_mobile=touch,
        )
        contexts.append(context)
        host = urlsplit(live_server.url).hostname or "127.0.0.1"
        jar = {
            "django_language": language,
            "theme": theme,
            "tz": "Asia%2FShanghai".replace("%2F", "/"),
        }
        if signed_in:
            jar["sessionid"] = session_cookie
        context.add_cookies(
            [{"name": k, "value": v, "domain": host, "path": "/"} for k, v in jar.items()]
        )
        page = context.new_page()
        page.on("pageerror", lambda error: problems.append(f"page error: {error}"))
        page.on("console", lambda message: note(message, expect, allow))
        page.on(
            "request",
            lambda request: (
                problems.append(f"foreign: {request.url}")
                if not request.url.startswith((live_server.url, "data:"))
                else None
            ),
        )
        page.route(
            "**/api/v1/**",
            lambda route: route.fulfill(
                status=200,
                content_type="application/json",
                body=json.dumps(pages.series()),
            ),
        )
        response = page.goto(live_server.url + address, wait_until="load")
        assert response is not None and response.status == expect, address
        page.evaluate("document.fonts.ready")
        return page

    yield go
    for context in contexts:
        context.close()
    assert not problems, problems


@pytest.fixture()
def shoot(tmp_path: Path) -> Callable[..., Path]:
    """Save a screenshot; `whole` draws all charts and takes the whole page."""
    folder = Path(os.environ.get("FULCRUM_SHOTS", str(tmp_path)))
    folder.mkdir(parents=True, exist_ok=True)

    def take(page: Page, name: str, *, whole: bool = False) -> Path:
        if whole:
            draw_all(page)
        path = folder / f"{name}.png"
        page.screenshot(path=str(path), full_page=whole)
        return path

    return take


def until(page: Page, expression: str, seconds: float = 8.0) -> None:
    """Wait until a script expression is true (the page's policy forbids Playwright's own way)."""
    for _ in range(int(seconds * 20)):
        if page.evaluate(expression):
            return
        page.wait_for_timeout(50)
    raise AssertionError(f"never became true: {expression}")


def draw_all(page: Page) -> None:
    """Scroll every chart into view and wait until it is drawn."""
    if page.locator("#charts").count() == 0:
        return
    for panel in ("ttft", "tpot", "busy", "flow"):
        page.locator(f'[data-panel="{panel}"]').scroll_into_view_if_needed()
        page.locator(f'[data-panel="{panel}"] .js-plotly-plot .main-svg').first.wait_for()
    page.evaluate("scrollTo(0, 0)")
