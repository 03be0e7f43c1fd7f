"""The levels in which windows are kept, and for how long. Pure.

| level | a row holds | slots of | made from | kept for |
|---|---|---|---|---|
| `raw` | one window | as collected: sliding 15 min, then tiles | the collectors | 48 h |
| `1m` | one hour | 1 min, totals only | `raw` | 48 h, for charts of hours |
| `5m` | one hour | 5 min | `raw` | 35 d (the usual of an hour looks back 4 weeks) |
| `1h` | one day | 1 h | `5m` | 400 d (a year and the month before it) |
| `1d` | one month | 1 d | `1h` | 5 years |

Retention drops whole partitions, so that a row lives for at most one partition longer.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Final

#: Overlapping windows are kept this long; after it only those that tile the time.
SLIDING: Final = timedelta(minutes=15)


class Span(StrEnum):
    """Lengths of time in UTC that blocks and partitions are cut by."""

    HOUR = "hour"
    DAY = "day"
    MONTH = "month"
    YEAR = "year"

    def floor(self, at: datetime) -> datetime:
        """The start of the span that holds `at`."""
        at = at.astimezone(UTC).replace(minute=0, second=0, microsecond=0)
        if self is Span.HOUR:
            return at
        if self is Span.DAY:
            return at.replace(hour=0)
        if self is Span.MONTH:
            return at.replace(hour=0, day=1)
        return at.replace(hour=0, day=1, month=1)

    def after(self, start: datetime) -> datetime:
        """The start of the next span."""
        if self is Span.HOUR:
            return start + timedelta(hours=1)
        if self is Span.DAY:
            return start + timedelta(days=1)
        if self is Span.MONTH:
            return (start + timedelta(days=32)).replace(day=1)
        return start.replace(year=start.year + 1)

    def between(self, start: datetime, end: datetime) -> Iterator[datetime]:
        """The starts of the spans that touch `[start, end]`."""
        at = self.floor(start)
        while at <= end:
            yield at
            at = self.after(at)


@dataclass(frozen=True, slots=True)
class Level:
    """One level. `slot_s` is 0 for windows as they were collected; `block` is what one row holds;
    `below` the level that it is made from; `keeps_workers`: each worker's own part is kept."""

    name: str
    slot_s: float
    block: Span
    partition: Span
    kept: timedelta
    below: str = ""
    keeps_workers: bool = False

    def block_of(self, end: datetime) -> datetime:
        """The start of the block whose time `(start, next]` holds an end."""
        return self.block.floor(end - timedelta(microseconds=1))

    def slot_end(self, end: datetime) -> datetime:
        """The end of the slot `(.., slot_end]` that holds an end."""
        stamp = end.timestamp()
        return end + timedelta(seconds=-stamp % self.slot_s)

    def complete_before(self, now: datetime) -> datetime:
        """The newest end of a slot that is not after `now`."""
        return now - timedelta(seconds=now.timestamp() % self.slot_s)


RAW: Final = Level(
    "raw", 0.0, Span.HOUR, Span.DAY, timedelta(hours=48), keeps_workers=True,
)  # fmt: skip
MINUTE: Final = Level("1m", 60.0, Span.HOUR, Span.DAY, timedelta(hours=48), "raw")
FIVE_MINUTES: Final = Level(
    "5m", 300.0, Span.HOUR, Span.MONTH, timedelta(days=35), "raw", keeps_workers=True
)
HOUR: Final = Level("1h", 3600.0, Span.DAY, Span.MONTH, timedelta(days=400), "5m")
DAY: Final = Level("1d", 86400.0, Span.MONTH, Span.YEAR, timedelta(days=1827), "1h")

#: From fine to coarse.
LEVELS: Final = (RAW, MINUTE, FIVE_MINUTES, HOUR, DAY)
BY_NAME: Final = {level.name: level for level in LEVELS}


def level_above(level: Level) -> Level | None:
    """The level that is made from this one and outlives it."""
    return next(
        (found for found in LEVELS if found.below == level.name and found is not MINUTE), None
    )


def level_for(step_s: float) -> Level:
    """The coarsest level that can answer a step."""
    return next((level for level in reversed(LEVELS) if level.slot_s <= step_s), RAW)


def least_step_s(age: timedelta) -> float:
    """The shortest step, in seconds, at which data of this age can still be answered."""
    return next((level.slot_s for level in LEVELS if age < level.kept), DAY.slot_s)
