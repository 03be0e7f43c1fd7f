"""Deployments with their summary, series, diagnosis and path; sources; coverage; profiles."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from django.db.models import QuerySet
from django.utils.dateparse import parse_datetime
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from apps.accounts.domain.authorize import Viewer
from apps.api.encode import plain, serializer_of
from apps.api.errors import Problem
from apps.common.clock import utcnow
from apps.engines import loader
from apps.fleet import selectors as fleet
from apps.overview import selectors as overview
from apps.overview.domain.types import DeploymentPage, DiagnosisView, PathView
from apps.overview.series import PANELS
from apps.telemetry import selectors as telemetry

from .base import ReadOnly
from .fleet import DeploymentSerializer

SUMMARY_FIELDS = (
    "slug", "name", "model", "engine", "cluster", "environment", "mode", "gpus", "accelerator",
    "revision", "status", "status_text", "sync", "as_of", "age_s", "interval_s", "is_stale",
    "figures", "pools", "cost", "sources", "signals_found", "signals_required", "kill_switch_on",
)  # fmt: skip
SummarySerializer = serializer_of(DeploymentPage, "DeploymentSummary", *SUMMARY_FIELDS)
DiagnosisSerializer = serializer_of(DiagnosisView, "Diagnosis")
PathSerializer = serializer_of(PathView, "RequestPath")


class SeriesSerializer(serializers.Serializer[Any]):
    """Columns: one array per line, null marks a gap. Latencies in seconds."""

    as_of = serializers.DateTimeField(allow_null=True)
    t0 = serializers.DateTimeField(allow_null=True)
    step = serializers.FloatField(help_text="seconds")
    n = serializers.IntegerField()
    panels = serializers.DictField()
    events = serializers.ListField(child=serializers.DictField())


class Deployments(ReadOnly):
    serializer_class = DeploymentSerializer
    filterset_fields = ["cluster__slug", "environment", "mode"]
    ordering = "slug"
    lookup_field = "slug"

    def rows(self, viewer: Viewer) -> QuerySet[Any]:
        return fleet.deployments_for(viewer)

    def retrieve(self, request: Request, slug: str = "", **kwargs: Any) -> Response:
        deployment = fleet.deployment_by_slug(self.viewer, slug)
        answer = Response(DeploymentSerializer(deployment).data)
        answer["ETag"] = f'"{deployment.revision}"'
        return answer

    @extend_schema(responses={200: SummarySerializer})
    @action(detail=True)
    def summary(self, request: Request, slug: str = "") -> Response:
        page = overview.deployment_page(self.viewer, slug, utcnow())
        return Response({name: plain(getattr(page, name)) for name in SUMMARY_FIELDS})

    @extend_schema(responses={200: DiagnosisSerializer})
    @action(detail=True)
    def diagnosis(self, request: Request, slug: str = "") -> Response:
        return Response(plain(overview.deployment_page(self.viewer, slug, utcnow()).diagnosis))

    @extend_schema(responses={200: PathSerializer})
    @action(detail=True)
    def path(self, request: Request, slug: str = "") -> Response:
        return Response(plain(overview.deployment_page(self.viewer, slug, utcnow()).path))

    @extend_schema(
        responses={200: SeriesSerializer},
        parameters=[
            OpenApiParameter("panels", str, description=f"of {', '.join(PANELS)}"),
            OpenApiParameter("from", str, description="ISO 8601 UTC, or relative such as -3h"),
            OpenApiParameter("to", str, description="ISO 8601 UTC; now when left out"),
        ],
    )
    @action(detail=True)
    def series(self, request: Request, slug: str = "") -> Response:
        now = utcnow()
        panels = tuple(filter(None, request.query_params.get("panels", "ttft,tpot").split(",")))
        unknown = sorted(set(panels) - set(PANELS))
        if unknown:
            raise Problem(
                400, "invalid", f"Unknown panels {', '.join(unknown)}; use {', '.join(PANELS)}."
            )
        end = _moment(request.query_params.get("to", ""), now, "to") or now
        start = _moment(request.query_params.get("from", "-3h"), now, "from")
        if start is None or start >= end or end - start > timedelta(days=31):
            raise Problem(400, "invalid", "`from` lies before `to`, at most 31 days before it.")
        return Response(
            overview.deployment_series(self.viewer, slug, now, panels=panels, start=start, end=end)
        )


def _moment(text: str, now: datetime, name: str) -> datetime | None:
    if not text or text == "now":
        return None
    if text.startswith("-") and text[-1:] in _UNITS and text[1:-1].isdigit():
        return now - timedelta(seconds=int(text[1:-1]) * _UNITS[text[-1]])
    try:
        found = parse_datetime(text)
    except ValueError:
        found = None
    if found is None or found.tzinfo is None:
        raise Problem(400, "invalid", f"`{name}` is not a time such as 2026-11-29T16:08Z or -3h.")
    return found


_UNITS = {"m": 60, "h": 3600, "d": 86_400}


class SourceSerializer(serializers.Serializer[Any]):
    """Where figures come from; credentials are never shown."""

    id = serializers.UUIDField()
    name = serializers.CharField()
    cluster = serializers.CharField(source="cluster.slug")
    deployment = serializers.CharField(source="deployment.slug", default=None, allow_null=True)
    kind = serializers.CharField()
    url = serializers.CharField(allow_blank=True)
    interval_s = serializers.FloatField()
    state = serializers.CharField()
    last_ok_at = serializers.DateTimeField(allow_null=True)
    last_error = serializers.CharField(allow_blank=True)
    last_error_at = serializers.DateTimeField(allow_null=True)


class Sources(ReadOnly):
    serializer_class = SourceSerializer
    filterset_fields = ["kind", "state", "deployment__slug"]
    ordering = ("name", "pk")

    def rows(self, viewer: Viewer) -> QuerySet[Any]:
        return telemetry.sources_for(viewer)


class CoverageSerializer(serializers.Serializer[Any]):
    deployment = serializers.CharField()
    scope = serializers.CharField()
    profile = serializers.CharField()
    signal = serializers.CharField()
    state = serializers.CharField(help_text="found, missing or absent")
    name = serializers.CharField(allow_blank=True)
    reason = serializers.CharField(allow_blank=True)


class Coverage(ReadOnly):
    """Which signals of which deployment were found, under which metric name."""

    serializer_class = CoverageSerializer
    pagination_class = None

    def rows(self, viewer: Viewer) -> QuerySet[Any]:
        return fleet.deployments_for(viewer)

    @extend_schema(
        responses={200: CoverageSerializer(many=True)},
        parameters=[OpenApiParameter("deployment", str)],
    )
    def list(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        rows = self.rows(self.viewer)
        slug = request.query_params.get("deployment")
        if slug:
            rows = rows.filter(slug=slug)
        return Response(
            [
                {"deployment": deployment.slug, **plain(item)}
                for deployment in rows
                for item in telemetry.coverage(deployment)
            ]
        )


class ProfileSerializer(serializers.Serializer[Any]):
    name = serializers.CharField()
    signals = serializers.ListField(child=serializers.CharField())


class Profiles(ReadOnly):
    """Shipped engine profiles and the signals each can read."""

    serializer_class = ProfileSerializer
    pagination_class = None

    def rows(self, viewer: Viewer) -> QuerySet[Any]:
        return fleet.deployments_for(viewer).none()

    @extend_schema(responses={200: ProfileSerializer(many=True)})
    def list(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        return Response(
            [
                {"name": name, "signals": sorted(s.value for s in loader.load(name).signals)}
                for name in loader.names()
            ]
        )
