"""English and Chinese are complete: nothing untranslated, fuzzy or not extracted."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
CATALOGUE = ROOT / "locale" / "zh_Hans" / "LC_MESSAGES" / "django.po"


def _text(block: str) -> str:
    return "".join(json.loads(part) for part in re.findall(r'"(?:[^"\\]|\\.)*"', block))


def entries(path: Path) -> dict[tuple[str, str], tuple[str, str]]:
    """(context, message) -> (translation, flags)."""
    found = {}
    for block in path.read_text(encoding="utf-8").split("\n\n")[1:]:
        parts = re.search(
            r'(?:msgctxt (?P<c>(?:".*"\n?)+))?msgid (?P<i>(?:".*"\n?)+)'
            r'(?:msgid_plural (?:".*"\n?)+)?msgstr(?:\[0\])? (?P<s>(?:".*"\n?)+)',
            block,
        )
        if parts:
            key = (_text(parts["c"] or ""), _text(parts["i"]))
            flags = " ".join(line for line in block.splitlines() if line.startswith("#,"))
            found[key] = (_text(parts["s"]), flags)
    return found


KNOWN = entries(CATALOGUE)


def test_nothing_is_untranslated_or_fuzzy() -> None:
    assert len(KNOWN) > 800
    assert [key for key, (said, _flags) in KNOWN.items() if not said.strip()] == []
    assert [key for key, (_said, flags) in KNOWN.items() if "fuzzy" in flags] == []


def test_chinese_is_chinese() -> None:
    """A translation that only copies English words is a forgotten one."""
    latin = re.compile(r"^(?=.*[a-z]{4})[\x00-\x7f·→×–…]+$")
    allowed = re.compile(r"Prefill|Decode|Encode|Token|TTFT|TPOT|Prometheus|API|KV|GPU|[{%]")
    copied = [
        key for key, (said, _) in KNOWN.items() if latin.match(said) and not allowed.search(said)
    ]
    assert copied == []


@pytest.fixture(scope="module")
def extracted(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], tuple[str, str]]:
    if shutil.which("xgettext") is None:
        pytest.fail("gettext tools are needed")
    folder = tmp_path_factory.mktemp("extract")
    for part in ("apps/console", "templates"):
        shutil.copytree(ROOT / part, folder / part)
    (folder / "locale").mkdir()
    done = subprocess.run(
        [sys.executable, "-m", "django", "makemessages", "-l", "zh_Hans", "--no-location"],
        cwd=folder,
        env={k: v for k, v in os.environ.items() if k != "DJANGO_SETTINGS_MODULE"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return entries(folder / "locale" / "zh_Hans" / "LC_MESSAGES" / "django.po")


def test_every_text_of_the_console_is_in_the_catalogue(
    extracted: dict[tuple[str, str], tuple[str, str]],
) -> None:
    assert len(extracted) > 800
    assert sorted(set(extracted) - set(KNOWN)) == []


def test_the_catalogue_compiles(tmp_path: Path) -> None:
    done = subprocess.run(
        ["msgfmt", "--check-format", "-o", str(tmp_path / "django.mo"), str(CATALOGUE)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("english", "chinese"),
    [
        ("Goodput", "有效吞吐"),
        ("TTFT error budget", "TTFT 错误预算"),
        ("Prefill is the bottleneck", "瓶颈在 Prefill"),
        ("KV transfer", "KV 传输"),
        ("Approve", "批准"),
        ("Dismiss", "忽略"),
        ("Drain {worker}", "排空 {worker}"),
        ("Roll back", "回滚"),
        ("Fleet", "总览"),
        ("Workers", "副本"),
    ],
)
def test_the_glossary_is_kept(english: str, chinese: str) -> None:
    assert KNOWN[("", english)][0] == chinese
