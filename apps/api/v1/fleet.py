"""Inventory: clusters, nodes, devices, accelerators, models, deployments, pools, workers."""

from __future__ import annotations

from typing import Any

from django.db.models import QuerySet
from rest_framework import serializers

from apps.accounts.domain.authorize import Viewer
from apps.accounts.selectors import teams_for
from apps.api.filters import filter_set
from apps.fleet import selectors

from .base import AddressField, ReadOnly


class ClusterSerializer(serializers.Serializer[Any]):
    id = serializers.UUIDField()
    slug = serializers.CharField()
    name = serializers.CharField()
    uid = serializers.CharField()
    mode_cap = serializers.CharField()


class NodeSerializer(serializers.Serializer[Any]):
    id = serializers.UUIDField()
    cluster = serializers.CharField(source="cluster.slug")
    name = serializers.CharField()
    provisioned_from = serializers.DateTimeField()
    provisioned_to = serializers.DateTimeField(allow_null=True)
    source = serializers.CharField()


class DeviceSerializer(serializers.Serializer[Any]):
    id = serializers.UUIDField()
    node = serializers.CharField(source="node.name")
    index = serializers.IntegerField()
    accelerator = serializers.CharField(source="accelerator.slug")
    share = serializers.DecimalField(max_digits=6, decimal_places=4)
    source = serializers.CharField()


class AcceleratorSerializer(serializers.Serializer[Any]):
    """Units: GB decimal, GB/s, dense TFLOPS, W; list price in USD per device and hour."""

    id = serializers.UUIDField()
    slug = serializers.CharField()
    vendor = serializers.CharField()
    name = serializers.CharField()
    memory_gb = serializers.FloatField(allow_null=True)
    hbm_gbps = serializers.FloatField(allow_null=True)
    tflops_fp16 = serializers.FloatField(allow_null=True)
    tflops_fp8 = serializers.FloatField(allow_null=True)
    tdp_w = serializers.FloatField(allow_null=True)
    list_price_usd_per_hour = serializers.CharField(allow_blank=True)
    sources = serializers.ListField(child=serializers.CharField())


class ModelSerializer(serializers.Serializer[Any]):
    id = serializers.UUIDField()
    slug = serializers.CharField()
    name = serializers.CharField()
    hf_id = serializers.CharField()
    params_b = serializers.FloatField(allow_null=True)
    active_params_b = serializers.FloatField(allow_null=True)
    kv_bytes_per_token = serializers.FloatField(allow_null=True)
    source = serializers.CharField(allow_blank=True)


class DeploymentSerializer(serializers.Serializer[Any]):
    id = serializers.UUIDField()
    slug = serializers.CharField()
    name = serializers.CharField()
    namespace = serializers.CharField()
    cluster = serializers.CharField(source="cluster.slug")
    team = serializers.CharField(source="team.slug", default=None, allow_null=True)
    served_model = serializers.CharField()
    environment = serializers.CharField()
    mode = serializers.CharField()
    preset = serializers.CharField()
    revision = serializers.IntegerField()
    created_at = serializers.DateTimeField()


class PoolSerializer(serializers.Serializer[Any]):
    id = serializers.UUIDField()
    deployment = serializers.CharField(source="deployment.slug")
    role = serializers.CharField()
    accelerator = serializers.CharField(source="accelerator.slug", default=None, allow_null=True)
    devices_per_worker = serializers.DecimalField(max_digits=8, decimal_places=4, allow_null=True)
    tensor_parallel = serializers.IntegerField()
    data_parallel = serializers.IntegerField()
    expert_parallel = serializers.IntegerField()
    pipeline_parallel = serializers.IntegerField()
    topology = serializers.CharField(allow_blank=True)
    checkpoint = serializers.CharField(allow_blank=True)
    weight_precision = serializers.CharField(allow_blank=True)
    kv_precision = serializers.CharField(allow_blank=True)
    engine = serializers.CharField(allow_blank=True)
    engine_version = serializers.CharField(allow_blank=True)
    prefill_tokens_per_step = serializers.IntegerField(allow_null=True)
    max_sequences = serializers.IntegerField(allow_null=True)
    kv_capacity_tokens = serializers.IntegerField(allow_null=True)
    wanted_workers = serializers.IntegerField()
    min_workers = serializers.IntegerField()
    max_workers = serializers.IntegerField(allow_null=True)
    ratio_target = serializers.FloatField(allow_null=True)
    attribute_sources = serializers.DictField(child=serializers.CharField())


class WorkerSerializer(serializers.Serializer[Any]):
    id = serializers.UUIDField()
    deployment = serializers.CharField(source="deployment.slug")
    name = serializers.CharField()
    url = AddressField()
    role = serializers.CharField()
    role_source = serializers.CharField()
    serving = serializers.CharField()
    serving_at = serializers.DateTimeField(allow_null=True)
    first_seen_at = serializers.DateTimeField()
    last_seen_at = serializers.DateTimeField(allow_null=True)


class TeamSerializer(serializers.Serializer[Any]):
    id = serializers.UUIDField()
    slug = serializers.CharField()
    name = serializers.CharField()


class Clusters(ReadOnly):
    serializer_class = ClusterSerializer
    filterset_class = filter_set(slug="slug")
    ordering = "slug"

    def rows(self, viewer: Viewer) -> QuerySet[Any]:
        return selectors.clusters_for(viewer)


class Nodes(ReadOnly):
    serializer_class = NodeSerializer
    filterset_class = filter_set(cluster="cluster__slug", name="name")
    ordering = ("name", "pk")

    def rows(self, viewer: Viewer) -> QuerySet[Any]:
        return selectors.nodes_for(viewer)


class Devices(ReadOnly):
    serializer_class = DeviceSerializer
    filterset_class = filter_set(
        cluster="node__cluster__slug", node="node__name", accelerator="accelerator__slug"
    )

    def rows(self, viewer: Viewer) -> QuerySet[Any]:
        return selectors.devices_for(viewer)


class Accelerators(ReadOnly):
    serializer_class = AcceleratorSerializer
    filterset_class = filter_set(slug="slug", vendor="vendor")
    sort_fields = ("vendor", "name")
    ordering = "slug"

    def rows(self, viewer: Viewer) -> QuerySet[Any]:
        return selectors.accelerators()


class Models(ReadOnly):
    serializer_class = ModelSerializer
    filterset_class = filter_set(slug="slug", hf_id="hf_id")
    sort_fields = ("name",)
    ordering = "slug"

    def rows(self, viewer: Viewer) -> QuerySet[Any]:
        return selectors.architectures()


class Pools(ReadOnly):
    serializer_class = PoolSerializer
    filterset_class = filter_set(deployment="deployment__slug", role="role")
    sort_fields = ("role",)

    def rows(self, viewer: Viewer) -> QuerySet[Any]:
        return selectors.pools_for(viewer)


class Workers(ReadOnly):
    serializer_class = WorkerSerializer
    filterset_class = filter_set(
        deployment="deployment__slug", role="role", serving="serving", url="url", name="name"
    )
    sort_fields = ("role", "first_seen_at")
    ordering = ("name", "pk")

    def rows(self, viewer: Viewer) -> QuerySet[Any]:
        return selectors.workers_for(viewer)


class Teams(ReadOnly):
    serializer_class = TeamSerializer
    filterset_class = filter_set(slug="slug")
    ordering = "slug"

    def rows(self, viewer: Viewer) -> QuerySet[Any]:
        return teams_for(viewer)
