"""The golden vector of the cost research (§1.5), as far as unit costs go; exact Decimal."""

from __future__ import annotations

from decimal import Decimal

from hypothesis import given
from hypothesis import strategies as st

from apps.cost.domain.money import exact, shown, shown_parts
from apps.cost.domain.unit_cost import CACHED_WEIGHT, phase_unit_cost

D = Decimal
INPUT, OUTPUT = D("21.631255"), D("46.718745")
#: Effective tokens: computed 3.1M - 0.1M, cached 9.2M - 0.2M, output 0.945M - 0.045M.
UNCACHED, CACHED, ANSWERS = D(3_000_000), D(9_000_000), D(900_000)


def test_price_of_uncached_and_cached_input() -> None:
    uncached = phase_unit_cost(INPUT, UNCACHED, CACHED, CACHED_WEIGHT)
    assert uncached is not None
    assert shown(uncached, 6) == D("5.546476")
    assert shown(uncached * CACHED_WEIGHT, 6) == D("0.554648")


def test_price_of_output() -> None:
    price = phase_unit_cost(OUTPUT, ANSWERS)
    assert price is not None and shown(price, 6) == D("51.909717")


def test_blended_price() -> None:
    price = phase_unit_cost(INPUT + OUTPUT, UNCACHED + CACHED + ANSWERS)
    assert price is not None and shown(price, 6) == D("5.298450")


def test_unit_cost_times_tokens_gives_the_cost_back() -> None:
    price = phase_unit_cost(INPUT, UNCACHED, CACHED, CACHED_WEIGHT)
    assert price is not None
    back = price * (UNCACHED + CACHED_WEIGHT * CACHED) / 1_000_000
    assert abs(back - INPUT) < D("1e-9")


def test_no_tokens_give_no_price() -> None:
    assert phase_unit_cost(INPUT, D(0)) is None


def test_shown_components_add_to_the_shown_total() -> None:
    parts = [D("41.944516"), D("6.40"), D("2.75"), D("13.00"), D("4.255484")]
    assert shown_parts(parts) == [D("41.94"), D("6.40"), D("2.75"), D("13.00"), D("4.26")]
    assert sum(shown_parts(parts)) == D("68.35")


def test_three_equal_parts() -> None:
    assert shown_parts([D("33.335")] * 3) == [D("33.34"), D("33.33"), D("33.33")]


@given(st.lists(st.decimals("-1000", "1000", places=9), max_size=12))
def test_shown_parts_always_add_up(parts: list[Decimal]) -> None:
    found = shown_parts(parts)
    assert sum(found, D(0)) == shown(sum(parts, D(0)))
    assert all(abs(a - b) < D("0.02") for a, b in zip(found, parts, strict=True))


def test_a_measured_float_becomes_what_it_prints_as() -> None:
    assert exact(0.1) == D("0.1")
    assert exact(D("1.10")).as_tuple() == D("1.10").as_tuple()
