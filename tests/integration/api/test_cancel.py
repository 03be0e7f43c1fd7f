"""The Cancel button offers what the service does, and says why where it is off."""

from __future__ import annotations

import pytest

from apps.commands import services as commands
from apps.commands.domain.states import DRIVEN, CommandState
from apps.commands.models import Command
from apps.overview import selectors as overview
from apps.overview.domain.types import Text

from .lab import Lab, undone

STOPPED = {"PROPOSED", "APPROVED", "SCHEDULED", "PREFLIGHT", "RUNNING"}
#: Both who may propose and who may roll back stop a command.
CALLERS = {"operator": True, "approver": True, "viewer": False, "admin": False}


@pytest.mark.parametrize("caller", CALLERS)
def test_cancel_is_offered_where_it_is_done(lab: Lab, caller: str) -> None:
    actor, made = lab.viewer(caller), lab.propose()
    for state in CommandState:
        Command.objects.filter(pk=made.pk).update(state=state.value)
        view = overview.command_page(actor, made.number, lab.now)
        assert view.may_cancel is (CALLERS[caller] and state in STOPPED), state
        with undone():
            try:
                commands.cancel(actor=actor, now=lab.now, command_id=made.pk)
            except commands.CommandError:
                assert not view.may_cancel, state
            else:
                assert view.may_cancel, state
        if state in DRIVEN and not view.may_cancel:
            by_state = Text("why_not.cancel_state", {"state": state.value})
            assert view.why_not == (by_state if CALLERS[caller] else Text("why_not.viewer")), state
