"""Cursor pages: `results` and `next`."""

from __future__ import annotations

from typing import Any

from rest_framework.pagination import CursorPagination
from rest_framework.response import Response


class CursorPages(CursorPagination):
    """Stable pages over growing lists; `ordering` comes from the view."""

    page_size = 50
    page_size_query_param = "page_size"
    max_page_size = 200
    ordering = "pk"

    def get_paginated_response(self, data: Any) -> Response:
        return Response(
            {"results": data, "next": self.get_next_link(), "previous": self.get_previous_link()}
        )
