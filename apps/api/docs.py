"""The schema and the interactive documentation, under the console's content security policy.

Both are public: they say what the API is, never what it holds. The page brings its scripts and
styles as files of ours and of the sidecar, so it works offline and needs nothing inline.
"""

from __future__ import annotations

from django.views.generic import TemplateView
from drf_spectacular.views import SpectacularAPIView


class Schema(SpectacularAPIView):
    """OpenAPI 3 as YAML, or as JSON with `Accept: application/json`."""

    # A wrong token must not hide the description of how to send a right one.
    authentication_classes = []
    permission_classes = []


class Docs(TemplateView):
    template_name = "drf_spectacular/swagger_ui.html"
