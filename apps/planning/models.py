"""Evaluations and the recommendations they lead to."""

from __future__ import annotations

import uuid

from django.db import models
from django.db.models import Q

from apps.common.leases import LeasedModel


class EvaluationTick(LeasedModel):
    """When a deployment is due for evaluation; one row each, claimed by conditional UPDATE."""

    deployment = models.OneToOneField(
        "fleet.Deployment", on_delete=models.CASCADE, primary_key=True, related_name="tick"
    )
    next_due_at = models.DateTimeField(db_index=True)


class Evaluation(models.Model):
    """What one evaluation found; pages read this row, never a live query.

    JSON of Measurements: `attainment` by signal (with `warning` and `nearest`), `goodput` (`share`,
    `rate`), `costs`, `busy`. `load` is the window as demand history, `need` the workers by role,
    `wanted` the raw plan before hysteresis ({} for none), `reason` its code.
    """

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    deployment = models.ForeignKey(
        "fleet.Deployment", on_delete=models.CASCADE, related_name="evaluations"
    )
    at = models.DateTimeField()
    window_end = models.DateTimeField(null=True)
    diagnosis = models.ForeignKey(
        "diagnosis.DiagnosisRecord", on_delete=models.SET_NULL, null=True, related_name="+"
    )
    attainment = models.JSONField(default=dict)
    goodput = models.JSONField(default=dict)
    costs = models.JSONField(default=dict)
    busy = models.JSONField(default=dict)
    load = models.JSONField(default=dict)
    need = models.JSONField(null=True)
    wanted = models.JSONField(default=dict)
    reason = models.CharField(max_length=48, blank=True)
    params = models.JSONField(default=dict)
    stale = models.JSONField(default=list)

    class Meta:
        ordering = ["-at"]
        constraints = [
            models.UniqueConstraint(fields=["deployment", "at"], name="evaluation_one_per_instant")
        ]


class RecommendationCounter(models.Model):
    """One row: the last number given out in this installation."""

    last = models.PositiveIntegerField(default=0)


class RecommendationState(models.TextChoices):
    OPEN = "open"
    APPLIED = "applied"
    DISMISSED = "dismissed"
    EXPIRED = "expired"
    SUPERSEDED = "superseded"


class Recommendation(models.Model):
    """A change of worker counts that Fulcrum advises, with absolute targets.

    `predicted` maps `ttft_p95`, `tpot_p95`, `goodput`, `cost_per_million` to `{now, after}`
    Measurements (now measured, after predicted with a 90 % range), `do_nothing` to Measurements.
    `blocked` is the code of the first failing guardrail, or `data_stale`.
    """

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    sequence = models.PositiveIntegerField(unique=True)
    number = models.CharField(max_length=16, unique=True)
    deployment = models.ForeignKey(
        "fleet.Deployment", on_delete=models.CASCADE, related_name="recommendations"
    )
    state = models.CharField(
        max_length=16, choices=RecommendationState.choices, default=RecommendationState.OPEN
    )
    created_at = models.DateTimeField()
    refreshed_at = models.DateTimeField()
    expires_at = models.DateTimeField()
    closed_at = models.DateTimeField(null=True, blank=True)
    closed_reason = models.CharField(max_length=48, blank=True)
    kind = models.CharField(max_length=16)
    reason = models.CharField(max_length=48)
    params = models.JSONField(default=dict)
    targets = models.JSONField()
    current = models.JSONField()
    expected_revision = models.PositiveIntegerField()
    plan_fingerprint = models.CharField(max_length=64)
    diagnosis = models.ForeignKey(
        "diagnosis.DiagnosisRecord", on_delete=models.SET_NULL, null=True, related_name="+"
    )
    predicted = models.JSONField(default=dict)
    chances = models.JSONField(default=dict)
    do_nothing = models.JSONField(default=dict)
    terms = models.JSONField(default=dict)
    alternatives = models.JSONField(default=list)
    guardrails = models.JSONField(default=list)
    confidence = models.CharField(max_length=16)
    confidence_detail = models.JSONField(default=dict)
    blocked = models.CharField(max_length=48, blank=True)
    policy = models.CharField(max_length=16)
    applied_command_id = models.UUIDField(null=True, blank=True)
    applied_at = models.DateTimeField(null=True, blank=True)
    dismissed_by_id = models.UUIDField(null=True, blank=True)
    dismissed_by_name = models.CharField(max_length=150, blank=True)
    dismissed_reason = models.CharField(max_length=400, blank=True)
    dismissed_until = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["-sequence"]
        constraints = [
            models.UniqueConstraint(
                fields=["deployment"],
                condition=Q(state=RecommendationState.OPEN),
                name="recommendation_one_open",
            )
        ]


class PredictionScore(models.Model):
    """A prediction compared with what came (DESIGN law 9).

    `scores` maps each figure to |truth - middle| / half-width in the scale of its range; `inside`
    to whether the truth lay in the range; `measured` to the Measurement.
    """

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    recommendation = models.OneToOneField(
        Recommendation, on_delete=models.CASCADE, related_name="score"
    )
    at = models.DateTimeField()
    measured = models.JSONField()
    scores = models.JSONField()
    inside = models.JSONField()
    relative_error = models.JSONField()

    class Meta:
        ordering = ["-at"]


class WorkloadProfile(models.Model):
    """What a deployment's users asked for over `[span_from, span_to)` (null: still).

    `reason` says why the span began (`first`, `model`, `checkpoint`, `split`, `zone`, `drift`).
    `base` and `recent` are parts (`domain.workload.Part`): all up to a day before `built_to`, and
    the last day by UTC hour; hours of the week are those of `zone`. `cursors` tell up to where the
    windows of each scope were taken, so that none counts twice.
    """

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    deployment = models.ForeignKey(
        "fleet.Deployment", on_delete=models.CASCADE, related_name="workloads"
    )
    span_from = models.DateTimeField()
    span_to = models.DateTimeField(null=True, blank=True)
    reason = models.CharField(max_length=16)
    zone = models.CharField(max_length=64, default="UTC")
    served_model = models.CharField(max_length=200)
    checkpoint = models.CharField(max_length=400, blank=True)
    split = models.CharField(max_length=64, blank=True)
    base = models.JSONField(default=dict)
    recent = models.JSONField(default=dict)
    cursors = models.JSONField(default=dict)
    requests = models.FloatField(default=0)
    built_to = models.DateTimeField()

    class Meta:
        ordering = ["-span_from"]
        constraints = [
            models.UniqueConstraint(
                fields=["deployment"],
                condition=Q(span_to__isnull=True),
                name="workload_one_open",
            ),
            models.CheckConstraint(
                condition=Q(span_to__isnull=True) | Q(span_to__gt=models.F("span_from")),
                name="workload_ends_after_start",
            ),
        ]
