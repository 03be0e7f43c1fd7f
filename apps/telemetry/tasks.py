"""Wake-ups of telemetry. Rows decide what is done; a doubled message changes nothing."""

from __future__ import annotations

import os
import socket
from uuid import uuid4

from celery import shared_task
from django.core.cache import cache

from apps.common.clock import utcnow

from . import services


@shared_task(name="telemetry.collect_due", ignore_result=True)
def collect_due() -> None:
    """Enqueue a collect for each source that is due."""
    for source_id in services.claim_due_sources(utcnow()):
        collect_source.delay(str(source_id))


@shared_task(name="telemetry.collect_source", ignore_result=True)
def collect_source(source_id: str) -> None:
    """Collect one source."""
    owner = f"{socket.gethostname()[:30]}:{os.getpid()}:{uuid4().hex[:8]}"
    services.collect_source(source_id=source_id, now=utcnow(), owner=owner)


@shared_task(name="telemetry.prune", ignore_result=True)
def prune() -> None:
    """Thin out samples and windows."""
    services.prune(now=utcnow())


@shared_task(name="telemetry.backfill_due", ignore_result=True)
def backfill_due() -> None:
    """Fill gaps of every Prometheus; one run at a time (a second one would only do the same)."""
    if cache.add("telemetry.backfill", 1, 600):
        try:
            services.backfill_due(now=utcnow())
        finally:
            cache.delete("telemetry.backfill")
