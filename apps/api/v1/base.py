"""What every endpoint shares: the viewer, read-only viewsets over selectors, plain fields.

Serializers are allow-lists of named fields; no endpoint echoes a row it was not told about.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from django.db.models import QuerySet
from django_filters.rest_framework import DjangoFilterBackend
from drf_spectacular.utils import extend_schema_field
from rest_framework import mixins, serializers, viewsets
from rest_framework.request import Request
from rest_framework.response import Response

from apps.accounts.domain.authorize import Permission, Viewer
from apps.api.authentication import viewer_of
from apps.api.errors import Problem
from apps.api.filters import Sorting, check_parameters, list_parameters
from apps.api.schema import ApiSchema
from apps.api.wire import JsonAnswer, JsonBody
from apps.common.measurement import Place, State
from apps.common.units import Unit


@extend_schema_field({"oneOf": [{"type": "number"}, {"type": "string"}], "nullable": True})
class NumberField(serializers.JSONField):
    """A number, money as an exact decimal string, or null."""


class MeasurementSerializer(serializers.Serializer[Any]):
    """A figure: value, unit, state, time of the sample, place, method, bounds, trace."""

    value = NumberField(help_text="number; money as a string; null when unknown, never 0 or NaN")
    unit = serializers.ChoiceField(choices=[unit.value for unit in Unit])
    state = serializers.ChoiceField(choices=[state.value for state in State])
    observed_at = serializers.DateTimeField(allow_null=True)
    place = serializers.ChoiceField(choices=[place.value for place in Place])
    method = serializers.CharField()
    lower = NumberField()
    upper = NumberField()
    coverage = serializers.ListField(child=serializers.IntegerField(), allow_null=True)
    sample_count = serializers.IntegerField(allow_null=True)
    trace = serializers.DictField(child=serializers.CharField())


@extend_schema_field(MeasurementSerializer)
class MeasurementField(serializers.Field[Any, Any, Any, Any]):
    """Writes a `Measurement` with `to_json`."""

    def to_representation(self, value: Any) -> Any:
        return value if isinstance(value, dict) else value.to_json()


class ReasonSerializer(serializers.Serializer[Any]):
    """Why, for the log and the audit."""

    reason = serializers.CharField(required=False, allow_blank=True, max_length=2000, default="")


def body(kind: type[serializers.Serializer[Any]], request: Request, data: Any = None) -> Any:
    """The fields of a request's body (or of `data` in its place); a wrong one is a problem."""
    asked = kind(data=request.data if data is None else data)
    asked.is_valid(raise_exception=True)
    return asked.validated_data


class AddressField(serializers.CharField):
    """An address without the password that somebody may have written into it (DESIGN law 14)."""

    def to_representation(self, value: Any) -> str:
        return re.sub(r"//[^/?#@]*@", "//", str(value))


class Listing(mixins.ListModelMixin, viewsets.GenericViewSet[Any]):
    """A list over a selector's queryset, in cursor pages, for viewers who may read something."""

    schema = ApiSchema()
    renderer_classes = [JsonAnswer]
    parser_classes = [JsonBody]
    filter_backends = [DjangoFilterBackend, Sorting]
    http_method_names = ["get", "head", "post", "delete"]
    #: What the caller must hold on some scope; what a service needs is checked there again.
    needs: ClassVar[Permission] = Permission.READ
    ordering: Any = "pk"
    #: Further fields to sort by, never null.
    sort_fields: ClassVar[Sequence[str]] = ()

    @abstractmethod
    def rows(self, viewer: Viewer) -> QuerySet[Any]:
        """The selector behind the endpoint."""

    @property
    def viewer(self) -> Viewer:
        cached: Viewer | None = getattr(self, "_viewer", None)
        if cached is None:
            cached = viewer_of(self.request)
            self._viewer = cached
        return cached

    def check_permissions(self, request: Request) -> None:
        super().check_permissions(request)
        if not self.viewer.can_anywhere(self.needs):
            raise Problem(
                403,
                "not_allowed",
                f"This needs the permission '{self.needs.value}' on some scope. "
                "Ask an administrator for a role, or use a token that has the permission.",
                {"permission": self.needs.value},
            )

    def get_queryset(self) -> QuerySet[Any]:
        if getattr(self, "swagger_fake_view", False):
            return self.rows(Viewer(user_id=None, name="schema"))
        return self.rows(self.viewer)

    def filter_queryset(self, queryset: QuerySet[Any]) -> QuerySet[Any]:
        if not self.detail:
            check_parameters(self.request, list_parameters(self))
            return super().filter_queryset(queryset)
        return queryset

    def finalize_response(
        self, request: Request, response: Response, *args: Any, **kwargs: Any
    ) -> Response:
        """What one viewer sees, or a token shown once, is kept by no cache."""
        answer = super().finalize_response(request, response, *args, **kwargs)
        answer.headers["Cache-Control"] = "private, no-store"
        return answer


class ReadOnly(mixins.RetrieveModelMixin, Listing):
    """List and detail of a selector's queryset."""

    lookup_value_regex = "[^/\x00]+"


class Derived(Listing):
    """A list whose lines are made from the rows of a page."""

    @abstractmethod
    def lines(self, rows: Sequence[Any]) -> Sequence[Mapping[str, Any]]:
        """The lines of these rows, in their order."""

    def list(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        page = self.paginate_queryset(self.filter_queryset(self.get_queryset()))
        assert page is not None  # every list has pages
        return self.get_paginated_response(self.lines(page))


class Constant(Listing):
    """A short list that the code itself holds: one page, no parameters."""

    filter_backends = []

    def rows(self, viewer: Viewer) -> QuerySet[Any]:
        raise AssertionError("there are no rows")

    def get_queryset(self) -> Any:
        return None

    @abstractmethod
    def items(self) -> Sequence[Mapping[str, Any]]:
        """The lines."""

    def list(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        check_parameters(request, ())
        return Response({"results": self.items(), "next": None, "previous": None})
