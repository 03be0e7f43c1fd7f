"""`manage.py load_catalog`: accelerators and model architectures from the shipped catalog."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand

from apps.fleet.services import load_catalog


class Command(BaseCommand):
    help = "Load or refresh the catalog of accelerators and model architectures."

    def handle(self, *args: Any, **options: Any) -> None:
        accelerators, architectures = load_catalog()
        self.stdout.write(f"{accelerators} accelerators, {architectures} model architectures")
