"""Reviews and commands in their states."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

from apps.common.units import Unit
from apps.overview.domain import types as t
from apps.overview.domain.types import Status, Text

from .base import NOW, R, S, m, usd_h, usd_m
from .deployment import deployment, predicted, recommendation


def steps(state: str = "PLANNED") -> tuple[t.PlannedStep, ...]:
    started = NOW - timedelta(minutes=10)
    done = state == "DONE"

    def step(index: int, kind: str, worker: str, text: Text, expected: float) -> t.PlannedStep:
        return t.PlannedStep(
            index, kind, worker, state, text, expected,
            started + timedelta(minutes=index) if done else None,
            started + timedelta(minutes=index, seconds=expected - 3) if done else None,
            request="PATCH /scale {\"replicas\": 5}" if done else "",
            answer="200 OK" if done else "",
        )  # fmt: skip

    return (
        step(0, "wait_idle", "d-5", Text("step.drain", {"worker": "d-5"}), 95),
        step(1, "add_worker", "p-4", Text("step.add", {"worker": "p-4", "role": "prefill"}), 230),
        step(2, "add_worker", "p-5", Text("step.add", {"worker": "p-5", "role": "prefill"}), 230),
        step(
            3,
            "verify_data_plane",
            "p-5",
            Text("step.verify", {"worker": "p-5", "role": "prefill"}),
            30,
        ),
    )


def review(**changes: Any) -> t.ReviewPage:
    page = t.ReviewPage(
        deployment=deployment(),
        recommendation=recommendation(),
        checks=(
            t.Check("revision", True, Text("check.revision", {"revision": 41})),
            t.Check("fresh_data", True, Text("check.age", {"age_s": 8.0})),
            t.Check("mode", True),
            t.Check("kill_switch", True),
            t.Check("no_active_command", True),
            t.Check("freeze", True),
            t.Check("gpu_inventory", True),
            t.Check("dry_run", True),
        ),
        steps=steps(),
        lowest_capacity={"prefill": 4, "decode": 5},
        rollback=Text("rollback.auto", {"soak_s": 600.0, "targets": {"prefill": 4, "decode": 6}}),
        expected_revision=41,
        plan_hash="9f2c7d51ab3e48a0b1c2",
        may_apply=True,
        one_person_may=False,
        why_not=None,
    )
    return replace(page, **changes)


def compared() -> tuple[t.PredictedRow, ...]:
    found = predicted()
    measured = (m(0.81, S), m(0.028, S), m(11.3, Unit.REQUESTS_PER_SECOND), usd_m("0.70"),
                usd_h("200.80"))  # fmt: skip
    return tuple(
        replace(item, measured=value, inside_range=True)
        for item, value in zip(found, measured, strict=True)
    )


def command(**changes: Any) -> t.CommandView:
    view = t.CommandView(
        id="c1", number="C-0914", deployment_slug="assist-chat-prod",
        deployment_name="assist-chat-prod", kind="rebalance",
        title=Text("command.change", {"changes": {"prefill": (4, 6), "decode": (6, 5)}}),
        state="SOAK", status=Status.INFO,
        state_text=Text("state.SOAK", {"elapsed_s": 240.0, "soak_s": 600.0}),
        diff=recommendation().diff, proposed_by=("alice",),
        proposed_at=NOW - timedelta(minutes=12), started_at=NOW - timedelta(minutes=10),
        finished_at=None, duration_s=600, deadline_at=NOW + timedelta(minutes=50),
        soak_elapsed_s=240, soak_s=600, plan_hash="9f2c7d51ab3e48a0b1c2", expected_revision=41,
        approvals_needed=1,
        approvals=(t.ApprovalLine("bob", NOW - timedelta(minutes=11), "approve", "go"),),
        steps=steps("DONE"), compared=compared(),
        worst=(
            t.Figure("worst_ttft_p95", m(2.31, S), None, 1.2, None),
            t.Figure("worst_tpot_p95", m(0.031, S), None, 0.04, None),
            t.Figure("worst_error_share", m(0.0, R), None, None, None),
        ),
        recovered_after_s=318, true_now={"prefill": 6, "decode": 5},
        next_action=Text("next.soak", {"until": NOW + timedelta(minutes=6)}), error=None,
        log=(
            t.Change(NOW - timedelta(minutes=12), Status.INFO,
                     Text("change.command_proposed", {"command": "C-0914"}), None, "alice"),
            t.Change(NOW - timedelta(minutes=11), Status.OK,
                     Text("change.command_approved", {"command": "C-0914"}), None, "bob"),
        ),
        rollback_of="", rolled_back_by="", may_approve=False, may_reject=False, may_cancel=True,
        may_roll_back=True, why_not=None, recommendation_number="R-2187", is_live=True, etag="c1",
    )  # fmt: skip
    return replace(view, **changes)


def waiting_command(**changes: Any) -> t.CommandView:
    return command(
        number="C-0915", state="PROPOSED", status=Status.WARN,
        state_text=Text("state.PROPOSED", {"approvals": 1, "until": NOW + timedelta(minutes=14)}),
        started_at=None, duration_s=None, soak_elapsed_s=None, approvals=(), steps=steps(),
        compared=predicted(), worst=(), recovered_after_s=None,
        next_action=Text("next.approve"), true_now={"prefill": 4, "decode": 6}, may_approve=True,
        may_reject=True, may_roll_back=False, etag="c2", **changes,
    )  # fmt: skip


def failed_command() -> t.CommandView:
    good = steps("DONE")
    broken = replace(good[1], state="FAILED", error="worker did not become ready in 300 s",
                     ended_at=NOW)  # fmt: skip
    return command(
        number="C-0910", state="PARTIAL", status=Status.CRIT, is_live=False,
        state_text=Text("state.PARTIAL", {"true_now": {"prefill": 5, "decode": 6}}),
        error=Text("error.step_failed", {"step": 2, "error": "p-5 did not become ready in 300 s"}),
        next_action=Text("next.person"), true_now={"prefill": 5, "decode": 6},
        steps=(good[0], broken, *steps()[2:]), compared=predicted(), worst=(),
        recovered_after_s=None, soak_s=None, soak_elapsed_s=None, etag="c3",
    )  # fmt: skip


def command_list() -> t.CommandList:
    done = command(
        number="C-0912", state="SUCCEEDED", status=Status.OK, is_live=False,
        state_text=Text("state.SUCCEEDED", {"after_s": 840.0}),
        title=Text("command.change", {"changes": {"decode": (5, 6)}}),
        started_at=NOW - timedelta(days=1, hours=9), kind="scale", soak_s=None,
    )  # fmt: skip
    return t.CommandList(
        rows=(waiting_command(), command(), done, failed_command()),
        visible=4,
        predictions=17,
        inside_range=15,
        median_error=0.09,
    )
