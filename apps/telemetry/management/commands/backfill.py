"""`manage.py backfill`: collect again what an outage of ours left open."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from apps.common.clock import utcnow
from apps.telemetry import services
from apps.telemetry.models import Source, SourceKind


class Command(BaseCommand):
    help = "Fill gaps in stored windows from the history of each Prometheus."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--hours", type=float, default=24.0, help="how far back to look")
        parser.add_argument("--limit", type=int, default=10_000, help="windows per source")

    def handle(self, *args: Any, **options: Any) -> None:
        now = utcnow()
        since = now - timedelta(hours=options["hours"])
        for source in Source.objects.filter(kind=SourceKind.PROMETHEUS).order_by("name"):
            result = services.backfill_source(
                source_id=source.pk, now=now, since=since, limit=options["limit"]
            )
            said = f"; {result.error}" if result.error else ""
            self.stdout.write(
                f"{source.name}: {result.filled} intervals filled, {result.corrected} corrected, "
                f"{result.left} left{said}"
            )
