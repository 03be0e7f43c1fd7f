"""The proof over random fleets: it finds what a slow reading of the steps finds."""

from __future__ import annotations

from decimal import Decimal

from hypothesis import given
from hypothesis import strategies as st

from apps.backends.protocol import StepKind, StepSpec, WorkerRef
from apps.commands.domain import specs
from apps.commands.domain.proof import (
    Limits,
    Load,
    largest_gpus,
    lowest_capacity,
    violations,
)

ROLES = ("prefill", "decode")


def step(index: int, gpus: int, prefill: int, decode: int) -> StepSpec:
    return StepSpec(
        index=index,
        kind=StepKind.REMOVE_WORKER,
        worker=WorkerRef("http://w", "w", "decode", None),
        target_role="prefill",
        deadline_s=30,
        gpus_during=Decimal(gpus),
        serving_during={"prefill": prefill, "decode": decode},
        expected={"from_role": "decode"},
    )


small = st.integers(0, 6)
plans = st.lists(st.tuples(st.integers(1, 12), small, small), min_size=1, max_size=8)


@given(plans, st.integers(1, 12), st.tuples(small, small), st.tuples(small, small))
def test_no_unsafe_plan_passes(
    rows: list[tuple[int, int, int]],
    cap: int,
    minimum: tuple[int, int],
    serving: tuple[int, int],
) -> None:
    steps = [step(n, *row) for n, row in enumerate(rows)]
    least = dict(zip(ROLES, minimum, strict=True))
    now = dict(zip(ROLES, serving, strict=True))
    limits = Limits(Decimal(cap), least, {})
    found = violations(steps, {}, limits, {}, now)

    too_many = any(gpus > cap for gpus, _, _ in rows)
    too_few = any(
        counts[role] < min(least[role], now[role])
        for _, p, d in rows
        for counts in [dict(zip(ROLES, (p, d), strict=True))]
        for role in ROLES
    )
    one_empty = any(
        (p == 0) != (d == 0) and now["prefill"] > 0 and now["decode"] > 0 for _, p, d in rows
    )
    codes = {one.code for one in found}
    assert ("gpus" in codes) is too_many
    assert ("below_minimum" in codes) is too_few
    assert ("one_role_empty" in codes) is one_empty
    assert codes <= {"gpus", "below_minimum", "one_role_empty"}


@given(st.floats(0.05, 3), st.integers(1, 12), st.integers(0, 12), st.booleans())
def test_a_passing_state_carries_the_load_of_all(
    busy: float, workers: int, passing: int, holds: bool
) -> None:
    limits = Limits(Decimal(99), {}, {})
    load = {"decode": Load(busy, workers, holds)}
    found = violations([step(0, 1, 1, passing)], {}, limits, load, {})
    expected = holds and 0 < passing < workers and busy * workers / passing > 1
    assert bool(found) is expected


def test_targets_keep_the_limits_of_their_pool() -> None:
    limits = Limits(Decimal(9), {"decode": 2}, {"prefill": 3, "decode": None})
    steps = [step(0, 6, 2, 3)]
    assert violations(steps, {"prefill": 3, "decode": 3}, limits, {}, {}) == ()
    codes = [v.code for v in violations(steps, {"prefill": 4, "decode": 1}, limits, {}, {})]
    assert codes == ["above_maximum", "below_minimum"]


def test_without_known_inventory_nothing_grows() -> None:
    limits = Limits(None, {}, {})
    assert violations([step(0, 6, 2, 4), step(1, 6, 3, 3)], {}, limits, {}, {}) == ()
    grown = violations([step(0, 6, 2, 4), step(1, 7, 3, 4)], {}, limits, {}, {})
    assert [(v.code, v.step, v.value, v.limit) for v in grown] == [("gpus", 1, "7", "6")]


def test_a_pool_below_its_minimum_may_be_helped() -> None:
    """1 of at least 2 serves now: the plan that brings one may pass through 1, never through 0."""
    limits = Limits(Decimal(9), {"prefill": 2}, {})
    now = {"prefill": 1, "decode": 4}
    assert violations([step(0, 6, 1, 3)], {}, limits, {}, now) == ()
    worse = violations([step(0, 6, 0, 3)], {}, limits, {}, now)
    assert {v.code for v in worse} == {"below_minimum", "one_role_empty"}


def test_lowest_and_largest() -> None:
    steps = [step(0, 6, 2, 4), step(1, 7, 2, 3), step(2, 5, 3, 3)]
    assert lowest_capacity(steps) == {"prefill": 2, "decode": 3}
    assert (largest_gpus(steps), largest_gpus(steps, 2), largest_gpus(steps, 3)) == (7, 5, 0)


def test_a_step_survives_its_json() -> None:
    whole = step(3, 6, 2, 4)
    assert specs.from_json(specs.to_json(whole)) == whole
