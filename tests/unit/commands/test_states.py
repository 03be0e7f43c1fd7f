"""The whole table of states, both ways: what is allowed, and that nothing else is."""

from __future__ import annotations

import itertools

import pytest

from apps.commands.domain.states import (
    ACTIVE,
    DRIVEN,
    ENDED,
    STEP_TRANSITIONS,
    TRANSITIONS,
    CommandState,
    IllegalTransition,
    StepState,
    check,
    check_step,
)

#: DESIGN §5 and the exits of research on backends §3.2, written down a second time.
ALLOWED = """
PROPOSED: APPROVED SCHEDULED REJECTED EXPIRED CANCELLED SUPERSEDED
APPROVED: PREFLIGHT EXPIRED CANCELLED DENIED SUPERSEDED
SCHEDULED: PREFLIGHT EXPIRED CANCELLED DENIED SUPERSEDED
PREFLIGHT: RUNNING EXPIRED CANCELLED DENIED SUPERSEDED FAILED
RUNNING: SOAK SUCCEEDED PARTIAL FAILED CANCELLED SUPERSEDED ROLLING_BACK
SOAK: SUCCEEDED ROLLING_BACK SUPERSEDED
PARTIAL: ROLLING_BACK
SUCCEEDED: ROLLING_BACK
ROLLING_BACK: ROLLED_BACK ROLLBACK_FAILED
ROLLBACK_FAILED: ROLLING_BACK
"""
STEPS = """
PLANNED: INTENT
INTENT: SENT ACCEPTED FAILED
SENT: UNKNOWN ACCEPTED INTENT FAILED
UNKNOWN: ACCEPTED INTENT FAILED
ACCEPTED: VERIFYING DONE FAILED
VERIFYING: DONE FAILED
"""


def pairs(table: str) -> set[tuple[str, str]]:
    rows = (line.split(": ") for line in table.strip().splitlines())
    return {(row, to) for row, tos in rows for to in tos.split()}


@pytest.mark.parametrize(("was", "to"), list(itertools.product(CommandState, CommandState)))
def test_every_pair_of_command_states(was: CommandState, to: CommandState) -> None:
    if (was.value, to.value) in pairs(ALLOWED):
        check(was, to)
    else:
        with pytest.raises(IllegalTransition):
            check(was, to)


@pytest.mark.parametrize(("was", "to"), list(itertools.product(StepState, StepState)))
def test_every_pair_of_step_states(was: StepState, to: StepState) -> None:
    if (was.value, to.value) in pairs(STEPS):
        check_step(was, to)
    else:
        with pytest.raises(IllegalTransition):
            check_step(was, to)


def test_the_tables_are_whole() -> None:
    assert set(TRANSITIONS) == set(CommandState) and set(STEP_TRANSITIONS) == set(StepState)
    assert {s.value for s in CommandState} == {
        "PROPOSED", "APPROVED", "SCHEDULED", "PREFLIGHT", "RUNNING", "SOAK", "SUCCEEDED",
        "REJECTED", "EXPIRED", "CANCELLED", "DENIED", "SUPERSEDED", "PARTIAL", "ROLLING_BACK",
        "ROLLED_BACK", "FAILED", "ROLLBACK_FAILED",
    }  # fmt: skip
    assert set(DRIVEN) | set(ENDED) == set(CommandState) and not set(DRIVEN) & set(ENDED)
    assert set(DRIVEN) - set(ACTIVE) == {CommandState.ROLLING_BACK}


def test_every_state_is_reached_and_every_active_one_can_end() -> None:
    reached, todo = {CommandState.PROPOSED}, [CommandState.PROPOSED]
    while todo:
        fresh = TRANSITIONS[todo.pop()] - reached
        reached |= fresh
        todo += fresh
    assert reached == set(CommandState)
    assert all(TRANSITIONS[state] for state in DRIVEN)
