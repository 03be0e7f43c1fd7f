"""`kill -9` of the whole product in the middle of a role flip, and a start on the same state.

The fleet, its routers and its load go on meanwhile. DESIGN law 5: nothing is lost and nothing is
done twice, whatever the instant.
"""

from __future__ import annotations

import pytest

from .flip import Instant, flip_killed_at, retried_after_a_stall

pytestmark = pytest.mark.chaos

LIGHT = ("--scenario", "steady", "--rate-scale", "0.5")

#: From the decision to the soak. SENT is committed before the call goes out, so a kill there
#: leaves a call that may or may not have arrived.
INSTANTS = (
    Instant("approved", "", ("APPROVED", "PREFLIGHT")),
    Instant("remove intended", "remove_worker", ("INTENT",)),
    Instant("remove sent", "remove_worker", ("SENT", "ACCEPTED")),
    Instant("waiting for idle", "wait_idle", ("ACCEPTED", "VERIFYING"), 1.5),
    Instant("switch intended", "switch_role", ("INTENT",)),
    Instant("switch sent", "switch_role", ("SENT", "ACCEPTED")),
    Instant("before add", "switch_role", ("DONE",)),
    Instant("add sent", "add_worker", ("SENT", "ACCEPTED")),
    Instant("verifying", "verify_data_plane", ("ACCEPTED", "VERIFYING"), 1.0),
    Instant("soak", "", ("SOAK",), 30.0),
)
NAMED = {instant.name: instant for instant in INSTANTS}


@pytest.mark.quick
def test_three_kills_in_one_flip():
    """The worst three in one command: before the call that takes a worker out of the router, in
    the call that switches its engine, and while the new role is proved."""
    instants = [NAMED["remove intended"], NAMED["switch sent"], NAMED["verifying"]]
    retried_after_a_stall(lambda running: flip_killed_at(running, instants), *LIGHT, seed=11)


@pytest.mark.parametrize(("seed", "instant"), list(enumerate(INSTANTS, 21)), ids=str)
def test_a_kill_at(instant, seed):
    retried_after_a_stall(
        lambda running: flip_killed_at(running, [instant], seed=seed), *LIGHT, seed=seed
    )
