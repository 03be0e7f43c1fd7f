"""Addresses of the API. Every one ends in a slash."""

from __future__ import annotations

from django.urls import include, path, re_path
from rest_framework.routers import SimpleRouter
from rest_framework.viewsets import ViewSetMixin

from .docs import Docs, Schema
from .errors import unknown_address
from .v1 import commands, connect, deployments, fleet, kill_switches, people, planning, workloads

ENDPOINTS: dict[str, type[ViewSetMixin]] = {
    "clusters": fleet.Clusters,
    "nodes": fleet.Nodes,
    "devices": fleet.Devices,
    "accelerators": fleet.Accelerators,
    "models": fleet.Models,
    "deployments": deployments.Deployments,
    "pools": fleet.Pools,
    "workers": fleet.Workers,
    "teams": fleet.Teams,
    "sources": connect.Sources,
    "coverage": deployments.Coverage,
    "profiles": deployments.Profiles,
    "slos": planning.Slos,
    "policies": planning.Policies,
    "guardrails": planning.Guardrails,
    "kill-switch": kill_switches.KillSwitches,
    "recommendations": planning.Recommendations,
    "commands": commands.Commands,
    "workloads": workloads.Workloads,
    "price-books": planning.PriceBooks,
    "costs": planning.Costs,
    "audit-events": people.AuditEvents,
    "timeline": planning.Timeline,
    "tokens": people.Tokens,
}

router = SimpleRouter()
for name, endpoint in ENDPOINTS.items():
    router.register(name, endpoint, basename=name)

urlpatterns = [
    path("v1/", include(router.urls)),
    path("openapi.yaml", Schema.as_view(), name="openapi"),
    path("docs/", Docs.as_view(), name="api-docs"),
    re_path("", unknown_address),
]
