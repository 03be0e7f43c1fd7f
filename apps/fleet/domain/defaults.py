"""The one table of defaults (DESIGN §4a), as two presets; the UI shows it and a test reads it.

`demo` differs from `production` only in times, so that the story ends within ten minutes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Defaults:
    """Times in seconds, shares as ratios, counts in workers or requests."""

    preset: str
    collect_interval_s: float
    window_s: float
    diagnosis_window_s: float
    long_window_s: float
    percentile_min_requests: int
    percentile_max_window_s: float
    fresh_intervals: float
    gone_intervals: float
    step_up_workers: int
    step_up_share: float
    step_down_workers: int
    step_down_share: float
    cooldown_up_s: float
    cooldown_down_s: float
    hysteresis_needed: int
    hysteresis_of: int
    scale_down_hold_s: float
    flap_reversals: int
    flap_window_s: float
    recommendation_life_s: float
    approval_life_s: float
    command_life_s: float
    soak_s: float
    rollback_windows: int
    imbalance_ratio: float
    imbalance_smaller_below: float
    imbalance_hold_s: float
    floor_workers_per_role: int
    min_data_s: float


PRODUCTION: Final = Defaults(
    preset="production",
    collect_interval_s=15,
    window_s=60,
    diagnosis_window_s=300,
    long_window_s=3600,
    percentile_min_requests=200,
    percentile_max_window_s=3600,
    fresh_intervals=2,
    gone_intervals=5,
    step_up_workers=2,
    step_up_share=0.5,
    step_down_workers=1,
    step_down_share=0.25,
    cooldown_up_s=60,
    cooldown_down_s=300,
    hysteresis_needed=3,
    hysteresis_of=4,
    scale_down_hold_s=300,
    flap_reversals=3,
    flap_window_s=1800,
    recommendation_life_s=900,
    approval_life_s=900,
    command_life_s=3600,
    soak_s=600,
    rollback_windows=2,
    imbalance_ratio=1.5,
    imbalance_smaller_below=0.5,
    imbalance_hold_s=600,
    floor_workers_per_role=1,
    min_data_s=300,
)

DEMO: Final = Defaults(
    preset="demo",
    collect_interval_s=5,
    window_s=30,
    diagnosis_window_s=30,
    long_window_s=300,
    percentile_min_requests=100,
    percentile_max_window_s=300,
    fresh_intervals=2,
    gone_intervals=5,
    step_up_workers=2,
    step_up_share=0.5,
    step_down_workers=1,
    step_down_share=0.25,
    cooldown_up_s=60,
    cooldown_down_s=120,
    hysteresis_needed=2,
    hysteresis_of=2,
    scale_down_hold_s=60,
    flap_reversals=3,
    flap_window_s=600,
    recommendation_life_s=300,
    approval_life_s=300,
    command_life_s=600,
    soak_s=60,
    rollback_windows=2,
    imbalance_ratio=1.5,
    imbalance_smaller_below=0.5,
    imbalance_hold_s=60,
    floor_workers_per_role=1,
    min_data_s=60,
)

PRESETS: Final[Mapping[str, Defaults]] = {"production": PRODUCTION, "demo": DEMO}
