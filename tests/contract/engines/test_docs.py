"""The pages about profiles say what the files say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from apps.engines import loader, reference
from apps.engines.meanings import MEANINGS
from apps.engines.window import Signal

ROOT = Path(__file__).resolve().parents[3]
HOW_TO = ROOT / "docs/how-to/add-an-engine.md"


@pytest.mark.parametrize(
    ("language", "file"),
    [
        ("yaml", loader.FOLDER / "npu_exporter.yaml"),
        ("python", Path(__file__).with_name("test_npu_exporter.py")),
    ],
)
def test_the_how_to_shows_exactly_the_two_files(language, file):
    blocks = re.findall(rf"```{language}\n(.*?)```", HOW_TO.read_text(encoding="utf-8"), re.S)
    assert blocks == [file.read_text(encoding="utf-8")]


@pytest.mark.parametrize(
    ("page", "content"),
    [("signals.md", reference.signals_page), ("profiles.md", reference.profiles_page)],
)
def test_the_reference_pages_are_generated(page, content):
    """If this fails: python -m tools.write_docs"""
    assert (ROOT / "docs/reference" / page).read_text(encoding="utf-8") == content()


def test_every_signal_and_profile_is_on_its_page():
    assert set(MEANINGS) == set(Signal)
    signals, profiles = reference.signals_page(), reference.profiles_page()
    assert all(f"| `{signal.value}` |" in signals for signal in Signal)
    assert all(f"\n`{name}`; versions" in profiles for name in loader.shipped_names())
    assert "not mapped yet" not in profiles
