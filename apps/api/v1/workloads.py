"""Workload profiles: what users ask for, by span."""

from __future__ import annotations

from typing import Any, Final

from django.db.models import QuerySet
from rest_framework import serializers

from apps.accounts.domain.authorize import Viewer
from apps.api.filters import filter_set
from apps.engines import histogram
from apps.planning import workloads
from apps.planning.domain.workload import Lengths
from apps.planning.workloads import Workload

from .base import NumberField, ReadOnly

#: Why a span began.
REASONS: Final = ("first", "model", "checkpoint", "split", "zone", "drift")
METHODS: Final = ("histogram", "mean_only")


class LengthSerializer(serializers.Serializer[Any]):
    """Token lengths of requests.

    `histogram`: `counts` are not cumulative and one more than `bounds` (the last is +Inf); a
    percentile is null where it lies above the last bound. `mean_only`: only the mean is known.
    """

    method = serializers.ChoiceField(choices=METHODS)
    requests = NumberField()
    mean = NumberField()
    p50 = NumberField()
    p95 = NumberField()
    bounds = serializers.ListField(child=serializers.FloatField())
    counts = serializers.ListField(child=serializers.FloatField())


class HourSerializer(serializers.Serializer[Any]):
    """One hour of the week in the profile's zone (0 = Monday 00:00 to 01:00)."""

    hour = serializers.IntegerField(min_value=0, max_value=167)
    seconds = NumberField(help_text="seconds of this hour that were seen, over all weeks")
    arrivals_per_s = NumberField()
    concurrency = NumberField(help_text="mean requests in flight; null where not known")


class WorkloadSerializer(serializers.Serializer[Any]):
    """A span `[span_from, span_to)` of one deployment; `span_to` null: it still grows.

    `concurrency_method`: `little` (time spent by requests that ended), `running` (a lower bound
    that leaves out those that wait) or empty. `model_share` is the share of requests per second
    that this model has among the visible deployments now.
    """

    id = serializers.UUIDField()
    deployment = serializers.CharField()
    span_from = serializers.DateTimeField()
    span_to = serializers.DateTimeField(allow_null=True)
    reason = serializers.ChoiceField(choices=REASONS)
    built_to = serializers.DateTimeField()
    zone = serializers.CharField()
    served_model = serializers.CharField()
    checkpoint = serializers.CharField(allow_blank=True)
    split = serializers.CharField(allow_blank=True)
    requests = NumberField()
    lengths = serializers.DictField(child=LengthSerializer())
    cached_share = NumberField()
    concurrency_method = serializers.CharField(allow_blank=True)
    hours = HourSerializer(many=True)
    model_share = NumberField()

    def to_representation(self, instance: Any) -> dict[str, Any]:
        found = workloads.workload_of(instance)
        shares = self.context.get("model_shares", {}) if found.span_to is None else {}
        return {
            "id": str(instance.pk),
            "deployment": instance.deployment.slug,
            **_facts(found),
            "model_share": shares.get(found.served_model),
        }


def _facts(found: Workload) -> dict[str, Any]:
    return {
        "span_from": found.span_from.isoformat(),
        "span_to": found.span_to.isoformat() if found.span_to else None,
        "reason": found.reason,
        "built_to": found.built_to.isoformat(),
        "zone": found.zone,
        "served_model": found.served_model,
        "checkpoint": found.checkpoint,
        "split": found.split,
        "requests": found.requests,
        "lengths": {name: _length(one) for name, one in found.lengths.items()},
        "cached_share": found.cached_share,
        "concurrency_method": found.flight_method,
        "hours": [
            {
                "hour": hour,
                "seconds": load.seconds,
                "arrivals_per_s": load.arrivals_per_s,
                "concurrency": load.concurrency,
            }
            for hour, load in sorted(found.hours.items())
        ],
    }


def _length(one: Lengths) -> dict[str, Any]:
    quantiles: dict[str, float | None] = {"p50": None, "p95": None}
    if one.histogram is not None:
        for name, q in (("p50", 0.5), ("p95", 0.95)):
            found = histogram.quantile(one.histogram, q)
            quantiles[name] = None if found is None or found.is_clamped else found.value
    return {
        "method": one.method,
        "requests": one.count,
        "mean": one.mean,
        **quantiles,
        "bounds": list(one.bounds),
        "counts": list(one.counts),
    }


class Workloads(ReadOnly):
    """What users ask for: token lengths, arrivals and concurrency by hour of the week."""

    serializer_class = WorkloadSerializer
    filterset_class = filter_set(
        {"reason": REASONS}, deployment="deployment__slug", reason="reason"
    )
    ordering = "-span_from"
    sort_fields = ("span_from", "built_to")

    def rows(self, viewer: Viewer) -> QuerySet[Any]:
        return workloads.workloads_for(viewer)

    def get_serializer_context(self) -> dict[str, Any]:
        context = dict(super().get_serializer_context())
        if not getattr(self, "swagger_fake_view", False):
            context["model_shares"] = workloads.model_shares(self.viewer)
        return context
