"""What was diagnosed when, and what the service-time models have learnt."""

from __future__ import annotations

import uuid

from django.db import models


class DiagnosisRecord(models.Model):
    """One evaluation. `cause` is what stands after hysteresis, `raw_cause` what this window said.

    `memory` keeps when passing conditions began (codes to ISO times). JSON holds codes and
    Measurements only; words are added by the reader.
    """

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    deployment = models.ForeignKey(
        "fleet.Deployment", on_delete=models.CASCADE, related_name="diagnoses"
    )
    at = models.DateTimeField()
    window_end = models.DateTimeField(null=True)
    raw_cause = models.CharField(max_length=32)
    cause = models.CharField(max_length=32)
    severity = models.CharField(max_length=16)
    since = models.DateTimeField()
    sentence = models.CharField(max_length=48, blank=True)
    params = models.JSONField(default=dict)
    evidence = models.JSONField(default=list)
    wont_help = models.CharField(max_length=48, blank=True)
    worker = models.CharField(max_length=120, blank=True)
    role = models.CharField(max_length=32, blank=True)
    busy = models.JSONField(default=dict)
    memory = models.JSONField(default=dict)

    class Meta:
        ordering = ["-at"]
        constraints = [
            models.UniqueConstraint(fields=["deployment", "at"], name="diagnosis_one_per_instant")
        ]


class Calibration(models.Model):
    """The learnt service-time model of one phase.

    `coefficients` are those of `simulation.service_time` (a, b, c or alpha, beta, gamma; seconds),
    `prior` what they were pulled to and `prior_source` where that came from. `samples` are the kept
    windows as [feature, feature, feature, seconds]. `error` is the mean relative hold-out error.
    """

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    deployment = models.ForeignKey(
        "fleet.Deployment", on_delete=models.CASCADE, related_name="calibrations"
    )
    phase = models.CharField(max_length=16)
    coefficients = models.JSONField()
    prior = models.JSONField()
    prior_source = models.CharField(max_length=120, blank=True)
    fitted_at = models.DateTimeField()
    last_sample_at = models.DateTimeField(null=True)
    error = models.FloatField(null=True)
    covered = models.JSONField(null=True)
    samples = models.JSONField(default=list)
    basis = models.CharField(max_length=16)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["deployment", "phase"], name="calibration_one_a_phase")
        ]
