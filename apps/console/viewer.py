"""The `Viewer` and the `Reader` of a request; built once, kept on the request."""

from __future__ import annotations

from uuid import uuid4
from zoneinfo import ZoneInfo, available_timezones

from django.http import HttpRequest

from apps.accounts import selectors as accounts
from apps.accounts.domain.authorize import Viewer
from apps.common.clock import utcnow

from .reader import Reader

ZONE_COOKIE = "tz"


def viewer_of(request: HttpRequest) -> Viewer:
    """The viewer a signed-in person acts as; one without any binding for the anonymous."""
    found = getattr(request, "_fulcrum_viewer", None)
    if found is None:
        if request.user.is_authenticated:
            found = accounts.viewer_for(
                request.user,
                source_ip=request.META.get("REMOTE_ADDR", ""),
                request_id=request.headers.get("X-Request-ID", "")[:64] or uuid4().hex,
            )
        else:
            found = Viewer(user_id=None, name="", is_active=False)
        request._fulcrum_viewer = found  # type: ignore[attr-defined]
    return found


def zone_of(request: HttpRequest) -> ZoneInfo:
    """The person's zone, else the browser's (a cookie set by app.js), else UTC."""
    person = getattr(request, "user", None)
    own = getattr(person, "time_zone", "") if getattr(person, "is_authenticated", False) else ""
    for name in (own, request.COOKIES.get(ZONE_COOKIE, "")):
        if name and is_zone(name):
            return ZoneInfo(name)
    return ZoneInfo("UTC")


def is_zone(name: str) -> bool:
    """True for an IANA zone name that this machine knows."""
    return name in available_timezones()


def reader_of(request: HttpRequest) -> Reader:
    """The reader of a request: their zone and one `now` for the whole page."""
    found = getattr(request, "_fulcrum_reader", None)
    if found is None:
        found = Reader(zone=zone_of(request), now=utcnow())
        request._fulcrum_reader = found  # type: ignore[attr-defined]
    return found
