"""Cursor pages: `results`, `next` and `previous`."""

from __future__ import annotations

from typing import Any

from django.core.exceptions import ValidationError
from rest_framework.exceptions import NotFound
from rest_framework.pagination import CursorPagination
from rest_framework.response import Response


class CursorPages(CursorPagination):
    """Stable pages over growing lists; the view says the order, which ends in a unique field."""

    page_size = 50
    page_size_query_param = "page_size"
    max_page_size = 200
    ordering = "pk"
    # Rows that share the first field of the order are told apart by an offset; a lower limit would
    # show the same page for ever.
    offset_cutoff = 1_000_000
    invalid_cursor_message = "the cursor is not one of ours; start again without it"

    def paginate_queryset(self, queryset: Any, request: Any, view: Any = None) -> Any:
        try:
            return super().paginate_queryset(queryset, request, view)
        except (ValidationError, ValueError, OverflowError) as error:
            # A cursor that was made up: its position is no value of the field.
            raise NotFound(self.invalid_cursor_message) from error

    def decode_cursor(self, request: Any) -> Any:
        cursor = super().decode_cursor(request)
        # PostgreSQL has no NUL in text, so no row can be at such a position.
        if cursor is not None and "\0" in str(cursor.position or ""):
            raise NotFound(self.invalid_cursor_message)
        return cursor

    def get_paginated_response(self, data: Any) -> Response:
        return Response(
            {"results": data, "next": self.get_next_link(), "previous": self.get_previous_link()}
        )

    def get_paginated_response_schema(self, schema: dict[str, Any]) -> dict[str, Any]:
        link = {"type": "string", "format": "uri", "nullable": True}
        return {
            "type": "object",
            "required": ["results", "next", "previous"],
            "properties": {"results": schema, "next": link, "previous": link},
        }
