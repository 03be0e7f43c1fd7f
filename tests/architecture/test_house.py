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


def test_the_tests_that_readmes_name_exist() -> None:
    missing = {}
    for path in tracked():
        if path.name == "README.md" and path.exists():
            named = re.findall(r"\btests/[\w./-]+", path.read_text(encoding="utf-8"))
            lost = [name for name in named if not (ROOT / name.rstrip(".")).exists()]
            if lost:
                missing[str(path.relative_to(ROOT))] = lost
    assert missing == {}


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: str(p.relative_to(ROOT)))
def test_no_file_outgrows_its_noun(path: Path) -> None:
    lines = path.read_text(encoding="utf-8").count("\n")
    assert lines <= 450, f"{lines} lines: split by noun"


#: Words that say, as a label of a host's name, that packages are fetched there.
LABEL = r"(?:registry|pypi|npm|deb|crates|conda|index|files|packages?|mirrors?|proxy|\w*hosted)\d*"
#: By shape, so that not even this file names such a host.
FORBIDDEN = {
    "a host of packages": re.compile(
        rf"https?://(?:[\w-]+[.])*{LABEL}[.]"
        rf"|(?<![\w-]){LABEL}[.](?:[\w-]+[.])*(?:org|com|net|io|dev|cn)\b"
    ),
    "where an installer looks": re.compile(
        r"--(?:(?:extra-|default-)?index(?:-url)?|find-links|registry)(?:=|\s+)[\"']?[^\s\"']*/"
        r"|\b(?:PIP|UV|POETRY|NPM|npm|YARN)_\w*(?:INDEX|LINKS|REGISTRY|registry)\w*[\"']?\s*[=:]"
        r"|^\s*(?:(?:extra-)?index-url|find-links|registry)\s*=\s*[\"']?\w+://"
        r"|\"resolved\":\s*\"\w+:",
        re.MULTILINE,
    ),
    "a folder of a machine": re.compile(r"/(?:root|work)/"),
}


def forbidden_in(text: str) -> list[str]:
    return [what for what, shape in FORBIDDEN.items() if shape.search(text)]


def test_nothing_names_a_registry_or_a_path_of_a_machine() -> None:
    found = {}
    for path in tracked():
        if path.suffix in {".woff2", ".png", ".mo"} or not path.exists():
            continue
        if "vendor" in path.parts or "live-captures" in path.parts or "data" in path.parts:
            continue
        wrong = forbidden_in(path.read_text(encoding="utf-8", errors="ignore"))
        if wrong:
            found[str(path.relative_to(ROOT))] = wrong
    assert found == {}


@pytest.mark.parametrize(
    ("text", "what"),
    [
        (f"pip install --{'index'}-url https://any.example/simple x", "where an installer looks"),
        (f"--{'extra'}-index-url=https://any.example/simple", "where an installer looks"),
        (f"--{'find'}-links /srv/wheels", "where an installer looks"),
        ("PIP_INDEX" + "_URL=https://any.example", "where an installer looks"),
        (f"[global]\n{'index'}-url = https://any.example", "where an installer looks"),
        (f"{'registry'}=https://any.example/", "where an installer looks"),
        ('"resolved"' + ': "https://any.example/x.tgz"', "where an installer looks"),
        (f"https://{'registry'}.example.org/x", "a host of packages"),
        (f"http://eu.{'mirror'}.intranet/simple", "a host of packages"),
        (f"deb http://{'deb'}.example.org/debian stable main", "a host of packages"),
        (f"see {'pypi'}.org", "a host of packages"),
        (f"'{'files'}.example.org'", "a host of packages"),
        (f"x.{'anyhosted'}.org", "a host of packages"),
        ("/".join(("", "root", ".venv")), "a folder of a machine"),
        ("/".join(("cd ", "work", "main")), "a folder of a machine"),
    ],
)
def test_the_shape_of_a_registry_or_a_path_is_seen(text: str, what: str) -> None:
    assert what in forbidden_in(text)


@pytest.mark.parametrize(
    "text",
    [
        "https://docs.example.org/en/stable/files/index.html",
        "https://github.com/smg-project/smg",
        "uv pip compile --no-emit-index-url --no-header",
        "registry.build(name, connection); files.items(); index.html",
        "the package is hosted. Nothing else",
        "network/root_cause/work_items",
    ],
)
def test_what_only_looks_similar_passes(text: str) -> None:
    assert forbidden_in(text) == []


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
