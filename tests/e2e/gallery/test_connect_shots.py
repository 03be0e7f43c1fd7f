"""The Connect wizard at three widths, in both themes and languages: looks, axe, keeping what is
typed, and fields that follow the kind of source."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth import get_user_model

from apps.accounts import services as accounts
from apps.accounts.domain.authorize import SYSTEM, Role, ScopeKind
from apps.fleet.services import load_catalog
from apps.telemetry.models import ConnectDraft
from tests.support import pages
from tests.support.pages import connect as sample_draft

from .test_axe import violations

pytestmark = pytest.mark.e2e
STEPS = ("source", "find", "coverage", "prices", "commands")


@pytest.fixture()
def draft(session_cookie: str, transactional_db: Any) -> ConnectDraft:
    """alice as an administrator, with a draft that reached the last step."""
    load_catalog()
    alice = get_user_model().objects.get(username="alice")
    accounts.bind_role(
        actor=SYSTEM, now=pages.NOW, user=alice, role=Role.ADMIN,
        scope_kind=ScopeKind.INSTALLATION, scope_id=None,
    )  # fmt: skip
    return sample_draft.draft(alice)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    ("size", "theme", "language"),
    [
        ("desktop", "light", "en"),
        ("desktop", "dark", "zh-hans"),
        ("phone", "dark", "en"),
        ("narrow", "light", "zh-hans"),
        pytest.param("desktop", "light", "zh-hans", marks=pytest.mark.long),
        pytest.param("phone", "light", "zh-hans", marks=pytest.mark.long),
    ],
)
@pytest.mark.parametrize("step", STEPS)
def test_a_step_looks_right_and_never_scrolls_sideways(
    step: str, size: str, theme: str, language: str, draft: ConnectDraft, visit: Any,
    shoot: Callable[..., Any],
) -> None:  # fmt: skip
    address = f"/connect/{step}/"
    page = visit(address, size=size, theme=theme, language=language, touch=size != "desktop")
    assert page.url.endswith(address)
    over = page.evaluate(
        "document.documentElement.scrollWidth - document.documentElement.clientWidth"
    )
    shoot(page, f"connect-{step}-{size}-{theme}-{language}", whole=True)
    assert over <= 0, f"{step} is {over} px too wide at {size}"


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(("theme", "language"), [("light", "en"), ("dark", "zh-hans")])
@pytest.mark.parametrize("step", STEPS)
def test_no_violation(
    step: str, theme: str, language: str, draft: ConnectDraft, visit: Any
) -> None:
    page = visit(f"/connect/{step}/", theme=theme, language=language, bypass_csp=True)
    assert violations(page) == []


@pytest.mark.django_db(transaction=True)
def test_a_refused_step_shows_the_error_at_its_field(
    draft: ConnectDraft, visit: Any, shoot: Callable[..., Any]
) -> None:
    page = visit("/connect/find/", bypass_csp=True, allow=("422",))
    field = page.locator(f'[name="slug-{"a" * 10}"]')
    field.fill("Not A Slug")
    page.locator('[name="do"][value="next"]').click()
    page.locator(".err").first.wait_for()
    assert field.get_attribute("aria-invalid") == "true"
    described = field.get_attribute("aria-describedby")
    assert "Small letters" in page.locator(f"#{described}").inner_text()
    assert field.input_value() == "Not A Slug"
    assert violations(page) == []
    shoot(page, "connect-refused", whole=True)


@pytest.mark.django_db(transaction=True)
def test_fields_follow_the_kind_of_source(draft: ConnectDraft, visit: Any) -> None:
    page = visit("/connect/source/")
    assert page.locator("#url").is_visible()
    assert not page.locator("#addresses").is_visible()
    page.locator('[name="kind"][value="scrape"]').check()
    assert page.locator("#addresses").is_visible()
    assert not page.locator("#url").is_visible()


@pytest.mark.django_db(transaction=True)
def test_a_refused_finish_keeps_the_page_and_the_keyboard_reaches_the_button(
    draft: ConnectDraft, visit: Any
) -> None:
    """A form sent by Enter in a field goes on to the next step, never to another act."""
    page = visit("/connect/prices/")
    page.locator(f'[name="ttft-{"a" * 10}"]').press("Enter")
    page.wait_for_url("**/connect/commands/")
