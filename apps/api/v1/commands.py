"""Commands: list, detail, propose, approve, reject, cancel, roll back; kill switches."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.db.models import QuerySet
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers, status
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from apps.accounts.domain.authorize import ScopeKind, Viewer
from apps.api.encode import plain, serializer_of
from apps.api.errors import Problem
from apps.commands import selectors, services
from apps.commands.services import DryRun
from apps.common.clock import utcnow
from apps.fleet import selectors as fleet
from apps.overview import selectors as overview
from apps.overview.domain.types import CommandView
from apps.planning import selectors as planning

from .base import MeasurementField, ReadOnly

CommandSerializer = serializer_of(CommandView)


class CommandAnswer(CommandSerializer):  # type: ignore[misc, valid-type]
    """A command; a finished one shows `predicted` and `measured` maps of figures."""

    deployment = serializers.CharField()
    targets = serializers.DictField(child=serializers.IntegerField())
    before = serializers.DictField(child=serializers.IntegerField())
    predicted = serializers.DictField(child=MeasurementField())
    measured = serializers.DictField(child=MeasurementField())


class NewCommandSerializer(serializers.Serializer[Any]):
    """Either `recommendation` (id or number), or `deployment` and absolute `targets`."""

    recommendation = serializers.CharField(required=False)
    deployment = serializers.SlugField(required=False)
    targets = serializers.DictField(child=serializers.JSONField(), required=False)
    expected_revision = serializers.IntegerField(required=False, min_value=1)
    dry_run = serializers.BooleanField(required=False, default=False)
    note = serializers.CharField(required=False, allow_blank=True, max_length=2000, default="")

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        if "recommendation" not in attrs and not {"deployment", "targets"} <= attrs.keys():
            raise serializers.ValidationError(
                "Give `recommendation`, or `deployment` with `targets`."
            )
        if "recommendation" not in attrs and "expected_revision" not in attrs:
            raise serializers.ValidationError(
                {"expected_revision": "Name the revision your targets replace (or If-Match)."}
            )
        return attrs


class DecisionSerializer(serializers.Serializer[Any]):
    plan_hash = serializers.CharField(max_length=128)
    reason = serializers.CharField(required=False, allow_blank=True, max_length=2000, default="")


class ReasonSerializer(serializers.Serializer[Any]):
    reason = serializers.CharField(required=False, allow_blank=True, max_length=2000, default="")


class Commands(ReadOnly):
    """What people and the planner changed, and how it went."""

    serializer_class = CommandAnswer
    filterset_fields = ["deployment__slug", "state", "kind"]
    ordering = "-serial"
    lookup_field = "number"

    def rows(self, viewer: Viewer) -> QuerySet[Any]:
        return selectors.commands_for(viewer)

    def list(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        page = self.paginate_queryset(self.filter_queryset(self.get_queryset()))
        return self.get_paginated_response([self._answer(row, detailed=False) for row in page])

    def retrieve(self, request: Request, number: str = "", **kwargs: Any) -> Response:
        return Response(self._answer(selectors.command_by_number(self.viewer, number)))

    @extend_schema(
        request=NewCommandSerializer,
        responses={201: CommandAnswer},
        parameters=[
            OpenApiParameter("Idempotency-Key", str, OpenApiParameter.HEADER),
            OpenApiParameter("If-Match", str, OpenApiParameter.HEADER),
        ],
    )
    def create(self, request: Request) -> Response:
        body = dict(request.data) if isinstance(request.data, dict) else {}
        revision = _if_match(request)
        if revision is not None:
            body.setdefault("expected_revision", revision)
        asked = NewCommandSerializer(data=body)
        asked.is_valid(raise_exception=True)
        data = asked.validated_data
        done = services.propose(
            actor=self.viewer,
            now=utcnow(),
            deployment_id=self._deployment(data),
            targets=data.get("targets"),
            recommendation_id=self._recommendation(data),
            expected_revision=data.get("expected_revision"),
            note_text=data["note"],
            dry_run=data["dry_run"],
            idempotency_key=request.headers.get("Idempotency-Key", "")[:120],
            via="api",
        )
        if isinstance(done, DryRun):
            return Response(_dry(done))
        fresh = selectors.command_by_number(self.viewer, done.number)
        return Response(self._answer(fresh), status=status.HTTP_201_CREATED)

    @extend_schema(request=DecisionSerializer, responses={200: CommandAnswer})
    @action(detail=True, methods=["post"])
    def approve(self, request: Request, number: str = "") -> Response:
        asked = DecisionSerializer(data=request.data)
        asked.is_valid(raise_exception=True)
        command = selectors.command_by_number(self.viewer, number)
        services.approve(
            actor=self.viewer,
            now=utcnow(),
            command_id=command.pk,
            plan_hash=asked.validated_data["plan_hash"],
            reason=asked.validated_data["reason"],
        )
        return self._fresh(number)

    @extend_schema(request=ReasonSerializer, responses={200: CommandAnswer})
    @action(detail=True, methods=["post"])
    def reject(self, request: Request, number: str = "") -> Response:
        command = selectors.command_by_number(self.viewer, number)
        services.reject(
            actor=self.viewer, now=utcnow(), command_id=command.pk, reason=_reason(request)
        )
        return self._fresh(number)

    @extend_schema(request=ReasonSerializer, responses={200: CommandAnswer})
    @action(detail=True, methods=["post"])
    def cancel(self, request: Request, number: str = "") -> Response:
        command = selectors.command_by_number(self.viewer, number)
        services.cancel(
            actor=self.viewer, now=utcnow(), command_id=command.pk, reason=_reason(request)
        )
        return self._fresh(number)

    @extend_schema(request=ReasonSerializer, responses={201: CommandAnswer})
    @action(detail=True, methods=["post"])
    def rollback(self, request: Request, number: str = "") -> Response:
        """A new command that leads back; its own page shows its steps."""
        command = selectors.command_by_number(self.viewer, number)
        made = services.rollback(
            actor=self.viewer, now=utcnow(), command_id=command.pk, reason=_reason(request)
        )
        fresh = selectors.command_by_number(self.viewer, made.number)
        return Response(self._answer(fresh), status=status.HTTP_201_CREATED)

    def _fresh(self, number: str) -> Response:
        return Response(self._answer(selectors.command_by_number(self.viewer, number)))

    def _answer(self, command: Any, *, detailed: bool = True) -> dict[str, Any]:
        view = overview.command_view(self.viewer, command, utcnow(), detailed=detailed)
        answer: dict[str, Any] = plain(view)
        answer |= {
            "deployment": view.deployment_slug,
            "targets": command.targets,
            "before": command.before,
            "predicted": {key: _after(value) for key, value in command.predicted.items()},
            "measured": dict(command.measured),
        }
        return answer

    def _deployment(self, data: dict[str, Any]) -> UUID | None:
        if "deployment" not in data:
            return None
        return fleet.deployment_by_slug(self.viewer, data["deployment"]).pk

    def _recommendation(self, data: dict[str, Any]) -> UUID | None:
        if "recommendation" not in data:
            return None
        found: UUID = planning.recommendation_by_number(self.viewer, data["recommendation"]).pk
        return found


class KillSwitchSerializer(serializers.Serializer[Any]):
    scope_kind = serializers.CharField()
    scope_id = serializers.UUIDField(allow_null=True)
    on = serializers.BooleanField()
    by = serializers.CharField(source="by_name")
    at = serializers.DateTimeField()
    reason = serializers.CharField(allow_blank=True)


class SetKillSwitchSerializer(serializers.Serializer[Any]):
    deployment = serializers.SlugField(required=False)
    cluster = serializers.SlugField(required=False)
    on = serializers.BooleanField()
    reason = serializers.CharField(required=False, allow_blank=True, max_length=2000, default="")


class KillSwitches(ReadOnly):
    """Switches that stop every command in a scope; without a scope, in the installation."""

    serializer_class = KillSwitchSerializer
    ordering = ("scope_kind", "pk")

    def rows(self, viewer: Viewer) -> QuerySet[Any]:
        scope_ids = [*fleet.deployments_for(viewer).values_list("pk", flat=True)]
        scope_ids += [*fleet.clusters_for(viewer).values_list("pk", flat=True)]
        switches = selectors.kill_switches()
        return switches.filter(scope_id__in=scope_ids) | switches.filter(scope_id__isnull=True)

    @extend_schema(request=SetKillSwitchSerializer, responses={200: KillSwitchSerializer})
    def create(self, request: Request) -> Response:
        asked = SetKillSwitchSerializer(data=request.data)
        asked.is_valid(raise_exception=True)
        data = asked.validated_data
        kind, scope_id = ScopeKind.INSTALLATION, None
        if "deployment" in data:
            kind = ScopeKind.DEPLOYMENT
            scope_id = fleet.deployment_by_slug(self.viewer, data["deployment"]).pk
        elif "cluster" in data:
            kind = ScopeKind.CLUSTER
            cluster = fleet.clusters_for(self.viewer).filter(slug=data["cluster"]).first()
            if cluster is None:
                raise fleet.NotVisible(data["cluster"])
            scope_id = cluster.pk
        row = services.set_kill_switch(
            actor=self.viewer,
            now=utcnow(),
            scope_kind=kind,
            scope_id=scope_id,
            on=data["on"],
            reason=data["reason"],
        )
        return Response(KillSwitchSerializer(row).data)


def _dry(done: DryRun) -> dict[str, Any]:
    error = done.error
    answer = {
        name: plain(getattr(done, name))
        for name in (
            "kind", "targets", "before", "expected_revision", "steps", "rollback_steps",
            "rollback_refused", "plan_hash", "lowest", "extra_gpus", "checks", "predicted",
        )
    }  # fmt: skip
    answer["dry_run"] = True
    answer["refused"] = (
        None
        if error is None
        else {"code": error.code, "detail": str(error), "params": error.params}
    )
    return answer


def _after(stored: Any) -> Any:
    return stored.get("after", stored) if isinstance(stored, dict) else stored


def _reason(request: Request) -> str:
    asked = ReasonSerializer(data=request.data)
    asked.is_valid(raise_exception=True)
    return str(asked.validated_data["reason"])


def _if_match(request: Request) -> int | None:
    text = request.headers.get("If-Match", "").strip().strip('"')
    if not text:
        return None
    if not text.isdigit():
        raise Problem(400, "invalid", "If-Match holds the revision number, for example 41.")
    return int(text)
