"""Reads of workload profiles, for the planner and the API."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from django.db.models import Q, QuerySet

from apps.accounts.domain.authorize import Viewer
from apps.fleet import selectors as fleet
from apps.fleet.models import Deployment

from .domain.workload import HourLoad, Lengths, Part
from .models import WorkloadProfile


@dataclass(frozen=True, slots=True)
class Workload:
    """A profile as it is read. `lengths` (`input`, `output`, `uncached`) say by their method
    whether they are a histogram or a mean alone; `hours` is by hour of the week in `zone`, only
    hours that were seen. `flight_method`: `little`, or `running` (a lower bound)."""

    deployment_id: UUID
    span_from: datetime
    span_to: datetime | None
    reason: str
    zone: str
    served_model: str
    checkpoint: str
    split: str
    built_to: datetime
    requests: float
    lengths: Mapping[str, Lengths]
    hours: Mapping[int, HourLoad]
    cached_share: float | None
    flight_method: str


def workload_of(row: WorkloadProfile) -> Workload:
    """A stored profile, its parts added up."""
    whole = Part.from_json(row.base)
    for hour in sorted(row.recent):
        whole = whole.plus(Part.from_json(row.recent[hour]))
    return Workload(
        deployment_id=row.deployment_id,
        span_from=row.span_from,
        span_to=row.span_to,
        reason=row.reason,
        zone=row.zone,
        served_model=row.served_model,
        checkpoint=row.checkpoint,
        split=row.split,
        built_to=row.built_to,
        requests=whole.requests,
        lengths=whole.lengths,
        hours=whole.hours,
        cached_share=whole.cached_share,
        flight_method=whole.flight_method,
    )


def workload_profile(deployment: Deployment, at: datetime) -> Workload | None:
    """The profile whose span holds `at`; None where there is none."""
    row = (
        WorkloadProfile.objects.filter(deployment=deployment, span_from__lte=at)
        .filter(Q(span_to__isnull=True) | Q(span_to__gt=at))
        .first()
    )
    return None if row is None else workload_of(row)


def workloads_for(viewer: Viewer) -> QuerySet[WorkloadProfile]:
    """Profiles of the deployments the viewer may see, newest span first."""
    return WorkloadProfile.objects.filter(
        deployment__in=fleet.deployments_for(viewer)
    ).select_related("deployment")


def model_shares(viewer: Viewer) -> dict[str, float]:
    """Share of requests by served model over the open profiles of the visible deployments; empty
    without any request. Profiles span different times, so rates are compared: requests per second
    seen."""
    rates: dict[str, float] = {}
    for row in workloads_for(viewer).filter(span_to__isnull=True):
        found = workload_of(row)
        seconds = sum(hour.seconds for hour in found.hours.values())
        if seconds > 0:
            name = found.served_model
            rates[name] = rates.get(name, 0.0) + found.requests / seconds
    total = sum(rates.values())
    return {name: rate / total for name, rate in sorted(rates.items())} if total > 0 else {}
