"""Writing what a collect brought; the same rows twice are the same rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from uuid import UUID, uuid4

from django.db import transaction
from django.db.models import JSONField, Value

from apps.engines.codec import window_to_json
from apps.engines.readings import Reading, to_json
from apps.engines.window import HistogramIncrease, Window

from ..domain.levels import FIVE_MINUTES, RAW, Level
from ..models import LatestFigures, RollUpMark, Sample, StoredWindow
from . import partitions


def store_samples(readings: Mapping[UUID, Reading], now: datetime) -> None:
    """The raw state of each target (by id) at one scrape."""
    Sample.objects.bulk_create(
        [
            Sample(target_id=target_id, at=now, payload=to_json(reading))
            for target_id, reading in readings.items()
        ],
        update_conflicts=True,
        unique_fields=["target", "at"],
        update_fields=["payload"],
    )


def store_windows(windows: Iterable[tuple[UUID, Window]]) -> None:
    """Windows by deployment id, of any age; one that ends at the same time in the same scope is
    replaced (of two in one call the last stays). The hours they end in are marked, so that their
    roll-ups are made (again) once."""
    latest = {(owner, window.scope, window.end): (owner, window) for owner, window in windows}
    found = list(latest.values())
    if not found:
        return
    with transaction.atomic():
        partitions.ensure(RAW, {window.end for _, window in found})
        # The mark first, as a roll-up locks it, so that the two never wait for each other.
        mark(FIVE_MINUTES, ((deployment_id, window.end) for deployment_id, window in found))
        StoredWindow.objects.bulk_create(
            [
                StoredWindow(
                    deployment_id=deployment_id,
                    scope=window.scope,
                    start=window.start,
                    end=window.end,
                    # As an expression: Django would put plain values into arrays, and the quotes of
                    # JSON are escaped twice there, in Python (measured: a third of the storing).
                    payload=Value(window_to_json(window), JSONField()),
                    expected_count=len(window.expected),
                    reported_count=len(set(window.expected) & set(window.reported)),
                    has_histograms=has_histograms(window),
                )
                for deployment_id, window in found
            ],
            update_conflicts=True,
            unique_fields=["deployment", "scope", "end"],
            update_fields=[
                "start", "payload", "expected_count", "reported_count", "has_histograms",
            ],
            batch_size=500,
        )  # fmt: skip
        _note_newest(found)


def has_histograms(window: Window) -> bool:
    """False for a tick that read counters and gauges only; a window without either has all there
    is of it."""
    values = window.values.values()
    return not values or any(isinstance(value, HistogramIncrease) for value in values)


def mark(level: Level, ends: Iterable[tuple[UUID, datetime]]) -> None:
    """Mark the blocks of a level whose slots hold these ends. A block that is marked already keeps
    its due time and gets a new token."""
    due: dict[tuple[UUID, datetime], datetime] = {}
    for deployment_id, end in ends:
        key, complete = (deployment_id, level.block_of(end)), level.slot_end(end)
        due[key] = min(complete, due.get(key, complete))
    RollUpMark.objects.bulk_create(
        [
            RollUpMark(
                deployment_id=key[0], level=level.name, start=key[1], due_at=at, token=uuid4()
            )
            for key, at in sorted(due.items())
        ],
        update_conflicts=True,
        unique_fields=["deployment", "level", "start"],
        update_fields=["token"],
        batch_size=500,
    )


def _note_newest(found: Iterable[tuple[UUID, Window]]) -> None:
    newest: dict[UUID, datetime] = {}
    for deployment_id, window in found:
        newest[deployment_id] = max(window.end, newest.get(deployment_id, window.end))
    LatestFigures.objects.bulk_create(
        [LatestFigures(deployment_id=pk, newest_end=end) for pk, end in sorted(newest.items())],
        ignore_conflicts=True,
    )
    by_end: dict[datetime, list[UUID]] = {}
    for deployment_id, end in newest.items():
        by_end.setdefault(end, []).append(deployment_id)
    for end, ids in by_end.items():
        LatestFigures.objects.filter(pk__in=ids, newest_end__lt=end).update(newest_end=end)
