"""Kill switches: read which are on, turn one on, ask for its release."""

from __future__ import annotations

from typing import Any, Final
from uuid import UUID

from django.db.models import QuerySet
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from apps.accounts.domain.authorize import ScopeKind, Viewer
from apps.accounts.selectors import teams_for
from apps.api.filters import filter_set
from apps.commands import selectors, services
from apps.common.clock import utcnow
from apps.fleet import selectors as fleet

from .base import ReadOnly, ReasonSerializer, body

SCOPES: Final = ("deployment", "cluster", "team")


class KillSwitchSerializer(serializers.Serializer[Any]):
    """`release_by` asked for the release; it takes effect when another person asks too."""

    id = serializers.UUIDField()
    scope_kind = serializers.CharField()
    scope_id = serializers.UUIDField(allow_null=True)
    on = serializers.BooleanField()
    by = serializers.CharField(source="by_name")
    at = serializers.DateTimeField()
    reason = serializers.CharField(allow_blank=True)
    release_by = serializers.CharField(source="release_by_name", allow_blank=True)
    release_at = serializers.DateTimeField(allow_null=True)


class SetKillSwitchSerializer(ReasonSerializer):
    """One scope, or none of the three for the whole installation."""

    deployment = serializers.SlugField(required=False, max_length=63)
    cluster = serializers.SlugField(required=False, max_length=63)
    team = serializers.SlugField(required=False, max_length=63)
    on = serializers.BooleanField()

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        if len(attrs.keys() & set(SCOPES)) > 1:
            raise serializers.ValidationError(
                "Give one of `deployment`, `cluster` and `team`; none means the installation."
            )
        return attrs


class KillSwitches(ReadOnly):
    """Switches that stop every command in a scope; without a scope, in the installation."""

    serializer_class = KillSwitchSerializer
    filterset_class = filter_set(
        {"scope_kind": [kind.value for kind in ScopeKind]}, scope_kind="scope_kind"
    )
    ordering = ("scope_kind", "pk")
    sort_fields = ("at",)

    def rows(self, viewer: Viewer) -> QuerySet[Any]:
        return selectors.kill_switches_for(viewer)

    @extend_schema(request=SetKillSwitchSerializer, responses={200: KillSwitchSerializer})
    def create(self, request: Request) -> Response:
        """Turn a switch on at once, or off: by one person in a demo, else by two."""
        data = body(SetKillSwitchSerializer, request)
        kind, scope_id = self._scope(data)
        row = services.set_kill_switch(
            actor=self.viewer,
            now=utcnow(),
            scope_kind=kind,
            scope_id=scope_id,
            on=data["on"],
            reason=data["reason"],
        )
        return Response(KillSwitchSerializer(row).data)

    def _scope(self, data: dict[str, Any]) -> tuple[ScopeKind, UUID | None]:
        if "deployment" in data:
            found = fleet.deployment_by_slug(self.viewer, data["deployment"])
            return ScopeKind.DEPLOYMENT, found.pk
        for name, kind, rows in (
            ("cluster", ScopeKind.CLUSTER, fleet.clusters_for),
            ("team", ScopeKind.TEAM, teams_for),
        ):
            if name in data:
                row = rows(self.viewer).filter(slug=data[name]).first()
                if row is None:
                    raise fleet.NotVisible(data[name])
                return kind, row.pk
        return ScopeKind.INSTALLATION, None
