"""Who is due for evaluation, and that only one worker is at it (DESIGN law 5)."""

from __future__ import annotations

from datetime import datetime, timedelta
from uuid import UUID

from django.db import IntegrityError, transaction
from django.db.models import Q

from apps.accounts.domain.authorize import SYSTEM
from apps.common import leases
from apps.fleet import selectors as fleet

from ..models import EvaluationTick
from .evaluate import evaluate

LEASE_S = 60.0
#: New data wake an evaluation; the beat is the sweeper that comes when they do not.
SWEEP_INTERVALS = 1.5
AHEAD_INTERVALS = 3


def claim_due(*, now: datetime) -> list[UUID]:
    """Deployments that are due, each handed out once: the next due time moves with the claim."""
    due = []
    for deployment in fleet.deployments_for(SYSTEM):
        interval = timedelta(seconds=fleet.defaults_for(deployment).collect_interval_s)
        rows = EvaluationTick.objects.filter(deployment=deployment)
        # Further ahead than anything writes: our own clock was ahead then (fault M12).
        is_due = Q(next_due_at__lte=now) | Q(next_due_at__gt=now + AHEAD_INTERVALS * interval)
        if rows.filter(is_due).update(next_due_at=now + interval) == 1:
            due.append(deployment.pk)
        elif not rows.exists():
            try:
                with transaction.atomic():
                    EvaluationTick.objects.create(deployment=deployment, next_due_at=now + interval)
            except IntegrityError:
                continue  # another dispatcher was faster and has handed it out
            due.append(deployment.pk)
    return due


def evaluate_leased(*, deployment_id: UUID | str, owner: str, now: datetime) -> bool:
    """Evaluate unless another worker is at it; False when it is, or the deployment has gone.

    Pushes the next due time out, so that the beat adds nothing while data keep waking it.
    """
    lease = leases.claim(
        EvaluationTick.objects.all(), deployment_id, owner=owner, now=now, ttl_s=LEASE_S
    )
    if lease is None:
        return False
    try:
        deployment = fleet.deployment_by_id(deployment_id)
        interval_s = fleet.defaults_for(deployment).collect_interval_s
        EvaluationTick.objects.filter(pk=lease.pk, lease_epoch=lease.epoch).update(
            next_due_at=now + timedelta(seconds=SWEEP_INTERVALS * interval_s)
        )
        evaluate(deployment_id=deployment_id, now=now)
    except fleet.NotVisible:
        return False
    finally:
        leases.release(EvaluationTick.objects.all(), lease)
    return True
