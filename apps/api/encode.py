"""Read models as JSON: dataclasses to serializers, so that schema and answers cannot differ.

Money and big numbers become strings, times ISO 8601 in UTC, figures `Measurement.to_json()`,
sentences stay codes with parameters (the reader's language is the console's business).
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal
from enum import Enum
from functools import cache
from typing import Any
from uuid import UUID

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from apps.common.measurement import Measurement
from apps.overview.domain.types import Text

from .v1.base import MeasurementField


def plain(value: Any) -> Any:
    """Any value of a read model as JSON-ready data. Numbers are tamed when they are written."""
    if isinstance(value, Measurement):
        return value.to_json()
    if isinstance(value, Text):
        return {"code": value.code, "params": plain(value.params)}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(item) for item in value]
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, datetime):
        return value.isoformat()
    return value


class TextSerializer(serializers.Serializer[Any]):
    """A message code and its parameters."""

    code = serializers.CharField()
    params = serializers.DictField()


@extend_schema_field(TextSerializer)
class TextField(serializers.Field[Any, Any, Any, Any]):
    def to_representation(self, value: Any) -> Any:
        return plain(value)


class PlainField(serializers.JSONField):
    """Mappings of a read model."""

    def to_representation(self, value: Any) -> Any:
        return plain(value)


@cache
def serializer_of(kind: type, name: str = "", *only: str) -> type[serializers.Serializer[Any]]:
    """A serializer class with the fields of a dataclass (or those named in `only`)."""
    hints = typing.get_type_hints(kind)
    fields: dict[str, Any] = {
        field.name: _field(hints[field.name])
        for field in dataclasses.fields(kind)
        if not only or field.name in only
    }
    doc = (kind.__doc__ or "").strip().splitlines()
    fields["__doc__"] = doc[0] if doc and not doc[0].startswith(f"{kind.__name__}(") else ""
    return type(f"{name or kind.__name__}Serializer", (serializers.Serializer,), fields)


def _field(hint: Any, **extra: Any) -> Any:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (types.UnionType, typing.Union):
        inner = [item for item in arguments if item is not type(None)]
        if len(inner) == 1:
            return _field(inner[0], allow_null=True)
        return serializers.JSONField(**extra)
    if origin is Mapping and arguments[1] in (int, str):
        return serializers.DictField(child=_field(arguments[1]), **extra)
    if origin in (tuple, list):
        inner = [item for item in arguments if item is not Ellipsis]
        if len(inner) == 1 and dataclasses.is_dataclass(inner[0]) and inner[0] is not Measurement:
            if inner[0] is Text:
                return serializers.ListField(child=TextField(), **extra)
            return serializer_of(typing.cast(type, inner[0]))(many=True, **extra)
        return serializers.ListField(child=_field(inner[0]), **extra)
    if hint is Measurement:
        return MeasurementField(**extra)
    if hint is Text:
        return TextField(**extra)
    if dataclasses.is_dataclass(hint):
        return serializer_of(typing.cast(type, hint))(**extra)
    simple: dict[Any, Any] = {
        str: serializers.CharField,
        int: serializers.IntegerField,
        float: serializers.FloatField,
        bool: serializers.BooleanField,
        datetime: serializers.DateTimeField,
        Decimal: serializers.CharField,
    }
    if hint in simple:
        return simple[hint](**extra)
    if isinstance(hint, type) and issubclass(hint, Enum):
        return serializers.CharField(**extra)
    return PlainField(**extra)
