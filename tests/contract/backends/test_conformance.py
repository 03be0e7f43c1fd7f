"""One suite that every adapter must pass, and the real smg 1.13.0 behind `router_workers`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import partial
from typing import Any

import pytest

from apps.backends import registry
from apps.backends.errors import PlanRefused
from apps.backends.protocol import (
    ABSENT,
    BASELINE,
    Adapter,
    Connection,
    Outcome,
    Progress,
    StepKind,
    StepSpec,
    WorkerRef,
)
from apps.common.fetch import FetchPolicy, fetch

from .stand_in import ADMIN_KEY, ENGINE_KEY, USER_KEY, Engine, Router, router_with

UNITS = {"prefill": Decimal(1), "decode": Decimal(1)}
QUICK = {"kv_lease_s": "0.2", "quiet_s": "0.5"}
FETCH = partial(fetch, policy=FetchPolicy(any_loopback_port=True))


@dataclass
class Fleet:
    """smg before 2 prefill and 3 decode engines."""

    router: Router
    prefill: list[Engine]
    decode: list[Engine]

    @property
    def engines(self) -> list[Engine]:
        return [*self.prefill, *self.decode]

    def adapter(self, key: str = ADMIN_KEY, **parameters: str) -> Adapter:
        return registry.build(
            "router_workers",
            Connection(
                address=self.router.url,
                metrics_address=self.router.metrics_url,
                credential=key,
                engine_credential=ENGINE_KEY,
                parameters={**QUICK, **parameters},
                fetch=FETCH,
            ),
        )

    def known(self) -> list[WorkerRef]:
        return [
            WorkerRef(e.url, f"w-{n}", e.launch_role, e.bootstrap_port)
            for n, e in enumerate(self.engines)
        ]


@pytest.fixture
def fleet() -> Iterator[Fleet]:
    prefill = [Engine("prefill") for _ in range(2)]
    decode = [Engine("decode") for _ in range(3)]
    try:
        with router_with(prefill, decode) as router:
            yield Fleet(router, prefill, decode)
    finally:
        for engine in (*prefill, *decode):
            engine.close()


def now() -> datetime:
    return datetime.now(UTC)


def run_step(adapter: Adapter, step: StepSpec, *, while_waiting: Callable[[], None]) -> StepSpec:
    """Apply, then poll until it converges; keeps the baseline like the command engine does."""
    applied = adapter.apply(step, key="C-1.test", epoch=1)
    while applied.outcome is Outcome.RETRYABLE:
        time.sleep(0.2)
        applied = adapter.apply(step, key="C-1.test", epoch=1)
    assert applied.outcome in (Outcome.ACCEPTED, Outcome.NOOP), (step.kind, applied)
    since = now()
    needed = int(step.expected.get("confirmations", "1"))
    confirmed = 0
    while now() - since < timedelta(seconds=20):
        seen = adapter.verify(step, since=since, now=now())
        assert seen.progress not in (Progress.SUPERSEDED, Progress.STALLED), (step.kind, seen)
        confirmed = confirmed + 1 if seen.progress is Progress.CONVERGED else 0
        if confirmed >= needed:
            return step
        kept = {k: v for k, v in seen.detail.items() if k.startswith(BASELINE)}
        step = replace(step, expected={**step.expected, **kept})
        while_waiting()
        time.sleep(0.05)
    raise AssertionError(f"{step.kind} did not converge: {seen}")


# --- the shared suite


@pytest.fixture(params=sorted(registry.names()))
def any_adapter(request: pytest.FixtureRequest) -> Iterator[tuple[Adapter, list[WorkerRef]]]:
    if request.param == "router_workers":
        fleet = request.getfixturevalue("fleet")
        yield fleet.adapter(), fleet.known()
    else:
        connection = Connection(address="", fetch=FETCH)
        yield registry.build(request.param, connection), [WorkerRef("http://w:1", "w", "decode")]


def test_every_adapter_keeps_the_contract(any_adapter: tuple[Adapter, list[WorkerRef]]) -> None:
    adapter, known = any_adapter
    at = now()
    first, second = adapter.observe(at, known), adapter.observe(at, known)
    assert first.observed_at == at
    assert first.fence == second.fence, "the fence moves only with the set of workers"
    assert adapter.observe(at, ()).fence == first.fence, "what we know is no part of the fence"

    before = {role: first.count(role) for role in ("prefill", "decode")}
    if not first.complete:
        with pytest.raises(PlanRefused):
            adapter.plan(first, before, UNITS)
        assert adapter.preflight((), first).denials, "an incomplete snapshot forbids writes"
    else:
        assert adapter.plan(first, before, UNITS) == (), "nothing to do for what is there already"
        with pytest.raises(PlanRefused) as refused:
            adapter.plan(first, {"decode": 0}, UNITS)
        assert refused.value.code == "below_floor"
        with pytest.raises(PlanRefused) as refused:
            adapter.plan(first, {"prefill": 3, "decode": 2}, {"prefill": Decimal(1)})
        assert refused.value.code == "unknown_unit"
        with pytest.raises(PlanRefused):
            adapter.plan(replace(first, complete=False), {"prefill": 3, "decode": 2}, UNITS)
        assert adapter.preflight((), first).denials == ()

    able = adapter.capabilities()
    if not able.can_write:
        assert not (able.role_flip or able.add or able.remove)
        for kind in StepKind:
            step = StepSpec(
                0, kind, known[0], "prefill", 5, Decimal(1), {}, {"from_role": "decode"}
            )
            assert adapter.apply(step, key="k", epoch=1).outcome is Outcome.UNSUPPORTED
            assert adapter.verify(step, since=at, now=at).progress is Progress.UNREADABLE


# --- the real router


def test_a_role_flip_and_its_undo_on_the_real_router(fleet: Fleet) -> None:
    adapter = fleet.adapter()
    fleet.decode[0].running = 3
    fleet.decode[2].running = 1  # the second engine alone is free, so it must be chosen
    snapshot = adapter.observe(now(), fleet.known())
    assert snapshot.complete and not snapshot.problems
    assert (snapshot.count("prefill"), snapshot.count("decode")) == (2, 3)
    assert [w.in_flight for w in snapshot.workers if w.url == fleet.decode[0].url] == [3]

    steps = adapter.plan(snapshot, {"prefill": 3, "decode": 2}, UNITS)
    assert [step.kind for step in steps] == [
        StepKind.SET_DRAIN_TIME,
        StepKind.REMOVE_WORKER,
        StepKind.WAIT_IDLE,
        StepKind.SWITCH_ROLE,
        StepKind.ADD_WORKER,
        StepKind.WAIT_SERVING,
        StepKind.VERIFY_DATA_PLANE,
    ]
    moved = fleet.decode[1]
    assert {step.worker.url for step in steps} == {moved.url}
    assert {step.gpus_during for step in steps} == {Decimal(5)}
    assert [dict(step.serving_during) for step in (steps[0], steps[1], steps[6])] == [
        {"prefill": 2, "decode": 3},
        {"prefill": 2, "decode": 2},
        {"prefill": 3, "decode": 2},
    ]
    assert adapter.preflight(steps, snapshot).denials == ()

    for step in steps:
        run_step(adapter, step, while_waiting=fleet.router.chat)
    listed = fleet.router.workers()[moved.url]
    assert (listed["worker_type"], listed["status"]) == ("prefill", "ready")
    assert listed["labels"]["fulcrum_command"] == "C-1.test"
    assert moved.switches == ["prefill"]

    after = adapter.observe(now(), fleet.known())
    assert after.fence != snapshot.fence
    undo = adapter.rollback_plan(after, {"prefill": 2, "decode": 3}, UNITS)
    assert {step.worker.url for step in undo} == {moved.url}, "an undo undoes"
    for step in undo:
        run_step(adapter, step, while_waiting=fleet.router.chat)
    again = adapter.observe(now(), fleet.known())
    assert again.fence == snapshot.fence
    assert moved.switches == ["prefill", "decode"]


def test_each_step_sent_twice_acts_once(fleet: Fleet) -> None:
    adapter = fleet.adapter()
    snapshot = adapter.observe(now(), fleet.known())
    steps = adapter.plan(snapshot, {"prefill": 3, "decode": 2}, UNITS)
    for step in steps:
        run_step(adapter, step, while_waiting=fleet.router.chat)
        if step.kind is StepKind.SET_DRAIN_TIME:
            continue  # the router shows no value to compare, and writing 1 twice is writing 1
        repeated = adapter.apply(step, key="C-1.test", epoch=2)
        assert repeated.outcome is Outcome.NOOP, (step.kind, repeated)
    assert [engine.switches for engine in fleet.engines].count(["prefill"]) == 1


@pytest.mark.parametrize("done", [2, 3, 4])
def test_a_flip_that_broke_off_is_finished_or_undone(fleet: Fleet, done: int) -> None:
    """After DELETE, after idle, after the switch: the lost worker is found again."""
    adapter = fleet.adapter()
    snapshot = adapter.observe(now(), fleet.known())
    steps = adapter.plan(snapshot, {"prefill": 3, "decode": 2}, UNITS)
    for step in steps[:done]:
        run_step(adapter, step, while_waiting=fleet.router.chat)
    broken = adapter.observe(now(), fleet.known())
    lost = broken.by_url(steps[0].worker.url)
    assert lost is not None and lost.status == ABSENT
    assert (broken.count("prefill"), broken.count("decode")) == (2, 2)

    finish = adapter.plan(broken, {"prefill": 3, "decode": 2}, UNITS)
    undo = adapter.rollback_plan(broken, {"prefill": 2, "decode": 3}, UNITS)
    assert {s.worker.url for s in (*finish, *undo)} == {lost.url}
    switched = done == 4
    assert (StepKind.SWITCH_ROLE in [s.kind for s in finish]) is not switched
    assert (StepKind.SWITCH_ROLE in [s.kind for s in undo]) is switched
    for step in undo:
        run_step(adapter, step, while_waiting=fleet.router.chat)
    assert adapter.observe(now(), fleet.known()).fence == snapshot.fence


def test_scaling_down_and_up_again_uses_the_declared_idle_worker(fleet: Fleet) -> None:
    adapter = fleet.adapter()
    snapshot = adapter.observe(now(), fleet.known())
    down = adapter.plan(snapshot, {"decode": 2}, UNITS)
    assert [step.kind for step in down] == [
        StepKind.SET_DRAIN_TIME,
        StepKind.REMOVE_WORKER,
        StepKind.WAIT_IDLE,
    ]
    with pytest.raises(PlanRefused) as refused:
        adapter.plan(snapshot, {"decode": 4}, UNITS)
    assert refused.value.code == "no_spare_worker"
    for step in down:
        run_step(adapter, step, while_waiting=fleet.router.chat)

    import json

    url = down[0].worker.url
    idle = json.dumps([{"url": url, "name": "d-9", "role": "decode"}])
    knows = fleet.adapter(idle_workers=idle)
    fresh = knows.observe(now(), ())
    up = knows.plan(fresh, {"decode": 3}, UNITS)
    assert [step.kind for step in up] == [
        StepKind.ADD_WORKER,
        StepKind.WAIT_SERVING,
        StepKind.VERIFY_DATA_PLANE,
    ]
    assert up[0].worker.name == "d-9"
    assert [step.gpus_during for step in up] == [Decimal(5)] * 3
    for step in up:
        run_step(knows, step, while_waiting=fleet.router.chat)
    assert url in fleet.router.workers()


def test_a_busy_engine_is_waited_for_and_a_foreign_hand_is_noticed(fleet: Fleet) -> None:
    adapter = fleet.adapter()
    for engine in fleet.decode:
        engine.running = 2
    steps = adapter.plan(adapter.observe(now(), fleet.known()), {"prefill": 3, "decode": 2}, UNITS)
    donor = next(e for e in fleet.decode if e.url == steps[0].worker.url)
    for step in steps[:2]:
        run_step(adapter, step, while_waiting=lambda: None)
    since = now()
    waiting = adapter.verify(steps[2], since=since, now=now())
    assert (waiting.progress, waiting.reason) == (Progress.PROGRESSING, "requests_in_flight")
    assert waiting.detail == {"in_flight": "2"}
    donor.running, donor.transferring = 0, 1
    assert adapter.verify(steps[2], since=since, now=now()).progress is Progress.PROGRESSING

    # Somebody else puts the worker back while we wait.
    status, _ = fleet.router.call("POST", "/workers", {"url": donor.url, "worker_type": "decode"})
    assert status == 202
    deadline = time.monotonic() + 5
    while donor.url not in fleet.router.workers() and time.monotonic() < deadline:
        time.sleep(0.05)
    seen = adapter.verify(steps[2], since=since, now=now())
    assert (seen.progress, seen.reason) == (Progress.SUPERSEDED, "came_back")
    sent = adapter.apply(steps[3], key="k", epoch=1)
    assert (sent.outcome, sent.reason) == (Outcome.CONFLICT, "came_back")
    assert donor.switches == []


def test_without_traffic_the_data_plane_says_so(fleet: Fleet) -> None:
    adapter = fleet.adapter()
    steps = adapter.plan(adapter.observe(now(), fleet.known()), {"prefill": 3, "decode": 2}, UNITS)
    for step in steps[:-1]:
        run_step(adapter, step, while_waiting=lambda: None)
    last = steps[-1]
    since = now()
    first = adapter.verify(last, since=since, now=since)
    last = replace(last, expected={**last.expected, **first.detail})
    early = adapter.verify(last, since=since, now=since)
    assert (early.progress, early.reason) == (Progress.PROGRESSING, "first_request")
    late = adapter.verify(last, since=since, now=since + timedelta(seconds=1))
    assert (late.progress, late.reason) == (Progress.CONVERGED, "no_traffic")


def test_keys_and_silence_on_the_real_router(fleet: Fleet) -> None:
    good = fleet.adapter()
    snapshot = good.observe(now(), fleet.known())
    steps = good.plan(snapshot, {"prefill": 3, "decode": 2}, UNITS)
    assert "router_denied" in fleet.adapter(key=USER_KEY).preflight(steps, snapshot).denials
    assert "router_denied" in fleet.adapter(key="wrong").preflight(steps, snapshot).denials
    assert fleet.adapter(key=USER_KEY).observe(now(), ()).complete, "a reading key may read"
    wrong = fleet.adapter(key="wrong").observe(now(), ())
    assert not wrong.complete and "http_401" in wrong.problems[0]

    for engine in fleet.engines:
        if engine.url == steps[0].worker.url:
            engine.close()
    silent = good.preflight(steps, snapshot)
    assert f"engine_unreachable:{steps[0].worker.url}" in silent.denials
    partly = good.observe(now(), fleet.known())
    dead = partly.by_url(steps[0].worker.url)
    assert dead is not None and dead.in_flight is None, "unknown is never 0"
    other = good.plan(partly, {"prefill": 3, "decode": 2}, UNITS)
    assert other[0].worker.url != dead.url, "a worker of unknown load is no donor"


def test_secrets_are_not_in_what_is_kept(fleet: Fleet) -> None:
    adapter = fleet.adapter()
    steps = adapter.plan(adapter.observe(now(), fleet.known()), {"prefill": 3, "decode": 2}, UNITS)
    texts: list[Any] = [repr(adapter.__dict__["_connection"])]
    for step in steps[:4]:
        applied = adapter.apply(step, key="C-1.test", epoch=1)
        texts += [applied, adapter.verify(step, since=now(), now=now())]
        if step.kind is StepKind.REMOVE_WORKER:
            run_step(adapter, step, while_waiting=lambda: None)
    assert all(k not in str(t) for t in texts for k in (ADMIN_KEY, ENGINE_KEY))
