"""People, teams, roles on scopes, API tokens."""

from __future__ import annotations

import uuid

from django.contrib.auth.models import AbstractUser
from django.db import models
from django.db.models import Q
from django.utils.translation import gettext_lazy as _

from .domain.authorize import Role, ScopeKind


class User(AbstractUser):
    """A person. Language and time zone are theirs; empty means the browser's."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    language = models.CharField(_("language"), max_length=16, blank=True, default="")
    time_zone = models.CharField(_("time zone"), max_length=64, blank=True, default="")


class Team(models.Model):
    """Owns deployments; clusters may be shared."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    slug = models.SlugField(max_length=63, unique=True)
    name = models.CharField(max_length=120)

    def __str__(self) -> str:
        return self.name


class RoleBinding(models.Model):
    """One role of one person on one scope. `scope_id` is null for the whole installation."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="role_bindings")
    role = models.CharField(max_length=16, choices=[(role.value, role.value) for role in Role])
    scope_kind = models.CharField(max_length=16, choices=[(k.value, k.value) for k in ScopeKind])
    scope_id = models.UUIDField(null=True, blank=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["user", "role", "scope_kind", "scope_id"], name="role_binding_unique"
            ),
            models.CheckConstraint(
                name="role_binding_scope_id_matches_kind",
                condition=(
                    Q(scope_kind=ScopeKind.INSTALLATION.value, scope_id__isnull=True)
                    | (~Q(scope_kind=ScopeKind.INSTALLATION.value) & Q(scope_id__isnull=False))
                ),
            ),
        ]


class ApiToken(models.Model):
    """A hashed, expiring API token. Its plain text `ful_<public id>.<secret>` is shown once."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="api_tokens")
    name = models.CharField(max_length=120)
    public_id = models.CharField(max_length=16, unique=True)
    digest = models.CharField(max_length=64)
    pepper_id = models.CharField(max_length=8)
    permissions = models.JSONField(default=list)
    created_at = models.DateTimeField()
    expires_at = models.DateTimeField()
    revoked_at = models.DateTimeField(null=True, blank=True)
    last_used_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["-created_at"]
