"""The hash covers every part: change one and the approval is void."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import pytest

from apps.commands.domain.plan_hash import PlanParts, changed_parts, plan_hash, step_key

PARTS = PlanParts(
    deployment_id="d",
    kind="role_flip",
    expected_revision=4,
    targets={"prefill": 3, "decode": 3},
    before={"prefill": 2, "decode": 4},
    steps=[{"index": 0, "kind": "remove_worker"}, {"index": 1, "kind": "add_worker"}],
    fence="f0",
    adapter="router_workers",
    credential_id="c0",
    preset="production",
    guardrails={"pools": {"decode": {"min": 1}}, "policy": {"revision": 3}},
    rollback={"targets": {"prefill": 2, "decode": 4}, "steps": []},
)
OTHER: dict[str, Any] = {
    "deployment_id": "e",
    "kind": "rebalance",
    "expected_revision": 5,
    "targets": {"prefill": 4, "decode": 2},
    "before": {"prefill": 2, "decode": 5},
    "steps": list(reversed(PARTS.steps)),
    "fence": "f1",
    "adapter": "noop",
    "credential_id": "c1",
    "preset": "demo",
    "guardrails": {"pools": {"decode": {"min": 2}}, "policy": {"revision": 3}},
    "rollback": {"targets": {"prefill": 2, "decode": 3}, "steps": []},
}


def test_every_part_is_tried() -> None:
    assert {field.name for field in fields(PlanParts)} == set(OTHER)


@pytest.mark.parametrize("name", sorted(OTHER))
def test_each_part_changes_the_hash(name: str) -> None:
    changed = replace(PARTS, **{name: OTHER[name]})
    assert plan_hash(changed) != plan_hash(PARTS)
    assert changed_parts(PARTS.to_json(), changed.to_json()) == (name,)


def test_the_order_of_keys_does_not() -> None:
    turned = replace(
        PARTS,
        targets=dict(reversed(list(PARTS.targets.items()))),
        guardrails=dict(reversed(list(PARTS.guardrails.items()))),
    )
    assert plan_hash(turned) == plan_hash(PARTS)
    assert len(plan_hash(PARTS)) == 64


def test_a_step_key_is_one_attempt() -> None:
    base: dict[str, Any] = {
        "number": "C-9",
        "cluster_id": "c",
        "plan": "h",
        "index": 2,
        "epoch": 5,
    }
    keys = {
        step_key(**{**base, **change})
        for change in ({}, {"cluster_id": "x"}, {"plan": "x"}, {"index": 3}, {"epoch": 6})
    }
    assert len(keys) == 5
    assert step_key(**base) == step_key(**base)
    assert step_key(**base).startswith("C-9.2.") and len(step_key(**base)) <= 64
