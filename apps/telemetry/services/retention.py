"""Dropping what is older than its level keeps it, after it was rolled up. See `domain.levels`.

On PostgreSQL a whole partition goes at once; on SQLite the rows of a day. Nothing is dropped
while a mark says that something above it must still be made from it, or while a block above holds
fewer windows than lie below it: then its blocks are marked again, and the rows stay.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.db import OperationalError, transaction
from django.db.models import Count, DateTimeField, ExpressionWrapper, F, Min, Q, Sum, Value
from django.db.models.functions import TruncDay, TruncHour, TruncMonth

from ..domain.levels import LEVELS, RAW, Level, Span, level_above
from ..models import RollUpMark
from . import partitions
from .partitions import ROLL_UPS, TABLES, Partition, key_of
from .store import mark

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RetentionResult:
    """Partitions (days, on SQLite) dropped, and those kept because something was not rolled up."""

    dropped: int
    refused: int


def drop_expired(*, now: datetime) -> RetentionResult:
    """Drop everything that is older than its level keeps it."""
    dropped = refused = 0
    for level in LEVELS:
        for partition in _expired(level, now - level.kept):
            try:
                with transaction.atomic():
                    done = _drop(partition)
            except OperationalError as error:
                log.warning("partition %s stays for now: %s", partition.name, error)
                done = False
            dropped, refused = dropped + done, refused + (not done)
    return RetentionResult(dropped, refused)


def _expired(level: Level, before: datetime) -> Iterator[Partition]:
    if partitions.is_partitioned():
        yield from (found for found in partitions.existing(level) if found.end <= before)
        return
    key = key_of(level)
    at: datetime | None = TABLES[level.name]._default_manager.aggregate(first=Min(key))["first"]
    # A row of a coarse level starts long before it ends; it is kept until its end is old too.
    while at is not None:
        start = Span.DAY.floor(at)
        end = max(Span.DAY.after(start), level.block.after(level.block.floor(start)))
        if level is RAW:
            end = Span.DAY.after(start)
        if end > before:
            return
        yield Partition(level, "", start, end)
        rows = TABLES[level.name]._default_manager.filter(**{f"{key}__gte": end})
        at = rows.aggregate(first=Min(key))["first"]


def _drop(partition: Partition) -> bool:
    """Drop one partition; False if it must stay."""
    above = level_above(partition.level)
    if above is not None:
        missing = _not_rolled_up(partition, above)
        if missing:
            log.warning("%s blocks of %s are not rolled up yet", len(missing), partition.level.name)
            mark(above, missing)
            return False
        partitions.lock()
        blocks = ROLL_UPS[above.name]._default_manager.filter(
            start__gte=above.block.floor(partition.start), start__lt=partition.end
        )
        blocks.filter(is_sealed=False).update(is_sealed=True)
    if partitions.is_partitioned():
        partitions.drop(partition)
        return True
    key = key_of(partition.level)
    rows = TABLES[partition.level.name]._default_manager.filter(
        **{f"{key}__gte": partition.start, f"{key}__lt": partition.end}
    )
    while keys := list(rows.values_list("pk", flat=True)[:500]):
        TABLES[partition.level.name]._default_manager.filter(pk__in=keys).delete()
    return True


def _not_rolled_up(partition: Partition, above: Level) -> list[tuple[UUID, datetime]]:
    """Ends inside the partition whose block above is marked, or holds too little."""
    floor = above.block.floor(partition.start)
    marks = RollUpMark.objects.filter(level=above.name, start__gte=floor, start__lt=partition.end)
    found = [
        (deployment_id, start + timedelta(seconds=above.slot_s))
        for deployment_id, start in marks.values_list("deployment_id", "start")
    ]
    if found:
        return found
    key = key_of(partition.level)
    rows = TABLES[partition.level.name]._default_manager.filter(
        **{f"{key}__gte": partition.start, f"{key}__lt": partition.end}
    )
    place: Any = F(key)
    amount: Any = Sum("windows")
    # A window that is no tile was never looked at: the roll-up removes those it does not need.
    loose: Any = Value(0)
    if partition.level is RAW:
        # A window that ends on the hour belongs to the hour before.
        place = ExpressionWrapper(F(key) - timedelta(microseconds=1), DateTimeField())
        floor -= timedelta(hours=1)
        amount, loose = Count("pk"), Count("pk", filter=Q(tile=0))
    trunc = {Span.HOUR: TruncHour, Span.DAY: TruncDay, Span.MONTH: TruncMonth}[above.block]
    groups = (
        rows.annotate(at=trunc(place))
        .order_by()
        .values("deployment_id", "scope", "at")
        .annotate(parts=amount, loose=loose)
    )
    blocks = ROLL_UPS[above.name]._default_manager.filter(start__gte=floor, start__lt=partition.end)
    held = {
        (row["deployment_id"], row["scope"], row["start"]): row["windows"]
        for row in blocks.values("deployment_id", "scope", "start", "windows")
    }
    return [
        (row["deployment_id"], row["at"] + timedelta(seconds=above.slot_s))
        for row in groups
        if row["loose"]
        or held.get((row["deployment_id"], row["scope"], row["at"]), 0) < row["parts"]
    ]
