"""Times of the soak: when it ends and when the next window can be judged."""

from __future__ import annotations

from datetime import datetime, timedelta


def ends_at(converged_at: datetime, soak_s: float) -> datetime:
    """The soak lasts `soak_s` seconds from the last step on."""
    return converged_at + timedelta(seconds=soak_s)


def window_due(
    *, converged_at: datetime, last_judged_at: datetime | None, now: datetime, window_s: float
) -> bool:
    """True when a whole window has passed that began after the change and after the last one
    judged, so that no window mixes two topologies and none is counted twice."""
    since = last_judged_at or converged_at
    return (now - since).total_seconds() >= window_s
