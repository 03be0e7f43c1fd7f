"""`make check`: format, lint, types, layers, unused dependencies, templates, migrations, docs."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

BIN: Final = str(Path(sys.executable).parent)
SETTINGS: Final = {"DJANGO_SETTINGS_MODULE": "controlplane.settings.test"}

CHECKS: Final[tuple[tuple[str, list[str]], ...]] = (
    ("format", [f"{BIN}/ruff", "format", "--check", "."]),
    ("lint", [f"{BIN}/ruff", "check", "."]),
    ("layers", [f"{BIN}/lint-imports"]),
    ("types", [f"{BIN}/mypy", "apps", "controlplane", "tools", "benchmarks"]),
    ("unused dependencies", [f"{BIN}/deptry", "."]),
    ("templates", [f"{BIN}/djlint", "templates", "--lint", "--quiet"]),
    ("system checks", [sys.executable, "manage.py", "check", "--fail-level", "WARNING"]),
    ("migrations", [sys.executable, "manage.py", "makemigrations", "--check", "--dry-run"]),
    ("docs and API snapshot", [sys.executable, "-m", "tools.write_docs", "--check"]),
)


def main() -> int:
    failed: list[str] = []
    for name, command in CHECKS:
        started = time.monotonic()
        done = subprocess.run(
            command, env={**os.environ, **SETTINGS}, capture_output=True, text=True
        )
        mark = "ok" if done.returncode == 0 else "FAILED"
        print(f"{name:<24} {mark:<8} {time.monotonic() - started:5.1f} s", flush=True)
        if done.returncode != 0:
            failed.append(name)
            print((done.stdout + done.stderr)[-6000:], flush=True)
    print(f"{len(CHECKS) - len(failed)} passed, {len(failed)} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
