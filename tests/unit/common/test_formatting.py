"""The number table of design/ui.md §5."""

from __future__ import annotations

from decimal import Decimal

import pytest

from apps.common import formatting as f

S = "\u00a0"


@pytest.mark.parametrize(
    ("seconds", "objective", "text"),
    [
        (1.84, 1.2, f"1.84{S}s"),
        (0.31, 0.8, f"310{S}ms"),
        (0.5, 2.5, f"0.50{S}s"),
        (None, 2.5, "–"),
    ],
)
def test_ttft_keeps_one_unit_per_objective(
    seconds: float | None, objective: float, text: str
) -> None:
    assert f.latency(seconds, objective_s=objective) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.024, f"24{S}ms"), (0.0048, f"4.8{S}ms"), (None, "–"), (0.0, f"0.0{S}ms")],
)
def test_stage_times(seconds: float | None, text: str) -> None:
    assert f.stage_time(seconds) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (8430, "8,430"), (73_200, "73.2k"), (10_600, "10.6k"), (7.5, "7.5"), (0, "0"),
        (1_020_000, "1.02M"), (2.4e9, "2.4G"), (None, "–"), (118, "118"),
    ],
)  # fmt: skip
def test_rates(value: float | None, text: str) -> None:
    assert f.rate(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.71, "71%"), (0.994, "99.4%"), (0.004, "0.4%"), (0, "0%"), (1, "100%"), (1.13, "113%")],
)
def test_shares(value: float, text: str) -> None:
    assert f.share(value) == text


def test_money() -> None:
    assert f.money(Decimal("200.8")) == "$200.80"
    assert f.unit_cost(Decimal("0.94")) == "$0.94"
    assert f.unit_cost(Decimal("0.1584")) == "$0.158"
    assert f.unit_cost(None) == "–"


def test_durations() -> None:
    assert f.duration(45) == f"45{S}s"
    assert f.duration(63 * 60) == f"63{S}min"
    assert f.duration(3 * 3600 + 300) == f"3{S}h{S}5{S}min"


def test_ranges_use_an_en_dash() -> None:
    assert f.value_range("0.66", "0.96") == "0.66–0.96"
    assert f.value_range("1", "1") == "1"
