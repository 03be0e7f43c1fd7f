"""Roles on scopes, as a table."""

from __future__ import annotations

from uuid import uuid4

import pytest

from apps.accounts.domain.authorize import (
    GRANTS,
    SYSTEM,
    Binding,
    NotAllowed,
    ObjectScope,
    Permission,
    Role,
    ScopeKind,
    Viewer,
    require,
)

CLUSTER, OTHER, TEAM, DEPLOYMENT = uuid4(), uuid4(), uuid4(), uuid4()
HERE = ObjectScope(cluster_id=CLUSTER, team_id=TEAM, deployment_id=DEPLOYMENT)


def viewer(role: Role, kind: ScopeKind, scope_id: object = None, **extra: object) -> Viewer:
    return Viewer(uuid4(), "alice", (Binding(role, kind, scope_id),), **extra)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("kind", "scope_id", "covers"),
    [
        (ScopeKind.INSTALLATION, None, True),
        (ScopeKind.CLUSTER, CLUSTER, True),
        (ScopeKind.CLUSTER, OTHER, False),
        (ScopeKind.TEAM, TEAM, True),
        (ScopeKind.TEAM, OTHER, False),
        (ScopeKind.DEPLOYMENT, DEPLOYMENT, True),
        (ScopeKind.DEPLOYMENT, OTHER, False),
    ],
)
def test_a_binding_covers_its_scope_only(kind: ScopeKind, scope_id: object, covers: bool) -> None:
    assert viewer(Role.OPERATOR, kind, scope_id).can(Permission.PROPOSE, HERE) is covers


def test_separation_of_duties_in_the_table() -> None:
    assert Permission.APPROVE not in GRANTS[Role.OPERATOR]
    assert Permission.PROPOSE not in GRANTS[Role.APPROVER]
    assert Permission.PROPOSE not in GRANTS[Role.ADMIN]
    assert Permission.APPROVE not in GRANTS[Role.ADMIN]
    assert GRANTS[Role.VIEWER] == {Permission.READ}
    assert all(Permission.READ in granted for granted in GRANTS.values())
    holders = {role for role in Role if Permission.KILL_OFF in GRANTS[role]}
    assert holders == {Role.APPROVER}


def test_a_token_narrows_what_roles_grant_and_never_widens() -> None:
    narrow = viewer(
        Role.OPERATOR,
        ScopeKind.INSTALLATION,
        via_token=True,
        token_permissions=frozenset({Permission.READ, Permission.APPROVE}),
    )
    assert narrow.can(Permission.READ, HERE)
    assert not narrow.can(Permission.PROPOSE, HERE)
    assert not narrow.can(Permission.APPROVE, HERE)


def test_an_inactive_person_may_do_nothing() -> None:
    gone = viewer(Role.OPERATOR, ScopeKind.INSTALLATION, is_active=False)
    assert not gone.can(Permission.READ, HERE)
    assert gone.scopes_with(Permission.READ) == ()
    with pytest.raises(NotAllowed, match="read"):
        require(gone, Permission.READ, HERE)


def test_an_object_without_team_is_not_covered_by_a_team_binding() -> None:
    loose = ObjectScope(cluster_id=CLUSTER)
    assert not viewer(Role.OPERATOR, ScopeKind.TEAM, TEAM).can(Permission.READ, loose)


def test_the_system_may_act() -> None:
    require(SYSTEM, Permission.APPROVE, HERE)
