"""Run the test tiers: `fast`, `standard` (what fits 25 minutes on 2 cores), `long`.

A tier whose service is missing is listed as not run; with CI=true that is a failure.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from dataclasses import dataclass, field
from typing import Final

from . import services

PYTEST: Final = [sys.executable, "-m", "pytest", "-q", "--durations=5"]


@dataclass(frozen=True, slots=True)
class Tier:
    """One pytest run. `needs` are service keys; `database` starts a throw-away server.

    `is_timed` tiers run live processes against the clock of a shared machine: what failed runs once
    more, and the table says so. A test that fails twice fails.
    """

    name: str
    arguments: tuple[str, ...]
    needs: tuple[str, ...] = ()
    database: bool = False
    is_timed: bool = False
    environment: dict[str, str] = field(default_factory=dict)


UNIT: Final = Tier("unit", ("tests/unit", "-n", "2"))
STANDARD: Final = (
    UNIT,
    Tier("architecture", ("tests/architecture",), needs=("gettext",)),
    Tier("integration (SQLite)", ("tests/integration", "-n", "2")),
    Tier("integration (PostgreSQL)", ("tests/integration", "-n", "2"), ("postgresql",), True),
    Tier("contract", ("tests/contract", "-n", "2")),
    Tier("live", ("tests/live", "-m", "live and not long"), ("prometheus",), is_timed=True),
    Tier(
        "browser", ("tests/e2e/gallery", "-m", "not long", "-n", "2"), ("chromium",), is_timed=True
    ),
    Tier("story", ("tests/e2e/story", "-m", "not long"), ("chromium",), is_timed=True),
    Tier("chaos (quick)", ("tests/chaos", "-m", "quick"), is_timed=True),
)
LONG: Final = (
    Tier("chaos", ("tests/chaos", "-m", "chaos")),
    Tier("story, many seeds", ("tests/e2e/story", "-m", "long"), ("chromium",)),
    Tier("browser, all themes", ("tests/e2e/gallery", "-m", "long", "-n", "2"), ("chromium",)),
)


def main(which: str) -> int:
    tiers = {"fast": (UNIT,), "standard": STANDARD, "long": LONG}[which]
    strict = os.environ.get("CI") == "true"
    needed = sorted({need for tier in tiers for need in tier.needs})
    missing = set(services.install_missing(needed))
    rows: list[tuple[str, str, float]] = []
    for tier in tiers:
        absent = [services.SERVICES[need].name for need in tier.needs if need in missing]
        if absent:
            rows.append((tier.name, f"not run: {', '.join(absent)} missing", 0.0))
            continue
        started = time.monotonic()
        print(f"\n== {tier.name}", flush=True)
        rows.append((tier.name, _run(tier), time.monotonic() - started))
    print("\ntier                          result                      seconds")
    for name, result, seconds in rows:
        print(f"{name:<29} {result:<27} {seconds:7.0f}")
    failed = [name for name, result, _ in rows if result.startswith("failed")]
    not_run = [name for name, result, _ in rows if result.startswith("not run")]
    passed = len(rows) - len(failed) - len(not_run)
    print(f"\ntiers: {passed} passed, {len(failed)} failed, {len(not_run)} not run")
    return 1 if failed or (strict and not_run) else 0


def _run(tier: Tier) -> str:
    with contextlib.ExitStack() as stack:
        environment = {**os.environ, **tier.environment}
        if tier.database:
            environment["FULCRUM_DATABASE_URL"] = stack.enter_context(services.postgresql())
        done = subprocess.run([*PYTEST, *tier.arguments], env=environment)
        if done.returncode == 1 and tier.is_timed:
            print(f"\n== {tier.name}: once more, what failed", flush=True)
            again = [*PYTEST, *tier.arguments, "--last-failed"]
            if subprocess.run(again, env=environment).returncode == 0:
                return "passed at the 2nd try"
    if done.returncode == 0:
        return "passed"
    return f"failed (exit {done.returncode})"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else "standard"))
