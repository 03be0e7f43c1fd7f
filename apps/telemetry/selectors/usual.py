"""What is usual at this time of the week."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final, TypeVar

from django.db.models import QuerySet

from apps.engines.window import Signal, Window
from apps.fleet.models import Deployment

from ..domain.figures import Usual
from ..domain.levels import FIVE_MINUTES
from ..domain.rollup import Rolled, to_window
from ..domain.usual import MINIMUM_WINDOWS, usual_of
from ..models import StoredWindow
from .windows import rolled, window_of

#: Moments that a median rests on; more change it little and cost time.
MOMENTS: Final = 120
#: What `usual_of` reads.
_SIGNALS: Final = frozenset({
    Signal.TTFT, Signal.TPOT, Signal.QUEUE_TIME, Signal.PREFILL_TIME, Signal.KV_TRANSFER_TIME,
    Signal.INPUT_TOKENS, Signal.OUTPUT_TOKENS, Signal.REQUESTS_COMPLETED, Signal.REQUESTS_ARRIVED,
    Signal.FORWARD_SECONDS,
})  # fmt: skip

T = TypeVar("T")
Moments = list[Mapping[str, Window]]


def usual(deployment: Deployment, now: datetime) -> Usual:
    """Medians of the same hour of the last four weeks; with less history of the last 24 hours, or
    since the start, without the last five minutes (which are what is compared). From the 5 min
    slots, and from windows where there are no slots yet (1 to 5 queries)."""
    week, half = timedelta(days=7), timedelta(minutes=30)
    middles = [now - weeks * week for weeks in range(1, 5)]
    found = _moments(deployment, [(middle - half, middle + half) for middle in middles])
    if len(found) >= MINIMUM_WINDOWS:
        return usual_of("same_hour_4_weeks", _spread(found))
    recent = now - timedelta(minutes=5)
    day = now - timedelta(hours=24)
    found = _moments(deployment, [(day, recent)])
    has_day = StoredWindow.objects.filter(deployment=deployment, end__lte=day).exists()
    return usual_of("last_24_h" if has_day else "since_start", _spread(found))


def _moments(deployment: Deployment, spans: Sequence[tuple[datetime, datetime]]) -> Moments:
    """The slots that end in the spans as windows by scope, oldest first; windows while fewer than
    three moments were rolled up."""
    by_end: dict[datetime, dict[str, Window]] = {}
    for scope, slots in _slots(deployment, spans).items():
        for slot in slots:
            at = FIVE_MINUTES.slot_end(slot.end)
            by_end.setdefault(at, {})[scope] = to_window(slot, scope)
    if len(by_end) >= MINIMUM_WINDOWS:
        return [by_end[at] for at in sorted(by_end)]
    rows = StoredWindow.objects.filter(deployment=deployment)
    ends: list[datetime] = []
    for start, end in spans:
        inside = rows.filter(end__gt=start, end__lte=end)
        ends += inside.order_by("end").values_list("end", flat=True).distinct()
    return _windows(rows, _spread(sorted(set(ends))))


def _slots(
    deployment: Deployment, spans: Sequence[tuple[datetime, datetime]]
) -> dict[str, list[Rolled]]:
    return rolled(FIVE_MINUTES, deployment, spans, _SIGNALS, with_workers=False)


def _spread(items: Sequence[T]) -> list[T]:
    """At most `MOMENTS` of them, evenly spaced."""
    if len(items) <= MOMENTS:
        return list(items)
    return [items[index * len(items) // MOMENTS] for index in range(MOMENTS)]


def _windows(rows: QuerySet[StoredWindow], ends: Sequence[datetime]) -> Moments:
    by_end: dict[datetime, dict[str, Window]] = {}
    if ends:
        for row in rows.filter(end__in=ends):
            if row.end > row.start:
                by_end.setdefault(row.end, {})[row.scope] = window_of(row)
    return [by_end[at] for at in sorted(by_end)]
