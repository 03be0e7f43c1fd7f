"""Ranges of releases in which a metric name exists: `>=0.12,<0.20`.

Comma-separated comparisons, all of which must hold; empty means every release. Numbers compare by
position (0.10 is later than 0.9); a suffix of the release itself (`0.4.6.post5`, `1.6.1rc2`) is
left out of the comparison, because names do not change between them.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

Release = tuple[int, ...]

_CLAUSE: Final = re.compile(r"(>=|<=|>|<|==)\s*(\d+(?:\.\d+){0,3})")
_RELEASE: Final = re.compile(r"v?(\d+(?:\.\d+){0,3})")
_HOLDS: Final[dict[str, Callable[[Release, Release], bool]]] = {
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
    "==": operator.eq,
}
_WIDTH: Final = 4


@dataclass(frozen=True, slots=True)
class Range:
    """Clauses that must all hold."""

    clauses: tuple[tuple[str, Release], ...] = ()

    def __contains__(self, release: str) -> bool:
        """Whether a release (`0.32.0`) lies in the range; raises ValueError for no number."""
        found = parse_release(release)
        return all(_HOLDS[sign](found, limit) for sign, limit in self.clauses)

    def overlaps(self, other: Range) -> bool:
        """True if some release lies in both."""
        return _is_possible(self.clauses + other.clauses)


def parse_release(text: str) -> Release:
    match = _RELEASE.match(text.strip())
    if match is None:
        raise ValueError(f"not a release number: {text!r}")
    return _padded(match.group(1))


def parse(text: str) -> Range:
    """Raises ValueError for another form or for a range that no release can lie in."""
    if not text.strip():
        return Range()
    clauses: list[tuple[str, Release]] = []
    for part in text.split(","):
        match = _CLAUSE.fullmatch(part.strip())
        if match is None:
            raise ValueError(f"not a range of versions: {text!r}; write it like '>=0.12,<0.20'")
        clauses.append((match.group(1), _padded(match.group(2))))
    if not _is_possible(tuple(clauses)):
        raise ValueError(f"no version lies in {text!r}")
    return Range(tuple(clauses))


def _padded(text: str) -> Release:
    numbers = [int(part) for part in text.split(".")]
    return tuple(numbers + [0] * (_WIDTH - len(numbers)))


def _is_possible(clauses: tuple[tuple[str, Release], ...]) -> bool:
    """Tries each limit and the points next to it: the clauses are intervals between them."""
    limits = {limit for _, limit in clauses} or {(0,) * _WIDTH}
    points = limits | {(*limit[:-1], limit[-1] + 1) for limit in limits} | {(0,) * _WIDTH}
    return any(all(_HOLDS[sign](point, limit) for sign, limit in clauses) for point in points)
