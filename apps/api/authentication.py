"""Who calls: a bearer token, or a signed-in browser. Both become a `Viewer`."""

from __future__ import annotations

from typing import Any

from rest_framework.authentication import BaseAuthentication, SessionAuthentication
from rest_framework.exceptions import AuthenticationFailed, PermissionDenied
from rest_framework.request import Request

from apps.accounts import selectors, services
from apps.accounts.domain.authorize import Viewer
from apps.common.clock import utcnow


class BearerTokenAuthentication(BaseAuthentication):
    """`Authorization: Bearer ful_<id>.<secret>`. Never falls back to cookies."""

    keyword = "Bearer"

    def authenticate(self, request: Request) -> tuple[Any, Any] | None:
        header = request.headers.get("Authorization", "")
        if not header:
            return None
        scheme, _, text = header.partition(" ")
        text = text.strip()
        if scheme.lower() != "bearer" or not text:
            raise AuthenticationFailed("send 'Authorization: Bearer <token>'")
        # Only printable ASCII is looked up: a NUL would be an error of PostgreSQL, not an answer.
        known = text.isascii() and text.isprintable()
        token = services.verify_token(text=text, now=utcnow()) if known else None
        if token is None:
            raise AuthenticationFailed(
                "the token is unknown, expired or revoked; make a new one while signed in"
            )
        return token.user, token

    def authenticate_header(self, request: Request) -> str:
        return 'Bearer realm="fulcrum"'


class CsrfFailed(PermissionDenied):
    default_code = "csrf"


class BrowserSessionAuthentication(SessionAuthentication):
    """The console's own session, with CSRF checked on unsafe methods."""

    def enforce_csrf(self, request: Any) -> None:
        try:
            super().enforce_csrf(request)
        except PermissionDenied as error:
            raise CsrfFailed(str(error.detail)) from error


def viewer_of(request: Request) -> Viewer:
    """The viewer behind an authenticated request."""
    user: Any = request.user  # not anonymous: permissions are checked first
    token: Any = request.auth
    return selectors.viewer_for(
        user,
        token=token,
        source_ip=str(request.META.get("REMOTE_ADDR", "")),
        request_id=str(request.META.get("HTTP_X_REQUEST_ID", ""))[:64],
    )
