"""DESIGN §4a: one table in code; `demo` differs from `production` only in times."""

from __future__ import annotations

from dataclasses import asdict

from apps.fleet.domain.defaults import DEMO, PRESETS, PRODUCTION

TIMES_MAY_DIFFER = {
    "preset", "collect_interval_s", "window_s", "diagnosis_window_s", "long_window_s",
    "percentile_max_window_s", "cooldown_up_s", "cooldown_down_s", "scale_down_hold_s",
    "flap_window_s", "recommendation_life_s", "approval_life_s", "command_life_s", "soak_s",
    "imbalance_hold_s", "min_data_s",
    # counts that stand for times: windows in a row, requests in a window
    "hysteresis_needed", "hysteresis_of", "percentile_min_requests",
}  # fmt: skip


def test_production_values() -> None:
    assert (PRODUCTION.collect_interval_s, PRODUCTION.window_s) == (15, 60)
    assert (PRODUCTION.fresh_intervals, PRODUCTION.gone_intervals) == (2, 5)
    assert (PRODUCTION.step_up_workers, PRODUCTION.step_up_share) == (2, 0.5)
    assert (PRODUCTION.step_down_workers, PRODUCTION.step_down_share) == (1, 0.25)
    assert (PRODUCTION.cooldown_up_s, PRODUCTION.cooldown_down_s) == (60, 300)
    assert (PRODUCTION.hysteresis_needed, PRODUCTION.hysteresis_of) == (3, 4)
    assert (PRODUCTION.recommendation_life_s, PRODUCTION.approval_life_s) == (900, 900)
    assert (PRODUCTION.soak_s, PRODUCTION.rollback_windows) == (600, 2)
    assert (PRODUCTION.imbalance_ratio, PRODUCTION.imbalance_smaller_below) == (1.5, 0.5)
    assert PRODUCTION.percentile_min_requests == 200
    assert PRODUCTION.floor_workers_per_role == 1


def test_demo_differs_only_in_times() -> None:
    production, demo = asdict(PRODUCTION), asdict(DEMO)
    differing = {name for name in production if production[name] != demo[name]}
    assert differing <= TIMES_MAY_DIFFER
    assert (DEMO.collect_interval_s, DEMO.window_s) == (5, 30)
    assert (DEMO.hysteresis_needed, DEMO.hysteresis_of) == (2, 2)
    assert set(PRESETS) == {"production", "demo"}
