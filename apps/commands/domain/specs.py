"""`StepSpec` as JSON and back, loss-free."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

from apps.backends.protocol import StepKind, StepSpec, WorkerRef


def to_json(step: StepSpec) -> dict[str, Any]:
    """GPUs as text, everything else plain."""
    return {
        "index": step.index,
        "kind": step.kind.value,
        "worker": {
            "url": step.worker.url,
            "name": step.worker.name,
            "role": step.worker.role,
            "bootstrap_port": step.worker.bootstrap_port,
        },
        "target_role": step.target_role,
        "deadline_s": step.deadline_s,
        "gpus_during": str(step.gpus_during),
        "serving_during": dict(step.serving_during),
        "expected": dict(step.expected),
        "compensates": step.compensates,
    }


def from_json(data: Mapping[str, Any]) -> StepSpec:
    worker = data["worker"]
    return StepSpec(
        index=data["index"],
        kind=StepKind(data["kind"]),
        worker=WorkerRef(worker["url"], worker["name"], worker["role"], worker["bootstrap_port"]),
        target_role=data["target_role"],
        deadline_s=data["deadline_s"],
        gpus_during=Decimal(data["gpus_during"]),
        serving_during=dict(data["serving_during"]),
        expected=dict(data["expected"]),
        compensates=data["compensates"],
    )


def list_to_json(steps: Sequence[StepSpec]) -> list[dict[str, Any]]:
    return [to_json(step) for step in steps]
