"""Errors as RFC 9457 problem details (`application/problem+json`), each with a stable `code`.

`detail` says what was wrong and what to do. Nothing of a secret, a stack or a banner gets here.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from django.core.exceptions import PermissionDenied
from django.core.signals import got_request_exception
from django.http import Http404, HttpRequest, HttpResponse, HttpResponsePermanentRedirect
from django.urls import Resolver404, resolve
from django.views.decorators.csrf import csrf_exempt
from rest_framework import exceptions
from rest_framework.views import set_rollback

from apps.accounts.domain.authorize import NotAllowed
from apps.accounts.services import InvalidToken
from apps.fleet.selectors import NotVisible
from apps.planning.services import NotOpen

from .wire import dump

CONTENT_TYPE = "application/problem+json"
logger = logging.getLogger("fulcrum.api")

NOT_FOUND = (
    "There is no such object, or you may not see it. Check the address, and which roles you hold."
)
NOT_ALLOWED = "You may not do this here. Ask an administrator for the role."

#: What to do about errors that the framework raises, by their code.
ADVICE: Mapping[str, str] = {
    "not_authenticated": "Send 'Authorization: Bearer <token>', or sign in.",
    "csrf": "Send the value of the cookie csrftoken in the header X-CSRFToken.",
    "parse_error": "Send one JSON object in UTF-8, without NaN or Infinity.",
    "unsupported_media_type": "Send 'Content-Type: application/json'.",
    "not_acceptable": "Accept application/json.",
    "method_not_allowed": "The header Allow names the methods of this address.",
}


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
) -> HttpResponse:
    """A problem details answer; JSON whatever the endpoint renders."""
    body: dict[str, Any] = {
        "type": "about:blank",
        "title": HTTPStatus(status).phrase,
        "status": status,
        "code": code,
        "detail": detail,
        **dict(extra or {}),
    }
    return HttpResponse(dump(body), status=status, content_type=CONTENT_TYPE)


def problem_handler(error: Exception, context: Mapping[str, Any]) -> HttpResponse:
    """DRF's exception handler: every expected error becomes a problem, the rest a logged 500."""
    set_rollback()
    return _translate(error) or _internal(error, context)


def _internal(error: Exception, context: Mapping[str, Any]) -> HttpResponse:
    """A defect of ours. The log holds it; the answer says only that it happened."""
    request = getattr(context.get("request"), "_request", None)
    got_request_exception.send(sender=None, request=request)
    logger.error("unexpected error in %s", context.get("view"), exc_info=error)
    return problem(
        500,
        "internal",
        "An unexpected error happened and was logged. Read the present state before you try again.",
    )


def _translate(error: Exception) -> HttpResponse | None:
    if isinstance(error, Problem):
        return problem(error.status, error.code, error.detail, error.extra)
    if isinstance(error, NotVisible | Http404):
        return problem(404, "not_found", NOT_FOUND)
    if isinstance(error, NotAllowed | PermissionDenied):
        needed = getattr(getattr(error, "permission", None), "value", "")
        extra = {"permission": needed} if needed else {}
        return problem(403, "not_allowed", NOT_ALLOWED, extra)
    if isinstance(error, NotOpen):
        detail = f"{_sentence(str(error))} Open the newest recommendation of the deployment."
        return problem(409, "not_open", detail, {"params": {"state": error.state}})
    if isinstance(error, InvalidToken):
        return problem(400, "invalid", _sentence(str(error)))
    if isinstance(error, exceptions.ValidationError):
        return problem(
            400,
            "invalid",
            "Some fields are not right; see `errors` and send the request again.",
            {"errors": error.detail},
        )
    if isinstance(error, exceptions.APIException):
        return _framework(error)
    code = getattr(error, "code", None)
    status = getattr(error, "http_status", None)
    if isinstance(code, str) and isinstance(status, int):
        params = getattr(error, "params", {}) or {}
        detail = " ".join(filter(None, [_sentence(str(error)), getattr(error, "what_to_do", "")]))
        return problem(status, code, detail, {"params": params})
    return None


def _framework(error: exceptions.APIException) -> HttpResponse:
    code = str(error.default_code)
    detail = " ".join(filter(None, [_sentence(_words(error.detail)), ADVICE.get(code, "")]))
    answer = problem(error.status_code, code, detail)
    header = getattr(error, "auth_header", None)
    if header:
        answer["WWW-Authenticate"] = header
    wait = getattr(error, "wait", None)
    if wait:
        answer["Retry-After"] = str(int(wait))
    return answer


@csrf_exempt
def unknown_address(request: HttpRequest) -> HttpResponse:
    """Everything below `/api/` that is no endpoint. A browser gets the console's page instead.

    An address without its slash leads to the one with it, for reading only: a redirected POST
    would arrive as a GET.
    """
    with_slash = f"{request.path}/"
    if not request.path.endswith("/") and _is_endpoint(with_slash):
        if request.method in ("GET", "HEAD"):
            query = request.META.get("QUERY_STRING", "")
            return HttpResponsePermanentRedirect(f"{with_slash}?{query}" if query else with_slash)
        return problem(404, "not_found", f"Addresses end in a slash: use {with_slash}.")
    if _is_browser(request):
        raise Http404
    return problem(
        404, "not_found", "There is no such address. /api/docs/ lists them; each ends in a slash."
    )


def _is_endpoint(path: str) -> bool:
    try:
        return resolve(path).func is not unknown_address
    except Resolver404:
        return False


def _is_browser(request: HttpRequest) -> bool:
    preferred = request.get_preferred_type(["application/json", "text/html"])
    return preferred == "text/html"


def _sentence(text: str) -> str:
    text = text[:1].upper() + text[1:]
    return text if text.endswith((".", "!", "?")) else f"{text}."


def _words(detail: Any) -> str:
    return detail if isinstance(detail, str) else "; ".join(str(part) for part in detail)
