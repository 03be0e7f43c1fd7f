"""Fulcrum's own metrics for a Prometheus: with the configured token, or from this host."""

from __future__ import annotations

import hmac
from collections.abc import Iterable
from typing import Any

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_safe
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from apps.common.clock import utcnow
from apps.overview import own_metrics


class _Collector:
    def collect(self) -> Iterable[Metric]:
        families: dict[str, GaugeMetricFamily] = {}
        for sample in own_metrics.samples(utcnow()):
            names = [name for name, _ in sample.labels]
            family = families.setdefault(
                sample.name, GaugeMetricFamily(f"fulcrum_{sample.name}", sample.help, labels=names)
            )
            family.add_metric([value for _, value in sample.labels], sample.value)
        return families.values()


@require_safe
def metrics(request: HttpRequest) -> HttpResponse:
    """Text exposition; 403 without the token (or, when none is set, from another host)."""
    if not _may_read(request):
        return HttpResponse("forbidden\n", status=403, content_type="text/plain")
    registry = CollectorRegistry(auto_describe=False)
    collector: Any = _Collector()
    registry.register(collector)
    return HttpResponse(generate_latest(registry), content_type=CONTENT_TYPE_LATEST)


def _may_read(request: HttpRequest) -> bool:
    token = settings.FULCRUM_METRICS_TOKEN
    if not token:
        return request.META.get("REMOTE_ADDR") in ("127.0.0.1", "::1")
    given = request.headers.get("Authorization", "").removeprefix("Bearer ").strip()
    return hmac.compare_digest(given.encode(), token.encode())
