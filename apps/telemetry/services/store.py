"""Writing what a collect brought; the same rows twice are the same rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from uuid import UUID

from apps.engines.codec import window_to_json
from apps.engines.readings import Reading, to_json
from apps.engines.window import Window

from ..models import Sample, StoredWindow


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
    """Windows by deployment id; one that ends at the same time in the same scope is replaced."""
    StoredWindow.objects.bulk_create(
        [
            StoredWindow(
                deployment_id=deployment_id,
                scope=window.scope,
                start=window.start,
                end=window.end,
                payload=window_to_json(window),
                expected_count=len(window.expected),
                reported_count=len(set(window.expected) & set(window.reported)),
            )
            for deployment_id, window in windows
        ],
        update_conflicts=True,
        unique_fields=["deployment", "scope", "end"],
        update_fields=["start", "payload", "expected_count", "reported_count"],
    )
