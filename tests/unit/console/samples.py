"""One sample value for each parameter name that sentences use."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

from apps.common.measurement import Measurement, State
from apps.common.units import Unit
from apps.console.reader import Reader
from apps.console.wording.kinds import KINDS

NOW = datetime(2026, 11, 29, 19, 8, 6, tzinfo=UTC)
SHANGHAI = Reader(ZoneInfo("Asia/Shanghai"), NOW)
UTC_READER = Reader(ZoneInfo("UTC"), NOW)

_SPECIAL: dict[str, Any] = {
    "figure": "ttft_p95",
    "guardrail": "cooldown",
    "check": "revision",
    "cause": "prefill_saturated",
    "cause_phrase": "prefill_saturated",
    "mode": "recommend",
    "state": "SOAK",
    "permission": "approve",
    "basis": "same_hour_4_weeks",
    "figures": ("ttft_p95", "kv_used"),
    "guardrails": ("cooldown", "min_workers"),
    "names": ("a", "b"),
    "metrics": ("m1", "m2"),
    "workers_named": ("p-0", "p-1"),
    "targets": {"decode": 5, "prefill": 6},
    "wanted_targets": {"prefill": 4},
    "serving_targets": {"prefill": 3},
    "true_now": {"prefill": 5, "decode": 6},
    "changes": {"prefill": (4, 6), "decode": (6, 5)},
}
_ROLES = ("role", "from_role", "to_role", "other_role")
_TIMES = ("since", "at", "until", "next_at", "sample_at", "expires_at")
_FIGURES = frozenset(
    {"value", "usual", "other", "threshold", "predicted", "measured", "rate", "input", "output",
     "size", "speed", "demand", "first", "second", "price"}
)  # fmt: skip
_MONEY = frozenset(
    {"per_hour", "saved", "extra", "per_day", "per_million", "gpus", "gpus_free", "gpus_needed"}
)
_TEXT = frozenset(
    {"name", "worker", "peer", "who", "source", "deployment", "command", "recommendation",
     "metric", "node", "accelerator", "engine", "version", "team", "environment", "path", "url",
     "error", "model", "policy", "donor", "place", "pair", "reason_text", "by", "scope", "target"}
)  # fmt: skip


def sample(name: str) -> Any:
    """A value of the type that `kinds` documents for the name."""
    if name in _SPECIAL:
        return _SPECIAL[name]
    if name in _ROLES:
        return "prefill"
    if name in _TIMES:
        return NOW - timedelta(minutes=63)
    if name in _FIGURES:
        return Measurement(0.78, Unit.SECONDS, State.OK)
    if name in _MONEY:
        return Decimal("12.5")
    if name in _TEXT:
        return f"<{name}>"
    assert name in KINDS, name
    return 3 if name in ("count", "running", "waiting", "missing") else 0.5


def all_params() -> dict[str, Any]:
    return {name: sample(name) for name in KINDS}
