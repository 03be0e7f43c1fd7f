"""Reads of accounts: from a request's person or token to a `Viewer`."""

from __future__ import annotations

from uuid import UUID

from django.db.models import QuerySet

from .domain.authorize import Binding, Permission, Role, ScopeKind, Viewer
from .models import ApiToken, RoleBinding, Team, User


def viewer_for(
    user: User, *, token: ApiToken | None = None, source_ip: str = "", request_id: str = ""
) -> Viewer:
    """The viewer a signed-in person, or their token, acts as."""
    bindings = tuple(
        Binding(Role(row.role), ScopeKind(row.scope_kind), row.scope_id)
        for row in RoleBinding.objects.filter(user=user)
    )
    permissions = None
    if token is not None:
        known = {permission.value for permission in Permission}
        permissions = frozenset(Permission(name) for name in token.permissions if name in known)
    return Viewer(
        user_id=user.pk,
        name=user.username,
        bindings=bindings,
        is_active=user.is_active,
        via_token=token is not None,
        token_permissions=permissions,
        source_ip=source_ip,
        request_id=request_id,
    )


def tokens_for(viewer: Viewer) -> QuerySet[ApiToken]:
    """The viewer's own tokens, newest first."""
    if viewer.user_id is None:
        return ApiToken.objects.none()
    return ApiToken.objects.filter(user_id=viewer.user_id)


def teams_for(viewer: Viewer) -> QuerySet[Team]:
    """The teams a viewer may see: all for an installation binding, else the bound ones."""
    bindings = viewer.scopes_with(Permission.READ)
    if viewer.is_system or any(b.scope_kind is ScopeKind.INSTALLATION for b in bindings):
        return Team.objects.all()
    return Team.objects.filter(
        pk__in=[b.scope_id for b in bindings if b.scope_kind is ScopeKind.TEAM]
    )


def user_by_id(user_id: UUID) -> User | None:
    """A person by id."""
    return User.objects.filter(pk=user_id).first()


def is_active_with_role(user_id: UUID, role: Role) -> bool:
    """True if the person is active and holds the role on some scope (checked at dispatch)."""
    return RoleBinding.objects.filter(
        user_id=user_id, user__is_active=True, role=role.value
    ).exists()
