"""Small conversions that several read models share: changes, diffs, statuses, statements."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Final

from apps.accounts.domain.authorize import ObjectScope, Permission, Viewer
from apps.fleet.domain.topology import Topology

from .domain.types import DiffLine, Status, Text

ROLE_ORDER: Final = ("prefill", "decode", "mixed")


def in_order(roles: Mapping[str, object]) -> list[str]:
    """Roles in the fixed order prefill, decode, mixed, then others by name."""
    return sorted(roles, key=lambda r: (ROLE_ORDER.index(r) if r in ROLE_ORDER else 9, r))


def changes(before: Mapping[str, int], after: Mapping[str, int]) -> dict[str, tuple[int, int]]:
    """role -> (before, after) for the roles that change."""
    return {
        role: (before.get(role, 0), after[role])
        for role in in_order(after)
        if before.get(role, 0) != after[role]
    }


def diff(
    before: Mapping[str, int], after: Mapping[str, int], topology: Topology | None
) -> tuple[DiffLine, ...]:
    """Old and new lines of each role that changes, with GPUs where the unit is known."""
    lines: list[DiffLine] = []
    for role, (old, new) in changes(before, after).items():
        lines.append(DiffLine("-", role, old, _gpus(topology, role, old)))
        lines.append(DiffLine("+", role, new, _gpus(topology, role, new)))
    return tuple(lines)


def _gpus(topology: Topology | None, role: str, workers: int) -> Decimal | None:
    return topology.gpus_of(role, workers) if topology is not None else None


def role_line(viewer: Viewer) -> Text:
    """What the reader may do here, for the bottom of the rail."""
    may_propose = viewer.can_anywhere(Permission.PROPOSE)
    may_approve = viewer.can_anywhere(Permission.APPROVE)
    may_configure = viewer.can_anywhere(Permission.CONFIGURE)
    if may_propose and may_approve and may_configure:
        return Text("role_line.all")
    if may_propose and may_approve:
        return Text("role_line.operate_approve")
    if may_propose:
        return Text("role_line.operate")
    if may_approve:
        return Text("role_line.approve")
    if may_configure:
        return Text("role_line.admin")
    return Text("role_line.read" if viewer.can_anywhere(Permission.READ) else "role_line.nothing")


def why_not_permission(viewer: Viewer, permission: Permission, scope: ObjectScope) -> Text | None:
    """None if the viewer holds the permission, else the reason in words."""
    if viewer.can(permission, scope):
        return None
    if not viewer.can_anywhere(Permission.PROPOSE) and not viewer.can_anywhere(Permission.APPROVE):
        return Text("why_not.viewer")
    return Text("why_not.permission", {"permission": permission.value})


SEVERITY: Final[Mapping[str, Status]] = {
    "ok": Status.OK,
    "info": Status.INFO,
    "warn": Status.WARN,
    "warning": Status.WARN,
    "crit": Status.CRIT,
    "critical": Status.CRIT,
    "unknown": Status.UNKNOWN,
}
