"""The read models of pages and API. No writes; every function takes the viewer."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from django.db.models import Count, Q

from apps.accounts.domain.authorize import Permission, Viewer
from apps.commands.services.errors import CommandNotFound
from apps.fleet import selectors as fleet
from apps.fleet.models import Deployment
from apps.fleet.selectors import NotVisible
from apps.telemetry import selectors as telemetry
from apps.telemetry.models import StoredWindow

from . import changes, cost, coverage, deployment, path, review, series
from . import commands as command_views
from . import fleet as fleet_view
from .domain.coverage import CoverageView
from .domain.types import (
    Change,
    CommandList,
    CommandView,
    CostView,
    DeploymentPage,
    DiagnosisView,
    FleetPage,
    PathView,
    ReviewPage,
)
from .loaded import Loaded


def fleet_page(viewer: Viewer, now: datetime, params: Mapping[str, str]) -> FleetPage:
    """The fleet page."""
    return fleet_view.page(viewer, now, params)


def deployment_page(viewer: Viewer, slug: str, now: datetime) -> DeploymentPage:
    """The deployment page; raises NotVisible."""
    return deployment.page(viewer, slug, now)


def cost_of(viewer: Viewer, row: Deployment, now: datetime) -> CostView:
    """The cost block alone of a visible deployment."""
    return cost.view(Loaded(viewer, row, now))


def timeline_of(viewer: Viewer, row: Deployment, now: datetime) -> tuple[Change, ...]:
    """The time line alone of a visible deployment."""
    return changes.timeline(Loaded(viewer, row, now))


def diagnosis_of(viewer: Viewer, slug: str, now: datetime) -> DiagnosisView:
    """The diagnosis alone; raises NotVisible."""
    return deployment.diagnosis_of(Loaded(viewer, fleet.deployment_by_slug(viewer, slug), now))


def path_of(viewer: Viewer, slug: str, now: datetime) -> PathView:
    """The path of a request alone; raises NotVisible."""
    return path.view(Loaded(viewer, fleet.deployment_by_slug(viewer, slug), now))


def coverage_of(viewer: Viewer, slug: str, now: datetime) -> CoverageView:
    """What is found and missing of a deployment; raises NotVisible."""
    return coverage.page(viewer, slug, now)


def coverage_rows(viewer: Viewer, row: Deployment, now: datetime) -> list[dict[str, Any]]:
    """The signals of a visible deployment, each with its effect and fix where missing."""
    return coverage.signal_rows(viewer, row, now)


def review_page(viewer: Viewer, number: str, now: datetime) -> ReviewPage:
    """The review of a recommendation; raises NotVisible."""
    return review.page(viewer, number, now)


def command_page(viewer: Viewer, number: str, now: datetime) -> CommandView:
    """A command's page; raises NotVisible."""
    try:
        return command_views.page(viewer, number, now)
    except CommandNotFound as error:
        raise NotVisible(number) from error


def command_list(viewer: Viewer, now: datetime, params: Mapping[str, str]) -> CommandList:
    """The list of commands."""
    return command_views.listing(viewer, now, params)


def nav_counts(viewer: Viewer, now: datetime) -> Mapping[str, int]:
    """Deployments in scope, and commands that wait for a person who may decide."""
    rows = fleet.deployments_for(viewer).select_related(None).order_by()
    if not viewer.can_anywhere(Permission.APPROVE):
        return {"deployments": rows.count(), "commands": 0}
    proposed = Count("commands", filter=Q(commands__state="PROPOSED"), distinct=True)
    return rows.aggregate(deployments=Count("pk", distinct=True), commands=proposed)


def collector_age_s(now: datetime) -> float | None:
    """Seconds since the newest stored window; None before the first."""
    newest = StoredWindow.objects.order_by("-end").values_list("end", flat=True).first()
    return None if newest is None else (now - newest).total_seconds()


def deployment_series(
    viewer: Viewer,
    slug: str,
    now: datetime,
    *,
    panels: tuple[str, ...],
    start: datetime,
    end: datetime,
) -> dict[str, Any]:
    """Columns for the charts of a deployment; raises NotVisible."""
    row = fleet.deployment_by_slug(viewer, slug)
    loaded = Loaded(viewer, row, now)
    # Charts need the time and place of the figures, not the figures themselves.
    loaded.preset(brief=telemetry.latest_figures([row], now)[row.pk])
    return series.columns(loaded, panels, series.choose_range(loaded, start, end))
