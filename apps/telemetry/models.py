"""Where figures come from (sources, targets) and what was measured (samples, windows)."""

from __future__ import annotations

import uuid

from django.db import models
from django.db.models import F, Q

from apps.common.leases import LeasedModel


class SourceKind(models.TextChoices):
    PROMETHEUS = "prometheus"
    SCRAPE = "scrape"


class SourceState(models.TextChoices):
    """`new` until the first collect; `ok` when at least one target answered the last one."""

    NEW = "new"
    OK = "ok"
    DOWN = "down"


class Source(LeasedModel):
    """A Prometheus, or the direct scrape of a deployment's own targets.

    A source belongs to one deployment, or to a whole cluster (`deployment` empty). `parameters`:
    `instance_label`, `job_label`, `jobs` (label names and jobs of a Prometheus), `delay_s` (its
    ingest delay), `exporter_jobs` (where its GPU and host exporters are looked for; empty: any) and
    `exporters` (those that a direct scrape reads: `profile`, `url`, and `node` where they name
    none). Changing the address clears the credential (DESIGN law 14).
    """

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    name = models.CharField(max_length=120)
    cluster = models.ForeignKey("fleet.Cluster", on_delete=models.CASCADE, related_name="sources")
    deployment = models.OneToOneField(
        "fleet.Deployment", on_delete=models.CASCADE, null=True, blank=True, related_name="source"
    )
    kind = models.CharField(max_length=16, choices=SourceKind.choices)
    url = models.CharField(max_length=400, blank=True)
    interval_s = models.FloatField(default=15)
    next_due_at = models.DateTimeField(null=True, blank=True, db_index=True)
    state = models.CharField(max_length=8, choices=SourceState.choices, default=SourceState.NEW)
    last_ok_at = models.DateTimeField(null=True, blank=True)
    last_error = models.CharField(max_length=200, blank=True)
    last_error_at = models.DateTimeField(null=True, blank=True)
    credential_sealed = models.TextField(blank=True)
    parameters = models.JSONField(default=dict, blank=True)
    created_at = models.DateTimeField()

    class Meta:
        ordering = ["name"]
        constraints = [
            models.UniqueConstraint(
                fields=["cluster"],
                condition=Q(deployment__isnull=True),
                name="source_one_per_cluster",
            ),
            models.CheckConstraint(condition=Q(interval_s__gt=0), name="source_interval_positive"),
        ]

    def __str__(self) -> str:
        return self.name


class TargetScope(models.TextChoices):
    ROUTER = "router"
    FRONTEND = "frontend"
    ENGINE = "engine"


class Target(models.Model):
    """One `/metrics` address of a deployment. `match` keeps only series with these label values
    (a frontend that serves several models). `observed` is what was last seen of the target beside
    its signals (`domain.observed`), at `observed_at`."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    source = models.ForeignKey(Source, on_delete=models.CASCADE, related_name="targets")
    deployment = models.ForeignKey(
        "fleet.Deployment", on_delete=models.CASCADE, related_name="targets"
    )
    worker = models.ForeignKey(
        "fleet.Worker", on_delete=models.CASCADE, null=True, blank=True, related_name="targets"
    )
    scope = models.CharField(max_length=16, choices=TargetScope.choices)
    profile = models.CharField(max_length=32)
    url = models.CharField(max_length=400)
    match = models.JSONField(default=dict, blank=True)
    is_active = models.BooleanField(default=True)
    last_ok_at = models.DateTimeField(null=True, blank=True)
    last_error = models.CharField(max_length=200, blank=True)
    observed = models.JSONField(default=dict, blank=True)
    observed_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["scope", "url"]
        constraints = [
            models.UniqueConstraint(
                fields=["source", "deployment", "scope", "url"], name="target_identity"
            )
        ]

    def __str__(self) -> str:
        return f"{self.scope} {self.url}"


class Sample(models.Model):
    """The raw cumulative state of a target at one scrape (`apps.engines.readings`), kept for about
    a quarter of an hour."""

    target = models.ForeignKey(Target, on_delete=models.CASCADE, related_name="samples")
    at = models.DateTimeField(db_index=True)
    payload = models.JSONField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["target", "at"], name="sample_identity")]

    def __str__(self) -> str:
        return f"{self.target_id} {self.at:%H:%M:%S}"


class StoredWindow(models.Model):
    """One `Window` over `(start, end]`. Recent ones slide with each tick; older ones tile.

    On PostgreSQL the table is partitioned by day (`services.partitions`), as those of the roll-ups
    are by month or year; that is why no constraint of the database points from them to a
    deployment. `tile` holds the uses (`domain.rollup.COUNTERS`, `HISTOGRAMS`) for which the window
    is part of the tiling of its scope.
    """

    deployment = models.ForeignKey(
        "fleet.Deployment",
        on_delete=models.CASCADE,
        related_name="windows",
        db_constraint=False,
        db_index=False,
    )
    scope = models.CharField(max_length=32)
    start = models.DateTimeField()
    end = models.DateTimeField()
    payload = models.JSONField()
    expected_count = models.PositiveIntegerField(default=0)
    reported_count = models.PositiveIntegerField(default=0)
    has_histograms = models.BooleanField(default=True)
    tile = models.PositiveSmallIntegerField(default=0)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["deployment", "scope", "end"], name="window_identity"),
            models.CheckConstraint(
                condition=Q(end__gte=F("start")), name="window_ends_after_start"
            ),
        ]
        indexes = [models.Index(fields=["end"], name="window_end")]

    def __str__(self) -> str:
        return f"{self.scope} {self.end:%H:%M:%S}"


class ExporterSample(models.Model):
    """The raw state of a GPU or host exporter at one scrape, kept for a few windows."""

    source = models.ForeignKey(Source, on_delete=models.CASCADE, related_name="exporter_samples")
    url = models.CharField(max_length=400)
    at = models.DateTimeField()
    payload = models.JSONField()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["source", "url", "at"], name="exporter_sample_identity")
        ]

    def __str__(self) -> str:
        return f"{self.url} {self.at:%H:%M:%S}"


class HardwareCoverage(models.Model):
    """How many of the GPUs and hosts that a source's exporters show were joined to workers.

    `unjoined` names some of the others; `shared` counts workers whose GPUs are shared, which have
    no figures of their own. Nothing found yet is looked for again at `look_at`.
    """

    source = models.OneToOneField(
        Source, on_delete=models.CASCADE, primary_key=True, related_name="hardware"
    )
    at = models.DateTimeField()
    look_at = models.DateTimeField()
    devices_seen = models.PositiveIntegerField(default=0)
    devices_joined = models.PositiveIntegerField(default=0)
    hosts_seen = models.PositiveIntegerField(default=0)
    hosts_joined = models.PositiveIntegerField(default=0)
    shared = models.PositiveIntegerField(default=0)
    unjoined = models.JSONField(default=list)
    error = models.CharField(max_length=200, blank=True)

    def __str__(self) -> str:
        return f"{self.devices_joined} of {self.devices_seen} GPUs"


class ConnectDraft(models.Model):
    """A cluster that a person is connecting: what was typed, tested and found, until it is done.

    One per person, seen by that person alone. `typed` maps step and field to the text as typed;
    secrets are not in it: `sealed` maps their names to sealed texts (DESIGN law 14). `test`,
    `found` and `dry_runs` are results of explicit acts of the person.
    """

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    owner = models.OneToOneField(
        "accounts.User", on_delete=models.CASCADE, related_name="connect_draft"
    )
    step = models.CharField(max_length=16, default="source")
    typed = models.JSONField(default=dict)
    sealed = models.JSONField(default=dict)
    test = models.JSONField(null=True)
    tested_at = models.DateTimeField(null=True)
    found = models.JSONField(null=True)
    found_at = models.DateTimeField(null=True)
    dry_runs = models.JSONField(default=dict)
    created_at = models.DateTimeField()
    updated_at = models.DateTimeField()

    def __str__(self) -> str:
        return f"draft of {self.owner_id}"


class FindingKind(models.TextChoices):
    """`role`: something contradicts a worker's role; `credibility`: a figure cannot be true."""

    ROLE = "role"
    CREDIBILITY = "credibility"


class StoredFinding(models.Model):
    """Something found wrong with a deployment's telemetry, from `since` until `ended_at`.

    `worker` is the URL of the worker concerned (empty: the whole scope). The row of an ended
    finding stays for history; it is never opened again.
    """

    deployment = models.ForeignKey(
        "fleet.Deployment", on_delete=models.CASCADE, related_name="telemetry_findings"
    )
    kind = models.CharField(max_length=16, choices=FindingKind.choices)
    code = models.CharField(max_length=32)
    severity = models.CharField(max_length=16)
    scope = models.CharField(max_length=32, blank=True)
    signal = models.CharField(max_length=32, blank=True)
    worker = models.CharField(max_length=400, blank=True)
    params = models.JSONField(default=dict)
    voids = models.BooleanField(default=False)
    since = models.DateTimeField()
    seen_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["since", "pk"]
        constraints = [
            models.UniqueConstraint(
                fields=["deployment", "code", "scope", "signal", "worker"],
                condition=Q(ended_at__isnull=True),
                name="finding_one_open",
            )
        ]
        indexes = [models.Index(fields=["deployment", "since"], name="finding_since")]

    def __str__(self) -> str:
        return f"{self.code} {self.worker or self.scope}"


class RollUp(models.Model):
    """Slots of one scope over one block of a level (`domain.levels`), packed (`domain.block`).

    `start` is the block's, `end` that of its newest slot. `windows` counts the windows that are in
    it, `is_sealed` says that what it was made from is gone: it can be filled, not made again.
    """

    deployment = models.ForeignKey(
        "fleet.Deployment",
        on_delete=models.CASCADE,
        related_name="+",
        db_constraint=False,
        db_index=False,
    )
    scope = models.CharField(max_length=32)
    start = models.DateTimeField()
    end = models.DateTimeField()
    windows = models.PositiveIntegerField()
    is_sealed = models.BooleanField(default=False)
    payload = models.BinaryField()

    class Meta:
        abstract = True

    def __str__(self) -> str:
        return f"{self.scope} {self.start:%Y-%m-%d %H:%M}"


class RollUp1m(RollUp):
    """An hour of minutes, totals only."""

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["deployment", "scope", "start"], name="rollup_1m_block")
        ]


class RollUp5m(RollUp):
    """An hour of 5 min slots."""

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["deployment", "scope", "start"], name="rollup_5m_block")
        ]


class RollUp1h(RollUp):
    """A day of 1 h slots."""

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["deployment", "scope", "start"], name="rollup_1h_block")
        ]


class RollUp1d(RollUp):
    """A month of days."""

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["deployment", "scope", "start"], name="rollup_1d_block")
        ]


class RollUpMark(models.Model):
    """A block that must be made (again), for all scopes of a deployment.

    Whoever stores something below it writes a new `token`; whoever makes the block removes the
    mark with the token it saw, so that what came in between is never lost. `due_at` is when the
    slot that was touched is complete.
    """

    deployment = models.ForeignKey("fleet.Deployment", on_delete=models.CASCADE, related_name="+")
    level = models.CharField(max_length=4)
    start = models.DateTimeField()
    due_at = models.DateTimeField(db_index=True)
    token = models.UUIDField(default=uuid.uuid4)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["deployment", "level", "start"], name="rollup_mark")
        ]

    def __str__(self) -> str:
        return f"{self.level} {self.start:%Y-%m-%d %H:%M}"


class LatestFigures(models.Model):
    """The few figures of a deployment that a page over the whole fleet shows, as an evaluation
    found them at `kept_at`. Readers judge their age; the windows are the truth.

    `newest_end` follows every stored window, so that a reader sees when what is kept is behind.
    """

    deployment = models.OneToOneField(
        "fleet.Deployment",
        on_delete=models.CASCADE,
        primary_key=True,
        related_name="latest_figures",
    )
    newest_end = models.DateTimeField()
    kept_at = models.DateTimeField(null=True)
    figures = models.JSONField(default=dict)

    def __str__(self) -> str:
        return f"{self.deployment_id} {self.newest_end:%H:%M:%S}"
