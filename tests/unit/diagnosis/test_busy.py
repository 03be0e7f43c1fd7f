"""Busy shares by their definition (law 3b), with numbers worked by hand."""

from __future__ import annotations

import pytest

from apps.common.measurement import State
from apps.common.units import Unit
from apps.diagnosis.domain.busy import Capacity, busy_shares, imbalance
from apps.simulation.service_time import CALIBRATED, MODEL_ONLY, ObjectiveRate

from .builders import figures, lost, ok

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
