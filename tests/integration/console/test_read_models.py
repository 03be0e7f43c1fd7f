"""The read models of `overview` and the console's words fit: every literal code has words."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from apps.console.wording import TABLE, labels

ROOM = Path(__file__).resolve().parents[3] / "apps" / "overview"
SOURCES = sorted(ROOM.rglob("*.py"))
LITERAL = re.compile(r'Text\(\s*"([a-z_A-Z.]+)"')
PREFIX = re.compile(r'Text\(\s*f"([a-z_]+\.)')


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.name)
def test_every_code_of_the_read_models_has_words(source: Path) -> None:
    text = source.read_text(encoding="utf-8")
    unknown = sorted(set(LITERAL.findall(text)) - set(TABLE))
    assert unknown == []
    for prefix in PREFIX.findall(text):
        assert any(code.startswith(prefix) for code in TABLE), prefix


FIGURE = re.compile(r'(?:Figure|Meter|PredictedRow)\(\s*(?:code=)?"([a-z_0-9]+)"')


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.name)
def test_every_figure_of_the_read_models_has_a_name(source: Path) -> None:
    found = set(FIGURE.findall(source.read_text(encoding="utf-8")))
    assert sorted(found - set(labels.FIGURES)) == []


def test_every_error_of_commands_has_words() -> None:
    from apps.commands.services import errors

    codes = {
        item.code
        for item in vars(errors).values()
        if isinstance(item, type) and issubclass(item, errors.CommandError)
    }
    assert sorted(f"error.{code}" for code in codes if f"error.{code}" not in TABLE) == []
