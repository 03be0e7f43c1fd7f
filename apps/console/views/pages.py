"""Pages people read: fleet, deployment with its blocks, review, commands."""

from __future__ import annotations

import re
from typing import Any, Final
from uuid import uuid4

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_safe

from .. import data, timerange
from ..acts import Refused
from ..presenters import command as command_presenter
from ..presenters import deployment as deployment_presenter
from ..presenters import fleet as fleet_presenter
from ..presenters.connect import connect_button
from ..viewer import reader_of, viewer_of
from .common import conditional, error_context, private, rendered, signed_in

#: Block name -> partial. Each has its own address and can be asked for alone.
BLOCKS: Final = {
    "live": "pages/deployment/_live.html",
    "header": "pages/deployment/_header.html",
    "diagnosis": "pages/deployment/_diagnosis.html",
    "path": "pages/deployment/_path.html",
    "figures": "pages/deployment/_figures.html",
    "recommendation": "pages/deployment/_recommendation.html",
    "pools": "pages/deployment/_pools.html",
    "cost": "pages/deployment/_cost.html",
    "changes": "pages/deployment/_changes.html",
    "sources": "pages/deployment/_sources.html",
}
#: Live interval of pages without a time range, in seconds.
FLEET_INTERVAL_S: Final = 15
COMMAND_INTERVAL_S: Final = 2
_NUMBER: Final = re.compile(r"^(?P<kind>[RC])-?(?P<digits>\d{1,9})$", re.IGNORECASE)


@require_safe
def home(request: HttpRequest) -> HttpResponse:
    return redirect("fleet")


def _fleet_context(request: HttpRequest, *, is_list: bool) -> tuple[str, dict[str, Any]]:
    reader = reader_of(request)
    params = request.GET.dict()
    page = data.fleet_page(viewer_of(request), reader.now, params)
    shown = fleet_presenter.present(
        page,
        reader,
        query=params.get("q", ""),
        status=params.get("status", ""),
        cluster=params.get("cluster", ""),
    )
    name = "deployments" if is_list else "fleet"
    live = reverse(f"{name}-live")
    query = request.META.get("QUERY_STRING", "")
    return page.etag, {
        "fleet": shown,
        "connect": connect_button(viewer_of(request)),
        "is_list": is_list,
        "nav": name,
        "filters": params,
        "is_filtered": any(params.get(key) for key in ("q", "status", "cluster")),
        "live_address": f"{live}?{query}" if query else live,
        "live_interval": FLEET_INTERVAL_S,
        "as_of": shown.as_of_iso,
    }


@require_safe
@signed_in
def fleet(request: HttpRequest) -> HttpResponse:
    _etag, context = _fleet_context(request, is_list=False)
    return private(rendered(request, "pages/fleet/fleet.html", context))


@require_safe
@signed_in
def fleet_live(request: HttpRequest) -> HttpResponse:
    etag, context = _fleet_context(request, is_list=False)
    return conditional(request, etag, "pages/fleet/_live.html", context)


@require_safe
@signed_in
def deployments(request: HttpRequest) -> HttpResponse:
    _etag, context = _fleet_context(request, is_list=True)
    return private(rendered(request, "pages/fleet/fleet.html", context))


@require_safe
@signed_in
def deployments_live(request: HttpRequest) -> HttpResponse:
    etag, context = _fleet_context(request, is_list=True)
    return conditional(request, etag, "pages/fleet/_live.html", context)


@require_safe
@signed_in
def search(request: HttpRequest) -> HttpResponse:
    """Numbers lead to their page, one match to its deployment, else the filtered fleet."""
    words = request.GET.get("q", "").strip()
    number = _NUMBER.match(words)
    if number:
        name = "review" if number["kind"].upper() == "R" else "command"
        return redirect(name, number=f"{number['kind'].upper()}-{number['digits']}")
    reader = reader_of(request)
    page = data.fleet_page(viewer_of(request), reader.now, {})
    found = [row for row in page.rows if fleet_presenter.matches(row, words)]
    exact = [row for row in found if words in (row.slug, row.name)]
    if words and len(exact or found) == 1:
        return redirect("deployment", slug=(exact or found)[0].slug)
    from urllib.parse import urlencode

    return redirect(f"{reverse('fleet')}?{urlencode({'q': words})}")


def _deployment_context(request: HttpRequest, slug: str) -> tuple[str, dict[str, Any]]:
    reader = reader_of(request)
    params = request.GET.dict()
    page = data.deployment_page(viewer_of(request), slug, reader.now)
    is_fast = page.interval_s < FLEET_INTERVAL_S
    default = timerange.DEFAULT_FAST if is_fast else timerange.DEFAULT
    span = timerange.parse(params, reader, default)
    shown = deployment_presenter.present(page, reader)
    live = reverse("deployment-block", kwargs={"slug": page.slug, "block": "live"})
    query = request.META.get("QUERY_STRING", "")
    return page.etag, {
        "shown": shown,
        "page": page,
        "span": span,
        "span_choices": timerange.CHOICES,
        "span_default": default,
        "nav": "deployments",
        "live_address": f"{live}?{query}" if query else live,
        "live_interval": span.live_interval_s(page.interval_s),
        "as_of": shown.as_of_iso,
    }


@require_safe
@signed_in
def deployment(request: HttpRequest, slug: str) -> HttpResponse:
    return render_deployment(request, slug)


def render_deployment(
    request: HttpRequest, slug: str, refused: Refused | None = None
) -> HttpResponse:
    """The whole page, also after a refused act (with its status)."""
    _etag, context = _deployment_context(request, slug)
    page = context["page"]
    if page.slug != slug and request.method in ("GET", "HEAD"):
        # Old slugs lead to their deployment for ever.
        return redirect("deployment", slug=page.slug, permanent=True)
    context |= error_context(request, refused)
    return private(
        rendered(
            request,
            "pages/deployment/deployment.html",
            context,
            status=context["refused_status"],
        )
    )


@require_safe
@signed_in
def deployment_block(request: HttpRequest, slug: str, block: str) -> HttpResponse:
    template = BLOCKS.get(block)
    if template is None:
        raise Http404(block)
    etag, context = _deployment_context(request, slug)
    return conditional(request, f"{etag}|{block}", template, context)


@require_safe
@signed_in
def review(request: HttpRequest, number: str) -> HttpResponse:
    return render_review(request, number)


def render_review(
    request: HttpRequest, number: str, refused: Refused | None = None
) -> HttpResponse:
    """The review of a recommendation with checks made now, also after a refused act."""
    reader = reader_of(request)
    page = data.review_page(viewer_of(request), number, reader.now)
    shown = command_presenter.present_review(page, reader)
    context = {
        "review": shown,
        "rec": shown.recommendation,
        "page": page.deployment,
        "nav": "deployments",
        "idempotency_key": uuid4().hex,
        **error_context(request, refused),
    }
    return private(
        render(request, "pages/review/review.html", context, status=context["refused_status"])
    )


@require_safe
@signed_in
def commands(request: HttpRequest) -> HttpResponse:
    reader = reader_of(request)
    params = request.GET.dict()
    page = data.command_list(viewer_of(request), reader.now, params)
    shown = command_presenter.present_list(page, reader)
    context = {
        "list": shown,
        "nav": "commands",
        "filters": params,
    }
    return private(render(request, "pages/commands/commands.html", context))


def _command_context(request: HttpRequest, number: str) -> tuple[str, dict[str, Any]]:
    reader = reader_of(request)
    view = data.command_page(viewer_of(request), number, reader.now)
    shown = command_presenter.present(view, reader)
    return view.etag, {
        "command": shown,
        "view": view,
        "nav": "commands",
        "live_address": reverse("command-live", kwargs={"number": view.number}),
        "live_interval": COMMAND_INTERVAL_S if view.is_live else 0,
        "as_of": reader.now.isoformat(),
    }


@require_safe
@signed_in
def command(request: HttpRequest, number: str) -> HttpResponse:
    return render_command(request, number)


def render_command(
    request: HttpRequest, number: str, refused: Refused | None = None
) -> HttpResponse:
    """One command, also after a refused act (with its status)."""
    _etag, context = _command_context(request, number)
    context |= error_context(request, refused)
    return private(
        render(request, "pages/command/command.html", context, status=context["refused_status"])
    )


@require_safe
@signed_in
def command_live(request: HttpRequest, number: str) -> HttpResponse:
    etag, context = _command_context(request, number)
    return conditional(request, etag, "pages/command/_live.html", context)
