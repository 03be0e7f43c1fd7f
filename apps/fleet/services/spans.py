"""Spans: one open value per subject and attribute, history kept for ever."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.db import transaction

from ..models import Span, Worker


@transaction.atomic
def set_span(
    *, now: datetime, subject_kind: str, subject_id: UUID, attribute: str, value: Any, source: str
) -> bool:
    """Let `value` hold from `now` on; False when it holds already.

    A value that changes twice in one instant keeps spans non-empty by starting 1 µs later.
    """
    open_span = (
        Span.objects.select_for_update()
        .filter(
            subject_kind=subject_kind,
            subject_id=subject_id,
            attribute=attribute,
            valid_to__isnull=True,
        )
        .first()
    )
    if open_span is not None:
        if open_span.value == value:
            return False
        now = max(now, open_span.valid_from + timedelta(microseconds=1))
        open_span.valid_to = now
        open_span.save(update_fields=["valid_to"])
    Span.objects.create(
        subject_kind=subject_kind,
        subject_id=subject_id,
        attribute=attribute,
        value=value,
        source=source,
        valid_from=now,
    )
    return True


@transaction.atomic
def record_role(*, now: datetime, worker_id: UUID, role: str, source: str) -> bool:
    """Set a worker's role from `now` on, in the row and in its spans."""
    changed = set_span(
        now=now,
        subject_kind="worker",
        subject_id=worker_id,
        attribute="role",
        value=role,
        source=source,
    )
    Worker.objects.filter(pk=worker_id).update(role=role, role_source=source)
    return changed
