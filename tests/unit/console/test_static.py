"""Files of the console: one place for colours, nothing inline, vendored files unchanged."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
STYLES = sorted((ROOT / "static" / "css").glob("*.css"))
SCRIPTS = sorted((ROOT / "static" / "js").glob("*.js"))
TEMPLATES = sorted((ROOT / "templates").rglob("*.html"))
VENDORED = sorted((ROOT / "static" / "vendor").iterdir()) + sorted(
    (ROOT / "tests" / "e2e" / "vendor").iterdir()
)
RAW_COLOUR = re.compile(r"#[0-9a-fA-F]{3,8}\b(?![^(]*\))|\brgba?\(|\bhsla?\(")


@pytest.mark.parametrize(
    "path", [p for p in STYLES if p.name != "tokens.css"], ids=lambda p: p.name
)
def test_colours_come_from_tokens_only(path: Path) -> None:
    text = re.sub(r"/\*.*?\*/|\[href=\"[^\"]*\"\]", "", path.read_text(), flags=re.S)
    assert RAW_COLOUR.findall(text) == []


@pytest.mark.parametrize("path", STYLES, ids=lambda p: p.name)
def test_every_token_that_is_used_is_defined(path: Path) -> None:
    defined = set(re.findall(r"(--[\w-]+)\s*:", (ROOT / "static/css/tokens.css").read_text()))
    used = set(re.findall(r"var\((--[\w-]+)", path.read_text()))
    assert used - defined == set()


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda p: str(p.relative_to(ROOT)))
def test_templates_hold_nothing_inline(path: Path) -> None:
    text = path.read_text()
    assert " style=" not in text
    assert "<style" not in text
    assert not re.search(r"<script(?![^>]*\bsrc=)", text)
    assert not re.search(r"\son[a-z]+=|hx-on|javascript:", text)
    used = set(re.findall(r"var\((--[\w-]+)", text))
    defined = set(re.findall(r"(--[\w-]+)\s*:", (ROOT / "static/css/tokens.css").read_text()))
    assert used <= defined


@pytest.mark.parametrize("path", [*TEMPLATES, *SCRIPTS, *STYLES], ids=lambda p: p.name)
def test_nothing_is_asked_from_another_host(path: Path) -> None:
    text = path.read_text().replace("http://www.w3.org/2000/svg", "")
    assert not re.search(r"https?://|(?:src|href)=\"//", text)


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda p: p.name)
def test_scripts_need_no_eval_and_write_no_markup(path: Path) -> None:
    text = path.read_text()
    assert not re.search(r"\beval\(|new Function|innerHTML\s*=|document\.write|\.style\.", text)


@pytest.mark.parametrize("folder", VENDORED, ids=lambda p: p.name)
def test_vendored_files_are_whole_and_licensed(folder: Path) -> None:
    sums = dict(
        reversed(line.split(maxsplit=1))
        for line in (folder / "SHA256SUMS").read_text().splitlines()
    )
    files = {path.name for path in folder.iterdir()} - {"SHA256SUMS"}
    assert set(sums) == files
    assert "LICENSE" in files
    for name in files:
        assert hashlib.sha256((folder / name).read_bytes()).hexdigest() == sums[name], name


def test_plotly_rules_are_all_there() -> None:
    css = next((ROOT / "static" / "vendor").glob("plotly*/plotly-global.css")).read_text()
    assert css.count("{") == 66
