"""Recommendations, objectives, policies, guardrails, price books, costs, time line."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from django.db.models import QuerySet
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from apps.accounts.domain.authorize import Viewer
from apps.api.encode import plain, serializer_of
from apps.common.clock import utcnow
from apps.cost import selectors as cost
from apps.fleet import selectors as fleet
from apps.fleet.domain.defaults import PRESETS
from apps.overview import selectors as overview
from apps.overview.domain.types import Change, CostView
from apps.planning import selectors, services
from apps.planning.domain import guardrails
from apps.slo import selectors as slo

from .base import ReadOnly
from .commands import ReasonSerializer


class RecommendationSerializer(serializers.Serializer[Any]):
    """A change of worker counts that Fulcrum advises; targets are absolute.

    States: open, applied, dismissed, expired, superseded. `blocked` is a flag of an open one.
    """

    id = serializers.UUIDField()
    number = serializers.CharField()
    deployment = serializers.CharField(source="deployment.slug")
    state = serializers.CharField()
    created_at = serializers.DateTimeField()
    refreshed_at = serializers.DateTimeField()
    expires_at = serializers.DateTimeField()
    kind = serializers.CharField()
    reason = serializers.CharField()
    targets = serializers.DictField(child=serializers.IntegerField())
    current = serializers.DictField(child=serializers.IntegerField())
    expected_revision = serializers.IntegerField()
    predicted = serializers.DictField(help_text="figure -> {now, after}; after has the 90 % range")
    chances = serializers.DictField()
    do_nothing = serializers.DictField()
    alternatives = serializers.ListField(child=serializers.DictField())
    guardrails = serializers.ListField(child=serializers.DictField())
    confidence = serializers.CharField()
    blocked = serializers.CharField(allow_blank=True)
    terms = serializers.DictField()
    policy = serializers.CharField()
    plan_fingerprint = serializers.CharField()
    applied_command_id = serializers.UUIDField(allow_null=True)


class Recommendations(ReadOnly):
    serializer_class = RecommendationSerializer
    ordering = "-sequence"
    lookup_field = "number"

    def rows(self, viewer: Viewer) -> QuerySet[Any]:
        return selectors.recommendations_for(viewer)

    def filter_queryset(self, queryset: Any) -> Any:
        params = self.request.query_params
        if params.get("deployment"):
            queryset = queryset.filter(deployment__slug=params["deployment"])
        if params.get("state"):
            queryset = queryset.filter(state=params["state"])
        return queryset

    def retrieve(self, request: Request, number: str = "", **kwargs: Any) -> Response:
        found = selectors.recommendation_by_number(self.viewer, number)
        return Response(RecommendationSerializer(found).data)

    @extend_schema(request=ReasonSerializer, responses={200: RecommendationSerializer})
    @action(detail=True, methods=["post"])
    def dismiss(self, request: Request, number: str = "") -> Response:
        asked = ReasonSerializer(data=request.data)
        asked.is_valid(raise_exception=True)
        found = selectors.recommendation_by_number(self.viewer, number)
        done = services.dismiss(
            actor=self.viewer,
            now=utcnow(),
            recommendation_id=found.pk,
            reason=asked.validated_data["reason"],
        )
        return Response(RecommendationSerializer(done).data)


class ObjectiveSerializer(serializers.Serializer[Any]):
    id = serializers.UUIDField()
    deployment = serializers.CharField(source="deployment.slug")
    signal = serializers.CharField()
    quantile = serializers.FloatField()
    threshold_s = serializers.FloatField()
    target_share = serializers.FloatField()
    valid_from = serializers.DateTimeField()


class Slos(ReadOnly):
    """Active objectives."""

    serializer_class = ObjectiveSerializer
    filterset_fields = ["deployment__slug", "signal"]

    def rows(self, viewer: Viewer) -> QuerySet[Any]:
        return slo.objectives_for(viewer)


class PolicySerializer(serializers.Serializer[Any]):
    name = serializers.CharField()
    values = serializers.DictField()


class Policies(ReadOnly):
    """The presets of defaults."""

    serializer_class = PolicySerializer
    pagination_class = None

    def rows(self, viewer: Viewer) -> QuerySet[Any]:
        return fleet.deployments_for(viewer).none()

    @extend_schema(responses={200: PolicySerializer(many=True)})
    def list(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        return Response([{"name": name, "values": asdict(p)} for name, p in PRESETS.items()])


class GuardrailSerializer(serializers.Serializer[Any]):
    code = serializers.CharField()


class Guardrails(ReadOnly):
    """Names of the guardrails that each recommendation reports on."""

    serializer_class = GuardrailSerializer
    pagination_class = None

    def rows(self, viewer: Viewer) -> QuerySet[Any]:
        return fleet.deployments_for(viewer).none()

    @extend_schema(responses={200: GuardrailSerializer(many=True)})
    def list(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        names = ("DATA_FRESH", "CALIBRATED", "NO_ACTIVE_COMMAND", "NO_FOREIGN_CHANGE", "COOLDOWN",
                 "MIN_WORKERS", "STEP_LIMIT", "GPU_BUDGET", "RATIO_LIMITS", "PASSING_STATE",
                 "FLAP")  # fmt: skip
        return Response([{"code": getattr(guardrails, name)} for name in names])


class PriceSerializer(serializers.Serializer[Any]):
    key = serializers.CharField()
    kind = serializers.CharField()
    rate = serializers.CharField(help_text="per device and hour, exact")
    valid_from = serializers.DateTimeField()
    valid_to = serializers.DateTimeField(allow_null=True)
    source = serializers.CharField(allow_blank=True)


class PriceBookSerializer(serializers.Serializer[Any]):
    id = serializers.UUIDField()
    slug = serializers.CharField()
    name = serializers.CharField()
    currency = serializers.CharField()
    is_default = serializers.BooleanField()
    prices = PriceSerializer(many=True, source="prices.all")


class PriceBooks(ReadOnly):
    serializer_class = PriceBookSerializer
    filterset_fields = ["slug"]
    ordering = "slug"

    def rows(self, viewer: Viewer) -> QuerySet[Any]:
        return cost.books()


class CostSerializer(serializers.Serializer[Any]):
    deployment = serializers.CharField()
    cost = serializer_of(CostView)()


class Costs(ReadOnly):
    """What each visible deployment costs now."""

    serializer_class = CostSerializer
    pagination_class = None

    def rows(self, viewer: Viewer) -> QuerySet[Any]:
        return fleet.deployments_for(viewer)

    @extend_schema(responses={200: CostSerializer(many=True)})
    def list(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        now = utcnow()
        return Response(
            [
                {
                    "deployment": row.slug,
                    "cost": plain(overview.deployment_page(self.viewer, row.slug, now).cost),
                }
                for row in self.rows(self.viewer)
            ]
        )


class TimelineSerializer(serializers.Serializer[Any]):
    deployment = serializers.CharField()
    changes = serializer_of(Change)(many=True)


class Timeline(ReadOnly):
    """What could explain a change, per visible deployment, newest first."""

    serializer_class = TimelineSerializer
    pagination_class = None

    def rows(self, viewer: Viewer) -> QuerySet[Any]:
        return fleet.deployments_for(viewer)

    @extend_schema(responses={200: TimelineSerializer(many=True)})
    def list(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        rows = self.rows(self.viewer)
        slug = request.query_params.get("deployment")
        if slug:
            rows = rows.filter(slug=slug)
        now = utcnow()
        return Response(
            [
                {
                    "deployment": row.slug,
                    "changes": plain(overview.deployment_page(self.viewer, row.slug, now).changes),
                }
                for row in rows
            ]
        )
