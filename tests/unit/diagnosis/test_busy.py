"""Busy shares by their definition (law 3b), with numbers worked by hand."""

from __future__ import annotations

import pytest

from apps.common.measurement import Place, State
from apps.common.units import Unit
from apps.diagnosis.domain.busy import Capacity, busy_shares, imbalance
from apps.simulation.service_time import CALIBRATED, MODEL_ONLY, ObjectiveRate

from .builders import figures, lost, ok, worker

RATE = ObjectiveRate(batch=36.0, step_s=0.02375, tokens_per_s=1500.0, binding="tpot", feasible=True)
KNOWN = Capacity(0.12, CALIBRATED, RATE, CALIBRATED)


def test_prefill_is_forward_seconds_over_serving_workers() -> None:
    busy = busy_shares(figures(), KNOWN).prefill
    assert busy.value == pytest.approx(0.66 / 2)
    assert busy.method == "engine_time"


def test_without_forward_time_the_time_of_requests_is_an_upper_bound() -> None:
    f = figures(prefill_changes={"forward_seconds_per_s": lost(Unit.RATIO)})
    busy = busy_shares(f, KNOWN).prefill
    assert busy.value == pytest.approx(5.5 * 0.12 / 2)
    assert busy.method == "request_time"
    assert busy.upper == busy.value


def test_a_forward_time_made_of_request_times_says_so() -> None:
    f = figures(
        prefill_changes={"forward_seconds_per_s": ok(0.8, Unit.RATIO, method="request_time")}
    )
    busy = busy_shares(f, KNOWN).prefill
    assert (busy.method, busy.upper) == ("request_time", pytest.approx(0.4))


@pytest.mark.parametrize(("basis", "method"), [(CALIBRATED, "model"), (MODEL_ONLY, "model only")])
def test_last_of_all_the_model(basis: str, method: str) -> None:
    f = figures(
        prefill_changes={
            "forward_seconds_per_s": lost(Unit.RATIO),
            "stage_time_mean": lost(Unit.SECONDS),
        }
    )
    busy = busy_shares(f, Capacity(0.12, basis, RATE, CALIBRATED)).prefill
    assert busy.value == pytest.approx(5.5 * 0.12 / 2)
    assert busy.method == method


def test_partial_reports_are_divided_by_those_that_reported() -> None:
    partial = ok(0.5, Unit.RATIO)
    f = figures(
        prefill_changes={
            "forward_seconds_per_s": partial.with_state(State.PARTIAL),
            "workers_reporting": 1,
        }
    )
    busy = busy_shares(f, KNOWN).prefill
    assert busy.value == pytest.approx(0.5)
    assert busy.state is State.PARTIAL
    assert busy.coverage == (1, 2)


def test_decode_is_the_larger_of_token_rate_and_memory() -> None:
    by_tokens = busy_shares(figures(), KNOWN).decode
    assert by_tokens.value == pytest.approx(1100 / (4 * 1500))
    assert by_tokens.method == "token_rate"
    by_memory = busy_shares(figures(decode_changes={"kv_used": ok(0.68, Unit.RATIO)}), KNOWN).decode
    assert by_memory.value == pytest.approx(0.8)
    assert by_memory.method == "kv_used"


def test_forward_time_is_never_decode_busy() -> None:
    """Decode forward time is near 100 % whenever one stream runs."""
    f = figures(decode_changes={"forward_seconds_per_s": ok(4.0, Unit.RATIO)})
    assert busy_shares(f, KNOWN).decode.number() < 0.2


def test_an_uncalibrated_rate_is_marked_model_only() -> None:
    busy = busy_shares(figures(), Capacity(0.12, CALIBRATED, RATE, MODEL_ONLY)).decode
    assert busy.method == "model only"


def test_without_an_objective_memory_alone_is_a_lower_bound() -> None:
    busy = busy_shares(figures(), Capacity(0.12, CALIBRATED, None, CALIBRATED)).decode
    assert busy.value == pytest.approx(0.05 / 0.85)
    assert busy.lower == busy.value


def test_missing_is_missing_not_zero() -> None:
    f = figures(
        decode_changes={"tokens_per_s": lost(Unit.RATIO), "kv_used": lost(Unit.RATIO)},
        output_tokens_per_s=lost(Unit.TOKENS_PER_SECOND),
    )
    assert busy_shares(f, KNOWN).decode.value is None


def test_imbalance_needs_a_ratio_and_an_idle_side() -> None:
    busy = busy_shares(figures(), KNOWN)
    assert imbalance(busy, ratio=1.5, smaller_below=0.5) == "decode"
    assert imbalance(busy, ratio=2.0, smaller_below=0.5) == ""
    assert imbalance(busy, ratio=1.5, smaller_below=0.1) == ""


NO_TIMES = {"forward_seconds_per_s": lost(Unit.RATIO), "stage_time_mean": lost(Unit.SECONDS)}
NOTHING = Capacity(None, MODEL_ONLY, None, MODEL_ONLY)


def test_the_time_of_requests_is_exact_where_one_prefill_runs_at_a_time() -> None:
    one = ok(0.8, Unit.RATIO, method="request_time")
    f = figures(prefill_changes={"forward_seconds_per_s": one, "max_running": ok(2)})
    busy = busy_shares(f, KNOWN).prefill
    assert (busy.value, busy.upper, busy.method) == (pytest.approx(0.4), None, "request_time")


def test_a_limit_that_is_not_known_leaves_the_time_of_requests_an_upper_bound() -> None:
    one = ok(0.8, Unit.RATIO, method="request_time")
    f = figures(prefill_changes={"forward_seconds_per_s": one, "max_running": lost()})
    busy = busy_shares(f, KNOWN).prefill
    assert busy.upper == busy.value == pytest.approx(0.4)


def test_running_is_only_the_last_method_of_prefill_and_an_upper_bound() -> None:
    workers = (
        worker("p-0", "prefill", 1e-4, running=ok(3)),
        worker("p-1", "prefill", 1e-4, running=ok(0)),
    )
    changes = {**NO_TIMES, "workers": workers}
    busy = busy_shares(figures(prefill_changes=changes), NOTHING).prefill
    assert (busy.value, busy.upper, busy.method) == (0.5, 0.5, "running")
    modelled = busy_shares(figures(prefill_changes=changes), KNOWN).prefill
    assert modelled.method == "model"


def test_running_is_never_a_method_of_decode() -> None:
    f = figures(
        decode_changes={
            "tokens_per_s": lost(Unit.TOKENS_PER_SECOND),
            "kv_used": lost(Unit.RATIO),
            "running": ok(64),
        },
        output_tokens_per_s=lost(Unit.TOKENS_PER_SECOND),
    )
    busy = busy_shares(f, KNOWN)
    assert busy.decode.value is None
    assert busy.slots.value == pytest.approx(64 / (4 * 96))


def test_overload_reads_above_one() -> None:
    f = figures(
        prefill_changes={"forward_seconds_per_s": ok(2.6, Unit.RATIO)},
        decode_changes={"tokens_per_s": ok(9000, Unit.TOKENS_PER_SECOND)},
    )
    busy = busy_shares(f, KNOWN)
    assert busy.prefill.value == pytest.approx(1.3)
    assert busy.decode.value == pytest.approx(1.5)


def test_what_the_frontend_counted_is_divided_by_all_workers() -> None:
    """Engines that do not report still made their share of the frontend's tokens."""
    counted = ok(1100, Unit.TOKENS_PER_SECOND, place=Place.FRONTEND).with_state(State.PARTIAL)
    f = figures(
        decode_changes={"tokens_per_s": lost(Unit.TOKENS_PER_SECOND), "workers_reporting": 1},
        output_tokens_per_s=counted,
    )
    assert busy_shares(f, KNOWN).decode_tokens.value == pytest.approx(1100 / (4 * 1500))


@pytest.mark.parametrize("tokens_per_s", [1100.0, 9000.0])
def test_model_only_wins_no_silent_method(tokens_per_s: float) -> None:
    """Whatever is larger, a share that rests on an uncalibrated rate says so."""
    f = figures(decode_changes={"tokens_per_s": ok(tokens_per_s, Unit.TOKENS_PER_SECOND)})
    busy = busy_shares(f, Capacity(0.12, CALIBRATED, RATE, MODEL_ONLY))
    assert busy.decode_tokens.method == "model only"
    assert busy.decode.method == "model only"
