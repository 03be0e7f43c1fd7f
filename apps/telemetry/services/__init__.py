"""Writes of telemetry, split by noun."""

from .backfill import BackfillResult, backfill_due, backfill_source
from .collect import CollectResult, claim_due_sources, collect_source
from .latest import keep_figures
from .prune import PruneResult, prune
from .roles import check_deployment, observe_targets
from .rollup import RollUpResult, roll_up
from .sources import change_source, create_source, sync_targets

__all__ = [
    "BackfillResult",
    "CollectResult",
    "PruneResult",
    "RollUpResult",
    "backfill_due",
    "backfill_source",
    "change_source",
    "check_deployment",
    "claim_due_sources",
    "collect_source",
    "create_source",
    "keep_figures",
    "observe_targets",
    "prune",
    "roll_up",
    "sync_targets",
]
