"""A person's language and time zone: kept on the account, and as cookies for the next request."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.http import HttpRequest, HttpResponse

YEAR_S = 365 * 24 * 3600


def keep_on_account(request: HttpRequest, **values: str) -> None:
    """Store preferences of a signed-in person; the anonymous keep theirs in the cookie only."""
    person: Any = request.user
    if person.is_authenticated:
        for name, value in values.items():
            setattr(person, name, value)
        person.save(update_fields=list(values))


def set_cookie(response: HttpResponse, name: str, value: str) -> None:
    """A preference cookie: readable by our scripts, sent to us only."""
    response.set_cookie(
        name,
        value,
        max_age=YEAR_S,
        samesite="Lax",
        secure=bool(getattr(settings, "SESSION_COOKIE_SECURE", False)),
    )


def set_language_cookie(response: HttpResponse, language: str) -> None:
    set_cookie(response, settings.LANGUAGE_COOKIE_NAME, language)


def known_language(code: str) -> bool:
    return code in dict(settings.LANGUAGES)
