"""The schema and the interactive documentation, under the console's content security policy.

Both are public: they say what the API is, never what it holds. The page brings its scripts and
styles as files of ours and of the sidecar, so it works offline and needs nothing inline.
"""

from __future__ import annotations

from functools import cache
from threading import Lock
from typing import Any, Final

from django.http import HttpRequest, HttpResponse
from django.utils import translation
from django.views import View
from django.views.generic import TemplateView
from drf_spectacular.generators import SchemaGenerator
from drf_spectacular.renderers import OpenApiJsonRenderer, OpenApiYamlRenderer

_RENDERERS: Final[dict[str, Any]] = {
    "application/vnd.oai.openapi": OpenApiYamlRenderer,
    "application/json": OpenApiJsonRenderer,
}
_one_at_a_time = Lock()


class Schema(View):
    """OpenAPI 3 as YAML, or as JSON with `Accept: application/json`.

    It takes a second or two to write and cannot change while the process lives: written once.
    """

    http_method_names = ["get", "head"]

    def get(self, request: HttpRequest) -> HttpResponse:
        kind = request.get_preferred_type(list(_RENDERERS)) or next(iter(_RENDERERS))
        with _one_at_a_time:
            body = written(kind)
        answer = HttpResponse(body, content_type=f"{kind}; charset=utf-8")
        answer["Content-Disposition"] = 'inline; filename="fulcrum-openapi.yaml"'
        answer["Vary"] = "Accept"
        return answer


@cache
def written(kind: str) -> bytes:
    """The schema in English, as the committed snapshot."""
    with translation.override("en"):
        schema = SchemaGenerator().get_schema(request=None, public=True)  # type: ignore[no-untyped-call]
        body: bytes = _RENDERERS[kind]().render(schema, renderer_context={})
    return body


class Docs(TemplateView):
    template_name = "drf_spectacular/swagger_ui.html"
