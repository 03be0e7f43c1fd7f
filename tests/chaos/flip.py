"""A role flip that is killed in the middle: how to get there, and what must be true at the end."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from apps.commands.domain.states import ENDED
from tests.support.product import (
    Fleet,
    NotInTime,
    Product,
    fleet,
    once_more_after_a_stall,
    product,
    stalls_explain,
    wait_until,
)

SLUG = "chat-pd"
TARGETS = {"prefill": 3, "decode": 3}
#: The soak of the demo preset, and the steps on a busy machine. A killed owner's lease costs
#: nothing: the next start ends it.
SOAK_S, SLACK_S = 60.0, 100.0


@dataclass(frozen=True)
class Instant:
    """Kill when the step of this kind is seen in one of `states`, or (without a kind) the command
    is; `late_s` later when that is wanted."""

    name: str
    kind: str
    states: tuple[str, ...]
    late_s: float = 0.0

    def __str__(self) -> str:
        return self.name


@dataclass
class Killed:
    """One kill: what the rows said at that moment, and when the product was back."""

    instant: str
    command: str
    step: str
    was_leased: bool
    back_in_s: float


@dataclass
class Story:
    """What happened, for the assertions and for whoever reads a failure."""

    number: str
    kills: list[Killed] = field(default_factory=list)
    ended_in_s: float = 0.0

    def __str__(self) -> str:
        lines = [
            f"  killed at {k.instant}: command {k.command}, step {k.step}, "
            f"leased {k.was_leased}, back in {k.back_in_s:.1f} s"
            for k in self.kills
        ]
        return "\n".join([f"{self.number} ended after {self.ended_in_s:.0f} s", *lines])


def retried_after_a_stall(run: Callable[[Fleet], None], *arguments: str, seed: int) -> None:
    """Run on a fleet of its own; once more on another if something came late in a stall. What
    must be true at the end (`hold`) is asked once."""

    def attempt() -> None:
        with fleet(*arguments, seed=seed) as running, stalls_explain(running):
            run(running)

    once_more_after_a_stall(attempt)


def flip_killed_at(running: Fleet, instants: Sequence[Instant], *, seed: int = 0) -> Story:
    """Propose and approve the flip, kill the product at each instant in turn and start it again,
    wait for the end, and hold everything against what must be true then."""
    chance = random.Random(seed)
    with product(running) as one:
        story = Story(_approved(one))
        began = time.monotonic()
        for instant in instants:
            story.kills.append(_kill(one, instant, chance))
        wait_for_end(one, story, began)
        print(story, flush=True)
        try:
            hold(one, running, story)
        except AssertionError as error:
            error.add_note(f"{story}\n{one.log()[-1500:]}")
            raise
    return story


def _approved(one: Product) -> str:
    asked = {"deployment": SLUG, "targets": TARGETS, "expected_revision": 1}

    def allowed() -> Any:
        return one.post("/api/v1/commands/", {**asked, "dry_run": True}, 200)["refused"] is None

    wait_until(allowed, 40, "figures fresh enough for a reduction")
    return one.approved(TARGETS, SLUG)


def _kill(one: Product, instant: Instant, chance: random.Random) -> Killed:
    """Watch the rows every 2 ms and kill at the instant."""
    deadline = time.monotonic() + SLACK_S + (SOAK_S if instant.kind == "" else 0)
    while not _is_there(one, instant):
        if time.monotonic() >= deadline:
            raise NotInTime(f"{instant} was not seen: {_state(one)}")
        time.sleep(0.002)
    if instant.late_s:
        time.sleep(chance.uniform(0, instant.late_s))
    one.kill()
    command, step, was_leased = _state(one)
    one.start(timeout_s=90)
    return Killed(instant.name, command, step, was_leased, one.started_in_s)


def _is_there(one: Product, instant: Instant) -> bool:
    if instant.kind:
        found = one.rows("SELECT state FROM commands_step WHERE kind = ?", instant.kind)
    else:
        found = one.rows("SELECT state FROM commands_command")
    return bool(found) and found[0][0] in instant.states


def _state(one: Product) -> tuple[str, str, bool]:
    command, owner = one.rows("SELECT state, lease_owner FROM commands_command")[0]
    under_way = one.rows(
        "SELECT kind, state FROM commands_step WHERE state != 'DONE' ORDER BY \"index\" LIMIT 1"
    )
    step = " ".join(under_way[0]) if under_way else "all done"
    return command, step, bool(owner)


def wait_for_end(one: Product, story: Story, began: float) -> None:
    """Wait for an end state; the next owner of the command goes on at once."""

    def ended() -> bool:
        state = one.rows("SELECT state FROM commands_command WHERE number = ?", story.number)
        return state[0][0] in ENDED

    try:
        wait_until(ended, SOAK_S + SLACK_S, "the end", every_s=0.5)
    except NotInTime as error:
        error.add_note(f"{story}\nnow {_state(one)}, {_log(one)}")
        raise
    story.ended_in_s = time.monotonic() - began


def hold(one: Product, running: Fleet, story: Story) -> None:
    """DESIGN laws 5 and 7 after the restart: done once, true at both ends, nothing lost."""
    command = one.get(f"/api/v1/commands/{story.number}/")
    if command["state"] == "DENIED" and story.kills[0].instant == "approved":
        return hold_untouched(one, running)
    assert command["state"] == "SUCCEEDED", (command["state"], _log(one))
    time.sleep(2)  # nothing follows the end

    # Once: one command, one end, one change of the wanted counts, one change of the worker's role.
    assert one.rows("SELECT count(*) FROM commands_command") == [(1,)]
    events = Counter(code for (code,) in one.rows("SELECT code FROM commands_commandevent"))
    assert events["state.succeeded"] == events["state.soak"] == events["state.running"] == 1
    assert one.get(f"/api/v1/deployments/{SLUG}/")["revision"] == 2
    audited = Counter(
        action
        for (action,) in one.rows(
            "SELECT action FROM audit_auditevent WHERE action LIKE 'command.%'"
            " OR action = 'deployment.set_wanted'"
        )
    )
    assert audited["command.succeeded"] == audited["deployment.set_wanted"] == 1
    moved = one.rows("SELECT DISTINCT worker_url FROM commands_step")
    assert len(moved) == 1
    spans = one.rows(
        "SELECT json_extract(s.value, '$') FROM fleet_span s"
        " JOIN fleet_worker w ON w.id = s.subject_id"
        " WHERE s.attribute = 'role' AND w.url = ? ORDER BY s.valid_from",
        moved[0][0],
    )
    assert spans == [("decode",), ("prefill",)]
    assert one.rows("SELECT count(*) FROM commands_reservation WHERE released_at IS NULL") == [(0,)]
    assert one.rows(
        "SELECT count(*) FROM fleet_changestate WHERE active_command_id IS NOT NULL"
    ) == [(0,)]
    assert one.rows("SELECT count(*) FROM commands_step WHERE state != 'DONE'") == [(0,)]

    # True at both ends: the router lists each worker once, and each engine says the same.
    listed = running.router_rows()
    assert Counter(row["url"] for row in listed) == Counter(
        worker["url"] for worker in running.deployment()["workers"]
    )
    roles = {row["url"]: row["worker_type"] for row in listed}
    assert Counter(roles.values()) == Counter(TARGETS)
    assert roles[moved[0][0]] == "prefill"
    assert running.engine_roles() == roles
    known = dict(
        one.rows(
            "SELECT w.url, w.role FROM fleet_worker w"
            " JOIN fleet_deployment d ON d.id = w.deployment_id WHERE d.slug = ?",
            SLUG,
        )
    )
    assert known == roles

    nothing_lost(one, running)


def hold_untouched(one: Product, running: Fleet) -> None:
    """Killed before the first call and denied after the restart, because the figures were too old
    by then for a reduction: nothing was touched."""
    reason = one.rows("SELECT error_code FROM commands_command")
    assert reason == [("stale_data",)], _log(one)
    assert one.rows("SELECT count(*) FROM commands_step WHERE was_sent") == [(0,)]
    assert one.get(f"/api/v1/deployments/{SLUG}/")["revision"] == 1
    assert Counter(running.router_workers().values()) == {"prefill": 2, "decode": 4}
    nothing_lost(one, running)


def nothing_lost(one: Product, running: Fleet) -> None:
    """No client saw a failure, the audit chain is whole, so is the database."""
    truth = running.truth()
    failed = [row for row in truth["requests"] if not row["ok"]]
    assert not failed, failed[:5]
    assert truth["totals"][SLUG]["ok"] > 0
    assert one.rows("PRAGMA integrity_check") == [("ok",)]
    verified = one.manage("verify_audit")
    assert verified.returncode == 0, verified.stderr[-800:]


def _log(one: Product) -> list[Any]:
    return one.rows("SELECT code, params FROM commands_commandevent ORDER BY id DESC LIMIT 12")
