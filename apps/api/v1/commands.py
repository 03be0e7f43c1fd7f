"""Commands: list, detail, propose, approve, reject, cancel, roll back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final
from uuid import UUID

from django.db.models import QuerySet
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework import serializers, status
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from apps.accounts.domain.authorize import Viewer
from apps.api.encode import plain, serializer_of
from apps.api.errors import Problem
from apps.api.filters import filter_set
from apps.commands import selectors, services
from apps.commands.domain.states import CommandState, Kind
from apps.commands.services import DryRun
from apps.commands.services.errors import BadTarget
from apps.common.clock import utcnow
from apps.fleet import selectors as fleet
from apps.overview import commands as overview
from apps.overview.domain.types import CommandView

from .base import MeasurementField, ReadOnly, ReasonSerializer, body
from .planning import recommendation_named

#: Far above any fleet; a larger target is a slip of the keyboard.
MOST_WORKERS: Final = 10_000
LONGEST_ROLE: Final = 32
LONGEST_KEY: Final = 120
KEY_HEADER = OpenApiParameter(
    "Idempotency-Key",
    str,
    OpenApiParameter.HEADER,
    description="The same key gives the same command, never a second one; up to 120 characters.",
)
MATCH_HEADER = OpenApiParameter(
    "If-Match",
    str,
    OpenApiParameter.HEADER,
    description="The revision that the targets replace, in place of `expected_revision`.",
)

CommandSerializer = serializer_of(CommandView)


class CommandAnswer(CommandSerializer):  # type: ignore[misc, valid-type]
    """A command; a finished one shows `predicted` and `measured` maps of figures.

    Lists leave out steps, log and diff; `plan_hash` is what an approval names.
    """

    deployment = serializers.CharField()
    targets = serializers.DictField(child=serializers.IntegerField())
    before = serializers.DictField(child=serializers.IntegerField())
    predicted = serializers.DictField(child=MeasurementField())
    measured = serializers.DictField(child=MeasurementField())


class TargetsField(serializers.DictField):
    """Role to an absolute, whole number of workers; "3", 3.0 and true are no such numbers."""

    child = serializers.IntegerField(min_value=0, max_value=MOST_WORKERS)

    def to_internal_value(self, data: Any) -> dict[str, int]:
        if not isinstance(data, dict) or not data:
            raise serializers.ValidationError("Map each role to a number of workers.")
        for role, target in data.items():
            if len(role) > LONGEST_ROLE or not role.isascii() or not role.isprintable():
                raise serializers.ValidationError("A role is a short plain name.")
            whole = isinstance(target, int) and not isinstance(target, bool)
            if not whole or not 0 <= target <= MOST_WORKERS:
                raise BadTarget(role=role, target=str(target)[:40])
        return dict(data)


class NewCommandSerializer(serializers.Serializer[Any]):
    """Either `recommendation` (id or number), or `deployment` and absolute `targets`."""

    recommendation = serializers.CharField(required=False, max_length=64)
    deployment = serializers.SlugField(required=False, max_length=63)
    targets = TargetsField(required=False)
    expected_revision = serializers.IntegerField(
        required=False, min_value=1, max_value=2**31 - 1, help_text="needed with `targets`"
    )
    dry_run = serializers.BooleanField(
        required=False, default=False, help_text="plan and check, write nothing"
    )
    note = serializers.CharField(required=False, allow_blank=True, max_length=2000, default="")

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        by_hand = attrs.keys() & {"deployment", "targets"}
        if "recommendation" in attrs and by_hand:
            raise serializers.ValidationError(
                "Give either `recommendation`, or `deployment` with `targets`, not both."
            )
        if "recommendation" not in attrs and len(by_hand) < 2:
            raise serializers.ValidationError(
                "Give `recommendation`, or `deployment` with `targets`."
            )
        if by_hand and "expected_revision" not in attrs:
            raise serializers.ValidationError(
                {"expected_revision": "Name the revision your targets replace (or If-Match)."}
            )
        return attrs


class DecisionSerializer(ReasonSerializer):
    """The plan that was read, and why."""

    plan_hash = serializers.CharField(max_length=128)


class RefusalSerializer(serializers.Serializer[Any]):
    """The first reason why the command would be refused now."""

    code = serializers.CharField()
    detail = serializers.CharField()
    what_to_do = serializers.CharField()
    params = serializers.DictField()


class DryRunSerializer(serializers.Serializer[Any]):
    """What a command would do. Nothing was written."""

    dry_run = serializers.BooleanField()
    kind = serializers.ChoiceField(choices=[kind.value for kind in Kind])
    targets = serializers.DictField(child=serializers.IntegerField())
    before = serializers.DictField(child=serializers.IntegerField())
    expected_revision = serializers.IntegerField()
    steps = serializers.ListField(child=serializers.DictField())
    rollback_steps = serializers.ListField(child=serializers.DictField())
    rollback_refused = serializers.CharField(allow_blank=True)
    plan_hash = serializers.CharField(allow_blank=True)
    lowest = serializers.DictField(
        child=serializers.IntegerField(), help_text="fewest serving workers per role on the way"
    )
    extra_gpus = serializers.CharField()
    checks = serializers.ListField(child=serializers.DictField())
    predicted = serializers.DictField(child=MeasurementField())
    refused = RefusalSerializer(allow_null=True)


class Commands(ReadOnly):
    """What people and the planner changed, and how it went; found by number ("C-7") or id."""

    serializer_class = CommandAnswer
    filterset_class = filter_set(
        {"state": [state.value for state in CommandState], "kind": [kind.value for kind in Kind]},
        deployment="deployment__slug",
        state="state",
        kind="kind",
        recommendation="recommendation_number",
    )
    ordering = "-serial"
    sort_fields = ("requested_at",)
    lookup_field = "number"

    def rows(self, viewer: Viewer) -> QuerySet[Any]:
        return selectors.commands_for(viewer)

    def list(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        rows = self.paginate_queryset(self.filter_queryset(self.get_queryset())) or []
        views = overview.views(self.viewer, rows, utcnow())
        return self.get_paginated_response(
            [_answer(row, view) for row, view in zip(rows, views, strict=True)]
        )

    def retrieve(self, request: Request, number: str = "", **kwargs: Any) -> Response:
        return self._fresh(number)

    @extend_schema(
        request=NewCommandSerializer,
        responses={
            201: CommandAnswer,
            200: OpenApiResponse(DryRunSerializer, "With `dry_run`: the plan and the checks."),
        },
        parameters=[KEY_HEADER, MATCH_HEADER],
    )
    def create(self, request: Request) -> Response:
        """Propose absolute targets or apply a recommendation; approval is a step of its own."""
        data = body(NewCommandSerializer, request, _with_revision(request))
        done = services.propose(
            actor=self.viewer,
            now=utcnow(),
            deployment_id=self._deployment(data),
            targets=data.get("targets"),
            recommendation_id=self._recommendation(data),
            expected_revision=data.get("expected_revision"),
            note_text=data["note"],
            dry_run=data["dry_run"],
            idempotency_key=_key(request),
            via="api",
        )
        if isinstance(done, DryRun):
            return Response(_dry(done))
        return self._fresh(done.number, status.HTTP_201_CREATED)

    @extend_schema(request=DecisionSerializer, responses={200: CommandAnswer})
    @action(detail=True, methods=["post"])
    def approve(self, request: Request, number: str = "") -> Response:
        """Approve exactly the plan with this hash; tokens and proposers may not in production."""
        command = selectors.command_by_number(self.viewer, number)
        services.approve(
            actor=self.viewer,
            now=utcnow(),
            command_id=command.pk,
            via="api",
            **body(DecisionSerializer, request),
        )
        return self._fresh(number)

    @extend_schema(request=ReasonSerializer, responses={200: CommandAnswer})
    @action(detail=True, methods=["post"])
    def reject(self, request: Request, number: str = "") -> Response:
        """Refuse a proposal."""
        command = selectors.command_by_number(self.viewer, number)
        services.reject(
            actor=self.viewer,
            now=utcnow(),
            command_id=command.pk,
            reason=body(ReasonSerializer, request)["reason"],
            via="api",
        )
        return self._fresh(number)

    @extend_schema(request=ReasonSerializer, responses={200: CommandAnswer})
    @action(detail=True, methods=["post"])
    def cancel(self, request: Request, number: str = "") -> Response:
        """Stop a command: at once before it runs, between two steps while it runs."""
        command = selectors.command_by_number(self.viewer, number)
        services.cancel(
            actor=self.viewer,
            now=utcnow(),
            command_id=command.pk,
            reason=body(ReasonSerializer, request)["reason"],
        )
        return self._fresh(number)

    @extend_schema(
        request=ReasonSerializer, responses={201: CommandAnswer}, parameters=[KEY_HEADER]
    )
    @action(detail=True, methods=["post"])
    def rollback(self, request: Request, number: str = "") -> Response:
        """A command that leads back: a new one, the one under way, or the running one itself."""
        command = selectors.command_by_number(self.viewer, number)
        made = services.rollback(
            actor=self.viewer,
            now=utcnow(),
            command_id=command.pk,
            reason=body(ReasonSerializer, request)["reason"],
            idempotency_key=_key(request),
        )
        return self._fresh(made.number, status.HTTP_201_CREATED)

    def _fresh(self, number: str, code: int = status.HTTP_200_OK) -> Response:
        command = selectors.command_by_number(self.viewer, number)
        view = overview.view(self.viewer, command, utcnow())
        return Response(_answer(command, view), status=code)

    def _deployment(self, data: Mapping[str, Any]) -> UUID | None:
        if "deployment" not in data:
            return None
        return fleet.deployment_by_slug(self.viewer, data["deployment"]).pk

    def _recommendation(self, data: Mapping[str, Any]) -> UUID | None:
        if "recommendation" not in data:
            return None
        found: UUID = recommendation_named(self.viewer, data["recommendation"]).pk
        return found


def _answer(command: Any, view: CommandView) -> dict[str, Any]:
    answer: dict[str, Any] = plain(view)
    return answer | {
        "deployment": view.deployment_slug,
        "targets": command.targets,
        "before": command.before,
        "predicted": {key: _after(value) for key, value in command.predicted.items()},
        "measured": dict(command.measured),
    }


def _dry(done: DryRun) -> dict[str, Any]:
    error = done.error
    answer = {
        name: plain(getattr(done, name))
        for name in (
            "kind", "targets", "before", "expected_revision", "steps", "rollback_steps",
            "rollback_refused", "plan_hash", "lowest", "extra_gpus", "checks",
        )
    }  # fmt: skip
    answer["predicted"] = {key: _after(value) for key, value in done.predicted.items()}
    answer["dry_run"] = True
    answer["refused"] = None
    if error is not None:
        answer["refused"] = {
            "code": error.code,
            "detail": str(error),
            "what_to_do": error.what_to_do,
            "params": plain(error.params),
        }
    return answer


def _after(stored: Any) -> Any:
    return stored.get("after", stored) if isinstance(stored, dict) else stored


def _with_revision(request: Request) -> Any:
    """The body, with the revision of If-Match; two that differ are refused."""
    revision = _if_match(request)
    if revision is None or not isinstance(request.data, dict):
        return request.data
    body = dict(request.data)
    if body.setdefault("expected_revision", revision) != revision:
        raise Problem(400, "invalid", "If-Match and `expected_revision` differ; send one of them.")
    return body


def _if_match(request: Request) -> int | None:
    text = request.headers.get("If-Match", "").strip().removeprefix("W/").strip('"')
    if not text:
        return None
    if not (text.isascii() and text.isdecimal() and len(text) < 10):
        raise Problem(400, "invalid", "If-Match holds the revision number, for example 41.")
    return int(text)


def _key(request: Request) -> str:
    """The idempotency key; a longer one is refused, since two could share their beginning."""
    key = request.headers.get("Idempotency-Key", "").strip()
    if len(key) > LONGEST_KEY or not key.isascii() or not (key == "" or key.isprintable()):
        raise Problem(
            400, "invalid", f"Idempotency-Key holds up to {LONGEST_KEY} printable ASCII characters."
        )
    return key
