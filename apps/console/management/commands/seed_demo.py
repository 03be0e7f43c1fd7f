"""`manage.py seed_demo --state FILE`: declare a running demo fleet in this database."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from apps.common.clock import utcnow
from apps.console.embedded import demo_seed, fleet_process
from apps.fleet.services import load_catalog


class Command(BaseCommand):
    help = "Declare a running demo fleet (python -m apps.simulation.demo) in this database."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--state", required=True, help="the fleet's state file")
        parser.add_argument("--prometheus", default="")

    def handle(self, *args: Any, **options: Any) -> None:
        from django.conf import settings

        try:
            state = fleet_process.read_state(Path(options["state"]))
        except fleet_process.DemoFleetFailed as error:
            raise CommandError(str(error)) from error
        settings.FULCRUM_LOOPBACK_PORTS = fleet_process.loopback_ports(state)
        load_catalog()
        password = secrets.token_urlsafe(12)
        details = demo_seed.seed(
            state=state, now=utcnow(), password=password, prometheus_url=options["prometheus"]
        )
        self.stdout.write(f"user {details['user']}  password {password}")
