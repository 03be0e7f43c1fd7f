"""The learnt service-time models: known coefficients come back, bad windows do not count."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apps.simulation.service_time import (
    CALIBRATED,
    MODEL_ONLY,
    DecodeModel,
    PrefillModel,
    TimeSample,
    decode_roofline,
    decode_sample,
    fit,
    objective_rate,
    prefill_roofline,
    prefill_sample,
)

TRUE_PREFILL = PrefillModel(0.012, 9e-5, 1.5e-9)
TRUE_DECODE = DecodeModel(0.012, 0.00025, 6e-8)
ROOFLINE_DECODE = (0.0195, 0.000057, 5.8e-8)


def test_prefill_seconds_and_their_mean() -> None:
    assert TRUE_PREFILL.seconds(1000) == pytest.approx(0.012 + 0.09 + 0.0015)
    # E[n^2] = mean^2 (1 + cv2)
    assert TRUE_PREFILL.mean_seconds(2850, 1.0) == pytest.approx(0.012 + 0.2565 + 0.0243675)


def test_decode_step_seconds() -> None:
    assert TRUE_DECODE.step_seconds(8, 24_000) == pytest.approx(0.012 + 0.002 + 0.00144)


def test_without_samples_the_prior_stands_and_is_model_only() -> None:
    found = fit(TRUE_PREFILL.coefficients, [])
    assert found.coefficients == TRUE_PREFILL.coefficients
    assert found.basis == MODEL_ONLY
    assert found.error is None and found.covered is None


def test_a_wrong_prior_is_corrected_by_spread_samples() -> None:
    rng = np.random.default_rng(1)
    samples = [
        decode_sample(b, b * c, TRUE_DECODE.step_seconds(b, b * c) * rng.normal(1, 0.01))
        for b, c in zip(rng.uniform(2, 40, 60), rng.uniform(800, 4000, 60), strict=True)
    ]
    found = fit(ROOFLINE_DECODE, samples)
    model = DecodeModel(*found.coefficients)
    assert found.basis == CALIBRATED
    assert found.error is not None and found.error < 0.02
    for batch in (3, 15, 30):
        truth = TRUE_DECODE.step_seconds(batch, batch * 2000)
        assert model.step_seconds(batch, batch * 2000) == pytest.approx(truth, rel=0.03)


def test_one_operating_point_moves_the_level_not_below_zero() -> None:
    samples = [decode_sample(7.6, 22_000, TRUE_DECODE.step_seconds(7.6, 22_000))] * 12
    found = fit(ROOFLINE_DECODE, samples)
    assert min(found.coefficients) >= 0
    at_point = DecodeModel(*found.coefficients).step_seconds(7.6, 22_000)
    assert at_point == pytest.approx(TRUE_DECODE.step_seconds(7.6, 22_000), rel=0.01)


def test_an_outlier_window_is_left_out() -> None:
    good = [
        prefill_sample(n, 1.0, TRUE_PREFILL.mean_seconds(n, 1.0)) for n in range(800, 3200, 200)
    ]
    bad = prefill_sample(1500, 1.0, 4 * TRUE_PREFILL.mean_seconds(1500, 1.0))
    found = fit(TRUE_PREFILL.coefficients, [*good, bad])
    assert found.rejected == 1
    assert found.kept == len(good)
    assert found.coefficients == pytest.approx(TRUE_PREFILL.coefficients, rel=0.02)


def test_a_changed_fleet_is_believed_when_most_windows_agree() -> None:
    slow = [
        prefill_sample(n, 1.0, 2 * TRUE_PREFILL.mean_seconds(n, 1.0)) for n in range(800, 3200, 200)
    ]
    found = fit(TRUE_PREFILL.coefficients, slow)
    assert PrefillModel(*found.coefficients).mean_seconds(2000, 1.0) == pytest.approx(
        2 * TRUE_PREFILL.mean_seconds(2000, 1.0), rel=0.03
    )


def test_a_large_hold_out_error_is_not_calibrated() -> None:
    rng = np.random.default_rng(3)
    noise = [decode_sample(8, 24_000, 0.015 * rng.lognormal(0, 0.9)) for _ in range(20)]
    assert fit(TRUE_DECODE.coefficients, noise).basis == MODEL_ONLY


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(st.floats(1, 200), st.floats(10, 500_000), st.floats(0.001, 2.0)),
        min_size=1,
        max_size=12,
    )
)
def test_coefficients_are_never_negative(rows: list[tuple[float, float, float]]) -> None:
    found = fit(ROOFLINE_DECODE, [TimeSample((1.0, b, k), s) for b, k, s in rows])
    assert min(found.coefficients) >= 0


def test_objective_rate_is_bound_by_tpot_in_the_demo() -> None:
    rate = objective_rate(
        TRUE_DECODE,
        context_tokens=2950,
        tpot_objective_s=0.025,
        max_sequences=96,
        kv_capacity_tokens=230_000,
    )
    # (0.95 x 25 - 12) ms / (0.25 + 0.177) ms a sequence
    assert rate.batch == pytest.approx(11.75 / 0.427, rel=1e-6)
    assert rate.binding == "tpot" and rate.feasible
    assert rate.step_s == pytest.approx(0.02375)
    assert rate.tokens_per_s == pytest.approx(rate.batch / 0.02375)


@pytest.mark.parametrize(
    ("sequences", "capacity", "binding", "batch"),
    [(96, 60_000, "kv", 0.85 * 60_000 / 2950), (16, 230_000, "sequences", 0.94 * 16)],
)
def test_objective_rate_is_bound_by_memory_or_slots(
    sequences: int, capacity: int, binding: str, batch: float
) -> None:
    rate = objective_rate(
        TRUE_DECODE,
        context_tokens=2950,
        tpot_objective_s=0.025,
        max_sequences=sequences,
        kv_capacity_tokens=capacity,
    )
    assert rate.binding == binding
    assert rate.batch == pytest.approx(batch)


def test_an_objective_below_one_step_is_infeasible() -> None:
    rate = objective_rate(
        TRUE_DECODE,
        context_tokens=1000,
        tpot_objective_s=0.010,
        max_sequences=None,
        kv_capacity_tokens=None,
    )
    assert not rate.feasible
    assert rate.batch == 1.0


def test_roofline_of_a_32b_model_on_one_141_gb_gpu_is_in_the_measured_range() -> None:
    # 32.8e9 parameters, 989 TFLOPS: the profile's 4,096-token prefill takes 402 ms.
    prefill = prefill_roofline(active_params=32.8e9, flops=989e12, efficiency=0.6)
    assert prefill.seconds(4096) == pytest.approx(0.402, rel=0.25)
    decode = decode_roofline(
        active_params=32.8e9,
        weight_bytes=65.6e9,
        kv_bytes_per_token=262_144,
        flops=989e12,
        bytes_per_s=4800e9,
    )
    assert decode.step_seconds(1, 1000) == pytest.approx(0.0185, rel=0.1)
