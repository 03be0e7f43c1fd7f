"""The frame of every page: navigation with counts, language, zone, theme, live interval.

Values are computed when a template asks for them, so that a partial costs no query for the rail.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from django.conf import settings
from django.http import HttpRequest
from django.urls import is_valid_path, reverse
from django.utils.translation import get_language
from django.utils.translation import gettext as _

from apps.overview import labels

from . import data
from .viewer import reader_of, viewer_of
from .wording import say

THEMES = ("light", "dark")
API_DOCS = "/api/docs/"


@dataclass(frozen=True, slots=True)
class NavItem:
    key: str
    address: str
    icon: str
    label: str
    count: int | None = None


class Frame:
    """What base.html needs besides the page's own context."""

    def __init__(self, request: HttpRequest) -> None:
        self.request = request

    @cached_property
    def is_signed_in(self) -> bool:
        user = getattr(self.request, "user", None)
        return bool(user is not None and user.is_authenticated)

    @cached_property
    def user_name(self) -> str:
        return self.request.user.get_username() if self.is_signed_in else ""

    @cached_property
    def counts(self) -> Mapping[str, int]:
        if not self.is_signed_in:
            return {}
        return data.nav_counts(viewer_of(self.request), reader_of(self.request).now)

    @cached_property
    def operate(self) -> tuple[NavItem, ...]:
        return (
            NavItem("fleet", reverse("fleet"), "fleet", _("Fleet")),
            NavItem(
                "deployments",
                reverse("deployments"),
                "deployments",
                _("Deployments"),
                self.counts.get("deployments"),
            ),
            NavItem(
                "commands",
                reverse("commands"),
                "commands",
                _("Commands"),
                self.counts.get("commands") or None,
            ),
        )

    @cached_property
    def manage(self) -> tuple[NavItem, ...]:
        items = [NavItem("preferences", reverse("preferences"), "preferences", _("Preferences"))]
        if is_valid_path(API_DOCS):
            # Only pages that exist are linked.
            items.insert(0, NavItem("api", API_DOCS, "api", _("API")))
        return tuple(items)

    @cached_property
    def language(self) -> str:
        return get_language() or settings.LANGUAGE_CODE

    @cached_property
    def html_lang(self) -> str:
        return "zh-Hans" if self.language == "zh-hans" else self.language

    @cached_property
    def languages(self) -> tuple[tuple[str, str, str], ...]:
        """Code, own name, short sign. A language is always written in itself."""
        return (("en", "English", "EN"), ("zh-hans", "简体中文", "中文"))

    @cached_property
    def language_sign(self) -> str:
        return next((sign for code, _name, sign in self.languages if code == self.language), "EN")

    @cached_property
    def theme(self) -> str:
        """light or dark when chosen; empty follows the system (set before paint by theme.js)."""
        chosen = self.request.COOKIES.get("theme", "")
        return chosen if chosen in THEMES else ""

    @cached_property
    def keys_on(self) -> bool:
        return self.request.COOKIES.get("keys", "on") != "off"

    @cached_property
    def role_line(self) -> str:
        """What the person may do."""
        if not self.is_signed_in:
            return ""
        return say(labels.role_line(viewer_of(self.request)), reader_of(self.request))

    @cached_property
    def zone(self) -> str:
        return reader_of(self.request).zone.key

    @cached_property
    def zone_name(self) -> str:
        return reader_of(self.request).zone_name()

    @cached_property
    def zone_is_own(self) -> bool:
        return bool(getattr(getattr(self.request, "user", None), "time_zone", ""))

    @property
    def now_iso(self) -> str:
        """The server's time, so that ages do not depend on the browser's clock."""
        return reader_of(self.request).now.isoformat()

    @cached_property
    def here(self) -> str:
        return self.request.get_full_path()


def frame(request: HttpRequest) -> dict[str, Any]:
    """Context processor."""
    return {"frame": Frame(request)}
