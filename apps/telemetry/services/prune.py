"""The regular upkeep of what was stored: raw samples go, windows are rolled up, old levels drop."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from ..domain.levels import SLIDING
from ..models import Sample, Target
from . import partitions
from .retention import drop_expired
from .rollup import roll_up


@dataclass(frozen=True, slots=True)
class PruneResult:
    """Samples and sliding windows removed, blocks made, partitions (days, on SQLite) dropped, and
    blocks or partitions refused because a count would have been lost."""

    samples: int
    sliding: int
    rolled_up: int
    expired: int
    refused: int


def prune(*, now: datetime) -> PruneResult:
    """Do everything that is due. Safe to run twice and at any time."""
    partitions.ensure_ahead(now)
    samples, _ = Sample.objects.filter(at__lt=now - SLIDING).delete()
    Target.objects.filter(is_active=False, samples__isnull=True).delete()
    rolled = roll_up(now=now)
    kept = drop_expired(now=now)
    return PruneResult(
        samples, rolled.sliding, rolled.blocks, kept.dropped, rolled.refused + kept.refused
    )
