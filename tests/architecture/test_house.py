"""The house of DESIGN §3: layers, file sizes, room READMEs, no foreign hosts, docs coverage."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ROOMS = sorted(p for p in (ROOT / "apps").iterdir() if (p / "__init__.py").exists())
SOURCES = [p for p in (ROOT / "apps").rglob("*.py") if "migrations" not in p.parts]
SOURCES += (ROOT / "controlplane").rglob("*.py")


def tracked() -> list[Path]:
    names = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split()
    return [ROOT / name for name in names]


def test_import_layers_hold() -> None:
    lint = Path(sys.executable).parent / "lint-imports"
    done = subprocess.run([str(lint)], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:]


@pytest.mark.parametrize("room", ROOMS, ids=lambda p: p.name)
def test_each_room_says_what_it_owns(room: Path) -> None:
    text = (room / "README.md").read_text(encoding="utf-8")
    assert text.startswith(f"# {room.name}")
    assert "tests/" in text, "a room's README names the tests to read first"


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: str(p.relative_to(ROOT)))
def test_no_file_outgrows_its_noun(path: Path) -> None:
    lines = path.read_text(encoding="utf-8").count("\n")
    assert lines <= 450, f"{lines} lines: split by noun"


def test_nothing_names_a_registry_or_a_path_of_a_machine() -> None:
    hosts = ("pypi.org", "pythonhosted", "registry.npmjs", "deb.debian.org")
    folders = ("/root/", "/work/")
    bad = re.compile("|".join(re.escape(name) for name in (*hosts, *folders)))
    here = Path(__file__)
    found = []
    for path in tracked():
        if path == here or path.suffix in {".woff2", ".png", ".mo"} or not path.exists():
            continue
        if "vendor" in path.parts or "live-captures" in path.parts or "data" in path.parts:
            continue
        if bad.search(path.read_text(encoding="utf-8", errors="ignore")):
            found.append(str(path.relative_to(ROOT)))
    assert found == []


def test_every_setting_is_registered_and_documented() -> None:
    from controlplane.settings.environment import REGISTRY

    page = (ROOT / "docs/reference/settings.md").read_text(encoding="utf-8")
    names = {variable.name for variable in REGISTRY}
    assert all(f"`{name}`" in page for name in names)
    used = set()
    for path in SOURCES:
        used |= set(re.findall(r'read(?:_list|_flag)?\("(FULCRUM_[A-Z_]+)"', path.read_text()))
    assert used <= names


def test_the_states_page_is_the_enum() -> None:
    from apps.common.measurement import State

    page = (ROOT / "docs/reference/figure-states.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^\| `(\w+)`", page, flags=re.M)) == {state.value for state in State}


def test_views_do_no_arithmetic_in_templates() -> None:
    for path in (ROOT / "templates").rglob("*.html"):
        text = path.read_text(encoding="utf-8")
        assert "style=" not in text, path
        assert not re.search(r"<script(?![^>]*\bsrc=)(?![^>]*application/json)", text), path
        assert "hx-on" not in text, path


def test_every_beat_entry_names_a_task() -> None:
    from controlplane.celery import app
    from controlplane.schedule import BEAT

    app.loader.import_default_modules()
    for entry in BEAT.values():
        assert entry["task"] in app.tasks, entry["task"]
