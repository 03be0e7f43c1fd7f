"""A table of simulated figures per cause: the right cause, and no advice it forbids."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from apps.common.measurement import State
from apps.common.units import Unit
from apps.diagnosis.domain.busy import Capacity, busy_shares
from apps.diagnosis.domain.causes import GROWS, NEVER_SCALE, Cause, Severity
from apps.diagnosis.domain.rules import diagnose
from apps.diagnosis.domain.symptoms import Symptoms
from apps.simulation.service_time import CALIBRATED, DecodeModel, objective_rate
from apps.telemetry.domain.figures import DeploymentFigures

from .builders import (
    AT,
    NO_USUAL,
    TPOT_BOUNDS,
    USUAL,
    figures,
    latency,
    lost,
    ok,
    overloaded,
    worker,
)

DECODE = DecodeModel(0.012, 0.00025, 6e-8)


def symptoms(f: DeploymentFigures, **changes: Any) -> Symptoms:
    prompt = f.mean_input_tokens.value or 1150
    answer = f.mean_output_tokens.value or 200
    seconds = 0.012 + 9e-5 * float(prompt) + 3e-9 * float(prompt) ** 2
    rate = objective_rate(
        DECODE,
        context_tokens=float(prompt) + float(answer) / 2,
        tpot_objective_s=0.025,
        max_sequences=96,
        kv_capacity_tokens=230_000,
    )
    fields: dict[str, Any] = {
        "figures": f,
        "usual": USUAL,
        "busy": busy_shares(f, Capacity(seconds, CALIBRATED, rate, CALIBRATED)),
        "ttft_objective_s": 2.5,
        "tpot_objective_s": 0.025,
        "expected_seconds_per_token": seconds / float(prompt),
        "prefill_seconds": seconds,
    }
    return Symptoms(**{**fields, **changes})


def slow_worker() -> DeploymentFigures:
    """Service time x 4 on one of two prefill workers; the router steers away from it."""
    workers = (
        worker("p-0", "prefill", 1.05e-4, tokens_per_s=ok(8000)),
        worker("p-1", "prefill", 4.2e-4, tokens_per_s=ok(2800), waiting=ok(6)),
    )
    return figures(
        ttft=latency(4.0, mean=1.2),
        mean_input_tokens=ok(1800, Unit.TOKENS),
        prefill_changes={
            "workers": workers,
            "forward_seconds_per_s": ok(1.95, Unit.RATIO),
            "queue_time_mean": ok(0.7, Unit.SECONDS),
            "waiting": ok(7),
        },
    )


def slow_link() -> DeploymentFigures:
    return figures(
        ttft=latency(3.0, mean=1.8),
        prefill_changes={
            "kv_transfer_mean": ok(1.4, Unit.SECONDS),
            "waiting": ok(12),
            "transferring": ok(12),
        },
    )


def decode_bound(p95: float = 0.028) -> DeploymentFigures:
    """3P + 3D, 10 req/s of 600 in and 600 out: about 50 sequences a worker."""
    return figures(
        prefill=3,
        decode=3,
        tpot=latency(p95, mean=0.027, bounds=TPOT_BOUNDS),
        arrivals_per_s=ok(10),
        completions_per_s=ok(9.8),
        mean_input_tokens=ok(600, Unit.TOKENS),
        mean_output_tokens=ok(600, Unit.TOKENS),
        output_tokens_per_s=ok(5900),
        decode_changes={
            "tokens_per_s": ok(5900),
            "running": ok(155),
            "kv_used": ok(0.20, Unit.RATIO),
        },
    )


def kv_room() -> DeploymentFigures:
    """Little KV room: requests wait for decode to accept them, TTFT rises, prefill has room."""
    return figures(
        prefill=3,
        decode=3,
        ttft=latency(6.0, mean=3.0),
        completions_per_s=ok(7.0),
        decode_changes={
            "kv_used": ok(0.86, Unit.RATIO),
            "waiting": ok(22),
            "transferring": ok(4),
            "running": ok(110),
        },
    )


def lost_replica() -> DeploymentFigures:
    return figures(decode_changes={"workers_serving": 3, "workers_reporting": 3})


def both() -> DeploymentFigures:
    return overloaded(
        decode_changes={"tokens_per_s": ok(4200), "running": ok(100), "kv_used": ok(0.4)}
    )


def idle_prefill() -> DeploymentFigures:
    return figures(
        prefill_changes={"forward_seconds_per_s": ok(0.2, Unit.RATIO)},
        decode_changes={"tokens_per_s": ok(3600), "kv_used": ok(0.3, Unit.RATIO)},
    )


TABLE = [
    ("overload", overloaded(), {}, Cause.PREFILL_SATURATED),
    ("overload without history", overloaded(), {"usual": NO_USUAL}, Cause.PREFILL_SATURATED),
    # The histogram still shows the past: the queue and the busy share decide.
    (
        "overload seen by the queue first",
        overloaded(
            ttft=latency(0.9, mean=0.6),
            prefill_changes={
                "waiting": ok(14),
                "forward_seconds_per_s": ok(1.93, Unit.RATIO),
                "queue_time_mean": ok(0.1, Unit.SECONDS),
            },
        ),
        {},
        Cause.PREFILL_SATURATED,
    ),
    ("decode by TPOT", decode_bound(), {}, Cause.DECODE_SATURATED),
    ("decode by token rate", replace(decode_bound(0.024)), {}, Cause.DECODE_SATURATED),
    ("KV memory", kv_room(), {}, Cause.KV_CACHE_FULL),
    ("slow link", slow_link(), {}, Cause.KV_TRANSFER_SLOW),
    ("slow link without history", slow_link(), {"usual": NO_USUAL}, Cause.KV_TRANSFER_SLOW),
    ("slow worker of two", slow_worker(), {}, Cause.BAD_WORKER),
    ("slow worker, uncalibrated", slow_worker(), {"expected_seconds_per_token": None},
     Cause.BAD_WORKER),
    ("lost replica", lost_replica(), {"short_for_s": {"decode": 90.0}}, Cause.REPLICA_LOST),
    ("both", both(), {}, Cause.BOTH_SATURATED),
    ("idle prefill", idle_prefill(), {"idle_for_s": {"prefill": 900.0}}, Cause.IDLE_PREFILL),
    ("idle decode", figures(), {"idle_for_s": {"decode": 900.0}}, Cause.IDLE_DECODE),
    ("calm", figures(), {}, Cause.BALANCED),
    ("router", figures(ttft=latency(3.0, mean=1.0)), {"router_wait": ok(0.8, Unit.SECONDS)},
     Cause.ROUTER_QUEUE),
    ("no TTFT", figures(ttft=latency(1.0, state=State.NO_DATA)), {}, Cause.NOT_ENOUGH_SIGNAL),
    ("old figures", figures(tpot=latency(0.02, state=State.STALE)), {}, Cause.NOT_ENOUGH_SIGNAL),
    ("one of four silent", figures(decode_changes={"workers_reporting": 3}), {},
     Cause.NOT_ENOUGH_SIGNAL),
]  # fmt: skip


@pytest.mark.parametrize(("name", "f", "changes", "cause"), TABLE, ids=[row[0] for row in TABLE])
def test_cause(name: str, f: DeploymentFigures, changes: dict[str, Any], cause: Cause) -> None:
    assert diagnose(symptoms(f, **changes)).cause is cause


@pytest.mark.parametrize(("name", "f", "changes", "cause"), TABLE, ids=[row[0] for row in TABLE])
def test_every_finding_has_evidence_and_only_the_balanced_one_no_warning(
    name: str, f: DeploymentFigures, changes: dict[str, Any], cause: Cause
) -> None:
    found = diagnose(symptoms(f, **changes))
    assert 1 <= len(found.evidence) <= 5
    assert bool(found.wont_help) == (cause is not Cause.BALANCED)


def test_no_cause_both_grows_a_phase_and_forbids_scaling() -> None:
    assert not set(GROWS) & NEVER_SCALE
    assert GROWS[Cause.PREFILL_SATURATED] == ("prefill",)
    assert "prefill" not in GROWS[Cause.DECODE_SATURATED]
    assert "prefill" not in GROWS[Cause.KV_CACHE_FULL]


def test_the_bad_worker_is_named_with_its_ratio() -> None:
    found = diagnose(symptoms(slow_worker()))
    assert found.worker == "p-1"
    assert found.params["ratio"] == pytest.approx(4.0)
    assert found.severity is Severity.CRIT


def test_two_workers_with_different_prompts_are_not_bad() -> None:
    """1.7 times the peer, but what the calibration expects for such prompts."""
    workers = (worker("p-0", "prefill", 0.62e-4), worker("p-1", "prefill", 1.06e-4))
    f = figures(prefill_changes={"workers": workers})
    assert diagnose(symptoms(f)).cause is Cause.BALANCED


def test_a_worker_that_hardly_worked_is_not_judged() -> None:
    workers = (
        worker("p-0", "prefill", 1.0e-4, tokens_per_s=ok(9000)),
        worker("p-1", "prefill", 9.0e-4, tokens_per_s=ok(20)),
    )
    f = figures(prefill_changes={"workers": workers})
    assert diagnose(symptoms(f)).cause is Cause.BALANCED


def test_in_a_larger_pool_the_median_is_the_yardstick() -> None:
    slow = [worker(f"p-{i}", "prefill", 1.0e-4) for i in range(4)]
    slow.append(worker("p-4", "prefill", 1.35e-4))
    f = figures(prefill=5, prefill_changes={"workers": tuple(slow)})
    found = diagnose(symptoms(f, expected_seconds_per_token=None))
    assert (found.cause, found.worker) == (Cause.BAD_WORKER, "p-4")


def test_a_small_decode_batch_does_not_make_its_worker_bad() -> None:
    """Seconds per token are four times the peers', because it holds a quarter of their batch."""
    workers = [worker(f"d-{i}", "decode", 0.0016, running=ok(8)) for i in range(3)]
    workers.append(worker("d-3", "decode", 0.0064, running=ok(2)))
    f = figures(decode_changes={"workers": tuple(workers)})
    assert diagnose(symptoms(f)).cause is Cause.BALANCED


def test_a_slow_decoder_is_one_with_a_full_batch_and_few_tokens() -> None:
    workers = [worker(f"d-{i}", "decode", 0.0017 + 0.0001 * i, running=ok(8)) for i in range(3)]
    workers.append(worker("d-3", "decode", 0.0066, running=ok(9)))
    f = figures(decode_changes={"workers": tuple(workers)})
    found = diagnose(symptoms(f))
    assert (found.cause, found.worker, found.role) == (Cause.BAD_WORKER, "d-3", "decode")


def test_one_odd_reading_of_the_running_gauge_is_noise() -> None:
    """Seen live: the token rates agree, one gauge was read just after a burst."""
    running = (4, 6, 5, 19)
    workers = [
        worker(f"d-{i}", "decode", 0.0028 + 0.0001 * i, running=ok(r))
        for i, r in enumerate(running)
    ]
    f = figures(decode_changes={"workers": tuple(workers)})
    assert diagnose(symptoms(f)).cause is Cause.BALANCED


def test_our_own_command_explains_a_missing_replica() -> None:
    s = symptoms(lost_replica(), short_for_s={"decode": 90.0}, has_open_command=True)
    assert diagnose(s).cause is Cause.BALANCED


def test_a_replica_that_is_only_starting_is_not_lost() -> None:
    assert diagnose(symptoms(lost_replica(), short_for_s={"decode": 30.0})).cause is Cause.BALANCED


def test_idle_must_last() -> None:
    assert diagnose(symptoms(figures(), idle_for_s={"decode": 500.0})).cause is Cause.BALANCED


def test_transfer_that_is_not_exported_is_what_is_left_of_ttft() -> None:
    f = slow_link()
    assert f.prefill and f.decode
    f = replace(
        f,
        prefill=replace(f.prefill, kv_transfer_mean=lost(Unit.SECONDS)),
        decode=replace(f.decode, kv_transfer_mean=lost(Unit.SECONDS)),
    )
    s = symptoms(f)
    assert s.kv_transfer.value == pytest.approx(1.8 - 0.02 - 0.12)
    assert s.kv_transfer.method == "derived"
    assert diagnose(s).cause is Cause.KV_TRANSFER_SLOW


def test_a_wait_for_decode_is_not_blamed_on_the_link() -> None:
    f = kv_room()
    assert f.prefill and f.decode
    f = replace(
        f,
        prefill=replace(f.prefill, kv_transfer_mean=lost(Unit.SECONDS)),
        decode=replace(f.decode, kv_transfer_mean=lost(Unit.SECONDS)),
    )
    assert diagnose(symptoms(f)).cause is Cause.KV_CACHE_FULL


def test_a_breach_nobody_can_explain_is_not_called_balanced() -> None:
    f = figures(ttft=latency(4.0, mean=2.0))
    found = diagnose(symptoms(f))
    assert found.cause is Cause.NOT_ENOUGH_SIGNAL
    assert found.sentence == "unexplained_breach"


def test_a_pool_that_just_got_a_worker_is_still_the_one_that_queues() -> None:
    """Seen live after a role flip: the share is over three workers, one of which just joined."""
    f = overloaded(prefill=3, decode=3)
    assert symptoms(f).prefill_busy == pytest.approx(1.99 / 3)
    assert diagnose(symptoms(f)).cause is Cause.PREFILL_SATURATED


def test_a_clamped_p95_is_evidence_of_a_breach() -> None:
    f = overloaded(ttft=latency(60.0, mean=20.0, state=State.CLAMPED))
    assert diagnose(symptoms(f)).severity is Severity.CRIT


def test_no_traffic_is_balanced_without_load() -> None:
    f = figures(
        ttft=latency(1, state=State.NO_TRAFFIC),
        tpot=latency(0.01, state=State.NO_TRAFFIC, bounds=TPOT_BOUNDS),
        arrivals_per_s=lost(state=State.NO_TRAFFIC),
        prefill_changes={"forward_seconds_per_s": ok(0.0, Unit.RATIO)},
        decode_changes={
            "tokens_per_s": lost(state=State.NO_TRAFFIC),
            "kv_used": ok(0.0, Unit.RATIO),
        },
    )
    found = diagnose(symptoms(f))
    assert (found.cause, found.sentence) == (Cause.BALANCED, "no_load")


def test_observed_at_of_the_builders_is_the_window_end() -> None:
    assert figures().at == AT
