"""Floors are restored on the inventory alone, step by step, and at nobody's unmeasured cost."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

import pytest

from apps.common.measurement import State
from apps.planning.domain.choose import Limits
from apps.planning.domain.data import data_state
from apps.planning.domain.floors import BELOW_FLOOR, is_step_to, restored
from apps.planning.domain.model import Pair
from apps.planning.domain.plan import plan
from tests.unit.diagnosis.builders import figures, latency

from .builders import NOW, circumstances, inputs

BOTH = frozenset({"prefill", "decode"})
NOBODY: frozenset[str] = frozenset()


def limits(prefill: int, decode: int, *, gpus: int, scale: bool = True) -> Limits:
    return Limits(min_prefill=prefill, min_decode=decode, gpu_budget=Decimal(gpus), can_scale=scale)


@pytest.mark.parametrize(
    ("current", "found", "donors", "expected"),
    [
        (Pair(2, 4), limits(1, 1, gpus=8), NOBODY, None),
        (Pair(2, 2), limits(1, 3, gpus=8), NOBODY, Pair(2, 3)),
        # Two workers or a half at a time.
        (Pair(2, 2), limits(1, 9, gpus=20), NOBODY, Pair(2, 4)),
        (Pair(1, 1), limits(2, 2, gpus=8), NOBODY, Pair(2, 2)),
        # As far as free GPUs reach.
        (Pair(2, 2), limits(1, 4, gpus=5), NOBODY, Pair(2, 3)),
        (Pair(2, 2), limits(1, 4, gpus=4), NOBODY, None),
        # The other pool gives only if its figures let it, and only down to its own floor.
        (Pair(4, 2), limits(1, 3, gpus=6, scale=False), BOTH, Pair(3, 3)),
        (Pair(4, 2), limits(1, 3, gpus=6, scale=False), NOBODY, None),
        (Pair(2, 2), limits(2, 3, gpus=4, scale=False), BOTH, None),
    ],
)
def test_the_next_step(
    current: Pair, found: Limits, donors: frozenset[str], expected: Pair | None
) -> None:
    assert restored(current, found, donors) == expected


def test_a_step_may_end_below_the_floor_but_not_lead_away_from_it() -> None:
    floor = Pair(2, 6)
    assert is_step_to(Pair(2, 4), Pair(2, 2), floor)
    assert not is_step_to(Pair(1, 4), Pair(2, 2), floor)
    assert not is_step_to(Pair(2, 2), Pair(2, 2), floor)
    assert is_step_to(Pair(3, 6), Pair(2, 6), floor)


def test_a_floor_comes_before_every_other_wish_and_is_predicted_where_it_can_be() -> None:
    found = plan(inputs(figures(), limits=limits(1, 5, gpus=8)), data_state(figures(), NOW, 5))
    assert (found.reason, found.kind) == (BELOW_FLOOR, "scale")
    assert found.chosen is not None and found.chosen.pair == Pair(2, 5)
    assert set(found.chosen.figures) == {"ttft_p95", "tpot_p95", "goodput", "cost_per_million"}
    assert found.is_growth and found.blocked == ""


@pytest.mark.parametrize("state", [State.STALE, State.SOURCE_DOWN, State.CONFLICT, State.NO_DATA])
def test_lost_figures_do_not_keep_a_pool_below_its_floor(state: State) -> None:
    lost = figures(ttft=latency(8.0, state=state))
    data = data_state(lost, NOW, 5)
    facts = circumstances(
        stale=data.stale, may_reduce=False, donors=data.donors, model_only=("prefill", "decode")
    )
    asked = inputs(lost, limits=limits(1, 5, gpus=8), circumstances=facts)
    found = plan(asked, data)
    assert found.reason == BELOW_FLOOR and found.blocked == ""
    assert found.chosen is not None and found.chosen.figures == {}
    old = replace(asked, circumstances=replace(facts, inventory_is_fresh=False))
    assert plan(old, data).reason == "data_not_fresh", "without inventory: hold"


def test_other_guardrails_still_hold_a_floor_back() -> None:
    facts = circumstances(active_command="C-7")
    found = plan(
        inputs(figures(), limits=limits(1, 5, gpus=8), circumstances=facts),
        data_state(figures(), NOW, 5),
    )
    assert (found.reason, found.blocked) == (BELOW_FLOOR, "no_active_command")
