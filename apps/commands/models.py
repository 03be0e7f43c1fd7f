"""Commands, their steps, approvals, reservations, kill switches and their log."""

from __future__ import annotations

import uuid

from django.db import models
from django.db.models import Q

from apps.common.leases import LeasedModel

from .domain.states import ACTIVE, CommandState, Kind, StepState


class Command(LeasedModel):
    """One change of a deployment's workers, from the proposal to its score.

    `targets` and `before` map role to workers. `hash_parts` is what `plan_hash` covers. `members`
    maps address to role as the command found it. Measurements are stored as their JSON.
    """

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    serial = models.PositiveIntegerField(unique=True)
    number = models.CharField(max_length=16, unique=True)
    deployment = models.ForeignKey(
        "fleet.Deployment", on_delete=models.PROTECT, related_name="commands"
    )
    kind = models.CharField(max_length=16, choices=[(k.value, k.value) for k in Kind])
    state = models.CharField(
        max_length=16,
        choices=[(s.value, s.value) for s in CommandState],
        default=CommandState.PROPOSED.value,
    )
    targets = models.JSONField()
    before = models.JSONField()
    plan = models.JSONField(default=list)
    rollback_plan = models.JSONField(default=list)
    plan_hash = models.CharField(max_length=64)
    hash_parts = models.JSONField(default=dict)
    expected_revision = models.PositiveIntegerField()
    running_revision = models.PositiveIntegerField(null=True, blank=True)
    recommendation_id = models.UUIDField(null=True, blank=True, db_index=True)
    recommendation_number = models.CharField(max_length=16, blank=True)
    note = models.TextField(blank=True)
    proposers = models.JSONField(default=list)
    requested_at = models.DateTimeField(db_index=True)
    requested_via = models.CharField(max_length=16, blank=True)
    approved_at = models.DateTimeField(null=True, blank=True)
    approval_expires_at = models.DateTimeField(null=True, blank=True)
    not_before = models.DateTimeField(null=True, blank=True)
    started_at = models.DateTimeField(null=True, blank=True)
    converged_at = models.DateTimeField(null=True, blank=True)
    finished_at = models.DateTimeField(null=True, blank=True)
    deadline_at = models.DateTimeField(null=True, blank=True)
    soak_until = models.DateTimeField(null=True, blank=True)
    judged_at = models.DateTimeField(null=True, blank=True)
    bad_windows = models.PositiveSmallIntegerField(default=0)
    next_drive_at = models.DateTimeField(null=True, blank=True, db_index=True)
    cancel_requested = models.JSONField(null=True, blank=True)
    members = models.JSONField(default=dict)
    true_now = models.JSONField(default=dict)
    predicted = models.JSONField(default=dict)
    do_nothing = models.JSONField(default=dict)
    measured = models.JSONField(default=dict)
    samples = models.JSONField(default=list)
    worst = models.JSONField(default=dict)
    recovery_s = models.FloatField(null=True, blank=True)
    error_code = models.CharField(max_length=48, blank=True)
    error_params = models.JSONField(default=dict)
    rollback_of = models.ForeignKey(
        "self", on_delete=models.PROTECT, null=True, blank=True, related_name="rollbacks"
    )
    is_automatic = models.BooleanField(default=False)
    idempotency_key = models.CharField(max_length=200, blank=True, default="")
    request_digest = models.CharField(max_length=64, blank=True, default="")

    class Meta:
        ordering = ["-serial"]
        indexes = [models.Index(fields=["state", "next_drive_at"], name="command_due")]
        constraints = [
            models.UniqueConstraint(
                fields=["deployment"],
                condition=Q(state__in=[state.value for state in ACTIVE]),
                name="command_one_active",
            ),
            models.UniqueConstraint(
                fields=["idempotency_key"],
                condition=~Q(idempotency_key=""),
                name="command_idempotency_key",
            ),
        ]

    def __str__(self) -> str:
        return self.number


class Step(models.Model):
    """One step of a command. INTENT is committed before each external call."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    command = models.ForeignKey(Command, on_delete=models.CASCADE, related_name="steps")
    index = models.PositiveSmallIntegerField()
    kind = models.CharField(max_length=24)
    worker_url = models.CharField(max_length=400)
    worker_name = models.CharField(max_length=120, blank=True)
    spec = models.JSONField()
    state = models.CharField(
        max_length=16,
        choices=[(s.value, s.value) for s in StepState],
        default=StepState.PLANNED.value,
    )
    intent_at = models.DateTimeField(null=True, blank=True)
    sent_at = models.DateTimeField(null=True, blank=True)
    accepted_at = models.DateTimeField(null=True, blank=True)
    ended_at = models.DateTimeField(null=True, blank=True)
    deadline_at = models.DateTimeField(null=True, blank=True)
    epoch = models.PositiveBigIntegerField(default=0)
    idempotency_key = models.CharField(max_length=64, unique=True, null=True, blank=True)
    attempts = models.PositiveSmallIntegerField(default=0)
    conflicts = models.PositiveSmallIntegerField(default=0)
    confirmed = models.PositiveSmallIntegerField(default=0)
    was_sent = models.BooleanField(default=False)
    request = models.TextField(blank=True)
    answer = models.TextField(blank=True)
    reference = models.CharField(max_length=120, blank=True)
    reason = models.CharField(max_length=120, blank=True)
    control = models.TextField(blank=True)
    data = models.TextField(blank=True)
    detail = models.JSONField(default=dict)

    class Meta:
        ordering = ["index"]
        constraints = [
            models.UniqueConstraint(fields=["command", "index"], name="step_one_per_index")
        ]


class Approval(models.Model):
    """One person's decision about one plan hash."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    command = models.ForeignKey(Command, on_delete=models.CASCADE, related_name="approvals")
    user = models.ForeignKey(
        "accounts.User", on_delete=models.PROTECT, null=True, related_name="command_approvals"
    )
    user_name = models.CharField(max_length=150)
    decision = models.CharField(max_length=16)
    at = models.DateTimeField()
    plan_hash = models.CharField(max_length=64)
    reason = models.TextField(blank=True)
    via = models.CharField(max_length=16)

    class Meta:
        ordering = ["at"]
        constraints = [
            models.UniqueConstraint(fields=["command", "user"], name="approval_one_per_user")
        ]


class Reservation(models.Model):
    """GPUs that a running command needs beyond its targets' own use; it shrinks step by step."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    cluster = models.ForeignKey(
        "fleet.Cluster", on_delete=models.PROTECT, related_name="reservations"
    )
    command = models.OneToOneField(Command, on_delete=models.CASCADE, related_name="reservation")
    gpus = models.DecimalField(max_digits=12, decimal_places=4)
    created_at = models.DateTimeField()
    released_at = models.DateTimeField(null=True, blank=True)


class KillSwitch(models.Model):
    """Stops every command in a scope. Turning it off outside a demo waits for a second person."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    scope_kind = models.CharField(max_length=16)
    scope_id = models.UUIDField(null=True, blank=True)
    on = models.BooleanField(default=False)
    by = models.ForeignKey("accounts.User", on_delete=models.PROTECT, null=True, related_name="+")
    by_name = models.CharField(max_length=150)
    at = models.DateTimeField()
    reason = models.TextField(blank=True)
    release_by = models.ForeignKey(
        "accounts.User", on_delete=models.PROTECT, null=True, related_name="+"
    )
    release_by_name = models.CharField(max_length=150, blank=True)
    release_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["scope_kind", "scope_id"],
                condition=Q(scope_id__isnull=False),
                name="kill_switch_one_per_scope",
            ),
            models.UniqueConstraint(
                fields=["scope_kind"],
                condition=Q(scope_id__isnull=True),
                name="kill_switch_one_installation",
            ),
        ]


class CommandEvent(models.Model):
    """The log of a command: codes and parameters, never sentences."""

    id = models.BigAutoField(primary_key=True)
    command = models.ForeignKey(Command, on_delete=models.CASCADE, related_name="events")
    at = models.DateTimeField()
    code = models.CharField(max_length=48)
    params = models.JSONField(default=dict)

    class Meta:
        ordering = ["id"]
