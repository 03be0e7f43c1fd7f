"""Fulcrum's own state, for `/metrics`: plain numbers, computed when asked."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from django.db.models import Count

from apps.commands.models import Command
from apps.fleet.models import Backend
from apps.planning.models import Recommendation
from apps.telemetry.models import Source


@dataclass(frozen=True, slots=True)
class OwnMetric:
    """One sample: name without prefix, help, labels, value (seconds, counts or 0/1)."""

    name: str
    help: str
    labels: tuple[tuple[str, str], ...]
    value: float


def samples(now: datetime) -> Iterator[OwnMetric]:
    """Sources, backends, commands and recommendations of this installation."""
    for source in Source.objects.all():
        labels = (("source", source.name), ("kind", source.kind))
        yield OwnMetric("source_up", "1 if the source answered last", labels,
                        float(source.state == "ok"))  # fmt: skip
        if source.last_ok_at is not None:
            age_s = (now - source.last_ok_at).total_seconds()
            yield OwnMetric("source_age_seconds", "Age of the last answer", labels, age_s)
    for backend in Backend.objects.exclude(adapter="noop").select_related("deployment"):
        if backend.last_ok_at is not None:
            where = (("deployment", backend.deployment.slug),)
            age_s = (now - backend.last_ok_at).total_seconds()
            yield OwnMetric("backend_age_seconds", "Age of the last observation", where, age_s)
    for state, count in Command.objects.values_list("state").annotate(n=Count("pk")):
        yield OwnMetric("commands", "Commands by state", (("state", state),), float(count))
    for state, count in Recommendation.objects.values_list("state").annotate(n=Count("pk")):
        yield OwnMetric("recommendations", "Recommendations by state", (("state", state),),
                        float(count))  # fmt: skip
