"""Inventory: what exists (hardware), what serves (deployments, pools, workers), and since when.

Hardware and serving are separate facts (DESIGN law 11): nodes and devices are provisioned from
declarations; a router only says that a worker serves. Attributes that change over time are spans.
"""

from __future__ import annotations

import uuid
from decimal import Decimal

from django.db import models
from django.db.models import F, Q

from apps.common.leases import LeasedModel


class Mode(models.TextChoices):
    """How far Fulcrum may go (DESIGN law 12). Order matters: each includes those before it."""

    OBSERVE = "observe"
    RECOMMEND = "recommend"
    APPROVE = "approve"
    AUTO = "auto"


class Environment(models.TextChoices):
    PRODUCTION = "production"
    STAGING = "staging"
    DEMO = "demo"


class PoolRole(models.TextChoices):
    """Roles that are planned. Any other role a backend reports is kept as it is, never planned."""

    PREFILL = "prefill"
    DECODE = "decode"
    MIXED = "mixed"


class AttributeSource(models.TextChoices):
    REPORTED = "reported"
    DECLARED = "declared"
    UNKNOWN = "unknown"


class RoleSource(models.TextChoices):
    """Whose word a worker's role is, most trusted first: the router or orchestrator, a person, a
    label of its pod, a label of its engine's own metrics."""

    REPORTED = "reported"
    DECLARED = "declared"
    POD_LABEL = "pod_label"
    METRIC_LABEL = "metric_label"
    UNKNOWN = "unknown"


class Serving(models.TextChoices):
    """What the router last said about a worker."""

    SERVING = "serving"
    DRAINING = "draining"
    ABSENT = "absent"
    UNHEALTHY = "unhealthy"
    UNKNOWN = "unknown"


class Identified(models.Model):
    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)

    class Meta:
        abstract = True


class Accelerator(Identified):
    """A GPU model from the catalog. Units: GB decimal, GB/s, dense TFLOPS, W."""

    slug = models.SlugField(max_length=63, unique=True)
    vendor = models.CharField(max_length=63)
    name = models.CharField(max_length=120)
    memory_gb = models.FloatField(null=True)
    hbm_gbps = models.FloatField(null=True)
    tflops_fp16 = models.FloatField(null=True)
    tflops_fp8 = models.FloatField(null=True)
    tdp_w = models.FloatField(null=True)
    list_price_usd_per_hour = models.CharField(max_length=32, blank=True)
    facts = models.JSONField(default=dict)
    sources = models.JSONField(default=list)

    class Meta:
        ordering = ["slug"]


class ModelArchitecture(Identified):
    """A served model's architecture from the catalog."""

    slug = models.SlugField(max_length=63, unique=True)
    name = models.CharField(max_length=120)
    hf_id = models.CharField(max_length=200, db_index=True)
    params_b = models.FloatField(null=True)
    active_params_b = models.FloatField(null=True)
    kv_bytes_per_token = models.FloatField(null=True)
    facts = models.JSONField(default=dict)
    source = models.TextField(blank=True)

    class Meta:
        ordering = ["slug"]


class Cluster(Identified):
    """A place where hardware is bought and workers run. Its mode caps its deployments' modes."""

    slug = models.SlugField(max_length=63, unique=True)
    name = models.CharField(max_length=120)
    uid = models.CharField(max_length=120, unique=True)
    mode_cap = models.CharField(max_length=16, choices=Mode.choices, default=Mode.OBSERVE)

    class Meta:
        ordering = ["slug"]


class Node(Identified):
    """A host with devices, provisioned from declaration until a person retires it."""

    cluster = models.ForeignKey(Cluster, on_delete=models.PROTECT, related_name="nodes")
    name = models.CharField(max_length=200)
    object_uid = models.CharField(max_length=200, blank=True)
    provisioned_from = models.DateTimeField()
    provisioned_to = models.DateTimeField(null=True, blank=True)
    source = models.CharField(max_length=16, choices=AttributeSource.choices)

    class Meta:
        ordering = ["name"]
        constraints = [
            models.UniqueConstraint(fields=["cluster", "name", "object_uid"], name="node_identity")
        ]


class Device(Identified):
    """One GPU, or a share of one (`share` below 1)."""

    node = models.ForeignKey(Node, on_delete=models.PROTECT, related_name="devices")
    index = models.PositiveSmallIntegerField()
    accelerator = models.ForeignKey(Accelerator, on_delete=models.PROTECT, related_name="devices")
    share = models.DecimalField(max_digits=6, decimal_places=4, default=Decimal(1))
    source = models.CharField(max_length=16, choices=AttributeSource.choices)

    class Meta:
        ordering = ["node", "index"]
        constraints = [models.UniqueConstraint(fields=["node", "index"], name="device_identity")]


class Deployment(Identified):
    """One served model. `revision` moves with every change of its intended topology."""

    slug = models.SlugField(max_length=63, unique=True)
    name = models.CharField(max_length=120)
    namespace = models.CharField(max_length=120, default="default")
    cluster = models.ForeignKey(Cluster, on_delete=models.PROTECT, related_name="deployments")
    team = models.ForeignKey(
        "accounts.Team", on_delete=models.PROTECT, null=True, related_name="deployments"
    )
    architecture = models.ForeignKey(
        ModelArchitecture, on_delete=models.PROTECT, null=True, related_name="deployments"
    )
    served_model = models.CharField(max_length=200)
    environment = models.CharField(
        max_length=16, choices=Environment.choices, default=Environment.PRODUCTION
    )
    mode = models.CharField(max_length=16, choices=Mode.choices, default=Mode.OBSERVE)
    preset = models.CharField(max_length=16, default="production")
    revision = models.PositiveIntegerField(default=1)
    created_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["slug"]
        constraints = [
            models.UniqueConstraint(
                fields=["cluster", "namespace", "name"],
                condition=Q(ended_at__isnull=True),
                name="deployment_identity",
            )
        ]


class SlugRedirect(models.Model):
    """Old slugs lead to their deployment for ever."""

    slug = models.SlugField(max_length=63, primary_key=True)
    deployment = models.ForeignKey(Deployment, on_delete=models.CASCADE)


class Backend(LeasedModel):
    """How a deployment is observed and commanded. Changing the address clears the credentials."""

    deployment = models.OneToOneField(
        Deployment, on_delete=models.CASCADE, primary_key=True, related_name="backend"
    )
    adapter = models.CharField(max_length=32, default="noop")
    address = models.CharField(max_length=400, blank=True)
    parameters = models.JSONField(default=dict)
    credential_sealed = models.TextField(blank=True)
    engine_credential_sealed = models.TextField(blank=True)
    credential_id = models.UUIDField(null=True, blank=True)
    observe_interval_s = models.FloatField(default=15)
    next_due_at = models.DateTimeField(null=True, blank=True, db_index=True)
    last_ok_at = models.DateTimeField(null=True, blank=True)
    last_error = models.CharField(max_length=200, blank=True)
    last_error_at = models.DateTimeField(null=True, blank=True)
    version = models.CharField(max_length=64, blank=True)


class Pool(Identified):
    """The workers of one role of a deployment. `attribute_sources` maps field name to its source.

    Units: devices per worker in GPUs (below 1 for shared ones), scheduler limits in tokens per
    step and sequences.
    """

    deployment = models.ForeignKey(Deployment, on_delete=models.CASCADE, related_name="pools")
    role = models.CharField(max_length=32)
    accelerator = models.ForeignKey(Accelerator, on_delete=models.PROTECT, null=True)
    devices_per_worker = models.DecimalField(max_digits=8, decimal_places=4, null=True)
    tensor_parallel = models.PositiveSmallIntegerField(default=1)
    data_parallel = models.PositiveSmallIntegerField(default=1)
    expert_parallel = models.PositiveSmallIntegerField(default=1)
    pipeline_parallel = models.PositiveSmallIntegerField(default=1)
    topology = models.CharField(max_length=64, blank=True)
    checkpoint = models.CharField(max_length=200, blank=True)
    weight_precision = models.CharField(max_length=32, blank=True)
    kv_precision = models.CharField(max_length=32, blank=True)
    engine = models.CharField(max_length=32, blank=True)
    engine_version = models.CharField(max_length=64, blank=True)
    prefill_tokens_per_step = models.PositiveIntegerField(null=True)
    max_sequences = models.PositiveIntegerField(null=True)
    kv_capacity_tokens = models.PositiveBigIntegerField(null=True)
    wanted_workers = models.PositiveIntegerField(default=0)
    min_workers = models.PositiveIntegerField(default=1)
    max_workers = models.PositiveIntegerField(null=True)
    ratio_target = models.FloatField(null=True)
    attribute_sources = models.JSONField(default=dict)

    class Meta:
        ordering = ["deployment", "role"]
        constraints = [models.UniqueConstraint(fields=["deployment", "role"], name="pool_identity")]


class Worker(Identified):
    """One engine replica. Identity: (deployment, kind, address, object uid), kept for ever.

    `role` is the present role; its history is in `Span` (attribute `role`).
    """

    deployment = models.ForeignKey(Deployment, on_delete=models.CASCADE, related_name="workers")
    name = models.CharField(max_length=120)
    kind = models.CharField(max_length=32, default="engine")
    url = models.CharField(max_length=400)
    metrics_url = models.CharField(max_length=400, blank=True)
    object_uid = models.CharField(max_length=200, blank=True)
    bootstrap_port = models.PositiveIntegerField(null=True)
    role = models.CharField(max_length=32)
    role_source = models.CharField(max_length=16, choices=RoleSource.choices)
    serving = models.CharField(max_length=16, choices=Serving.choices, default=Serving.UNKNOWN)
    serving_at = models.DateTimeField(null=True, blank=True)
    router_worker_id = models.CharField(max_length=120, blank=True)
    devices = models.ManyToManyField(Device, related_name="workers", blank=True)
    first_seen_at = models.DateTimeField()
    last_seen_at = models.DateTimeField(null=True, blank=True)
    ended_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["name"]
        constraints = [
            models.UniqueConstraint(
                fields=["deployment", "kind", "url", "object_uid"], name="worker_identity"
            )
        ]


class Span(Identified):
    """The value of one attribute of one subject over `[valid_from, valid_to)`, without overlap."""

    subject_kind = models.CharField(max_length=16)
    subject_id = models.UUIDField()
    attribute = models.CharField(max_length=32)
    value = models.JSONField()
    source = models.CharField(max_length=16, choices=RoleSource.choices)
    valid_from = models.DateTimeField()
    valid_to = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["valid_from"]
        indexes = [models.Index(fields=["subject_kind", "subject_id", "attribute", "valid_from"])]
        constraints = [
            models.UniqueConstraint(
                fields=["subject_kind", "subject_id", "attribute"],
                condition=Q(valid_to__isnull=True),
                name="span_one_open",
            ),
            models.CheckConstraint(
                condition=Q(valid_to__isnull=True) | Q(valid_to__gt=F("valid_from")),
                name="span_ends_after_start",
            ),
        ]


class ChangeState(models.Model):
    """What `commands` tell `planning` about a deployment's changes (data, not import)."""

    deployment = models.OneToOneField(
        Deployment, on_delete=models.CASCADE, primary_key=True, related_name="change_state"
    )
    active_command_id = models.UUIDField(null=True, blank=True)
    active_command_label = models.CharField(max_length=32, blank=True)
    last_converged = models.JSONField(null=True)
    last_change_at = models.DateTimeField(null=True, blank=True)
    last_change_kind = models.CharField(max_length=16, blank=True)
    last_direction = models.CharField(max_length=32, blank=True)
    reversals = models.JSONField(default=list)
    foreign_change_at = models.DateTimeField(null=True, blank=True)
    foreign_change = models.JSONField(null=True)
    frozen_until = models.DateTimeField(null=True, blank=True)
    frozen_reason = models.CharField(max_length=200, blank=True)
