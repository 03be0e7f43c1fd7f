"""Reads of objectives."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from django.db.models import Q, QuerySet

from apps.accounts.domain.authorize import Viewer
from apps.fleet import selectors as fleet
from apps.fleet.models import Deployment

from .domain.objective import ObjectiveFacts, Objectives, ObjectiveSignal
from .models import Objective


def objectives(deployment: Deployment) -> Objectives:
    """The active objectives of a deployment by signal (1 query)."""
    rows = Objective.objects.filter(deployment=deployment, valid_to__isnull=True)
    return {ObjectiveSignal(row.signal): facts(row) for row in rows}


def thresholds(deployment: Deployment) -> dict[str, float]:
    """Thresholds of the active objectives in seconds by signal, `ttft` and `tpot` (1 query)."""
    return {signal.value: facts.threshold_s for signal, facts in objectives(deployment).items()}


def objectives_at(deployment_id: UUID, at: datetime) -> Objectives:
    """The objectives that held at a time, for history."""
    rows = Objective.objects.filter(deployment_id=deployment_id, valid_from__lte=at).filter(
        Q(valid_to__isnull=True) | Q(valid_to__gt=at)
    )
    return {ObjectiveSignal(row.signal): facts(row) for row in rows}


def objectives_for(viewer: Viewer) -> QuerySet[Objective]:
    """Active objectives of the deployments the viewer may see."""
    return Objective.objects.filter(
        deployment__in=fleet.deployments_for(viewer), valid_to__isnull=True
    ).select_related("deployment")


def facts(row: Objective) -> ObjectiveFacts:
    """A stored objective as data."""
    return ObjectiveFacts(
        id=row.pk,
        signal=ObjectiveSignal(row.signal),
        quantile=row.quantile,
        threshold_s=row.threshold_s,
        target_share=row.target_share,
        since=row.valid_from,
    )
