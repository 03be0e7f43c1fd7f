"""Deployments with their summary, series, diagnosis and path; sources; coverage; profiles."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from django.db.models import QuerySet
from django.utils.dateparse import parse_datetime
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from apps.accounts.domain.authorize import Viewer
from apps.api import plotly_figures
from apps.api.encode import plain, serializer_of
from apps.api.errors import Problem
from apps.api.filters import check_parameters, filter_set
from apps.api.wire import JsonAnswer, PlotlyAnswer
from apps.common.clock import utcnow
from apps.engines import loader
from apps.fleet import selectors as fleet
from apps.overview import selectors as overview
from apps.overview.domain.types import DeploymentPage, DiagnosisView, PathView
from apps.overview.series import LONGEST, PANELS
from apps.telemetry import selectors as telemetry

from .base import AddressField, Constant, Derived, ReadOnly
from .fleet import DeploymentSerializer

#: Closed lists of the inventory, as `?environment=` and `?mode=` take them.
ENVIRONMENTS: Final = ("production", "staging", "demo")
MODES: Final = ("observe", "recommend", "approve", "auto")
SOURCE_KINDS: Final = ("prometheus", "scrape")
SOURCE_STATES: Final = ("new", "ok", "down")

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
    filterset_class = filter_set(
        {"environment": ENVIRONMENTS, "mode": MODES},
        slug="slug",
        cluster="cluster__slug",
        team="team__slug",
        environment="environment",
        mode="mode",
        served_model="served_model",
    )
    ordering = "slug"
    sort_fields = ("name", "created_at")
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
        return Response(plain(overview.diagnosis_of(self.viewer, slug, utcnow())))

    @extend_schema(responses={200: PathSerializer})
    @action(detail=True)
    def path(self, request: Request, slug: str = "") -> Response:
        return Response(plain(overview.path_of(self.viewer, slug, utcnow())))

    @extend_schema(
        responses={
            (200, JsonAnswer.media_type): SeriesSerializer,
            (200, PlotlyAnswer.media_type): OpenApiTypes.OBJECT,
        },
        parameters=[
            OpenApiParameter(
                "format", str, enum=["json", "plotly"], description="plotly: a figure per panel"
            ),
            OpenApiParameter("panels", str, description=f"of {', '.join(PANELS)}"),
            OpenApiParameter("from", str, description="ISO 8601 UTC, or relative such as -3h"),
            OpenApiParameter("to", str, description="ISO 8601 UTC; now when left out"),
        ],
    )
    @action(detail=True, renderer_classes=[JsonAnswer, PlotlyAnswer])
    def series(self, request: Request, slug: str = "") -> Response:
        """Columns for charts, or with `?format=plotly` plotly figures by panel."""
        check_parameters(request, ("panels", "from", "to", "format"))
        now = utcnow()
        asked = (request.query_params.get("panels") or "ttft,tpot").split(",")
        panels = tuple(dict.fromkeys(filter(None, asked)))
        unknown = sorted(set(panels) - set(PANELS))
        if unknown:
            raise Problem(
                400, "invalid", f"Unknown panels {', '.join(unknown)}; use {', '.join(PANELS)}."
            )
        end = _moment(request.query_params.get("to", ""), now, "to") or now
        start = _moment(request.query_params.get("from", "-3h"), now, "from")
        if start is None or start >= end or end - start > LONGEST:
            longest = f"Choose `from` before `to`, at most {LONGEST.days} days before it."
            raise Problem(400, "invalid", longest)
        columns = overview.deployment_series(
            self.viewer, slug, now, panels=panels, start=start, end=end
        )
        if isinstance(request.accepted_renderer, PlotlyAnswer):
            return Response(plotly_figures.figures(columns))
        return Response(columns)


_UNITS: Final = {"m": 60, "h": 3600, "d": 86_400}
_AGO: Final = re.compile(r"-([0-9]{1,6})([mhd])")
#: Nothing was measured before, and arithmetic at the ends of the calendar overflows.
_FIRST, _LAST = datetime(2000, 1, 1, tzinfo=UTC), datetime(2200, 1, 1, tzinfo=UTC)


def _moment(text: str, now: datetime, name: str) -> datetime | None:
    """A time in UTC from ISO 8601 or "-3h"; None for now. Raises Problem."""
    if not text or text == "now":
        return None
    ago = _AGO.fullmatch(text)
    if ago is not None:
        found = now - timedelta(seconds=int(ago[1]) * _UNITS[ago[2]])
    else:
        # A plus sign that nobody escaped arrives as a space.
        parsed = _parsed(text.replace(" ", "+")) or _parsed(text)
        if parsed is None or parsed.tzinfo is None or not 2000 <= parsed.year < 2200:
            raise Problem(
                400, "invalid", f"Give `{name}` as a time such as 2026-11-29T16:08Z or -3h."
            )
        found = parsed.astimezone(UTC)
    return min(max(found, _FIRST), _LAST)


def _parsed(text: str) -> datetime | None:
    try:
        return parse_datetime(text)
    except ValueError:
        return None


class SourceSerializer(serializers.Serializer[Any]):
    """Where figures come from; credentials are never shown."""

    id = serializers.UUIDField()
    name = serializers.CharField()
    cluster = serializers.CharField(source="cluster.slug")
    deployment = serializers.CharField(source="deployment.slug", default=None, allow_null=True)
    kind = serializers.CharField()
    url = AddressField(allow_blank=True)
    interval_s = serializers.FloatField()
    state = serializers.CharField()
    last_ok_at = serializers.DateTimeField(allow_null=True)
    last_error = serializers.CharField(allow_blank=True)
    last_error_at = serializers.DateTimeField(allow_null=True)


class Sources(ReadOnly):
    serializer_class = SourceSerializer
    filterset_class = filter_set(
        {"kind": SOURCE_KINDS, "state": SOURCE_STATES},
        kind="kind",
        state="state",
        deployment="deployment__slug",
        cluster="cluster__slug",
    )
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


class Coverage(Derived):
    """Which signals of which deployment were found, under which metric name.

    A page holds all lines of up to `page_size` deployments.
    """

    serializer_class = CoverageSerializer
    filterset_class = filter_set(deployment="slug")
    ordering = "slug"

    def rows(self, viewer: Viewer) -> QuerySet[Any]:
        return fleet.deployments_for(viewer)

    def lines(self, rows: Sequence[Any]) -> Sequence[Mapping[str, Any]]:
        return [
            {"deployment": deployment.slug, **plain(item)}
            for deployment in rows
            for item in telemetry.coverage(deployment)
        ]


class ProfileSerializer(serializers.Serializer[Any]):
    name = serializers.CharField()
    signals = serializers.ListField(child=serializers.CharField())


class Profiles(Constant):
    """Shipped engine profiles and the signals each can read."""

    serializer_class = ProfileSerializer

    def items(self) -> Sequence[Mapping[str, Any]]:
        return [
            {"name": name, "signals": sorted(s.value for s in loader.load(name).signals)}
            for name in loader.names()
        ]
