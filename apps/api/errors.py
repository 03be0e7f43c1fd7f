"""Errors as RFC 9457 problem details (`application/problem+json`), each with a stable `code`.

`detail` says what was wrong and what to do. Nothing of a secret, a stack or a banner gets here.
"""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from django.core.exceptions import PermissionDenied
from django.http import Http404
from rest_framework import exceptions
from rest_framework.response import Response
from rest_framework.views import set_rollback

from apps.accounts.domain.authorize import NotAllowed
from apps.fleet.selectors import NotVisible


class Problem(Exception):
    """A typed error of the API itself."""

    def __init__(
        self, status: int, code: str, detail: str, extra: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__(detail)
        self.status, self.code, self.detail = status, code, detail
        self.extra = dict(extra or {})


def problem(
    status: int, code: str, detail: str, extra: Mapping[str, Any] | None = None
) -> Response:
    """A problem details answer."""
    body: dict[str, Any] = {
        "type": "about:blank",
        "title": HTTPStatus(status).phrase,
        "status": status,
        "code": code,
        "detail": detail,
        **dict(extra or {}),
    }
    return Response(body, status=status, content_type="application/problem+json")


def problem_handler(error: Exception, context: Mapping[str, Any]) -> Response | None:
    """DRF's exception handler: every expected error becomes a problem, the rest stays a 500."""
    answer = _translate(error)
    if answer is not None:
        set_rollback()
    return answer


def _translate(error: Exception) -> Response | None:
    if isinstance(error, Problem):
        return problem(error.status, error.code, error.detail, error.extra)
    if isinstance(error, NotVisible | Http404):
        return problem(404, "not_found", "There is no such object, or you may not see it.")
    if isinstance(error, NotAllowed | PermissionDenied):
        needed = getattr(getattr(error, "permission", None), "value", "")
        extra = {"permission": needed} if needed else {}
        return problem(403, "not_allowed", "You may not do this here.", extra)
    if isinstance(error, exceptions.ValidationError):
        return problem(
            400, "invalid", "Some fields are not right; see `errors`.", {"errors": error.detail}
        )
    if isinstance(error, exceptions.APIException):
        answer = problem(error.status_code, str(error.default_code), _words(error.detail))
        header = getattr(error, "auth_header", None)
        if header:
            answer["WWW-Authenticate"] = header
        wait = getattr(error, "wait", None)
        if wait:
            answer["Retry-After"] = str(int(wait))
        return answer
    code = getattr(error, "code", None)
    status = getattr(error, "http_status", None)
    if isinstance(code, str) and isinstance(status, int):
        params = getattr(error, "params", {}) or {}
        detail = " ".join(filter(None, [_sentence(str(error)), getattr(error, "what_to_do", "")]))
        return problem(status, code, detail, {"params": params})
    return None


def _sentence(text: str) -> str:
    text = text[:1].upper() + text[1:]
    return text if text.endswith((".", "!", "?")) else f"{text}."


def _words(detail: Any) -> str:
    return detail if isinstance(detail, str) else "; ".join(str(part) for part in detail)
