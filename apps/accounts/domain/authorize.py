"""Who may do what, where: pure functions over roles on scopes (DESIGN laws 13 and 15).

Source of the table: research on separation of duties; admin may not propose or approve commands
unless the person holds those roles too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final
from uuid import UUID


class Role(StrEnum):
    VIEWER = "viewer"
    OPERATOR = "operator"
    APPROVER = "approver"
    ADMIN = "admin"


class Permission(StrEnum):
    """What an action needs. `READ` is needed for everything else too."""

    READ = "read"
    PROPOSE = "propose"
    APPROVE = "approve"
    ROLL_BACK = "roll_back"
    DISMISS = "dismiss"
    KILL_ON = "kill_on"
    KILL_OFF = "kill_off"
    CONFIGURE = "configure"
    MANAGE_PEOPLE = "manage_people"
    READ_AUDIT = "read_audit"


class ScopeKind(StrEnum):
    INSTALLATION = "installation"
    CLUSTER = "cluster"
    TEAM = "team"
    DEPLOYMENT = "deployment"


GRANTS: Final[Mapping[Role, frozenset[Permission]]] = {
    Role.VIEWER: frozenset({Permission.READ}),
    Role.OPERATOR: frozenset(
        {
            Permission.READ,
            Permission.PROPOSE,
            Permission.DISMISS,
            Permission.ROLL_BACK,
            Permission.KILL_ON,
            Permission.READ_AUDIT,
        }
    ),
    Role.APPROVER: frozenset(
        {
            Permission.READ,
            Permission.APPROVE,
            Permission.ROLL_BACK,
            Permission.KILL_ON,
            Permission.KILL_OFF,
            Permission.READ_AUDIT,
        }
    ),
    Role.ADMIN: frozenset(
        {
            Permission.READ,
            Permission.CONFIGURE,
            Permission.MANAGE_PEOPLE,
            Permission.KILL_ON,
            Permission.READ_AUDIT,
        }
    ),
}


@dataclass(frozen=True, slots=True)
class Binding:
    """One role on one scope; `scope_id` is None for the whole installation."""

    role: Role
    scope_kind: ScopeKind
    scope_id: UUID | None = None


@dataclass(frozen=True, slots=True)
class ObjectScope:
    """Where an object lives: the scopes that a binding may match."""

    cluster_id: UUID | None = None
    team_id: UUID | None = None
    deployment_id: UUID | None = None


@dataclass(frozen=True, slots=True)
class Viewer:
    """The person or token on whose behalf something is read or done.

    `token_permissions` narrows what the person's roles grant; None for a signed-in session.
    """

    user_id: UUID | None
    name: str
    bindings: tuple[Binding, ...] = ()
    is_active: bool = True
    via_token: bool = False
    token_permissions: frozenset[Permission] | None = None
    is_system: bool = False
    source_ip: str = ""
    request_id: str = ""
    extra: Mapping[str, str] = field(default_factory=dict)

    def can(self, permission: Permission, scope: ObjectScope) -> bool:
        """True if a binding that covers `scope` grants the permission."""
        if self.is_system:
            return True
        if not self.is_active or not self._token_allows(permission):
            return False
        return any(
            permission in GRANTS[binding.role] and _covers(binding, scope)
            for binding in self.bindings
        )

    def can_anywhere(self, permission: Permission) -> bool:
        """True if the permission is held on at least one scope (for menus, never for acting)."""
        if self.is_system:
            return True
        if not self.is_active or not self._token_allows(permission):
            return False
        return any(permission in GRANTS[binding.role] for binding in self.bindings)

    def scopes_with(self, permission: Permission) -> tuple[Binding, ...]:
        """The bindings that grant the permission; selectors turn them into querysets."""
        if not self.is_active or not self._token_allows(permission):
            return ()
        return tuple(b for b in self.bindings if permission in GRANTS[b.role])

    def _token_allows(self, permission: Permission) -> bool:
        return self.token_permissions is None or permission in self.token_permissions


def _covers(binding: Binding, scope: ObjectScope) -> bool:
    if binding.scope_kind is ScopeKind.INSTALLATION:
        return True
    target = {
        ScopeKind.CLUSTER: scope.cluster_id,
        ScopeKind.TEAM: scope.team_id,
        ScopeKind.DEPLOYMENT: scope.deployment_id,
    }[binding.scope_kind]
    return target is not None and target == binding.scope_id


class NotAllowed(Exception):
    """The viewer may not do this here. Raised by services before anything is changed."""

    def __init__(self, permission: Permission) -> None:
        super().__init__(f"needs permission {permission.value}")
        self.permission = permission


def require(viewer: Viewer, permission: Permission, scope: ObjectScope) -> None:
    """Raise NotAllowed unless the viewer holds the permission on the scope."""
    if not viewer.can(permission, scope):
        raise NotAllowed(permission)


#: Fulcrum's own tasks act as this viewer; audit shows it by name.
SYSTEM: Final = Viewer(user_id=None, name="fulcrum", is_system=True)
