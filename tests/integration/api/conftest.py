from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import time_machine

from tests.support.builders import NOW

from . import lab as laboratory


@pytest.fixture(autouse=True)
def outside(monkeypatch: pytest.MonkeyPatch, settings: Any, tmp_path: Path) -> Iterator[None]:
    """The clock of the builders, the backend in memory, a state folder without a stop file."""
    laboratory.stand_in(monkeypatch, settings, tmp_path)
    with time_machine.travel(NOW, tick=True):
        yield


@pytest.fixture
def lab(db: None) -> laboratory.Lab:
    """A demo deployment in mode `approve`, one elsewhere, and a caller for each role."""
    return laboratory.build()


@pytest.fixture
def production(db: None) -> laboratory.Lab:
    """The same in production, where two people decide and tokens never approve."""
    return laboratory.build(environment="production")
