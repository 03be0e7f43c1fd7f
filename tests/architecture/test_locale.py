"""Two languages from the first string: nothing untranslated, fuzzy or not extracted."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import polib

ROOT = Path(__file__).resolve().parents[2]
PO = ROOT / "locale/zh_Hans/LC_MESSAGES/django.po"


def test_chinese_is_complete() -> None:
    catalogue = polib.pofile(str(PO))
    assert [e.msgid for e in catalogue.untranslated_entries()] == []
    assert [e.msgid for e in catalogue.fuzzy_entries()] == []
    assert len(catalogue) > 300


def test_every_string_is_extracted(tmp_path: Path) -> None:
    assert shutil.which("xgettext"), "the gettext tools are needed to extract strings"
    work = tmp_path / "tree"
    work.mkdir()
    for name in ("apps", "templates", "controlplane", "locale"):
        shutil.copytree(
            ROOT / name, work / name, ignore=shutil.ignore_patterns("__pycache__", "*.csv", "*.mo")
        )
    shutil.copy(ROOT / "manage.py", work / "manage.py")
    done = subprocess.run(
        [sys.executable, "manage.py", "makemessages", "-l", "zh_Hans", "--no-obsolete",
         "--no-location"],
        cwd=work, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    extracted = {(e.msgctxt, e.msgid) for e in polib.pofile(str(work / PO.relative_to(ROOT)))}
    committed = {(e.msgctxt, e.msgid) for e in polib.pofile(str(PO))}
    assert extracted - committed == set()
