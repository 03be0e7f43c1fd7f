"""Codes of the diagnosis, as the API shows them (DESIGN §5), and the evidence behind one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from apps.common.measurement import Measurement


class Cause(StrEnum):
    """What limits the service."""

    PREFILL_SATURATED = "prefill_saturated"
    DECODE_SATURATED = "decode_saturated"
    KV_CACHE_FULL = "kv_cache_full"
    KV_TRANSFER_SLOW = "kv_transfer_slow"
    ROUTER_QUEUE = "router_queue"
    BAD_WORKER = "bad_worker"
    REPLICA_LOST = "replica_lost"
    BOTH_SATURATED = "both_saturated"
    IDLE_PREFILL = "idle_prefill"
    IDLE_DECODE = "idle_decode"
    PREFIX_CACHE_LOST = "prefix_cache_lost"
    HOST_BOUND = "host_bound"
    UNEVEN_WORKERS = "uneven_workers"
    BALANCED = "balanced"
    NOT_ENOUGH_SIGNAL = "not_enough_signal"


class Severity(StrEnum):
    """How bad; the same words as the status shapes of the pages."""

    OK = "ok"
    INFO = "info"
    WARN = "warn"
    CRIT = "crit"
    UNKNOWN = "unknown"


#: Causes that more workers of a phase can cure, and which phase.
GROWS: Mapping[Cause, tuple[str, ...]] = {
    Cause.PREFILL_SATURATED: ("prefill",),
    Cause.DECODE_SATURATED: ("decode",),
    Cause.KV_CACHE_FULL: ("decode",),
    Cause.BOTH_SATURATED: ("prefill", "decode"),
}

#: Causes under which no scaling may be advised: it would not help, or nobody can tell.
NEVER_SCALE = frozenset(
    {
        Cause.KV_TRANSFER_SLOW,
        Cause.ROUTER_QUEUE,
        Cause.BAD_WORKER,
        Cause.REPLICA_LOST,
        Cause.PREFIX_CACHE_LOST,
        Cause.HOST_BOUND,
        Cause.UNEVEN_WORKERS,
        Cause.NOT_ENOUGH_SIGNAL,
    }
)


@dataclass(frozen=True, slots=True)
class Evidence:
    """One measurement behind a cause; `comparison` is a code with parameters (JSON numbers)."""

    code: str
    status: Severity
    measurement: Measurement
    comparison: str = ""
    params: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return {
            "code": self.code,
            "status": self.status.value,
            "measurement": self.measurement.to_json(),
            "comparison": self.comparison,
            "params": dict(self.params),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Evidence:
        return cls(
            code=data["code"],
            status=Severity(data["status"]),
            measurement=Measurement.from_json(data["measurement"]),
            comparison=data.get("comparison", ""),
            params=data.get("params", {}),
        )


@dataclass(frozen=True, slots=True)
class Finding:
    """What one evaluation found, before "two in a row".

    `sentence` is the code of the second line with `params`; `wont_help` the advice against the
    wrong move that goes with the cause; `worker` and `role` say where.
    """

    cause: Cause
    severity: Severity
    evidence: tuple[Evidence, ...]
    sentence: str
    params: Mapping[str, Any] = field(default_factory=dict)
    wont_help: str = ""
    worker: str = ""
    role: str = ""
