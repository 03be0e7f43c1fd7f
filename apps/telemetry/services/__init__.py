"""Writes of telemetry, split by noun."""

from .collect import CollectResult, claim_due_sources, collect_source
from .prune import PruneResult, prune
from .roles import check_deployment, observe_targets
from .sources import change_source, create_source, sync_targets

__all__ = [
    "CollectResult",
    "PruneResult",
    "change_source",
    "check_deployment",
    "claim_due_sources",
    "collect_source",
    "create_source",
    "observe_targets",
    "prune",
    "sync_targets",
]
