"""Where the figures come from, how old they are, and what a page says when they stop."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from .domain.types import Banner, SourceLine, Status, Text
from .loaded import Loaded


def lines(loaded: Loaded) -> tuple[SourceLine, ...]:
    """Sources and backend with their state and age, for the foot of the page."""
    found = []
    interval = loaded.defaults.collect_interval_s
    for source in loaded.sources:
        age_s = (loaded.now - source.last_ok_at).total_seconds() if source.last_ok_at else None
        if source.state == "down" or age_s is None:
            status, state = Status.CRIT, "down"
        elif age_s >= 2 * interval:
            status, state = Status.UNKNOWN, "stale"
        else:
            status, state = Status.OK, "ok"
        if source.state == "new":
            status, state = Status.UNKNOWN, "new"
        found.append(
            SourceLine(
                source.name, source.kind, status, state, source.last_ok_at, age_s,
                source.last_error,
            )
        )  # fmt: skip
    backend = loaded.backend
    if backend is not None and backend.adapter != "noop":
        age_s = (loaded.now - backend.last_ok_at).total_seconds() if backend.last_ok_at else None
        fresh = age_s is not None and age_s < 3 * backend.observe_interval_s
        found.append(
            SourceLine(
                backend.parameters.get("kind", backend.adapter), "backend",
                Status.OK if fresh else Status.WARN, "ok" if fresh else "stale",
                backend.last_ok_at, age_s, backend.last_error,
            )
        )  # fmt: skip
    return tuple(found)


def banners(loaded: Loaded) -> Iterator[Banner]:
    """One banner a dead or late source; none before the first collection but "no data yet"."""
    if loaded.as_of is None:
        yield Banner(Status.UNKNOWN, Text("banner.no_data"))
        return
    interval = loaded.defaults.collect_interval_s
    for source in loaded.sources:
        if source.state == "down":
            since = source.last_ok_at or source.created_at
            yield Banner(
                Status.CRIT, Text("banner.source_down", {"source": source.name, "since": since})
            )
        elif source.last_ok_at is None or (
            (loaded.now - source.last_ok_at).total_seconds() >= 2 * interval
        ):
            params: dict[str, Any] = {"source": source.name}
            if source.last_ok_at is not None:
                params |= {
                    "age_s": (loaded.now - source.last_ok_at).total_seconds(),
                    "sample_at": loaded.as_of,
                }
            yield Banner(Status.UNKNOWN, Text("banner.source_stale", params))
