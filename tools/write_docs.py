"""Write (or with --check compare) the generated pages: settings, defaults, states, OpenAPI.

The OpenAPI snapshot is committed, so that a change of the API is seen in review.
"""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path
from typing import Final

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "controlplane.settings.test")

ROOT: Final = Path(__file__).resolve().parent.parent


def pages() -> dict[Path, str]:
    """Path -> content of every generated file."""
    import django

    django.setup()
    return {
        ROOT / "docs/reference/settings.md": _settings(),
        ROOT / "docs/reference/defaults.md": _defaults(),
        ROOT / "docs/reference/figure-states.md": _states(),
        ROOT / "openapi.yaml": _openapi(),
    }


def _settings() -> str:
    from controlplane.settings.environment import REGISTRY

    rows = [
        f"| `{v.name}` | {'(empty)' if not v.default else f'`{v.default}`'} "
        f"| {'yes' if v.secret else 'no'} | {v.meaning} |"
        for v in REGISTRY
    ]
    return "\n".join(
        [
            "# Settings",
            "",
            "Each variable may be given as `<name>_FILE` too, naming a file with the value.",
            "",
            "| variable | default | secret | meaning |",
            "|---|---|---|---|",
            *rows,
            "",
        ]
    )


def _defaults() -> str:
    from dataclasses import asdict

    from apps.fleet.domain.defaults import DEMO, PRODUCTION

    production, demo = asdict(PRODUCTION), asdict(DEMO)
    rows = [f"| `{name}` | {production[name]} | {demo[name]} |" for name in production]
    others = [
        f"`{name}`"
        for name in production
        if production[name] != demo[name] and name != "preset" and not name.endswith("_s")
    ]
    return "\n".join(
        [
            "# Defaults",
            "",
            "The two presets (names ending in `_s` are seconds). `demo` differs in times and in "
            f"{', '.join(others)}.",
            "",
            "| value | production | demo |",
            "|---|---|---|",
            *rows,
            "",
        ]
    )


def _states() -> str:
    from apps.common.measurement import MAY_DRIVE, Drive, State

    head = " | ".join(drive.value for drive in Drive)
    rows = [
        f"| `{state.value}` | "
        + " | ".join("yes" if drive in MAY_DRIVE[state] else "" for drive in Drive)
        + " |"
        for state in State
    ]
    return "\n".join(
        [
            "# States of a figure",
            "",
            "What a figure in each state may drive. A row without a yes means: hold.",
            "",
            f"| state | {head} |",
            "|---|" + "---|" * len(Drive),
            *rows,
            "",
        ]
    )


def _openapi() -> str:
    from django.core.management import call_command

    out = io.StringIO()
    call_command("spectacular", stdout=out)
    return out.getvalue()


def main(check: bool) -> int:
    wrong = []
    for path, content in pages().items():
        current = path.read_text(encoding="utf-8") if path.exists() else ""
        if current == content:
            continue
        wrong.append(path.relative_to(ROOT))
        if not check:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content, encoding="utf-8")
    if check and wrong:
        print("not up to date (run make docs): " + ", ".join(map(str, wrong)))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main("--check" in sys.argv))
