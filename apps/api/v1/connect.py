"""Connecting sources: test an address, find deployments in it, create and change a source.

Only these calls ask the network, each through the checked fetcher with a deadline. Credentials go
in and never come out.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.db import IntegrityError, transaction
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from apps.api.encode import plain, serializer_of
from apps.api.errors import Problem
from apps.common.clock import utcnow
from apps.common.fetch import FetchError
from apps.fleet import selectors as fleet
from apps.telemetry import selectors as telemetry
from apps.telemetry import services
from apps.telemetry.collectors.probe import ProbeFailed
from apps.telemetry.domain.found import Discovery
from apps.telemetry.services import discover, source_test
from apps.telemetry.services.connect import Cluster, Deployment
from apps.telemetry.services.source_test import SourceTest

from . import deployments
from .base import body

SourceTestSerializer = serializer_of(SourceTest, "SourceTest")
DiscoverySerializer = serializer_of(Discovery, "Discovery")
SECRET_HELP = "sent to this address alone; never stored by this call, never shown"


class AskSourceSerializer(serializers.Serializer[Any]):
    """A Prometheus by its address, or metrics addresses to read directly."""

    kind = serializers.ChoiceField(choices=deployments.SOURCE_KINDS, default="prometheus")
    url = serializers.CharField(required=False, allow_blank=True, max_length=400, default="")
    credential = serializers.CharField(
        required=False, allow_blank=True, max_length=400, default="", help_text=SECRET_HELP
    )
    addresses = serializers.ListField(
        child=serializers.CharField(max_length=400),
        required=False,
        max_length=source_test.MAX_ADDRESSES,
        default=list,
    )
    parameters = serializers.DictField(required=False, default=dict)

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        wanted = "url" if attrs["kind"] == "prometheus" else "addresses"
        if not attrs[wanted]:
            raise serializers.ValidationError({wanted: "Give this for the kind of source."})
        return attrs


class CreateSourceSerializer(serializers.Serializer[Any]):
    """A source of one deployment, or of a whole cluster."""

    cluster = serializers.SlugField(max_length=63)
    deployment = serializers.SlugField(max_length=63, required=False)
    kind = serializers.ChoiceField(choices=deployments.SOURCE_KINDS)
    url = serializers.CharField(required=False, allow_blank=True, max_length=400, default="")
    credential = serializers.CharField(
        required=False, allow_blank=True, max_length=400, default="", help_text="stored encrypted"
    )
    interval_s = serializers.FloatField(required=False, default=15, min_value=1, max_value=300)
    parameters = serializers.DictField(required=False, default=dict)
    name = serializers.CharField(required=False, allow_blank=True, max_length=120, default="")


class ChangeSourceSerializer(serializers.Serializer[Any]):
    """What is left out stays. A new address clears the credential unless a new one comes too."""

    url = serializers.CharField(required=False, max_length=400)
    credential = serializers.CharField(required=False, allow_blank=True, max_length=400)
    interval_s = serializers.FloatField(required=False, min_value=1, max_value=300)
    parameters = serializers.DictField(required=False)


class Sources(deployments.Sources):
    """Sources, with creating and changing them."""

    http_method_names = ["get", "head", "post", "patch"]

    @extend_schema(request=CreateSourceSerializer, responses={201: deployments.SourceSerializer})
    def create(self, request: Request) -> Response:
        """Connect a source to a deployment or a cluster."""
        data = body(CreateSourceSerializer, request)
        cluster, deployment = self._place(data)
        source = _done(
            lambda: services.create_source(
                actor=self.viewer,
                now=utcnow(),
                cluster=cluster,
                deployment=deployment,
                kind=data["kind"],
                url=data["url"],
                interval_s=data["interval_s"],
                credential=data["credential"] or None,
                parameters=data["parameters"],
                name=data["name"],
            )
        )
        return Response(deployments.SourceSerializer(source).data, status=201)

    @extend_schema(request=ChangeSourceSerializer, responses={200: deployments.SourceSerializer})
    def partial_update(self, request: Request, pk: str = "") -> Response:
        """Change a source; a new address clears its credential."""
        data = body(ChangeSourceSerializer, request)
        found = self._visible(pk)
        source = _done(
            lambda: services.change_source(
                actor=self.viewer,
                now=utcnow(),
                source_id=found.pk,
                url=data.get("url"),
                interval_s=data.get("interval_s"),
                credential=data.get("credential"),
                parameters=data.get("parameters"),
            )
        )
        return Response(deployments.SourceSerializer(source).data)

    @extend_schema(request=AskSourceSerializer, responses={200: SourceTestSerializer})
    @action(detail=False, methods=["post"])
    def test(self, request: Request) -> Response:
        """Test a source: version, retention, scrape intervals, clock, targets; or `problem`, a code
        that says why it cannot be used."""
        source_test.require_connect(self.viewer)
        data = body(AskSourceSerializer, request)
        if data["kind"] == "prometheus":
            found = source_test.check_prometheus(
                actor=self.viewer, now=utcnow(), url=data["url"], token=data["credential"]
            )
        else:
            found = source_test.check_addresses(
                actor=self.viewer, now=utcnow(), urls=data["addresses"]
            )
        return Response(plain(found))

    @extend_schema(request=AskSourceSerializer, responses={200: DiscoverySerializer})
    @action(detail=False, methods=["post"])
    def find(self, request: Request) -> Response:
        """Find deployments, pools and roles (with their evidence) in a source; stores nothing."""
        source_test.require_connect(self.viewer)
        data = body(AskSourceSerializer, request)
        if data["kind"] == "scrape":
            found = discover.find_at_addresses(
                actor=self.viewer, now=utcnow(), urls=data["addresses"]
            )
            return Response(plain(found))
        try:
            found = discover.find_in_prometheus(
                actor=self.viewer,
                now=utcnow(),
                url=data["url"],
                token=data["credential"],
                parameters=data["parameters"],
            )
        except ProbeFailed as error:
            raise Problem(
                422,
                f"source_{error.code}",
                "The source could not be searched; test it to learn why.",
                {"params": {"problem": error.code, "status": error.status}},
            ) from error
        except ValueError as error:
            raise Problem(400, "invalid", f"{str(error).capitalize()}. Correct it.") from error
        return Response(plain(found))

    def _visible(self, pk: str) -> Any:
        try:
            wanted = UUID(pk)
        except ValueError as error:
            raise fleet.NotVisible(pk) from error
        found = telemetry.sources_for(self.viewer).filter(pk=wanted).first()
        if found is None:
            raise fleet.NotVisible(pk)
        return found

    def _place(self, data: dict[str, Any]) -> tuple[Cluster, Deployment | None]:
        cluster = fleet.clusters_for(self.viewer).filter(slug=data["cluster"]).first()
        if cluster is None:
            raise fleet.NotVisible(data["cluster"])
        if "deployment" not in data:
            return cluster, None
        deployment = fleet.deployment_by_slug(self.viewer, data["deployment"])
        if deployment.cluster_id != cluster.pk:
            raise fleet.NotVisible(data["deployment"])
        return cluster, deployment


def _done(act: Any) -> Any:
    """The service's answer; its refusals as problems."""
    try:
        with transaction.atomic():
            return act()
    except FetchError as error:
        raise Problem(
            422, "address_refused", f"The address cannot be used: {error}.", {"params": {}}
        ) from error
    except ValueError as error:
        said = str(error)
        raise Problem(
            400, "invalid", f"{said[:1].upper()}{said[1:]}. Correct the fields and send them again."
        ) from error
    except IntegrityError as error:
        raise Problem(
            409, "source_exists", "There is a source already. Change that one instead."
        ) from error
