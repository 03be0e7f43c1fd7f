"""Addresses. Every one ends in a slash, except the three for machines."""

from __future__ import annotations

from django.urls import include, path

urlpatterns = [
    path("api/", include("apps.api.urls")),
    path("", include("apps.console.urls")),
]
