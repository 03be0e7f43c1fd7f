"""Properties of plans over router membership."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.backends.errors import PlanRefused
from apps.backends.protocol import ABSENT, Snapshot, StepKind, WorkerView
from apps.backends.router_workers.plan import Options, plan_change

AT = datetime(2026, 11, 30, tzinfo=UTC)
UNITS = {"prefill": Decimal(2), "decode": Decimal(2)}


def worker(name: str, role: str, in_flight: int | None = 0, **more: object) -> WorkerView:
    view = WorkerView(
        url=f"http://{name}",
        router_id=name,
        role=role,
        status="ready",
        is_healthy=True,
        engine_role=role,
        in_flight=in_flight,
        name=name,
        bootstrap_port=9000,
    )
    return replace(view, **more)  # type: ignore[arg-type]


def snapshot(*workers: WorkerView) -> Snapshot:
    return Snapshot(observed_at=AT, workers=workers, complete=True, fence="f")


fleets = st.tuples(
    st.lists(st.integers(0, 30), min_size=1, max_size=6),
    st.lists(st.integers(0, 30), min_size=1, max_size=6),
)


@given(fleets, st.data())
def test_a_rebalance_keeps_gpus_and_floors_and_reaches_its_target(
    fleet: tuple[list[int], list[int]], data: st.DataObject
) -> None:
    loads_p, loads_d = fleet
    workers = [worker(f"p{n}", "prefill", load) for n, load in enumerate(loads_p)]
    workers += [worker(f"d{n}", "decode", load) for n, load in enumerate(loads_d)]
    total = len(workers)
    prefill = data.draw(st.integers(1, total - 1))
    targets = {"prefill": prefill, "decode": total - prefill}
    steps = plan_change(snapshot(*workers), targets, UNITS, Options())

    moves = abs(prefill - len(loads_p))
    assert len(steps) == 7 * moves
    assert [step.index for step in steps] == list(range(len(steps)))
    assert all(step.gpus_during == 2 * total for step in steps)
    assert all(min(step.serving_during.values()) >= 1 for step in steps)
    assert all(sum(step.serving_during.values()) >= total - 1 for step in steps), "one at a time"
    if steps:
        assert steps[-1].serving_during == targets
        donor = "decode" if prefill > len(loads_p) else "prefill"
        loads = sorted(loads_d if donor == "decode" else loads_p)
        moved = {step.worker.url for step in steps}
        assert sorted(w.in_flight or 0 for w in workers if w.url in moved) == loads[:moves]
        assert all(step.expected["from_role"] == donor for step in steps)


@given(fleets, st.integers(1, 6))
def test_a_scale_down_only_drains(fleet: tuple[list[int], list[int]], target: int) -> None:
    loads_p, loads_d = fleet
    workers = [worker(f"p{n}", "prefill", load) for n, load in enumerate(loads_p)]
    workers += [worker(f"d{n}", "decode", load) for n, load in enumerate(loads_d)]
    target = min(target, len(loads_d))
    steps = plan_change(snapshot(*workers), {"decode": target}, UNITS, Options())
    assert len(steps) == 3 * (len(loads_d) - target)
    assert {s.kind for s in steps} <= {
        StepKind.SET_DRAIN_TIME,
        StepKind.REMOVE_WORKER,
        StepKind.WAIT_IDLE,
    }
    gpus = [step.gpus_during for step in steps]
    assert gpus == sorted(gpus, reverse=True), "GPUs are given back only when a worker is idle"


@pytest.mark.parametrize(
    ("workers", "targets", "units", "code"),
    [
        ([worker("p", "prefill"), worker("d", "decode")], {"decode": 0}, UNITS, "below_floor"),
        ([worker("d", "decode")], {"decode": 2}, UNITS, "no_spare_worker"),
        ([worker("d", "decode")], {"encode": 1}, UNITS, "unplanned_role"),
        ([worker("d", "decode")], {"decode": 1}, {}, "unknown_unit"),
        (
            [worker("p", "prefill"), worker("d", "decode"), worker("e", "decode")],
            {"prefill": 2, "decode": 1},
            {"prefill": Decimal(4), "decode": Decimal(2)},
            "unit_mismatch",
        ),
        (
            [worker("d", "decode", None), worker("e", "decode", None)],
            {"decode": 1},
            UNITS,
            "in_flight_unknown",
        ),
        (
            [
                worker("p", "prefill"),
                worker("d", "decode", bootstrap_port=None),
                worker("e", "decode", bootstrap_port=None),
            ],
            {"prefill": 2, "decode": 1},
            UNITS,
            "no_bootstrap_port",
        ),
    ],
)
def test_what_cannot_be_planned(
    workers: list[WorkerView], targets: dict[str, int], units: dict[str, Decimal], code: str
) -> None:
    with pytest.raises(PlanRefused) as refused:
        plan_change(snapshot(*workers), targets, units, Options())
    assert refused.value.code == code


def test_an_unhealthy_donor_costs_no_serving_capacity() -> None:
    sick = worker("d0", "decode", 0, status="failed", is_healthy=False)
    fleet = snapshot(worker("p", "prefill"), sick, worker("d1", "decode", 5))
    steps = plan_change(fleet, {"decode": 1}, UNITS, Options())
    assert {step.worker.url for step in steps} == {"http://d0"}
    assert all(step.serving_during["decode"] == 1 for step in steps)


def test_a_prefill_donor_waits_for_the_lease_of_its_runtime() -> None:
    def lease(runtime: str) -> str:
        labels = {"runtime_type": runtime}
        fleet = snapshot(
            worker("p0", "prefill", labels=labels), worker("p1", "prefill", labels=labels)
        )
        steps = plan_change(fleet, {"prefill": 1}, UNITS, Options())
        return next(s.expected["lease_s"] for s in steps if s.kind is StepKind.WAIT_IDLE)

    assert (lease("sglang"), lease("vllm")) == ("5", "30")


def test_a_lost_worker_comes_back_before_another_leaves() -> None:
    lost = worker("x", "decode", 3, status=ABSENT, is_healthy=False, engine_role="decode")
    fleet = snapshot(worker("p", "prefill"), worker("d", "decode"), lost)
    undo = plan_change(fleet, {"prefill": 1, "decode": 2}, UNITS, Options())
    assert [s.kind for s in undo] == [
        StepKind.ADD_WORKER,
        StepKind.WAIT_SERVING,
        StepKind.VERIFY_DATA_PLANE,
    ], "its engine never left the role, so it need not be idle"
    on = plan_change(fleet, {"prefill": 2, "decode": 1}, UNITS, Options())
    assert [s.kind for s in on][:2] == [StepKind.WAIT_IDLE, StepKind.SWITCH_ROLE]
