"""Screenshots of every page at three widths, in both themes and both languages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

pytestmark = pytest.mark.e2e

PAGES = {
    "deployment": "/deployments/assist-chat-prod/",
    "demo": "/deployments/chat-pd/",
    "stale": "/deployments/stale-prod/",
    "fleet": "/fleet/",
    "review": "/recommendations/R-2187/",
    "command": "/commands/C-0914/",
    "commands": "/commands/",
    "states": "/design/",
}


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    ("size", "theme", "language"),
    [
        ("desktop", "light", "en"),
        ("desktop", "dark", "zh-hans"),
        ("phone", "dark", "en"),
        ("narrow", "light", "zh-hans"),
        pytest.param("desktop", "dark", "en", marks=pytest.mark.long),
        pytest.param("desktop", "light", "zh-hans", marks=pytest.mark.long),
        pytest.param("phone", "light", "en", marks=pytest.mark.long),
        pytest.param("phone", "light", "zh-hans", marks=pytest.mark.long),
        pytest.param("phone", "dark", "zh-hans", marks=pytest.mark.long),
        pytest.param("narrow", "light", "en", marks=pytest.mark.long),
        pytest.param("narrow", "dark", "en", marks=pytest.mark.long),
        pytest.param("narrow", "dark", "zh-hans", marks=pytest.mark.long),
    ],
)
@pytest.mark.parametrize("name", list(PAGES))
def test_a_page_looks_right_and_never_scrolls_sideways(
    name: str, language: str, theme: str, size: str, visit: Any, shoot: Callable[..., Any]
) -> None:
    page = visit(PAGES[name], size=size, theme=theme, language=language, touch=size != "desktop")
    over = page.evaluate(
        "document.documentElement.scrollWidth - document.documentElement.clientWidth"
    )
    path = shoot(page, f"{name}-{size}-{theme}-{language}")
    assert path.stat().st_size > 8_000
    assert over <= 0, f"{name} is {over} px too wide at {size}"
