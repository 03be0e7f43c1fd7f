"""Read models of coverage: what is found, what is missing, and what that costs."""

from __future__ import annotations

from dataclasses import dataclass

from .types import Status, Text


@dataclass(frozen=True, slots=True)
class CoverageLineView:
    """One line of the coverage table. `fix_text` is what to copy, in no language."""

    code: str
    level: int
    found: str
    status: Status
    title: Text
    detail: Text | None
    place: str
    used_by: tuple[str, ...]
    effect: Text | None
    fix: Text | None
    fix_text: str


@dataclass(frozen=True, slots=True)
class CoverageView:
    """`level` of `levels` is reached: 1 see, 2 explain, 3 hardware and transfer, 4 act."""

    slug: str
    level: int
    levels: int
    lines: tuple[CoverageLineView, ...]
