"""What every endpoint shares: the viewer, read-only viewsets over selectors, plain fields.

Serializers are allow-lists of named fields; no endpoint echoes a row it was not told about.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

from django.db.models import QuerySet
from drf_spectacular.utils import extend_schema_field
from rest_framework import mixins, serializers, viewsets

from apps.accounts.domain.authorize import Permission, Viewer
from apps.api.authentication import viewer_of
from apps.api.errors import Problem


class MeasurementSerializer(serializers.Serializer[Any]):
    """A figure: value, unit, state, time of the sample, place, method, bounds, trace."""

    value = serializers.JSONField(allow_null=True, help_text="number; money as a string")
    unit = serializers.CharField()
    state = serializers.CharField()
    observed_at = serializers.DateTimeField(allow_null=True)
    place = serializers.CharField()
    method = serializers.CharField()
    lower = serializers.JSONField(allow_null=True)
    upper = serializers.JSONField(allow_null=True)
    coverage = serializers.ListField(child=serializers.IntegerField(), allow_null=True)
    sample_count = serializers.IntegerField(allow_null=True)
    trace = serializers.DictField(child=serializers.CharField())


@extend_schema_field(MeasurementSerializer)
class MeasurementField(serializers.Field[Any, Any, Any, Any]):
    """Writes a `Measurement` with `to_json`."""

    def to_representation(self, value: Any) -> Any:
        return value if isinstance(value, dict) else value.to_json()


class ViewerMixin:
    """Gives endpoints the viewer, and denies those who may read nothing at all."""

    request: Any

    @property
    def viewer(self) -> Viewer:
        cached: Viewer | None = getattr(self, "_viewer", None)
        if cached is None:
            cached = viewer_of(self.request)
            self._viewer = cached
        return cached

    def check_permissions(self, request: Any) -> None:
        super().check_permissions(request)  # type: ignore[misc]
        needed = getattr(self, "needs", Permission.READ)
        if not self.viewer.can_anywhere(needed):
            raise Problem(
                403,
                "not_allowed",
                f"This needs the permission '{needed.value}' on some scope.",
                {"permission": needed.value},
            )


class ReadOnly(
    ViewerMixin,
    mixins.ListModelMixin,
    mixins.RetrieveModelMixin,
    viewsets.GenericViewSet[Any],
):
    """List and detail of a selector's queryset."""

    ordering: Any = "pk"
    lookup_value_regex = "[^/]+"

    def get_queryset(self) -> QuerySet[Any]:
        if getattr(self, "swagger_fake_view", False):
            return self.rows(_nobody())
        return self.rows(self.viewer)

    @abstractmethod
    def rows(self, viewer: Viewer) -> QuerySet[Any]:
        """The selector behind the endpoint."""

    def paginate_queryset(self, queryset: Any) -> Any:
        if self.paginator is not None:
            self.paginator.ordering = self.ordering
        return super().paginate_queryset(queryset)


def _nobody() -> Viewer:
    return Viewer(user_id=None, name="schema")
