"""The host as the limit: where its time and its CPUs are measured, and never without them."""

from __future__ import annotations

from typing import Any

import pytest

from apps.common.measurement import State
from apps.common.units import Unit
from apps.diagnosis.domain.causes import Cause, Severity
from apps.diagnosis.domain.rules import diagnose
from apps.telemetry.domain.figures import DeploymentFigures

from .builders import figures, hardware, latency, lost, ok
from .test_rules import symptoms

LATE = latency(4.0, mean=1.8)
STARVED = {
    "host_cpu_busy": ok(0.97, Unit.RATIO),
    "host_pressure": ok(3.2, Unit.RATIO),
    "tensor_active": ok(0.08, Unit.RATIO),
}


def late(role: str = "prefill", **changes: Any) -> DeploymentFigures:
    return figures(ttft=LATE, hardware={role: hardware(role, **changes)})


def test_time_outside_queue_and_prefill_makes_ttft_late() -> None:
    found = diagnose(symptoms(late(host_overhead=ok(0.8, Unit.SECONDS))))
    assert (found.cause, found.role, found.severity) == (
        Cause.HOST_BOUND, "prefill", Severity.CRIT,
    )  # fmt: skip
    assert found.params["share"] == pytest.approx(0.8 / 1.8)
    assert found.evidence[0].code == "host_overhead"
    assert "ttft_p95" in [item.code for item in found.evidence]


def test_full_cpus_and_idle_gpus_are_the_host() -> None:
    found = diagnose(symptoms(late(**STARVED)))
    assert found.cause is Cause.HOST_BOUND
    shown = {item.code: item.status for item in found.evidence}
    assert shown["host_cpu_busy"] is shown["host_pressure"] is Severity.CRIT
    assert shown["tensor_active"] is Severity.INFO


def test_late_tokens_and_full_cpus_of_decode_hosts() -> None:
    f = figures(tpot=latency(0.04), hardware={"decode": hardware("decode", **STARVED)})
    found = diagnose(symptoms(f))
    assert (found.cause, found.role) == (Cause.HOST_BOUND, "decode")
    assert "tpot_p95" in [item.code for item in found.evidence]


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"host_overhead": ok(0.09, Unit.SECONDS)},
        {"host_cpu_busy": ok(0.97, Unit.RATIO)},
        {"host_pressure": ok(3.2, Unit.RATIO)},
        {"host_cpu_busy": ok(0.97, Unit.RATIO).with_state(State.STALE),
         "host_pressure": ok(3.2, Unit.RATIO).with_state(State.STALE)},
        {"host_cpu_busy": lost(Unit.RATIO), "host_pressure": lost(Unit.RATIO)},
    ],
    ids=["room", "short overhead", "busy without pressure", "pressure without busy", "old", "none"],
)  # fmt: skip
def test_no_host_without_its_evidence(changes: dict[str, Any]) -> None:
    assert diagnose(symptoms(late(**changes))).cause is not Cause.HOST_BOUND


def test_full_cpus_without_a_missed_objective_are_nobodys_limit() -> None:
    f = figures(hardware={"prefill": hardware("prefill", **STARVED)})
    assert diagnose(symptoms(f)).cause is Cause.BALANCED


def test_saturated_gpus_come_before_their_hosts() -> None:
    f = figures(
        ttft=LATE,
        hardware={"prefill": hardware("prefill", **STARVED)},
        prefill_changes={
            "forward_seconds_per_s": ok(1.99, Unit.RATIO),
            "queue_time_mean": ok(1.5, Unit.SECONDS),
        },
    )
    assert diagnose(symptoms(f)).cause is Cause.PREFILL_SATURATED


def test_a_transfer_time_that_is_only_what_remains_leaves_out_the_host() -> None:
    """TTFT 1.8 s less queue 0.02, prefill 0.12 and 1.5 s of host leaves 0.16 s, not 1.66."""
    unmeasured = {"kv_transfer_mean": lost(Unit.SECONDS)}
    f = figures(
        ttft=LATE,
        prefill_changes=unmeasured,
        decode_changes=unmeasured,
        hardware={"prefill": hardware("prefill", host_overhead=ok(1.5, Unit.SECONDS))},
    )
    assert symptoms(f).kv_transfer.value == pytest.approx(0.16)
    assert diagnose(symptoms(f)).cause is Cause.HOST_BOUND
