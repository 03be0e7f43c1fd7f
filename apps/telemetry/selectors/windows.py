"""Stored windows and roll-ups as data; the other selectors are built on these."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import datetime, timedelta

from django.db.models import Max

from apps.engines.codec import window_from_json
from apps.engines.window import Signal, Window
from apps.fleet.models import Deployment

from ..domain import block as blocks
from ..domain.levels import DAY, FIVE_MINUTES, HOUR, MINUTE, Level
from ..domain.rollup import Rolled
from ..models import RollUp, RollUp1d, RollUp1h, RollUp1m, RollUp5m, StoredWindow

_TABLES: dict[str, type[RollUp]] = {
    MINUTE.name: RollUp1m,
    FIVE_MINUTES.name: RollUp5m,
    HOUR.name: RollUp1h,
    DAY.name: RollUp1d,
}


def window_of(row: StoredWindow) -> Window:
    """A stored window as a `Window`."""
    return window_from_json(row.payload, scope=row.scope, start=row.start, end=row.end)


def latest_end(deployment: Deployment) -> datetime | None:
    """The end of the newest window, the "as of" of the deployment."""
    found: datetime | None = StoredWindow.objects.filter(deployment=deployment).aggregate(
        newest=Max("end")
    )["newest"]
    return found


def load(keys: Iterable[int]) -> dict[int, Window]:
    """Windows by key (1 query; none for no key)."""
    wanted = list(keys)
    if not wanted:
        return {}
    return {row.pk: window_of(row) for row in StoredWindow.objects.filter(pk__in=wanted)}


def decoded(
    level: Level,
    deployment: Deployment,
    spans: Iterable[tuple[datetime, datetime]],
    without: Collection[str] = (),
) -> list[tuple[str, blocks.Block]]:
    """The blocks of a level, oldest first, as (scope, block), that touch any of the spans `(start,
    end]`, without some scopes and without those of hardware, which no chart shows (1 query)."""
    starts = {
        at
        for start, end in spans
        for at in level.block.between(level.block_of(start + timedelta(microseconds=2)), end)
    }
    rows = (
        _TABLES[level.name]
        ._default_manager.filter(deployment=deployment, start__in=sorted(starts))
        .exclude(scope__contains="/")
        .exclude(scope__in=without)
    )
    found = rows.order_by("start").values_list("scope", "payload")
    return [(scope, blocks.decode(payload)) for scope, payload in found]


def rolled(
    level: Level,
    deployment: Deployment,
    spans: Iterable[tuple[datetime, datetime]],
    signals: Collection[Signal] | None = None,
    *,
    with_workers: bool = True,
) -> dict[str, list[Rolled]]:
    """The slots of a level by scope, oldest first, that end in any of the spans `(start, end]`."""
    wanted = list(spans)
    found: dict[str, list[Rolled]] = {}
    for scope, block in decoded(level, deployment, wanted):
        for slot in blocks.slots_of(block, signals, with_workers=with_workers):
            if any(start < slot.end <= end for start, end in wanted):
                found.setdefault(scope, []).append(slot)
    return found
