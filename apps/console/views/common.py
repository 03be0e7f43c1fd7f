"""What views share: signed-in people only, conditional answers, safe return addresses."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, ParamSpec
from urllib.parse import urlencode

from django.conf import settings
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseNotModified
from django.shortcuts import redirect
from django.template import Engine, RequestContext
from django.utils.http import url_has_allowed_host_and_scheme
from django.utils.translation import get_language
from django.utils.translation import gettext as _

from apps.commands.services.errors import CommandNotFound
from apps.fleet.selectors import NotVisible

from ..acts import Refused
from ..viewer import reader_of
from ..wording import say

P = ParamSpec("P")
View = Callable[..., HttpResponse]


def is_htmx(request: HttpRequest) -> bool:
    return request.headers.get("HX-Request") == "true"


def signed_in(view: View) -> View:
    """Only for signed-in people, and only what they may see.

    A page asks to sign in and comes back to the same address; a live refresh answers 204 with an
    event, so that the page stays readable and shows a banner (`design/ui.md` §7).
    """

    @wraps(view)
    def wrapped(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        if not request.user.is_authenticated:
            if is_htmx(request):
                response = HttpResponse(status=204)
                response["HX-Trigger"] = "signed-out"
                return response
            back = request.get_full_path() if request.method == "GET" else _page_of(request.path)
            return redirect(f"{settings.LOGIN_URL}?{urlencode({'next': back})}")
        try:
            return view(request, *args, **kwargs)
        except (NotVisible, CommandNotFound) as error:
            raise Http404(str(error)) from error

    return wrapped


def _page_of(path: str) -> str:
    """The page an action's address belongs to: /commands/C-1/approve/ → /commands/C-1/."""
    parts = [part for part in path.split("/") if part]
    if parts[:1] == ["kill-switch"]:
        return f"/deployments/{parts[1]}/"
    return "/" + "/".join(parts[:2]) + "/" if len(parts) > 2 else "/fleet/"


def private(response: HttpResponse) -> HttpResponse:
    """Figures of one viewer: never in a shared cache, asked again each time."""
    response["Cache-Control"] = "private, no-cache"
    return response


def rendered(
    request: HttpRequest, template: str, context: Mapping[str, Any], status: int = 200
) -> HttpResponse:
    """A page, as Django's shortcut `render` makes it, for large ones: a context of Django holds
    itself, and with it all that the page shows, until the next search for garbage."""
    made = RequestContext(request, dict(context))
    text = Engine.get_default().get_template(template).render(made)
    made.dicts.clear()
    return HttpResponse(text, status=status)


def conditional(
    request: HttpRequest, source: str, template: str, context: Mapping[str, Any]
) -> HttpResponse:
    """A live fragment with an ETag; 304 when the reader already has it.

    Words such as "2 min old" change with the clock, so the tag also moves every 15 s.
    """
    reader = reader_of(request)
    raw = "|".join(
        (
            source,
            template,
            get_language() or "",
            reader.zone.key,
            str(request.user.pk),
            request.META.get("QUERY_STRING", ""),
            str(int(reader.now.timestamp()) // 15),
        )
    )
    etag = f'"{hashlib.sha256(raw.encode()).hexdigest()[:24]}"'
    if request.headers.get("If-None-Match") == etag:
        response: HttpResponse = HttpResponseNotModified()
    else:
        response = rendered(request, template, {**context, "etag": etag})
    response["ETag"] = etag
    return private(response)


def safe_next(request: HttpRequest, fallback: str) -> str:
    """The address to return to, if it is one of ours."""
    given = request.POST.get("next", "")
    if given and url_has_allowed_host_and_scheme(
        given, allowed_hosts={request.get_host()}, require_https=request.is_secure()
    ):
        return given
    return fallback


def error_context(request: HttpRequest, refused: Refused | None) -> dict[str, Any]:
    """What a page shows of a refused act."""
    if refused is None:
        return {"refused": "", "refused_status": 200}
    return {"refused": say(refused.text, reader_of(request)), "refused_status": refused.status}


def text_field(request: HttpRequest, name: str, limit: int = 500) -> str:
    """A text field of a form, without surrounding space, cut at a limit."""
    return request.POST.get(name, "").strip()[:limit]


def whole_number(request: HttpRequest, name: str) -> int:
    """A whole-number field; a missing or wrong one is refused with 422."""
    from apps.overview.domain.types import Text

    try:
        return int(request.POST.get(name, ""))
    except ValueError as error:
        raise Refused(
            Text("error.invalid", {"error": _("The form is not complete.")}), 422
        ) from error
