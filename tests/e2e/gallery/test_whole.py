"""Whole pages, with every chart drawn."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from .test_shots import PAGES

pytestmark = pytest.mark.e2e


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    "size",
    [
        "desktop",
        pytest.param("phone", marks=pytest.mark.long),
        pytest.param("narrow", marks=pytest.mark.long),
    ],
)
@pytest.mark.parametrize("name", list(PAGES))
def test_a_whole_page_draws_without_a_problem(
    name: str, size: str, visit: Any, shoot: Callable[..., Any]
) -> None:
    page = visit(PAGES[name], size=size, touch=size != "desktop")
    path = shoot(page, f"{name}-{size}-whole", whole=True)
    assert path.stat().st_size > 8_000
