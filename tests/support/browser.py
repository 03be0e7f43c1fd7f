"""Chromium driven by Playwright, strict: console errors, page errors, refused styles or scripts and
requests to another host fail the test."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from playwright.sync_api import Browser, BrowserContext, Page, Playwright, sync_playwright

from tools.services import SERVICES, find

FLAGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
]  # fmt: skip


@dataclass
class Window:
    """A browser page and what went wrong on it."""

    page: Page
    base: str
    problems: list[str] = field(default_factory=list)

    def open(self, path: str) -> None:
        self.page.goto(f"{self.base}{path}")

    def sign_in(self, user: str, password: str) -> None:
        self.open("/signin/")
        self.page.fill("input[name=login]", user)
        self.page.fill("input[name=password]", password)
        self.page.click("main button[type=submit], form button[type=submit]")
        self.page.wait_for_url("**/fleet/**")

    def is_in_first_screen(self, selector: str) -> bool:
        """True if the element lies wholly inside the viewport without scrolling."""
        box = self.page.locator(selector).first.bounding_box()
        size = self.page.viewport_size
        assert box is not None and size is not None, selector
        return (
            box["x"] >= 0
            and box["y"] >= 0
            and box["x"] + box["width"] <= size["width"] + 1
            and box["y"] + box["height"] <= size["height"] + 1
        )


def launch(playwright: Playwright, *flags: str) -> Browser:
    """The system's Chromium, with further flags if wanted."""
    programs = [find(name) for name in SERVICES["chromium"].programs]
    program = next(filter(None, programs), None)
    assert program, "chromium is not installed"
    return playwright.chromium.launch(executable_path=program, args=[*FLAGS, *flags])


@contextmanager
def browser() -> Iterator[Browser]:
    """One Chromium for a test."""
    with sync_playwright() as playwright:
        found = launch(playwright)
        try:
            yield found
        finally:
            found.close()


def window(found: Browser, base: str, **context: Any) -> Window:
    """A fresh context and page that records every problem."""
    options: dict[str, Any] = {"viewport": {"width": 1440, "height": 900}, **context}
    made: BrowserContext = found.new_context(**options)
    page = made.new_page()
    one = Window(page, base.rstrip("/"))
    host = urlsplit(base).netloc

    def on_console(message: Any) -> None:
        if message.type in ("error", "warning"):
            one.problems.append(f"{message.type}: {message.text}")

    def on_request(request: Any) -> None:
        parts = urlsplit(request.url)
        if parts.scheme in ("http", "https") and parts.netloc != host:
            one.problems.append(f"foreign request: {request.url}")

    page.on("console", on_console)
    page.on("pageerror", lambda error: one.problems.append(f"page error: {error}"))
    page.on("request", on_request)
    return one
