"""The ordered rules (research on planning §5): first match wins, structural causes before load.

Structural causes come first because they produce the load symptoms; a saturated prefill pool hides
decode demand, so "both" is asked before either alone. Thresholds are those measured there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from . import host, load, structural
from .causes import Finding
from .symptoms import Symptoms

Rule = Callable[[Symptoms], Finding | None]

#: Order matters; see the first lines.
RULES: Final[tuple[Rule, ...]] = (
    structural.not_enough_signal,
    structural.replica_lost,
    structural.bad_worker,
    structural.router_queue,
    host.host_bound,
    structural.kv_transfer_slow,
    structural.uneven_workers,
    load.both_saturated,
    load.kv_cache_full,
    load.prefill_saturated,
    load.decode_saturated,
    load.idle,
    load.unexplained,
)


def diagnose(s: Symptoms) -> Finding:
    """The finding of one evaluation. Never raises on missing figures: they are a finding."""
    for rule in RULES:
        found = rule(s)
        if found is not None:
            return found
    return load.balanced(s)
