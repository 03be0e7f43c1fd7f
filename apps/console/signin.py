"""Sign-in through allauth with accounts closed: people are created by an administrator."""

from __future__ import annotations

from typing import Any

from allauth.account.adapter import DefaultAccountAdapter
from django.http import HttpResponse

from . import preferences


class ClosedAccountAdapter(DefaultAccountAdapter):  # type: ignore[misc]
    """Nobody signs up by themselves; a person's language follows them to every browser."""

    def is_open_for_signup(self, request: Any) -> bool:
        return False

    def post_login(self, request: Any, user: Any, **kwargs: Any) -> HttpResponse:
        response: HttpResponse = super().post_login(request, user, **kwargs)
        language = getattr(user, "language", "")
        if language and preferences.known_language(language):
            preferences.set_language_cookie(response, language)
        return response

    def add_message(self, *args: Any, **kwargs: Any) -> None:
        """No message after signing in or out: the page itself says it."""
