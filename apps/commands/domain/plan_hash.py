"""The hash that an approval covers (DESIGN law 13)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class PlanParts:
    """All that is approved. `guardrails` holds the limits and revisions the plan was proved with,
    `fence` the backend's fence of the set of workers, `rollback` the way back inside the plan."""

    deployment_id: str
    kind: str
    expected_revision: int
    targets: Mapping[str, int]
    before: Mapping[str, int]
    steps: Sequence[Mapping[str, Any]]
    fence: str
    adapter: str
    credential_id: str
    preset: str
    guardrails: Mapping[str, Any]
    rollback: Mapping[str, Any]

    def to_json(self) -> dict[str, Any]:
        data = asdict(self)
        data["steps"] = [dict(step) for step in self.steps]
        return data


def canonical(data: Any) -> str:
    """JSON with sorted keys and no spaces: equal values have equal text."""
    return json.dumps(data, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def plan_hash(parts: PlanParts) -> str:
    """SHA-256, in hexadecimal, of the canonical JSON of all parts."""
    return hashlib.sha256(canonical(parts.to_json()).encode()).hexdigest()


def changed_parts(approved: Mapping[str, Any], present: Mapping[str, Any]) -> tuple[str, ...]:
    """Names of the parts that differ, for the sentence that tells why a plan is no longer valid."""
    names = sorted({*approved, *present})
    return tuple(
        name for name in names if canonical(approved.get(name)) != canonical(present.get(name))
    )


def step_key(*, number: str, cluster_id: str, plan: str, index: int, epoch: int) -> str:
    """Unique name of one attempt at one step; also the label on workers that we add."""
    digest = hashlib.sha256(canonical([cluster_id, plan, index, epoch]).encode()).hexdigest()
    return f"{number}.{index}.{digest[:16]}"
