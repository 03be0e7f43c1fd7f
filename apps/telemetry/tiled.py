"""Windows for those that add them up: each second once, oldest first."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from apps.engines.window import Window
from apps.fleet.models import Deployment

from . import selectors
from .domain.windows import Slot, tiles
from .models import StoredWindow


def oldest_start(deployment: Deployment) -> datetime | None:
    """Where the stored windows of a deployment begin."""
    row = StoredWindow.objects.filter(deployment=deployment).order_by("start").first()
    return None if row is None else row.start


def tiled_windows(
    deployment: Deployment, scopes: Mapping[str, datetime], until: datetime
) -> dict[datetime, dict[str, Window]]:
    """Windows that start at or after a scope's time and end not after `until`, by end and scope.
    They do not overlap; what is newer than a quarter of an hour may still be thinned otherwise, so
    ask for older time."""
    found: dict[datetime, dict[str, Window]] = {}
    for scope, start in scopes.items():
        rows = StoredWindow.objects.filter(
            deployment=deployment, scope=scope, start__gte=start, end__lte=until
        )
        slots = [Slot(*row) for row in rows.values_list("pk", "start", "end")]
        keys = [slot.key for slot in tiles(slots)]
        for index in range(0, len(keys), 500):
            for row in StoredWindow.objects.filter(pk__in=keys[index : index + 500]):
                found.setdefault(row.end, {})[scope] = selectors.window_of(row)
    return dict(sorted(found.items()))
