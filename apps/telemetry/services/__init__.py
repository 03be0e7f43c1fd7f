"""Writes of telemetry, split by noun."""

from .backfill import BackfillResult, backfill_due, backfill_source
from .collect import CollectResult, claim_due_sources, collect_source
from .prune import PruneResult, prune
from .sources import change_source, create_source, sync_targets

__all__ = [
    "BackfillResult",
    "CollectResult",
    "PruneResult",
    "backfill_due",
    "backfill_source",
    "change_source",
    "claim_due_sources",
    "collect_source",
    "create_source",
    "prune",
    "sync_targets",
]
