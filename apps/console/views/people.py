"""Signing in and out, and a person's preferences."""

from __future__ import annotations

from typing import Any
from zoneinfo import available_timezones

from allauth.account.views import LoginView
from django.contrib.auth import logout
from django.http import HttpRequest, HttpResponse, HttpResponseBadRequest
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_POST, require_safe

from .. import preferences
from ..context import THEMES
from ..viewer import ZONE_COOKIE, is_zone
from .common import private, safe_next, signed_in


class SignIn(LoginView):  # type: ignore[misc]
    """allauth's login (its rate limits and checks) in our own page; accounts are closed."""

    template_name = "pages/signin/signin.html"

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        return {
            "form": kwargs.get("form") or self.get_form(),
            "next": self.request.POST.get("next") or self.request.GET.get("next", ""),
        }


sign_in = SignIn.as_view()


@require_POST
def sign_out(request: HttpRequest) -> HttpResponse:
    logout(request)
    return redirect("account_login")


@require_safe
@signed_in
def page(request: HttpRequest) -> HttpResponse:
    context = {"nav": "preferences", "zones": sorted(available_timezones())}
    return private(render(request, "pages/preferences/preferences.html", context))


def _back(request: HttpRequest) -> HttpResponse:
    return redirect(safe_next(request, reverse("fleet")))


@require_POST
def language(request: HttpRequest) -> HttpResponse:
    """Kept on the account and in the language cookie; addresses have no language part."""
    chosen = request.POST.get("language", "")
    if not preferences.known_language(chosen):
        return HttpResponseBadRequest()
    preferences.keep_on_account(request, language=chosen)
    response = _back(request)
    preferences.set_language_cookie(response, chosen)
    return response


@require_POST
def theme(request: HttpRequest) -> HttpResponse:
    """light, dark, or system (which removes the cookie)."""
    chosen = request.POST.get("theme", "")
    response = _back(request)
    if chosen in THEMES:
        preferences.set_cookie(response, "theme", chosen)
    elif chosen == "system":
        response.delete_cookie("theme")
    else:
        return HttpResponseBadRequest()
    return response


@require_POST
def time_zone(request: HttpRequest) -> HttpResponse:
    """An IANA name kept on the account; empty follows the browser again."""
    chosen = request.POST.get("time_zone", "")
    if chosen and not is_zone(chosen):
        return HttpResponseBadRequest()
    preferences.keep_on_account(request, time_zone=chosen)
    response = _back(request)
    if chosen and not request.user.is_authenticated:
        preferences.set_cookie(response, ZONE_COOKIE, chosen)
    return response


@require_POST
def keys(request: HttpRequest) -> HttpResponse:
    """Single-key shortcuts can be turned off (WCAG 2.1.4)."""
    response = _back(request)
    preferences.set_cookie(response, "keys", "off" if request.POST.get("keys") == "off" else "on")
    return response
