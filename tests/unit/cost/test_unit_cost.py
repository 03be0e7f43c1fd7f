"""Unit costs of the demo fleet, worked by hand; what is missing says why."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.common.measurement import Measurement, Place, State
from apps.common.units import Unit
from apps.cost.domain.unit_cost import (
    NO_GOOD_TOKENS,
    NO_TOKENS,
    PRICE_NEEDED,
    UNIT_UNKNOWN,
    PoolUse,
    TokenRates,
    UnitCosts,
    unit_costs,
)

D = Decimal
PRICE = D("4.59")


def rate(value: float | None, state: State = State.OK) -> Measurement:
    return Measurement(value, Unit.TOKENS_PER_SECOND, state, None, Place.ENGINE)


def ratio(value: float, lower: float | None = None, upper: float | None = None) -> Measurement:
    return Measurement(
        value, Unit.RATIO, State.OK, None, Place.ROUTER, "marginals", lower=lower, upper=upper
    )


NONE = rate(None, State.NO_DATA)


def costs(
    *,
    gpus: tuple[Decimal | None, Decimal | None] = (D(2), D(4)),
    price: Decimal | None = PRICE,
    tokens: TokenRates | None = None,
    good: Measurement | None = None,
    components: dict[str, Decimal] | None = None,
) -> UnitCosts:
    return unit_costs(
        pools=[
            PoolUse("prefill", gpus[0], price, ratio(0.25)),
            PoolUse("decode", gpus[1], price, ratio(1.3)),
        ],
        components=components or {},
        tokens=tokens or TokenRates(rate(6325.0), NONE, rate(1100.0)),
        good_share=good or ratio(0.8, 0.8, 0.9),
    )


def test_money_per_hour_by_pool_phase_and_total() -> None:
    found = costs()
    assert found.per_hour["prefill"].value == D("9.18")
    assert found.per_hour["decode"].value == D("18.36")
    assert found.phase_per_hour["input"].value == D("9.18")
    assert found.total_per_hour.value == D("27.54")


def test_idle_money_counts_overload_as_full() -> None:
    found = costs()
    assert found.idle_per_hour.value == D("9.18") * D("0.75")
    assert found.idle_share.value == D("9.18") * D("0.75") / D("27.54")


def test_per_million_of_each_kind() -> None:
    found = costs()
    assert found.input_per_million.value == pytest.approx(D("9.18") / (D(6325) * 3600) * 10**6)
    assert found.output_per_million.value == pytest.approx(D("18.36") / (D(1100) * 3600) * 10**6)
    assert found.completed_per_million.value == pytest.approx(D("27.54") / (D(7425) * 3600) * 10**6)


def test_good_tokens_are_a_range_whose_value_is_the_dear_end() -> None:
    found = costs()
    completed, good = found.completed_per_million.value, found.good_per_million
    assert isinstance(completed, Decimal)
    assert good.value == good.upper == pytest.approx(completed / D("0.8"))
    assert good.lower == pytest.approx(completed / D("0.9"))
    assert good.method == "marginals"


def test_with_a_lower_end_of_nothing_only_at_least_is_known() -> None:
    good = costs(good=ratio(0.0, 0.0, 0.4)).good_per_million
    assert good.state is State.CLAMPED
    assert good.value == good.lower
    assert good.upper is None


def test_no_good_tokens_give_no_price() -> None:
    good = costs(good=ratio(0.0, 0.0, 0.0)).good_per_million
    assert (good.value, good.method) == (None, NO_GOOD_TOKENS)


def test_no_tokens_give_null_with_a_reason_and_the_money_stays() -> None:
    idle = rate(None, State.NO_TRAFFIC)
    found = costs(tokens=TokenRates(idle, NONE, idle))
    for figure in (found.input_per_million, found.output_per_million):
        assert (figure.value, figure.method) == (None, NO_TOKENS)
    zero = costs(tokens=TokenRates(rate(0.0), NONE, rate(0.0)))
    assert (zero.completed_per_million.value, zero.completed_per_million.method) == (
        None,
        NO_TOKENS,
    )
    assert found.total_per_hour.value == D("27.54")


def test_missing_tokens_are_missing_not_none() -> None:
    lost = rate(None, State.SOURCE_DOWN)
    found = costs(tokens=TokenRates(lost, NONE, lost))
    assert found.input_per_million.state is State.SOURCE_DOWN


def test_a_missing_price_is_needed_not_zero() -> None:
    found = costs(price=None)
    assert (found.total_per_hour.value, found.total_per_hour.method) == (None, PRICE_NEEDED)
    assert found.good_per_million.value is None
    assert found.good_per_million.method == PRICE_NEEDED


def test_an_unknown_unit_of_gpus_is_not_zero() -> None:
    found = costs(gpus=(None, D(4)))
    assert found.total_per_hour.method == UNIT_UNKNOWN


def test_shared_costs_follow_the_phases() -> None:
    found = costs(components={"operations": D("3.00")})
    assert found.phase_per_hour["input"].value == D("9.18") + D("1.00")
    assert found.phase_per_hour["output"].value == D("18.36") + D("2.00")
    assert found.total_per_hour.value == D("30.54")


def test_cached_input_weighs_a_tenth() -> None:
    found = costs(tokens=TokenRates(rate(1000.0), rate(5000.0), rate(100.0)))
    assert found.input_per_million.value == pytest.approx(D("9.18") / (D(1500) * 3600) * 10**6)


@given(st.decimals("0.01", "50", places=2), st.integers(1, 9))
def test_scaling_the_price_scales_every_amount(price: Decimal, factor: int) -> None:
    once, more = costs(price=price), costs(price=price * factor)
    for name in ("total_per_hour", "idle_per_hour", "output_per_million", "good_per_million"):
        a, b = getattr(once, name).value, getattr(more, name).value
        assert abs(a * factor - b) < D("1e-20")


@given(st.integers(0, 6))
def test_moving_a_gpu_moves_money_between_phases_only(prefill: int) -> None:
    found = costs(gpus=(D(prefill), D(6 - prefill)))
    assert found.total_per_hour.value == D("27.54")
