"""From what was found to the coverage report: levels, effects, fixes (design §6.11). Pure."""

from __future__ import annotations

from collections.abc import Iterable

from .coverage import CoverageLine, CoverageReport, Found, Level
from .coverage_facts import CoverageFacts
from .coverage_health import command_line, device_lines, finding_lines, role_lines
from .coverage_signals import bucket_lines, signal_lines


def report(facts: CoverageFacts) -> CoverageReport:
    """All lines, by level, and the level reached: the highest below which (and in which) nothing
    is missing, or unavailable in this engine."""
    lines = [
        *signal_lines(facts),
        *bucket_lines(facts),
        *role_lines(facts),
        *finding_lines(facts),
        *device_lines(facts),
        command_line(facts),
    ]
    ordered = tuple(sorted(lines, key=lambda line: line.level))
    return CoverageReport(level_of(ordered), ordered)


def level_of(lines: Iterable[CoverageLine]) -> Level:
    """The level that lines reach."""
    blocked = [line.level for line in lines if line.found in (Found.MISSING, Found.UNAVAILABLE)]
    return Level(min(blocked) - 1) if blocked else Level.ACT
