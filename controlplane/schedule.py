"""The static beat table: task *names*, so that waking upward needs no import.

Each entry wakes a dispatcher that claims the rows that are due; a wake-up that is lost or doubled
changes nothing. `expires` keeps a late wake-up from piling up.
"""

from __future__ import annotations

from typing import Any, Final

BEAT: Final[dict[str, dict[str, Any]]] = {
    "observe due backends": {
        "task": "fleet.observe_due",
        "schedule": 2.0,
        "options": {"queue": "collect", "expires": 2.0},
    },
    "collect due sources": {
        "task": "telemetry.collect_due",
        "schedule": 1.0,
        "options": {"queue": "collect", "expires": 1.0},
    },
    "evaluate due deployments": {
        "task": "planning.evaluate_due",
        "schedule": 1.0,
        "options": {"queue": "control", "expires": 1.0},
    },
    "drive commands": {
        "task": "commands.drive_due",
        "schedule": 1.0,
        "options": {"queue": "control", "expires": 1.0},
    },
    "check telemetry": {
        "task": "telemetry.check_due",
        "schedule": 60.0,
        "options": {"queue": "collect", "expires": 60.0},
    },
    "build workload profiles": {
        "task": "planning.build_workloads",
        "schedule": 3600.0,
        "options": {"queue": "control", "expires": 1800.0},
    },
    "roll windows up": {
        "task": "telemetry.roll_up",
        "schedule": 60.0,
        "options": {"queue": "collect", "expires": 60.0},
    },
    "fill gaps of sources": {
        "task": "telemetry.backfill_due",
        "schedule": 60.0,
        "options": {"queue": "collect", "expires": 60.0},
    },
    "prune windows": {
        "task": "telemetry.prune",
        "schedule": 600.0,
        "options": {"queue": "collect", "expires": 300.0},
    },
}
