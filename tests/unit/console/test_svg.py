"""Geometry of sparklines and bars: from zero, gaps stay gaps, numbers unlocalized."""

from __future__ import annotations

import pytest
from django.utils import translation

from apps.console.presenters import svg


def test_a_gap_starts_a_new_line() -> None:
    drawn = svg.spark([1.0, 1.0, None, 2.0, 2.0])
    assert len(drawn.lines) == 2
    assert drawn.lines[0].startswith("0,") and drawn.lines[1].startswith("120,")


def test_a_single_point_between_gaps_is_a_dot() -> None:
    drawn = svg.spark([1.0, None, 2.0, None, 1.0])
    assert drawn.lines == ()
    assert [x for x, _y in drawn.dots] == ["0", "80", "160"]


def test_sparklines_start_at_zero() -> None:
    """A series between 100 and 101 must look flat: its bottom is zero, not its minimum."""
    drawn = svg.spark([100.0, 101.0])
    first, second = (float(point.split(",")[1]) for point in drawn.lines[0].split())
    assert abs(first - second) < 0.3
    assert svg.spark([0.0, 1.0]).lines[0].startswith("0,23")


def test_the_objective_is_in_view_even_when_far_above() -> None:
    drawn = svg.spark([0.01, 0.01], objective=1.0)
    assert 0 < float(drawn.objective) < 4


def test_an_old_series_ends_early_and_goes_on_dotted() -> None:
    drawn = svg.spark([1.0, 1.0], is_old=True)
    assert drawn.lines[0].split()[-1].startswith("112,")
    assert drawn.tail.startswith("M112 ") and drawn.tail.endswith("H160")


def test_nothing_known_draws_nothing() -> None:
    assert svg.spark([None, None]).is_empty
    assert svg.spark([]).is_empty
    assert not svg.spark([0.0, 0.0]).is_empty


def test_bars_fill_their_scale() -> None:
    parts = svg.bar([(590, "a", ""), (352, "b", ""), (41, "c", ""), (37, "d", "")], 1020)
    assert [part.x for part in parts] == ["0%", "57.84%", "92.35%", "96.37%"]
    total = sum(float(part.width.rstrip("%")) for part in parts) + 4 * svg.SEAM
    assert total == pytest.approx(100, abs=0.05)


def test_a_shorter_bar_keeps_the_scale_of_the_longer() -> None:
    usual = svg.bar([(475, "a", "")], 1020)
    assert float(usual[0].width.rstrip("%")) == pytest.approx(46.3, abs=0.05)


def test_no_amount_no_bar() -> None:
    assert svg.bar([]) == ()
    assert svg.bar([(0.0, "a", "")]) == ()


@pytest.mark.parametrize(
    ("share", "text"), [(0.94, "94%"), (1.7, "100%"), (-1, "0%"), (None, "0%")]
)
def test_shares_stay_inside_the_bar(share: float | None, text: str) -> None:
    assert svg.percent(share) == text


def test_machine_numbers_ignore_the_language() -> None:
    for language in ("en", "zh-hans", "de"):
        with translation.override(language):
            assert svg.number(1234.5) == "1234.5"
            assert svg.number(0.0) == "0"
