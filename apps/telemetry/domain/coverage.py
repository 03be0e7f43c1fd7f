"""What a deployment's metrics allow, and what each missing one costs (design of Connect, §6.11).

Levels build on each other: *see* what users feel, *explain* which phase limits, explain *hardware*
and transfer, *act*. A level is reached when none of its lines, nor of a lower one's, is missing or
unavailable.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from typing import Any


class Level(IntEnum):
    NONE = 0
    SEE = 1
    EXPLAIN = 2
    HARDWARE = 3
    ACT = 4


class Found(StrEnum):
    """`part`: only some workers or roles export it; `conflict`: places contradict each other or
    the figure is not credible; `missing`: it could be there and is not; `unavailable`: this engine
    has none (counts as a limit, not as a defect)."""

    FOUND = "found"
    PART = "part"
    CONFLICT = "conflict"
    MISSING = "missing"
    UNAVAILABLE = "unavailable"


@dataclass(frozen=True, slots=True)
class CoverageLine:
    """One line of the coverage table.

    `code` names what is looked for (`ttft`, `tpot`, `kv_used`, `buckets`, `devices`, `roles`, ...),
    `params` fill its sentences (counts, ages in seconds, bounds), `used_by` names what reads it,
    `effect` and `fix` are codes of sentences (empty when found), `fix_text` is what to copy.
    """

    code: str
    level: Level
    found: Found
    place: str = ""
    params: Mapping[str, Any] = field(default_factory=dict)
    used_by: tuple[str, ...] = ()
    effect: str = ""
    fix: str = ""
    fix_text: str = ""


@dataclass(frozen=True, slots=True)
class CoverageReport:
    level: Level
    lines: tuple[CoverageLine, ...]
