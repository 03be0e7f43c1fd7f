"""Objectives as spans: one active per deployment and signal, earlier ones kept for history."""

from __future__ import annotations

import uuid

from django.db import models
from django.db.models import F, Q

from .domain.objective import ObjectiveSignal


class Objective(models.Model):
    """`quantile` of requests at or below `threshold_s` seconds, over `[valid_from, valid_to)`."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    deployment = models.ForeignKey(
        "fleet.Deployment", on_delete=models.CASCADE, related_name="objectives"
    )
    signal = models.CharField(max_length=8, choices=[(s.value, s.value) for s in ObjectiveSignal])
    quantile = models.FloatField(default=0.95)
    threshold_s = models.FloatField()
    target_share = models.FloatField(default=0.95)
    valid_from = models.DateTimeField()
    valid_to = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["deployment", "signal", "valid_from"]
        constraints = [
            models.UniqueConstraint(
                fields=["deployment", "signal"],
                condition=Q(valid_to__isnull=True),
                name="objective_one_active",
            ),
            models.CheckConstraint(
                condition=Q(valid_to__isnull=True) | Q(valid_to__gt=F("valid_from")),
                name="objective_ends_after_start",
            ),
        ]
