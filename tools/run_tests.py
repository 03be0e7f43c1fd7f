"""Run the test tiers: `fast`, `standard` (what fits 25 minutes on 2 cores), `long`, `optional`.

A tier whose service is missing is listed as not run; with CI=true that is a failure.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import random
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from . import services

PYTEST: Final = [sys.executable, "-m", "pytest", "-q", "--durations=5"]
ROOT: Final = Path(__file__).resolve().parent.parent


@dataclass(frozen=True, slots=True)
class Tier:
    """One pytest run. `needs` are service keys; `database` starts a throw-away server.

    `is_timed` tiers run live processes against the clock of a shared machine: what failed runs once
    more, in the same order, and the table names it. A test that fails twice fails.
    """

    name: str
    arguments: tuple[str, ...]
    needs: tuple[str, ...] = ()
    database: bool = False
    is_timed: bool = False


@dataclass(frozen=True, slots=True)
class Row:
    """How a tier ended; `again` are the tests that needed a second try."""

    name: str
    result: str
    seconds: float = 0.0
    again: tuple[str, ...] = ()

    def __str__(self) -> str:
        line = f"{self.name:<29} {self.result:<27} {self.seconds:7.0f}"
        return f"{line}  {', '.join(self.again)}" if self.again else line


UNIT: Final = Tier("unit", ("tests/unit", "-n", "2"))
STANDARD: Final = (
    UNIT,
    Tier("architecture", ("tests/architecture",), needs=("gettext",)),
    Tier("integration (SQLite)", ("tests/integration", "-n", "2")),
    Tier("integration (PostgreSQL)", ("tests/integration", "-n", "2"), ("postgresql",), True),
    Tier("contract", ("tests/contract", "-n", "2")),
    Tier(
        "live",
        # These mostly wait, so the files run beside each other.
        (
            "tests/live",
            "-m",
            "live and not long",
            "--ignore=tests/live/components",
            "-n",
            "3",
            "--dist",
            "loadfile",
        ),
        ("prometheus", "postgresql", "redis"),
        is_timed=True,
    ),
    Tier(
        "live components",
        ("tests/live/components", "-m", "live"),
        ("prometheus", "dynamo", "routers"),
        is_timed=True,
    ),
    Tier("browser", ("tests/e2e/gallery", "-m", "not long", "-n", "2"), ("chromium",)),
    Tier("story", ("tests/e2e/story", "-m", "not long"), ("chromium",), is_timed=True),
    Tier("chaos (quick)", ("tests/chaos", "-m", "quick")),
)
LONG: Final = (
    Tier("chaos", ("tests/chaos", "-m", "chaos")),
    Tier("soak", ("tests/live", "-m", "live and long"), ("prometheus",)),
    Tier("story, many seeds", ("tests/e2e/story", "-m", "long"), ("chromium",)),
    Tier("browser, all themes", ("tests/e2e/gallery", "-m", "long", "-n", "2"), ("chromium",)),
)
OPTIONAL: Final = (
    Tier("real vLLM", ("tests/optional", "-m", "live"), ("prometheus", "dynamo", "vllm")),
)


def main(which: str) -> int:
    tiers = {"fast": (UNIT,), "standard": STANDARD, "long": LONG, "optional": OPTIONAL}[which]
    strict = os.environ.get("CI") == "true"
    needed = sorted({need for tier in tiers for need in tier.needs})
    missing = set(services.install_missing(needed))
    rows: list[Row] = []
    for tier in tiers:
        absent = [services.SERVICES[need].name for need in tier.needs if need in missing]
        if absent:
            rows.append(Row(tier.name, f"not run: {', '.join(absent)} missing"))
            continue
        print(f"\n== {tier.name}", flush=True)
        rows.append(_run(tier))
    print("\ntier                          result                      seconds")
    for row in rows:
        print(row)
    failed = [row.name for row in rows if row.result.startswith("failed")]
    not_run = [row.name for row in rows if row.result.startswith("not run")]
    passed = len(rows) - len(failed) - len(not_run)
    print(f"\ntiers: {passed} passed, {len(failed)} failed, {len(not_run)} not run")
    return 1 if failed or (strict and not_run) else 0


def _run(tier: Tier) -> Row:
    started = time.monotonic()
    command = [*PYTEST, *tier.arguments]
    again: tuple[str, ...] = ()
    with contextlib.ExitStack() as stack:
        environment = dict(os.environ)
        if tier.database:
            environment["FULCRUM_DATABASE_URL"] = stack.enter_context(services.postgresql())
        if tier.is_timed:
            # A cache of its own, emptied first, so that its failures are those of this run.
            cache = ROOT / "var" / f"pytest-cache-{tier.name}"
            command += ["-o", f"cache_dir={cache}", *_fixed_order()]
            status = subprocess.run([*command, "--cache-clear"], env=environment).returncode
            if status == 1:
                again = _failed(cache)
                print(f"\n== {tier.name}: once more, what failed", flush=True)
                command += ["--last-failed", "--last-failed-no-failures", "none"]
                status = subprocess.run(command, env=environment).returncode
        else:
            status = subprocess.run(command, env=environment).returncode
    result = f"failed (exit {status})"
    if status == 0:
        result = "passed at the 2nd try" if again else "passed"
    return Row(tier.name, result, time.monotonic() - started, again)


def _fixed_order() -> list[str]:
    """Options that give both tries the same order and the same random numbers."""
    if importlib.util.find_spec("pytest_randomly") is None:
        return []
    return [f"--randomly-seed={random.randrange(2**32)}"]


def _failed(cache: Path) -> tuple[str, ...]:
    """The node ids that failed in the run that wrote this cache."""
    file = cache / "v" / "cache" / "lastfailed"
    return tuple(json.loads(file.read_text(encoding="utf-8"))) if file.exists() else ()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else "standard"))
