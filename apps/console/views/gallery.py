"""The living design page: only where developers look (DEBUG, or a test that asks for it)."""

from __future__ import annotations

from django.conf import settings
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from .. import gallery
from ..viewer import reader_of


@require_safe
def design(request: HttpRequest) -> HttpResponse:
    if not (settings.DEBUG or getattr(settings, "FULCRUM_GALLERY", False)):
        raise Http404("design")
    context = {"gallery": gallery.build(reader_of(request)), "nav": "design"}
    return render(request, "pages/design/design.html", context)
