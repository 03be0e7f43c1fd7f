"""Targets that are scraped well and have nothing to say."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

from apps.engines.readings import Reading

from ..collectors.ranges import Span

NOTHING: Final = Reading({}, {})
#: Scrapes further apart than this many intervals leave out at least one.
MISSED: Final = 1.6


def with_silence(
    readings: list[tuple[datetime, Reading]],
    first_at: float | None,
    seen_well: Sequence[float],
    span: Span,
) -> list[tuple[datetime, Reading]]:
    """The readings with what was said before the first of them: nothing.

    A target that was scraped well without a series that its profile reads (an engine before its
    first request) answered, as it does to the direct collector, and what it says next was born.
    `first_at` is the time of its first sample, `seen_well` when it was scraped well (Unix times,
    ascending). After scrapes that were missed nothing is known to be born: a counter that begins
    there may be as old as its process.
    """
    times = [at for at in seen_well if at <= span.end]
    if not times or times[-1] < span.end - span.max_age_s:
        return readings
    if first_at is None:
        readings, first_at = [(datetime.fromtimestamp(span.end, UTC), NOTHING)], span.end
    base: float | None = None
    last = first_at
    for at in reversed([at for at in times if at < first_at - 0.5 * span.scrape_s]):
        if last - at > MISSED * span.scrape_s:
            break
        base = last = at
        if at <= span.start:
            break
    if not readings or base is None or readings[0][0].timestamp() <= span.start:
        return readings
    return [(datetime.fromtimestamp(max(base, span.start), UTC), NOTHING), *readings]
