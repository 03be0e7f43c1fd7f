"""Append-only, hash-chained events."""

from __future__ import annotations

from django.db import models


class AuditHead(models.Model):
    """The tip of the chain; one row. Moving it by conditional UPDATE orders concurrent writers."""

    id = models.PositiveSmallIntegerField(primary_key=True, default=1)
    sequence = models.PositiveBigIntegerField(default=0)
    hash = models.CharField(max_length=64, default="0" * 64)


class AuditEvent(models.Model):
    """Who did what to which object. Never changed, never deleted."""

    sequence = models.PositiveBigIntegerField(primary_key=True)
    at = models.DateTimeField(db_index=True)
    actor_id = models.CharField(max_length=64, blank=True)
    actor_name = models.CharField(max_length=150)
    via_token = models.BooleanField(default=False)
    source_ip = models.CharField(max_length=64, blank=True)
    request_id = models.CharField(max_length=64, blank=True)
    action = models.CharField(max_length=64, db_index=True)
    object_kind = models.CharField(max_length=32)
    object_id = models.CharField(max_length=64)
    object_label = models.CharField(max_length=200, blank=True)
    cluster_id = models.CharField(max_length=64, blank=True, db_index=True)
    deployment_id = models.CharField(max_length=64, blank=True, db_index=True)
    before = models.JSONField(null=True)
    after = models.JSONField(null=True)
    reason = models.TextField(blank=True)
    previous_hash = models.CharField(max_length=64)
    hash = models.CharField(max_length=64)

    class Meta:
        ordering = ["-sequence"]
