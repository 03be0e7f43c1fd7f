"""Filters and order of lists. An unknown or misspelt parameter is refused: answering with more
than was asked for is worse than an error."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import django_filters
from rest_framework.filters import BaseFilterBackend
from rest_framework.request import Request

from .errors import Problem

SORT: Final = "sort"
_PAGES: Final = frozenset({"cursor", "page_size", SORT})


def filter_set(
    choices: Mapping[str, Iterable[str]] | None = None, **paths: str
) -> type[django_filters.FilterSet]:
    """A filter set of exact matches: parameter name -> path of the field.

    `choices` names the values of a parameter that has a closed list; another value is refused.
    """
    closed = dict(choices or {})
    fields: dict[str, Any] = {}
    for name, path in paths.items():
        if name in closed:
            values = [(value, value) for value in closed[name]]
            fields[name] = django_filters.ChoiceFilter(field_name=path, choices=values)
        else:
            fields[name] = django_filters.CharFilter(field_name=path)
    return type("Filters", (django_filters.FilterSet,), fields)


class Sorting(BaseFilterBackend):
    """`?sort=name` or `?sort=-name` over the view's `sort_fields`, with a unique last field."""

    def filter_queryset(self, request: Request, queryset: Any, view: Any) -> Any:
        return queryset  # the paginator orders, by `get_ordering`

    def get_ordering(self, request: Request, queryset: Any, view: Any) -> tuple[str, ...]:
        asked = request.query_params.get(SORT, "")
        if not asked:
            return own_order(view)
        allowed = sortable(view)
        if asked.removeprefix("-") not in allowed:
            raise Problem(400, "invalid", f"Sort by one of {', '.join(allowed)}, or -name.")
        return (asked, "pk")

    def get_schema_operation_parameters(self, view: Any) -> list[dict[str, Any]]:
        names = sortable(view)
        return [
            {
                "name": SORT,
                "in": "query",
                "required": False,
                "description": "Order; a leading minus turns it round.",
                "schema": {
                    "type": "string",
                    "enum": [f"{sign}{name}" for name in names for sign in ("", "-")],
                },
            }
        ]


def own_order(view: Any) -> tuple[str, ...]:
    """The order of a list that nobody sorts."""
    return (view.ordering,) if isinstance(view.ordering, str) else tuple(view.ordering)


def sortable(view: Any) -> tuple[str, ...]:
    """The fields a list may be sorted by: those of its own order and `sort_fields`, never null."""
    names = [name.removeprefix("-") for name in own_order(view)] + list(view.sort_fields)
    return tuple(dict.fromkeys(name for name in names if name != "pk")) or ("id",)


def list_parameters(view: Any) -> frozenset[str]:
    """The query parameters of a list."""
    declared = getattr(getattr(view, "filterset_class", None), "base_filters", {})
    return _PAGES | frozenset(declared)


def check_parameters(request: Request, allowed: Iterable[str]) -> None:
    """Raise a problem for a parameter that is not allowed here, or one given twice."""
    unknown = sorted(set(request.query_params) - set(allowed))
    if unknown:
        known = ", ".join(sorted(allowed)) or "none"
        raise Problem(
            400, "unknown_parameter", f"There is no parameter {', '.join(unknown)}; use {known}."
        )
    twice = sorted(name for name, values in request.query_params.lists() if len(values) > 1)
    if twice:
        raise Problem(400, "invalid", f"Give each parameter once, not {', '.join(twice)} twice.")
