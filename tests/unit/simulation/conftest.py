"""A virtual clock for every test that asks for `loop`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.unit.simulation.virtual import VirtualLoop


@pytest.fixture
def loop() -> Iterator[VirtualLoop]:
    """An event loop whose time jumps."""
    loop = VirtualLoop()
    yield loop
    loop.close()
