"""Sources and targets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from uuid import UUID

from django.db.models import Q, QuerySet

from apps.accounts.domain.authorize import Viewer
from apps.fleet import selectors as fleet
from apps.fleet.models import Deployment

from ..models import Source, SourceState, Target, TargetScope


def sources_for(viewer: Viewer) -> QuerySet[Source]:
    """Sources of what the viewer may see: of visible deployments, and of clusters they are in."""
    visible = fleet.deployments_for(viewer)
    return Source.objects.filter(
        Q(deployment__in=visible)
        | Q(deployment__isnull=True, cluster__in=fleet.clusters_for(viewer))
    ).select_related("cluster", "deployment")


def targets_of(deployment: Deployment) -> QuerySet[Target]:
    """The active targets of a deployment."""
    return Target.objects.filter(deployment=deployment, is_active=True).select_related(
        "worker", "source"
    )


def down_scopes(deployment_ids: Iterable[UUID]) -> Mapping[UUID, frozenset[str]]:
    """By deployment, the scopes none of whose targets answered the last collect (1 query)."""
    alive: dict[UUID, dict[str, bool]] = {}
    rows = Target.objects.filter(deployment__in=list(deployment_ids), is_active=True).values_list(
        "deployment_id", "scope", "worker__role", "last_error", "source__state"
    )
    for deployment_id, kind, role, error, state in rows:
        scope = role or "" if kind == TargetScope.ENGINE else kind
        works = not error and state != SourceState.DOWN
        mine = alive.setdefault(deployment_id, {})
        mine[scope] = mine.get(scope, False) or works
    return {
        deployment_id: frozenset(scope for scope, works in scopes.items() if not works)
        for deployment_id, scopes in alive.items()
    }
