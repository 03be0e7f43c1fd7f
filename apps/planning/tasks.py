"""Wake-ups of planning. Rows decide what is done; a doubled message changes nothing."""

from __future__ import annotations

import os
import socket
from uuid import uuid4

from celery import shared_task

from apps.common.clock import utcnow

from . import services


@shared_task(name="planning.evaluate_due", ignore_result=True)
def evaluate_due() -> None:
    """Enqueue an evaluation for each deployment that is due."""
    for deployment_id in services.claim_due(now=utcnow()):
        evaluate_deployment.delay(str(deployment_id))


@shared_task(name="planning.evaluate_deployment", ignore_result=True)
def evaluate_deployment(deployment_id: str) -> None:
    """Evaluate one deployment."""
    owner = f"{socket.gethostname()[:30]}:{os.getpid()}:{uuid4().hex[:8]}"
    services.evaluate_leased(deployment_id=deployment_id, owner=owner, now=utcnow())


@shared_task(name="planning.build_workloads", ignore_result=True)
def build_workloads() -> None:
    """Bring the workload profiles up to date."""
    services.build_workloads(now=utcnow())
