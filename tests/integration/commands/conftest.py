from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from apps.backends import registry
from apps.commands.services import facts as facts_module

from .world import MemoryAdapter, Stage, build_stage


@pytest.fixture(autouse=True)
def memory_adapter(monkeypatch: pytest.MonkeyPatch) -> None:
    """The strict adapter under its own name."""
    monkeypatch.setitem(registry._BUILDERS, "memory", MemoryAdapter)


@pytest.fixture
def make_stage(
    db: None, monkeypatch: pytest.MonkeyPatch, settings: object, tmp_path: Path
) -> Iterator[Callable[..., Stage]]:
    settings.STATE_DIR = tmp_path  # type: ignore[attr-defined]

    def build(**more: object) -> Stage:
        stage = build_stage(**more)  # type: ignore[arg-type]
        monkeypatch.setattr(facts_module, "provider", stage.facts)
        return stage

    yield build


@pytest.fixture
def stage(make_stage: Callable[..., Stage]) -> Stage:
    return make_stage()
