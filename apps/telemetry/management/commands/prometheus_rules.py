"""`manage.py prometheus_rules`: the recording rules that make a large fleet cheap to read."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from apps.telemetry.collectors.rules import POOL_LABELS, rules_yaml


class Command(BaseCommand):
    help = "Print Prometheus recording rules, made from the engine profiles."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--pool-labels",
            default=",".join(POOL_LABELS),
            help="target labels that name a pool, as in the source's pool_labels",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        labels = [name.strip() for name in options["pool_labels"].split(",") if name.strip()]
        self.stdout.write(rules_yaml(labels), ending="")
