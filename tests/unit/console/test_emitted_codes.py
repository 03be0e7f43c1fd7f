"""No sentence without a speaker: every code that has words is one that the product can emit."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from apps.console import wording

APPS = Path(__file__).resolve().parents[3] / "apps"
#: Where codes are made into `Text`s; their last part may come from a room below.
SPEAKERS = ("overview", "console")
PREFIX = re.compile(r"[a-z_]+\.[a-z_]*")


@cache
def written() -> tuple[frozenset[str], frozenset[str]]:
    """(string literals, beginnings of f-strings that make codes), tables of words left out."""
    literals, prefixes = set(), set()
    for path in APPS.rglob("*.py"):
        room = path.relative_to(APPS).parts[0]
        if "wording" in str(path.relative_to(APPS)) and path.name != "__init__.py":
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                literals.add(node.value)
            if isinstance(node, ast.JoinedStr) and room in SPEAKERS:
                first = node.values[0] if node.values else None
                if isinstance(first, ast.Constant) and PREFIX.fullmatch(str(first.value)):
                    prefixes.add(str(first.value))
    return frozenset(literals), frozenset(prefixes)


@pytest.mark.parametrize("code", sorted(wording.TABLE))
def test_every_code_can_be_emitted(code: str) -> None:
    literals, prefixes = written()
    assert code in literals or any(
        code.startswith(prefix) and code.removeprefix(prefix) in literals for prefix in prefixes
    )
