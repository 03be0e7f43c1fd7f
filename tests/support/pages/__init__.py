"""Sample read models: the scenario of the pictures (it adds up) and the demo deployment.

Figures are those of `design/ui.md` §14; times are UTC, "now" is 03:08 on 30 November in Shanghai.
"""

from apps.common.units import Unit

from .base import NOW, m, wave
from .commands import (
    command,
    command_list,
    compared,
    failed_command,
    review,
    steps,
    waiting_command,
)
from .deployment import (
    cells,
    cost,
    deployment,
    diagnosis,
    figures,
    path,
    pools,
    predicted,
    recommendation,
)
from .fleet import fleet, fleet_rows, row
from .selectors import Selectors, series
from .variants import demo, for_viewer, stale

__all__ = [
    "NOW",
    "Selectors",
    "Unit",
    "cells",
    "command",
    "command_list",
    "compared",
    "cost",
    "demo",
    "deployment",
    "diagnosis",
    "failed_command",
    "figures",
    "fleet",
    "fleet_rows",
    "for_viewer",
    "m",
    "path",
    "pools",
    "predicted",
    "recommendation",
    "review",
    "row",
    "series",
    "stale",
    "steps",
    "waiting_command",
    "wave",
]
