"""`manage.py verify_audit`: walk the chain and name the first event that does not fit."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError

from apps.audit import selectors


class Command(BaseCommand):
    help = "Check the hash chain of the audit log."

    def handle(self, *args: Any, **options: Any) -> None:
        report = selectors.verify()
        if report.broken_at is not None:
            raise CommandError(f"broken at event {report.broken_at}: {report.reason}")
        self.stdout.write(f"{report.events} events, chain complete")
