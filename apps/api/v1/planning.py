"""Recommendations, objectives, policies, guardrails, price books, costs, time line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final
from uuid import UUID

from django.db.models import QuerySet
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from apps.accounts.domain.authorize import Viewer
from apps.api.encode import plain, serializer_of
from apps.api.filters import filter_set
from apps.common.clock import utcnow
from apps.cost import selectors as cost
from apps.fleet import selectors as fleet
from apps.fleet.domain.defaults import PRESETS
from apps.overview import selectors as overview
from apps.overview.domain.types import Change, CostView
from apps.planning import selectors, services
from apps.planning.domain import guardrails
from apps.slo import selectors as slo
from apps.slo.domain.objective import ObjectiveSignal

from .base import Constant, Derived, ReadOnly, ReasonSerializer, body

#: States of a recommendation (DESIGN §5); `blocked` is a flag of an open one.
STATES: Final = ("open", "applied", "dismissed", "expired", "superseded")
SIGNALS: Final = tuple(signal.value for signal in ObjectiveSignal)


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
    """What the planner advises; found by number ("R-12") or id."""

    serializer_class = RecommendationSerializer
    filterset_class = filter_set(
        {"state": STATES}, deployment="deployment__slug", state="state", kind="kind"
    )
    ordering = "-sequence"
    sort_fields = ("created_at", "expires_at")
    lookup_field = "number"

    def rows(self, viewer: Viewer) -> QuerySet[Any]:
        return selectors.recommendations_for(viewer)

    def retrieve(self, request: Request, number: str = "", **kwargs: Any) -> Response:
        return Response(RecommendationSerializer(recommendation_named(self.viewer, number)).data)

    @extend_schema(request=ReasonSerializer, responses={200: RecommendationSerializer})
    @action(detail=True, methods=["post"])
    def dismiss(self, request: Request, number: str = "") -> Response:
        """Set an open recommendation aside; the same targets stay away for a while."""
        found = recommendation_named(self.viewer, number)
        done = services.dismiss(
            actor=self.viewer,
            now=utcnow(),
            recommendation_id=found.pk,
            reason=body(ReasonSerializer, request)["reason"],
        )
        return Response(RecommendationSerializer(done).data)


def recommendation_named(viewer: Viewer, name: str) -> Any:
    """A visible recommendation by its number or its id; raises NotVisible."""
    try:
        wanted = UUID(name)
    except ValueError:
        return selectors.recommendation_by_number(viewer, name)
    return selectors.recommendation_by_id(viewer, wanted)


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
    filterset_class = filter_set(
        {"signal": SIGNALS}, deployment="deployment__slug", signal="signal"
    )
    sort_fields = ("signal", "valid_from")

    def rows(self, viewer: Viewer) -> QuerySet[Any]:
        return slo.objectives_for(viewer)


class PolicySerializer(serializers.Serializer[Any]):
    name = serializers.CharField()
    values = serializers.DictField()


class Policies(Constant):
    """The presets of defaults."""

    serializer_class = PolicySerializer

    def items(self) -> Sequence[Mapping[str, Any]]:
        return [{"name": name, "values": plain(asdict(p))} for name, p in PRESETS.items()]


class GuardrailSerializer(serializers.Serializer[Any]):
    code = serializers.CharField()


class Guardrails(Constant):
    """Names of the guardrails that each recommendation reports on."""

    serializer_class = GuardrailSerializer

    def items(self) -> Sequence[Mapping[str, Any]]:
        names = ("DATA_FRESH", "CALIBRATED", "NO_ACTIVE_COMMAND", "NO_FOREIGN_CHANGE", "COOLDOWN",
                 "MIN_WORKERS", "STEP_LIMIT", "GPU_BUDGET", "RATIO_LIMITS", "PASSING_STATE",
                 "FLAP")  # fmt: skip
        return [{"code": getattr(guardrails, name)} for name in names]


class ExactField(serializers.CharField):
    """Money: every digit, never an exponent (`wire.tame` writes decimals so)."""

    def to_representation(self, value: Any) -> Any:
        return value


class PriceSerializer(serializers.Serializer[Any]):
    key = serializers.CharField()
    kind = serializers.CharField()
    rate = ExactField(help_text="per device and hour, exact")
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
    filterset_class = filter_set(slug="slug", currency="currency")
    ordering = "slug"
    sort_fields = ("name",)

    def rows(self, viewer: Viewer) -> QuerySet[Any]:
        return cost.books()


class CostSerializer(serializers.Serializer[Any]):
    deployment = serializers.CharField()
    cost = serializer_of(CostView)()


class Costs(Derived):
    """What each visible deployment costs now."""

    serializer_class = CostSerializer
    filterset_class = filter_set(deployment="slug")
    ordering = "slug"

    def rows(self, viewer: Viewer) -> QuerySet[Any]:
        return fleet.deployments_for(viewer)

    def lines(self, rows: Sequence[Any]) -> Sequence[Mapping[str, Any]]:
        now = utcnow()
        return [
            {"deployment": row.slug, "cost": plain(overview.cost_of(self.viewer, row, now))}
            for row in rows
        ]


class TimelineSerializer(serializers.Serializer[Any]):
    deployment = serializers.CharField()
    changes = serializer_of(Change)(many=True)


class Timeline(Derived):
    """What could explain a change, per visible deployment, newest first."""

    serializer_class = TimelineSerializer
    filterset_class = filter_set(deployment="slug")
    ordering = "slug"

    def rows(self, viewer: Viewer) -> QuerySet[Any]:
        return fleet.deployments_for(viewer)

    def lines(self, rows: Sequence[Any]) -> Sequence[Mapping[str, Any]]:
        now = utcnow()
        return [
            {"deployment": row.slug, "changes": plain(overview.timeline_of(self.viewer, row, now))}
            for row in rows
        ]
