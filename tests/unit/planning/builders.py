"""The demo fleet as the planner sees it, with its true service times."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from apps.planning.domain.choose import Limits
from apps.planning.domain.confidence import PhaseBasis
from apps.planning.domain.demand import Demand, Drift, LoadSample
from apps.planning.domain.guardrails import Circumstances
from apps.planning.domain.model import Engine, Money, Pair, Targets
from apps.planning.domain.plan import PlanInputs
from apps.simulation.service_time import DecodeModel, PrefillModel
from apps.telemetry.domain.figures import DeploymentFigures
from tests.unit.diagnosis.builders import AT

NOW = datetime(2026, 11, 30, 3, 8, 1, tzinfo=UTC)
ENGINE = Engine(
    prefill=PrefillModel(0.012, 9e-5, 1.5e-9),
    decode=DecodeModel(0.012, 0.00025, 6e-8),
    prefill_error=0.05,
    decode_error=0.05,
    prefill_basis="calibrated",
    decode_basis="calibrated",
    length_cv2=1.0,
    transfer_s=0.035,
    max_sequences=96,
    kv_capacity_tokens=230_000,
)
TARGETS = Targets(2.5, 0.95, 0.025, 0.95)
MONEY = Money(Decimal("4.59"), Decimal("4.59"))
SIX_GPUS = Limits(gpu_budget=Decimal(6))


def load(rate: float, prompt: float, answer: float = 200, **changes: Any) -> Demand:
    fields: dict[str, Any] = {
        "rate": rate,
        "fast": rate,
        "slow": rate,
        "trend": 0.0,
        "mean_input": prompt,
        "mean_prompt": prompt,
        "mean_output": answer,
        "backlog": 0.0,
        "decode_backlog": 0.0,
        "output_tokens_per_s": rate * answer,
        "flow_error": 0.0,
        "rebuilt": False,
        "drift": Drift(0.08, 0.08, 0.06),
        "history_s": 600.0,
    }
    return Demand(**{**fields, **changes})


CALM, LONG = load(5.5, 1150), load(7.5, 2850)


def circumstances(**changes: Any) -> Circumstances:
    fields: dict[str, Any] = {
        "now": NOW,
        "data_age_s": 1.0,
        "stale": (),
        "may_reduce": True,
        "donors": frozenset({"prefill", "decode"}),
        "incomplete": (),
        "inventory_is_fresh": True,
        "model_only": (),
        "is_growth": True,
        "cooldown_up_s": 60,
        "cooldown_down_s": 120,
        "last_change_at": None,
        "active_command": "",
        "foreign_change_at": None,
        "frozen_until": None,
        "reversals": (),
        "flap_reversals": 3,
        "flap_window_s": 600,
        "holds_ttft": None,
        "holds_tpot": None,
    }
    return Circumstances(**{**fields, **changes})


def inputs(figures: DeploymentFigures, **changes: Any) -> PlanInputs:
    fields: dict[str, Any] = {
        "deployment_id": "d",
        "now": NOW,
        "figures": figures,
        "recent": figures,
        "history": history(),
        "current": Pair(2, 4),
        "revision": 1,
        "targets": TARGETS,
        "engine": ENGINE,
        "basis": (
            PhaseBasis("prefill", 20, 0.04, (800, 3200), 1150, "calibrated"),
            PhaseBasis("decode", 20, 0.03, (3, 12), 6, "calibrated"),
        ),
        "money": MONEY,
        "limits": SIX_GPUS,
        "cause": "balanced",
        "grow": (),
        "may_scale": True,
        "breached_ttft": False,
        "breached_tpot": False,
        "standing": None,
        "held_need": None,
        "circumstances": circumstances(),
        "horizon_s": 60.0,
        "lead_s": 20.0,
        "slow_s": 30.0,
        "min_data_s": 60.0,
    }
    return PlanInputs(**{**fields, **changes})


def history(rate: float = 5.5, prompt: float = 1150, minutes: int = 5) -> Sequence[LoadSample]:
    from datetime import timedelta

    return [
        LoadSample(AT - timedelta(seconds=30 * i), rate, prompt, 200, 8.0)
        for i in range(2 * minutes, 0, -1)
    ]


def with_engine(**changes: Any) -> Engine:
    return replace(ENGINE, **changes)
