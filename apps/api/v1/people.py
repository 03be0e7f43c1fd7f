"""Tokens of the caller, and the audit log."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.db.models import QuerySet
from drf_spectacular.utils import extend_schema
from rest_framework import serializers, status
from rest_framework.request import Request
from rest_framework.response import Response

from apps.accounts import selectors as accounts
from apps.accounts import services
from apps.accounts.domain.authorize import Permission, ScopeKind, Viewer
from apps.api.errors import Problem
from apps.api.filters import filter_set
from apps.audit import selectors as audit
from apps.common.clock import utcnow
from apps.fleet.selectors import deployments_for, object_scope

from .base import ReadOnly, body


class TokenSerializer(serializers.Serializer[Any]):
    """A token without its secret."""

    id = serializers.UUIDField()
    name = serializers.CharField()
    public_id = serializers.CharField()
    permissions = serializers.ListField(child=serializers.CharField())
    created_at = serializers.DateTimeField()
    expires_at = serializers.DateTimeField()
    revoked_at = serializers.DateTimeField(allow_null=True)
    last_used_at = serializers.DateTimeField(allow_null=True)


class NewTokenSerializer(serializers.Serializer[Any]):
    name = serializers.CharField(max_length=120)
    permissions = serializers.ListField(
        child=serializers.ChoiceField(choices=[p.value for p in Permission]), allow_empty=False
    )
    days = serializers.IntegerField(min_value=1, max_value=services.MAX_TOKEN_LIFE.days)

    def validate_permissions(self, names: list[str]) -> list[str]:
        if Permission.READ.value not in names:
            raise serializers.ValidationError("Every token needs 'read' beside what it may do.")
        return names


class IssuedTokenSerializer(TokenSerializer):
    """`token` is shown this once and never again."""

    token = serializers.CharField()


class Tokens(ReadOnly):
    """The caller's own tokens. Making one needs a signed-in session, not a token.

    Roles and token permissions narrow each other: a token never grants what its owner may not do.
    """

    serializer_class = TokenSerializer
    filterset_class = filter_set(name="name")
    ordering = ("-created_at", "pk")
    sort_fields = ("name", "expires_at")

    def rows(self, viewer: Viewer) -> QuerySet[Any]:
        return accounts.tokens_for(viewer)

    @extend_schema(request=NewTokenSerializer, responses={201: IssuedTokenSerializer})
    def create(self, request: Request) -> Response:
        if self.viewer.via_token:
            raise Problem(403, "token", "A token cannot make tokens; sign in instead.")
        asked = body(NewTokenSerializer, request)
        person: Any = request.user
        token, text = services.issue_token(
            actor=self.viewer,
            now=utcnow(),
            user=person,
            name=asked["name"],
            permissions=[Permission(p) for p in asked["permissions"]],
            life=timedelta(days=asked["days"]),
        )
        answer = {**TokenSerializer(token).data, "token": text}
        return Response(answer, status=status.HTTP_201_CREATED)

    @extend_schema(responses={204: None})
    def destroy(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """Revoke a token at once. A token may revoke itself and no other."""
        token = self.get_object()
        if self.viewer.via_token and token.pk != request.auth.pk:
            raise Problem(403, "token", "A token revokes only itself; sign in for the others.")
        services.revoke_token(actor=self.viewer, now=utcnow(), token=token)
        return Response(status=status.HTTP_204_NO_CONTENT)


class AuditEventSerializer(serializers.Serializer[Any]):
    sequence = serializers.IntegerField()
    at = serializers.DateTimeField()
    actor = serializers.CharField(source="actor_name")
    via_token = serializers.BooleanField()
    action = serializers.CharField()
    object_kind = serializers.CharField()
    object_id = serializers.CharField()
    object_label = serializers.CharField()
    before = serializers.JSONField(allow_null=True)
    after = serializers.JSONField(allow_null=True)
    reason = serializers.CharField(allow_blank=True)
    hash = serializers.CharField()


class AuditEvents(ReadOnly):
    """Append-only events of the deployments in scope; all of them for installation-wide readers."""

    serializer_class = AuditEventSerializer
    needs = Permission.READ_AUDIT
    filterset_class = filter_set(
        action="action",
        object_kind="object_kind",
        object_id="object_id",
        actor="actor_name",
        deployment_id="deployment_id",
    )
    ordering = "-sequence"

    def rows(self, viewer: Viewer) -> QuerySet[Any]:
        scopes = viewer.scopes_with(Permission.READ_AUDIT)
        everything = any(b.scope_kind is ScopeKind.INSTALLATION for b in scopes)
        # A deployment that may be read is not yet one whose audit may be read.
        readable = [] if everything else deployments_for(viewer)
        ids = [str(d.pk) for d in readable if viewer.can(Permission.READ_AUDIT, object_scope(d))]
        return audit.events_for(deployment_ids=ids, everything=everything)
