"""Thinning out what was stored: samples, sliding windows, old windows.

Sliding windows overlap; after a quarter of an hour only those that tile the time are kept. After
two days they are merged to five minutes, after five weeks dropped (the usual of the same hour
looks back four). A merge that would not keep every count is refused and the rows stay.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

from django.db import transaction

from apps.engines.codec import window_to_json
from apps.engines.combine import merge_windows
from apps.engines.window import CounterIncrease, GaugeValue, HistogramIncrease, Signal, Window

from .. import selectors
from ..domain.windows import Slot, tiles
from ..models import Sample, StoredWindow, Target

log = logging.getLogger(__name__)

SLIDING: Final = timedelta(minutes=15)
FINE: Final = timedelta(hours=48)
KEPT: Final = timedelta(days=35)
ROLLED_UP_S: Final = 300.0
#: Rows read in one run of the roll-up per deployment and scope, so that a run stays short.
BATCH: Final = 600


@dataclass(frozen=True, slots=True)
class PruneResult:
    """Rows removed, by kind."""

    samples: int
    sliding: int
    rolled_up: int
    expired: int


def prune(*, now: datetime) -> PruneResult:
    """Thin out everything that is due. Safe to run twice and at any time."""
    samples, _ = Sample.objects.filter(at__lt=now - SLIDING).delete()
    Target.objects.filter(is_active=False, samples__isnull=True).delete()
    expired, _ = StoredWindow.objects.filter(end__lt=now - KEPT).delete()
    sliding = rolled_up = 0
    pairs = list(StoredWindow.objects.order_by().values_list("deployment_id", "scope").distinct())
    for deployment_id, scope in pairs:
        sliding += _thin(deployment_id, scope, now)
        rolled_up += _roll_up(deployment_id, scope, now)
    return PruneResult(samples, sliding, rolled_up, expired)


def _thin(deployment_id: UUID, scope: str, now: datetime) -> int:
    """Drop the windows between the tiles. The newest tile of an earlier run starts the chain."""
    old = [
        Slot(*row)
        for row in StoredWindow.objects.filter(
            deployment_id=deployment_id,
            scope=scope,
            end__lt=now - SLIDING,
            end__gte=now - SLIDING - FINE,
        ).values_list("pk", "start", "end")
    ]
    keep = {slot.key for slot in tiles(old)}
    drop = [slot.key for slot in old if slot.key not in keep]
    for index in range(0, len(drop), 500):
        StoredWindow.objects.filter(pk__in=drop[index : index + 500]).delete()
    return len(drop)


def _roll_up(deployment_id: UUID, scope: str, now: datetime) -> int:
    rows = list(
        StoredWindow.objects.filter(
            deployment_id=deployment_id, scope=scope, end__lt=now - FINE
        ).order_by("end")[: 10 * BATCH]
    )
    groups: dict[int, list[StoredWindow]] = {}
    for row in rows:
        if (row.end - row.start).total_seconds() < ROLLED_UP_S / 2:
            slot = math.ceil(row.end.timestamp() / ROLLED_UP_S)
            groups.setdefault(slot, []).append(row)
    # The last group may still be growing.
    last = max(groups, default=0)
    removed = 0
    for slot, members in groups.items():
        if slot != last and len(members) > 1:
            removed += _merge(members)
    return removed


def _merge(rows: Sequence[StoredWindow]) -> int:
    parts = [selectors.window_of(row) for row in rows]
    try:
        merged = merge_windows(parts)
    except ValueError:
        return 0
    if not _adds_up(merged, parts):
        log.warning("roll-up of %s windows refused: counts would be lost", len(rows))
        return 0
    newest, others = rows[-1], rows[:-1]
    with transaction.atomic():
        StoredWindow.objects.filter(pk=newest.pk).update(
            start=merged.start, payload=window_to_json(merged)
        )
        StoredWindow.objects.filter(pk__in=[row.pk for row in others]).delete()
    return len(others)


def _adds_up(merged: Window, parts: Sequence[Window]) -> bool:
    """True if every counter and every observation of the parts is in the merged window."""
    for signal in Signal:
        total = sum(_amount(part, signal) for part in parts)
        if not math.isclose(_amount(merged, signal), total, rel_tol=1e-9, abs_tol=1e-6):
            return False
    return True


def _amount(window: Window, signal: Signal) -> float:
    value = window.values.get(signal)
    if isinstance(value, CounterIncrease):
        return value.increase
    if isinstance(value, HistogramIncrease):
        return value.count
    assert value is None or isinstance(value, GaugeValue)
    return 0.0
