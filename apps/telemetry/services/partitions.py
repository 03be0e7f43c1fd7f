"""Partitions by time on PostgreSQL; on SQLite the same tables are plain and this does nothing.

A partition is made as a table of its own and then attached: attaching does not wait for readers
and writers of its neighbours, as creating it in place would. Retention drops partitions whole.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from django.db import connection, transaction
from django.db.backends.utils import CursorWrapper

from ..domain.levels import DAY, FIVE_MINUTES, HOUR, LEVELS, MINUTE, RAW, Level, Span
from ..models import RollUp, RollUp1d, RollUp1h, RollUp1m, RollUp5m, StoredWindow

#: Level -> the table that holds it.
ROLL_UPS: Final[dict[str, type[RollUp]]] = {
    MINUTE.name: RollUp1m,
    FIVE_MINUTES.name: RollUp5m,
    HOUR.name: RollUp1h,
    DAY.name: RollUp1d,
}
TABLES: Final[dict[str, Any]] = {RAW.name: StoredWindow, **ROLL_UPS}
#: One advisory lock for all changes of partitions.
LOCK: Final = 0x46756C70
_FORMATS: Final = {Span.DAY: "%Y%m%d", Span.MONTH: "%Y%m", Span.YEAR: "%Y"}


@dataclass(frozen=True, slots=True)
class Partition:
    """One partition: rows with `start <= key < end`."""

    level: Level
    name: str
    start: datetime
    end: datetime


def is_partitioned() -> bool:
    """True where the database has partitions."""
    return connection.vendor == "postgresql"


def key_of(level: Level) -> str:
    """The column that places a row: the end of a window, the start of a block."""
    return "end" if level is RAW else "start"


def partition_of(level: Level, at: datetime) -> Partition:
    """The partition that holds a key."""
    start = level.partition.floor(at)
    table = TABLES[level.name]._meta.db_table
    name = f"{table}_{start.strftime(_FORMATS[level.partition])}"
    return Partition(level, name, start, level.partition.after(start))


def ensure(level: Level, keys: Iterable[datetime]) -> int:
    """Make the partitions for these keys where they are missing (1 query when none is); returns
    how many were made. Call it before the rows are written."""
    if not is_partitioned():
        return 0
    wanted = {p.name: p for p in (partition_of(level, key) for key in keys)}
    if not wanted:
        return 0
    with connection.cursor() as cursor:
        missing = _missing(cursor, wanted)
    if not missing:
        return 0
    with transaction.atomic(), connection.cursor() as cursor:
        lock()
        missing = _missing(cursor, wanted)
        for name in missing:
            _make(cursor, wanted[name])
    return len(missing)


def lock() -> None:
    """Keep others from changing partitions until the transaction ends. Take it before any mark or
    row is locked, never after."""
    if is_partitioned():
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_advisory_xact_lock(%s)", [LOCK])


def _missing(cursor: CursorWrapper, wanted: Iterable[str]) -> list[str]:
    names = sorted(wanted)
    cursor.execute("SELECT relname FROM pg_class WHERE relname = ANY(%s)", [names])
    found = {row[0] for row in cursor.fetchall()}
    return [name for name in names if name not in found]


def _make(cursor: CursorWrapper, partition: Partition) -> None:
    parent = connection.ops.quote_name(TABLES[partition.level.name]._meta.db_table)
    name = connection.ops.quote_name(partition.name)
    cursor.execute(f"CREATE TABLE {name} (LIKE {parent} INCLUDING ALL)")
    cursor.execute(
        f"ALTER TABLE {parent} ATTACH PARTITION {name} FOR VALUES FROM (%s) TO (%s)",
        [partition.start, partition.end],
    )


def ensure_ahead(now: datetime) -> int:
    """Make the present and the next partition of every level, a day or more before they are
    needed."""
    made = 0
    for level in LEVELS:
        after = level.partition.after(level.partition.floor(now))
        made += ensure(level, (now - timedelta(days=1), now, after))
    return made


def existing(level: Level) -> list[Partition]:
    """The partitions of a level, oldest first."""
    table = TABLES[level.name]._meta.db_table
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT child.relname FROM pg_inherits JOIN pg_class child ON child.oid = inhrelid"
            " JOIN pg_class parent ON parent.oid = inhparent WHERE parent.relname = %s",
            [table],
        )
        names = [row[0] for row in cursor.fetchall()]
    found = []
    for name in names:
        start = datetime.strptime(
            name.removeprefix(f"{table}_"), _FORMATS[level.partition]
        ).replace(tzinfo=UTC)
        found.append(Partition(level, name, start, level.partition.after(start)))
    return sorted(found, key=lambda partition: partition.start)


def drop(partition: Partition) -> None:
    """Drop a partition with its rows; gives up (OperationalError) rather than hold up readers for
    longer than two seconds. Call it inside a transaction."""
    lock()
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL lock_timeout = '2s'")
        cursor.execute(f"DROP TABLE IF EXISTS {connection.ops.quote_name(partition.name)}")
