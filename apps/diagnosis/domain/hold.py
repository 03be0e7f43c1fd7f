"""Several evaluations decide, not one (DESIGN §4a, hysteresis); and since when a thing has held."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime


def decide(raw: Sequence[str], current: str | None, *, needed: int, of: int) -> str:
    """The cause that stands after the newest raw finding.

    `raw` are the findings newest first, one per window. The newest replaces `current` when `needed`
    of the last `of` agree with it; with no current one it stands at once.
    """
    newest = raw[0]
    if current is None or newest == current:
        return newest
    return newest if list(raw[:of]).count(newest) >= needed else current


def keep_since(
    before: Mapping[str, datetime], now_true: Mapping[str, bool], now: datetime
) -> dict[str, datetime]:
    """When each condition that holds now began: its earlier start, else now."""
    return {name: before.get(name, now) for name, holds in now_true.items() if holds}
