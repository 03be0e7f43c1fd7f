"""Making roll-ups from what lies below them: windows -> 5 min -> 1 h -> 1 d.

Rows decide what is done: a mark names a block that must be made (again). It is locked while its
block is made, so that two runs never write one block at once, and removed in the same transaction;
whoever stores a late window afterwards marks it anew. A block is checked before it is written:
every count, bucket and sum below it is in it, or the transaction is rolled back and the mark stays.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID

from django.db import connection, transaction
from django.db.models import Min

from apps.engines.codec import window_from_json

from ..domain import block as blocks
from ..domain.levels import BY_NAME, FIVE_MINUTES, MINUTE, RAW, SLIDING, Level, level_above
from ..domain.rollup import Rolled, adds_up, filled, from_window, roll, without_workers
from ..domain.tiling import Candidate, choose_tiles
from ..models import RollUp, RollUpMark, StoredWindow
from . import partitions
from .partitions import ROLL_UPS
from .store import mark

log = logging.getLogger(__name__)

#: How far a window may reach over the end of its block.
REACH: Final = timedelta(hours=1)


class RollUpRefused(Exception):
    """A block would have lost counts; nothing was written."""


@dataclass(frozen=True, slots=True)
class RollUpResult:
    """Blocks made, blocks refused, and sliding windows removed because tiles hold their time."""

    blocks: int = 0
    refused: int = 0
    sliding: int = 0


@dataclass(slots=True)
class _Parts:
    """What a block is made from: parts of slots, and the windows that are in them."""

    slots: list[Rolled] = field(default_factory=list)
    windows: int = 0


@dataclass(frozen=True, slots=True)
class _Made:
    slots: Sequence[Rolled]
    windows: int


def roll_up(*, now: datetime, limit: int = 5000) -> RollUpResult:
    """Make every block that is due, fine levels first, so that one run carries a late window all
    the way up. Safe to run twice and beside itself."""
    made = refused = sliding = 0
    level: Level | None = FIVE_MINUTES
    while level is not None:
        due = RollUpMark.objects.filter(level=level.name, due_at__lte=now).order_by("due_at", "pk")
        found_due = list(due.values_list("pk", "start")[:limit])
        # Before any mark is locked: who makes a partition may itself be waiting for a mark.
        for written in (level, MINUTE) if level is FIVE_MINUTES else (level,):
            partitions.ensure(written, {start for _, start in found_due})
        for key, _ in found_due:
            try:
                found = _make(key, now)
            except (RollUpRefused, blocks.UnknownBlock) as error:
                log.warning("roll-up refused: %s", error)
                refused += 1
                continue
            if found is not None:
                made += 1
                sliding += found
        level = level_above(level)
    return RollUpResult(made, refused, sliding)


@transaction.atomic
def _make(key: int, now: datetime) -> int | None:
    """Make one marked block for all scopes; the number of sliding windows removed, None if
    somebody else has it or has made it."""
    rows = RollUpMark.objects.filter(pk=key, due_at__lte=now)
    if connection.features.has_select_for_update_skip_locked:
        rows = rows.select_for_update(skip_locked=True)
    found = rows.first()
    if found is None:
        return None
    level = BY_NAME[found.level]
    until = level.block.after(found.start)
    ready = min(level.complete_before(now), until)
    removed, again = 0, _next_due(level, found.deployment_id, ready, until)
    if level.below == RAW.name:
        made, removed, slides_until = _from_windows(found.deployment_id, found.start, ready, now)
        again = min(filter(None, (again, slides_until)), default=None)
    else:
        made = _from_blocks(level, found.deployment_id, found.start, ready)
    _write(level, found.deployment_id, found.start, made)
    if again is not None:
        RollUpMark.objects.filter(pk=found.pk).update(due_at=again)
    else:
        RollUpMark.objects.filter(pk=found.pk, token=found.token).delete()
    above = level_above(level)
    if above is not None and made:
        ends = {above.slot_end(slot.end) for m in made.values() for slot in m.slots}
        mark(above, ((found.deployment_id, end) for end in ends))
    return removed


def _next_due(
    level: Level, deployment_id: UUID, ready: datetime, until: datetime
) -> datetime | None:
    """When the next slot of the block is complete for which something is there already."""
    if level.below == RAW.name:
        rows = StoredWindow.objects.filter(
            deployment_id=deployment_id, end__gt=ready, end__lte=until
        )
        first = rows.aggregate(first=Min("end"))["first"]
        return None if first is None else level.slot_end(first)
    blocks_below = ROLL_UPS[level.below]._default_manager.filter(
        deployment_id=deployment_id, start__gte=ready, start__lt=until
    )
    first = blocks_below.aggregate(first=Min("start"))["first"]
    return None if first is None else level.slot_end(first + timedelta(microseconds=1))


def _from_windows(
    deployment_id: UUID, start: datetime, ready: datetime, now: datetime
) -> tuple[dict[str, _Made], int, datetime | None]:
    """The hour's slots by scope, how many windows between the tiles were removed, and when to come
    back for those that are still shown sliding."""
    rows = StoredWindow.objects.filter(deployment_id=deployment_id)
    names = ("scope", "pk", "start", "end", "has_histograms", "tile")
    inside = _by_scope(rows.filter(end__gt=start, end__lte=ready).values_list(*names))
    around = rows.exclude(tile=0).filter(end__gt=start - REACH, end__lte=ready + REACH)
    outside = _by_scope([row for row in around.values_list(*names) if not start < row[3] <= ready])
    uses: dict[int, int] = {}
    for scope, windows in inside.items():
        uses |= choose_tiles(windows, outside.get(scope, ()))
    _note_tiles(inside.values(), uses)
    parts: dict[str, _Parts] = {}
    for row in rows.filter(pk__in=list(uses)).iterator(chunk_size=500):
        window = window_from_json(row.payload, scope=row.scope, start=row.start, end=row.end)
        mine = parts.setdefault(row.scope, _Parts())
        mine.slots.append(from_window(window, uses[row.pk]))
        mine.windows += 1
    made = _in_slots(FIVE_MINUTES, deployment_id, start, parts)
    plain = {
        scope: _Parts([*map(without_workers, found.slots)], found.windows)
        for scope, found in parts.items()
    }
    _write(MINUTE, deployment_id, start, _in_slots(MINUTE, deployment_id, start, plain))
    horizon = now - SLIDING
    between = [w for found in inside.values() for w in found if w.key not in uses]
    drop = [window.key for window in between if window.end < horizon]
    for index in range(0, len(drop), 500):
        StoredWindow.objects.filter(pk__in=drop[index : index + 500]).delete()
    waiting = [window.end for window in between if window.end >= horizon]
    later = max(waiting) + SLIDING + timedelta(seconds=1) if waiting else None
    return made, len(drop), later


def _by_scope(rows: Iterable[Sequence[Any]]) -> dict[str, list[Candidate]]:
    found: dict[str, list[Candidate]] = {}
    for scope, *row in rows:
        found.setdefault(scope, []).append(Candidate(*row))
    return found


def _note_tiles(inside: Iterable[Sequence[Candidate]], uses: Mapping[int, int]) -> None:
    changed: dict[int, list[int]] = {}
    for windows in inside:
        for window in windows:
            tile = uses.get(window.key, 0)
            if tile != window.tile:
                changed.setdefault(tile, []).append(window.key)
    for tile, keys in changed.items():
        for index in range(0, len(keys), 500):
            StoredWindow.objects.filter(pk__in=keys[index : index + 500]).update(tile=tile)


def _from_blocks(
    level: Level, deployment_id: UUID, start: datetime, ready: datetime
) -> dict[str, _Made]:
    """The block's slots by scope from the blocks of the level below."""
    below = ROLL_UPS[level.below]
    parts: dict[str, _Parts] = {}
    # A block that starts before a slot of this level is complete is complete itself.
    rows = below._default_manager.filter(
        deployment_id=deployment_id, start__gte=start, start__lt=ready
    )
    for scope, windows, payload in rows.values_list("scope", "windows", "payload"):
        mine = parts.setdefault(scope, _Parts())
        mine.slots += map(without_workers, blocks.slots_of(blocks.decode(payload)))
        mine.windows += windows
    return _in_slots(level, deployment_id, start, parts)


def _in_slots(
    level: Level, deployment_id: UUID, start: datetime, parts: Mapping[str, _Parts]
) -> dict[str, _Made]:
    """Parts by scope -> slots by scope, with what an earlier block held where its own parts are
    gone. Raises RollUpRefused when a count would be lost."""
    sealed = {
        row.scope: row
        for row in ROLL_UPS[level.name]._default_manager.filter(
            deployment_id=deployment_id, start=start, is_sealed=True
        )
    }
    made: dict[str, _Made] = {}
    for scope, found in parts.items():
        groups: dict[datetime, list[Rolled]] = {}
        for part in found.slots:
            groups.setdefault(level.slot_end(part.end), []).append(part)
        old = sealed.get(scope)
        if old is None:
            slots = [slot for at in sorted(groups) for slot in roll(groups[at])]
            if not adds_up(slots, found.slots):
                raise RollUpRefused(f"{level.name} {start:%Y-%m-%d %H:%M} {scope}")
            made[scope] = _Made(slots, found.windows)
            continue
        kept: dict[datetime, list[Rolled]] = {}
        for slot in blocks.slots_of(blocks.decode(old.payload)):
            kept.setdefault(level.slot_end(slot.end), []).append(slot)
        slots = [
            slot
            for at in sorted({*groups, *kept})
            for slot in filled(kept.get(at, ()), groups.get(at, ()))
        ]
        made[scope] = _Made(slots, max(old.windows, found.windows))
    return made


def _write(level: Level, deployment_id: UUID, start: datetime, made: Mapping[str, _Made]) -> None:
    table = ROLL_UPS[level.name]
    rows: list[RollUp] = []
    for scope, found in sorted(made.items()):
        if not found.slots:
            continue
        payload = blocks.encode(found.slots, with_workers=level.keeps_workers)
        again = blocks.slots_of(blocks.decode(payload))
        if not adds_up(again, found.slots):
            raise RollUpRefused(f"{level.name} {start:%Y-%m-%d %H:%M} {scope}: not readable")
        rows.append(
            table(
                deployment_id=deployment_id,
                scope=scope,
                start=start,
                end=max(slot.end for slot in found.slots),
                windows=found.windows,
                payload=payload,
            )
        )
    if not rows:
        return
    table._default_manager.bulk_create(
        rows,
        update_conflicts=True,
        unique_fields=["deployment", "scope", "start"],
        update_fields=["end", "windows", "payload"],
    )
