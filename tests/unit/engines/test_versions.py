"""Ranges of releases."""

from __future__ import annotations

import pytest

from apps.engines.versions import Range, parse


@pytest.mark.parametrize(
    ("text", "inside", "outside"),
    [
        (">=0.12,<0.20", ["0.12", "0.12.0", "0.19.9"], ["0.11.2", "0.20", "0.20.2", "0.9"]),
        ("<=0.5.2", ["0.5.2", "0.4.6.post5"], ["0.5.3", "0.5.2.1"]),
        (">0.5.15", ["0.5.23", "0.5.16"], ["0.5.15", "0.5.9"]),
        ("==1.6.1", ["1.6.1", "v1.6.1", "1.6.1rc2"], ["1.6.0"]),
        ("", ["0", "99.1"], []),
    ],
)
def test_releases_in_and_out(text, inside, outside):
    found = parse(text)
    assert all(release in found for release in inside)
    assert not any(release in found for release in outside)


@pytest.mark.parametrize("text", ["0.12 and later", ">=", "0.12", ">=0.12 <0.2", "~=1.0", ">=a"])
def test_another_form_is_refused(text):
    with pytest.raises(ValueError, match="not a range"):
        parse(text)


def test_a_range_without_any_release_is_refused():
    with pytest.raises(ValueError, match="no version"):
        parse(">=0.20,<0.12")


def test_ranges_overlap_or_not():
    assert parse(">=0.8,<0.34").overlaps(parse("<0.12"))
    assert not parse(">=1.4").overlaps(parse("<1.2"))
    assert not parse("<1").overlaps(parse(">=1"))
    assert parse("<=1").overlaps(parse(">=1"))
    assert Range().overlaps(parse(">5"))


def test_a_word_is_no_release():
    with pytest.raises(ValueError, match="release"):
        assert "main" in parse(">=1")
