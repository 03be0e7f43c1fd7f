"""Wake-ups of telemetry. Rows decide what is done; a doubled message changes nothing."""

from __future__ import annotations

import os
import socket
from uuid import uuid4

from celery import shared_task
from django.core.cache import cache

from apps.common.clock import utcnow

from . import coverage, services


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


@shared_task(name="telemetry.check_due", ignore_result=True)
def check_due() -> None:
    """Enqueue a check of each deployment's telemetry."""
    for deployment_id in coverage.checked_deployments():
        check_deployment.apply_async(args=[str(deployment_id)], expires=60.0, queue="collect")


@shared_task(name="telemetry.check_deployment", ignore_result=True)
def check_deployment(deployment_id: str) -> None:
    """Check one deployment's roles and the credibility of its figures."""
    services.check_deployment(deployment_id=deployment_id, now=utcnow())


@shared_task(name="telemetry.prune", ignore_result=True)
def prune() -> None:
    """Drop old samples, roll windows up, drop what is older than its level keeps it."""
    services.prune(now=utcnow())


@shared_task(name="telemetry.roll_up", ignore_result=True)
def roll_up() -> None:
    """Make the roll-ups that are due."""
    services.roll_up(now=utcnow())


@shared_task(name="telemetry.backfill_due", ignore_result=True)
def backfill_due() -> None:
    """Fill gaps of every Prometheus; one run at a time (a second one would only do the same)."""
    if cache.add("telemetry.backfill", 1, 600):
        try:
            services.backfill_due(now=utcnow())
        finally:
            cache.delete("telemetry.backfill")
