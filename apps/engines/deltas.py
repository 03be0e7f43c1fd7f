"""Increases of cumulative series between samples of one target.

Rules (research on metrics, rules 4 and 5): a value below its predecessor is a restart, and the new
value counts whole; a series that appears on a target that had already answered counts from 0; a
series that disappears adds nothing; one sample alone has no increase.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Buckets:
    """Raw cumulative state of one histogram series; the last of `cumulative` is +Inf."""

    bounds: tuple[float, ...]
    cumulative: tuple[float, ...]
    total: float

    @property
    def count(self) -> float:
        return self.cumulative[-1]


def increase(values: Sequence[float | None], *, starts_only_first: bool = False) -> float | None:
    """Increase over the samples of a target; None marks samples without the series.

    `starts_only_first`: the first interval crosses a role change, so it only counts what is known
    to belong to its end (a birth or a restart). Returns None for fewer than two samples, or if the
    series never appeared.
    """
    if len(values) < 2 or all(value is None for value in values):
        return None
    total = 0.0
    last: float | None = values[0]
    for index, value in enumerate(values[1:]):
        if value is None:
            continue
        if last is None or value < last:
            total += value
        elif not (starts_only_first and index == 0):
            total += value - last
        last = value
    return total


def bucket_increase(
    states: Sequence[Buckets | None], *, starts_only_first: bool = False
) -> Buckets | None:
    """The same for a histogram series; another ladder is a restart and replaces the old one."""
    if len(states) < 2 or all(state is None for state in states):
        return None
    result: Buckets | None = None
    last = states[0]
    for index, state in enumerate(states[1:]):
        if state is None:
            continue
        if last is None or state.bounds != last.bounds or state.count < last.count:
            step: Buckets | None = state
        elif starts_only_first and index == 0:
            step = None
        else:
            step = Buckets(
                state.bounds,
                tuple(
                    max(0.0, new - old)
                    for new, old in zip(state.cumulative, last.cumulative, strict=True)
                ),
                max(0.0, state.total - last.total),
            )
        result = _plus(result, step)
        last = state
    if result is None and last is not None:
        return Buckets(last.bounds, (0.0,) * len(last.cumulative), 0.0)
    return result


def _plus(left: Buckets | None, right: Buckets | None) -> Buckets | None:
    if left is None or right is None:
        return right if left is None else left
    if left.bounds != right.bounds:
        return right
    return Buckets(
        left.bounds,
        tuple(a + b for a, b in zip(left.cumulative, right.cumulative, strict=True)),
        left.total + right.total,
    )
