"""Targets that are scraped well and have nothing to say."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

from apps.engines.readings import Reading

from ..collectors.ranges import Span

NOTHING: Final = Reading({}, {})


def with_silence(
    readings: list[tuple[datetime, Reading]], seen_well: Sequence[float], span: Span
) -> list[tuple[datetime, Reading]]:
    """The readings with what was said before the first of them and to the end: nothing. A target
    that was scraped well without a series that its profile reads (an engine before its first
    request) answered, as it does to the direct collector, and what it says next was born."""
    times = [at for at in seen_well if at <= span.end]
    if not times or times[-1] < span.end - span.max_age_s:
        return readings
    if not readings:
        readings = [(datetime.fromtimestamp(span.end, UTC), NOTHING)]
    first = readings[0][0].timestamp()
    before = [at for at in times if at < first - 0.5 * span.scrape_s]
    if first <= span.start or not before:
        return readings
    as_of = [at for at in before if at <= span.start]
    base = span.start if as_of else before[0]
    return [(datetime.fromtimestamp(base, UTC), NOTHING), *readings]
