"""The read models of `overview`, imported when first asked for.

Tests replace `selectors` by sample pages.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from importlib import import_module
from typing import Any

from apps.accounts.domain.authorize import Viewer
from apps.overview.domain import types


def selectors() -> Any:
    """The module `apps.overview.selectors`."""
    return import_module("apps.overview.selectors")


def fleet_page(viewer: Viewer, now: datetime, params: Mapping[str, str]) -> types.FleetPage:
    found: types.FleetPage = selectors().fleet_page(viewer, now, params)
    return found


def deployment_page(viewer: Viewer, slug: str, now: datetime) -> types.DeploymentPage:
    """Raises `fleet.selectors.NotVisible`."""
    found: types.DeploymentPage = selectors().deployment_page(viewer, slug, now)
    return found


def review_page(viewer: Viewer, number: str, now: datetime) -> types.ReviewPage:
    """Raises `fleet.selectors.NotVisible`."""
    found: types.ReviewPage = selectors().review_page(viewer, number, now)
    return found


def command_page(viewer: Viewer, number: str, now: datetime) -> types.CommandView:
    """Raises `fleet.selectors.NotVisible`."""
    found: types.CommandView = selectors().command_page(viewer, number, now)
    return found


def command_list(viewer: Viewer, now: datetime, params: Mapping[str, str]) -> types.CommandList:
    found: types.CommandList = selectors().command_list(viewer, now, params)
    return found


def nav_counts(viewer: Viewer, now: datetime) -> Mapping[str, int]:
    """`{"deployments": …, "commands": …}`: deployments in scope, commands that wait for a person.

    Empty where `overview` does not offer it; a count is then left out, never guessed.
    """
    counts = getattr(selectors(), "nav_counts", None)
    return counts(viewer, now) if counts is not None else {}


def collector_age_s(now: datetime) -> float | None:
    """Seconds since the newest stored sample of any source, None when there is none yet."""
    age = getattr(selectors(), "collector_age_s", None)
    return age(now) if age is not None else None
