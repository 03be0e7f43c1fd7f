"""WCAG 2.0 A to 2.2 AA by axe-core on every page, in both themes and both languages."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from .test_shots import PAGES

pytestmark = pytest.mark.e2e

AXE = Path(__file__).resolve().parents[1] / "vendor" / "axe-core-4.14.1" / "axe.min.js"
TAGS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]
ADDRESSES = {**PAGES, "preferences": "/preferences/", "waiting": "/commands/C-0915/"}


def violations(page: Any) -> list[str]:
    page.evaluate(AXE.read_text(encoding="utf-8"))
    found = page.evaluate("tags => axe.run(document, {runOnly: {type: 'tag', values: tags}})", TAGS)
    return [
        f"{item['id']}: {node['html'][:160]} {node.get('failureSummary', '')[:200]}"
        for item in found["violations"]
        for node in item["nodes"]
    ]


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    ("language", "theme"),
    [
        ("en", "light"),
        ("zh-hans", "dark"),
        pytest.param("en", "dark", marks=pytest.mark.long),
        pytest.param("zh-hans", "light", marks=pytest.mark.long),
    ],
)
@pytest.mark.parametrize("name", list(ADDRESSES))
def test_no_violation(name: str, language: str, theme: str, visit: Any) -> None:
    page = visit(ADDRESSES[name], theme=theme, language=language, bypass_csp=True)
    assert violations(page) == []


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("name", ["deployment", "fleet", "review", "command"])
def test_no_violation_on_a_phone(name: str, visit: Any) -> None:
    page = visit(ADDRESSES[name], size="phone", touch=True, bypass_csp=True)
    assert violations(page) == []


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_no_violation_when_signing_in(theme: str, visit: Any) -> None:
    page = visit("/signin/", theme=theme, signed_in=False, bypass_csp=True)
    assert violations(page) == []
