"""`manage.py up [--demo]`: web, worker and beat in one process on SQLite."""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import sys
import time
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import connection

from apps.common import leases
from apps.common.clock import utcnow
from apps.console.embedded import demo_seed, fleet_process
from apps.fleet.services import load_catalog


class Command(BaseCommand):
    help = "Run Fulcrum in one process; with --demo on a live demo fleet."
    requires_system_checks = []

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--host", default="127.0.0.1")
        parser.add_argument("--port", type=int, default=8321)
        parser.add_argument("--demo", action="store_true", help="start a live demo fleet too")
        parser.add_argument("--attach", default="", help="use the fleet of this state file")
        parser.add_argument("--demo-file", default="", help="where to write demo.json")
        parser.add_argument("--prometheus", default="", help="read figures from this Prometheus")
        parser.add_argument("--seed", type=int, default=0, help="seed of the demo's load (0: any)")
        parser.add_argument("--shift-after", type=float, default=75.0)
        parser.add_argument("--fleet-argument", action="append", default=[], dest="fleet_arguments")

    def handle(self, *args: Any, **options: Any) -> None:
        _check_platform()
        state_dir = Path(settings.STATE_DIR)
        lock = _only_one(state_dir)
        started = time.monotonic()
        fleet = None
        demo_file = Path(options["demo_file"] or Path(settings.BASE_DIR) / "var" / "demo.json")
        try:
            if options["demo"]:
                fleet = self._fleet(state_dir, options)
                if not options["attach"]:
                    _forget_last_demo(state_dir)
            self._prepare(state_dir)
            details = self._seed(fleet, options) if fleet else {}
            self._serve(options, details, demo_file, started, fleet)
        except fleet_process.DemoFleetFailed as error:
            raise CommandError(f"The demo fleet did not start: {error}") from error
        finally:
            demo_file.unlink(missing_ok=True) if options["demo"] else None
            if fleet is not None:
                fleet.stop()
            lock.close()

    def _fleet(self, state_dir: Path, options: dict[str, Any]) -> fleet_process.FleetProcess:
        if options["attach"]:
            return fleet_process.attach(Path(options["attach"]))
        self.stdout.write("Starting the demo fleet: engines, two routers, a load generator ...")
        seed = options["seed"] or secrets.randbelow(10_000) + 1
        return fleet_process.start(
            state_file=state_dir / "fleet.json",
            log_path=state_dir / "fleet.log",
            arguments=[
                "--seed",
                str(seed),
                "--shift-after",
                str(options["shift_after"]),
                *options["fleet_arguments"],
            ],
        )

    def _prepare(self, state_dir: Path) -> None:
        call_command("migrate", verbosity=0, interactive=False)
        stamp = state_dir / "static.stamp"
        newest = str(max((p.stat().st_mtime for p in _static_files()), default=0.0))
        if not stamp.exists() or stamp.read_text() != newest:
            call_command("collectstatic", verbosity=0, interactive=False)
            stamp.write_text(newest)
        load_catalog()
        if connection.vendor == "sqlite":
            # The lock of the state folder says that nobody else is here: a killed process's leases
            # would only hold its commands up.
            leases.expire_all(utcnow())

    def _seed(self, fleet: fleet_process.FleetProcess, options: dict[str, Any]) -> dict[str, str]:
        fleet.wait_ready()
        settings.FULCRUM_LOOPBACK_PORTS = fleet_process.loopback_ports(fleet.state) | (
            _port_of(options["prometheus"])
        )
        password = secrets.token_urlsafe(12)
        return demo_seed.seed(
            state=fleet.state,
            now=utcnow(),
            password=password,
            prometheus_url=options["prometheus"],
        )

    def _serve(
        self,
        options: dict[str, Any],
        details: dict[str, str],
        demo_file: Path,
        started: float,
        fleet: fleet_process.FleetProcess | None,
    ) -> None:
        from apps.console.embedded.server import Embedded

        try:
            embedded = Embedded(host=options["host"], port=options["port"])
        except OSError as error:
            raise CommandError(
                f"Port {options['port']} is taken; choose another with PORT=..."
            ) from error
        url = f"http://{options['host']}:{embedded.port}/"

        def ready() -> None:
            if fleet is not None:
                fleet.start_load()
            if details:
                _write_private(demo_file, {**details, "url": url})
                self.stdout.write(
                    f"\nFulcrum is up at {url}  (in {time.monotonic() - started:.0f} s)\n"
                    f"  user      {details['user']}\n  password  {details['password']}\n"
                    f"  open      {url}deployments/{details['deployment']}/\n"
                    "The traffic mix shifts to long prompts after about "
                    f"{options['shift_after']:.0f} s. Ctrl-C stops all of it.\n"
                )
            else:
                self.stdout.write(f"\nFulcrum is up at {url}. Ctrl-C stops it.\n")
            self.stdout.flush()

        embedded.run(ready)


def _check_platform() -> None:
    import platform

    system, machine = platform.system(), platform.machine().lower()
    linux = system == "Linux" and machine in ("x86_64", "amd64", "aarch64", "arm64")
    if not linux and not (system == "Darwin" and machine == "arm64"):
        raise CommandError(
            f"Fulcrum runs on Linux (x86-64, arm64) and macOS (arm64), not on {system} {machine}."
        )


def _only_one(state_dir: Path) -> Any:
    handle = (state_dir / "up.lock").open("w")
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        raise CommandError(f"Fulcrum already runs in {state_dir.name}/; stop it first.") from error
    return handle


def _forget_last_demo(state_dir: Path) -> None:
    for suffix in ("", "-wal", "-shm"):
        (state_dir / f"fulcrum.sqlite3{suffix}").unlink(missing_ok=True)


def _static_files() -> list[Path]:
    root = Path(settings.BASE_DIR) / "static"
    return [path for path in root.rglob("*") if path.is_file()]


def _port_of(url: str) -> frozenset[int]:
    from urllib.parse import urlsplit

    port = urlsplit(url).port if url else None
    return frozenset([port]) if port else frozenset()


def _write_private(path: Path, content: dict[str, str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".tmp")
    temporary.unlink(missing_ok=True)
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        json.dump(content, file, indent=1)
    temporary.replace(path)
    sys.stdout.flush()
