"""States of commands and steps, and which may follow which (DESIGN §5)."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final


class CommandState(StrEnum):
    PROPOSED = "PROPOSED"
    APPROVED = "APPROVED"
    SCHEDULED = "SCHEDULED"
    PREFLIGHT = "PREFLIGHT"
    RUNNING = "RUNNING"
    SOAK = "SOAK"
    SUCCEEDED = "SUCCEEDED"
    REJECTED = "REJECTED"
    EXPIRED = "EXPIRED"
    CANCELLED = "CANCELLED"
    DENIED = "DENIED"
    SUPERSEDED = "SUPERSEDED"
    PARTIAL = "PARTIAL"
    ROLLING_BACK = "ROLLING_BACK"
    ROLLED_BACK = "ROLLED_BACK"
    FAILED = "FAILED"
    ROLLBACK_FAILED = "ROLLBACK_FAILED"


class StepState(StrEnum):
    PLANNED = "PLANNED"
    INTENT = "INTENT"
    SENT = "SENT"
    UNKNOWN = "UNKNOWN"
    ACCEPTED = "ACCEPTED"
    VERIFYING = "VERIFYING"
    DONE = "DONE"
    FAILED = "FAILED"


class Kind(StrEnum):
    REBALANCE = "rebalance"
    SCALE = "scale"
    ROLE_FLIP = "role_flip"
    ROLLBACK = "rollback"


_C = CommandState
#: FAILED, DENIED, EXPIRED, CANCELLED and REJECTED mean that nothing was changed; a change that
#: went half-way is PARTIAL. Only a rollback goes from RUNNING to SUCCEEDED without a soak.
TRANSITIONS: Final[Mapping[CommandState, frozenset[CommandState]]] = {
    _C.PROPOSED: frozenset(
        {_C.APPROVED, _C.SCHEDULED, _C.REJECTED, _C.EXPIRED, _C.CANCELLED, _C.SUPERSEDED}
    ),
    _C.APPROVED: frozenset({_C.PREFLIGHT, _C.EXPIRED, _C.CANCELLED, _C.DENIED, _C.SUPERSEDED}),
    _C.SCHEDULED: frozenset({_C.PREFLIGHT, _C.EXPIRED, _C.CANCELLED, _C.DENIED, _C.SUPERSEDED}),
    _C.PREFLIGHT: frozenset(
        {_C.RUNNING, _C.EXPIRED, _C.CANCELLED, _C.DENIED, _C.SUPERSEDED, _C.FAILED}
    ),
    _C.RUNNING: frozenset(
        {
            _C.SOAK,
            _C.SUCCEEDED,
            _C.PARTIAL,
            _C.FAILED,
            _C.CANCELLED,
            _C.SUPERSEDED,
            _C.ROLLING_BACK,
        }
    ),
    _C.SOAK: frozenset({_C.SUCCEEDED, _C.ROLLING_BACK, _C.SUPERSEDED}),
    _C.PARTIAL: frozenset({_C.ROLLING_BACK}),
    _C.SUCCEEDED: frozenset({_C.ROLLING_BACK}),
    _C.ROLLING_BACK: frozenset({_C.ROLLED_BACK, _C.ROLLBACK_FAILED}),
    _C.ROLLBACK_FAILED: frozenset({_C.ROLLING_BACK}),
    _C.REJECTED: frozenset(),
    _C.EXPIRED: frozenset(),
    _C.CANCELLED: frozenset(),
    _C.DENIED: frozenset(),
    _C.SUPERSEDED: frozenset(),
    _C.ROLLED_BACK: frozenset(),
    _C.FAILED: frozenset(),
}

#: One command per deployment may be in these; ROLLING_BACK has handed its place to its rollback.
ACTIVE: Final = (
    _C.PROPOSED,
    _C.APPROVED,
    _C.SCHEDULED,
    _C.PREFLIGHT,
    _C.RUNNING,
    _C.SOAK,
)
#: What the sweeper looks at.
DRIVEN: Final = (*ACTIVE, _C.ROLLING_BACK)
#: Nothing more happens by itself. PARTIAL, SUCCEEDED and ROLLBACK_FAILED may be rolled back.
ENDED: Final = tuple(state for state in _C if state not in DRIVEN)

_S = StepState
STEP_TRANSITIONS: Final[Mapping[StepState, frozenset[StepState]]] = {
    _S.PLANNED: frozenset({_S.INTENT}),
    # ACCEPTED straight from INTENT: nothing had to be sent (a wait, or it is so already).
    _S.INTENT: frozenset({_S.SENT, _S.ACCEPTED, _S.FAILED}),
    # Back to INTENT: the call surely changed nothing and may be made again.
    _S.SENT: frozenset({_S.UNKNOWN, _S.ACCEPTED, _S.INTENT, _S.FAILED}),
    _S.UNKNOWN: frozenset({_S.ACCEPTED, _S.INTENT, _S.FAILED}),
    _S.ACCEPTED: frozenset({_S.VERIFYING, _S.DONE, _S.FAILED}),
    _S.VERIFYING: frozenset({_S.DONE, _S.FAILED}),
    _S.DONE: frozenset(),
    _S.FAILED: frozenset(),
}


class IllegalTransition(Exception):
    """A bug: the table does not allow this. Nothing was written."""


def check(current: CommandState, wanted: CommandState) -> None:
    """Raise IllegalTransition unless a command may go from `current` to `wanted`."""
    if wanted not in TRANSITIONS[current]:
        raise IllegalTransition(f"a command cannot go from {current} to {wanted}")


def check_step(current: StepState, wanted: StepState) -> None:
    """Raise IllegalTransition unless a step may go from `current` to `wanted`."""
    if wanted not in STEP_TRANSITIONS[current]:
        raise IllegalTransition(f"a step cannot go from {current} to {wanted}")
