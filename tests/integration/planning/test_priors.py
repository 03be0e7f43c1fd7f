"""Where a calibration starts: the profile table, else a roofline, else a generic model."""

from __future__ import annotations

import pytest

from apps.fleet.models import Accelerator, Deployment, ModelArchitecture
from apps.planning.priors import GENERIC, prior
from apps.simulation.service_time import DecodeModel, PrefillModel
from tests.support.builders import world

pytestmark = pytest.mark.django_db


def known(deployment: Deployment) -> Deployment:
    Accelerator.objects.filter(slug="h200-sxm").update(tflops_fp16=989, hbm_gbps=4800)
    deployment.architecture = ModelArchitecture.objects.create(
        slug="qwen3-32b",
        name="Qwen3 32B",
        hf_id="Qwen/Qwen3-32B",
        params_b=32.8,
        active_params_b=32.8,
        kv_bytes_per_token=262_144,
    )
    deployment.save()
    return deployment


def pool(deployment: Deployment, role: str):  # type: ignore[no-untyped-def]
    return deployment.pools.select_related("accelerator").get(role=role)


def test_prefill_of_one_gpu_comes_from_the_profile() -> None:
    d = known(world().deployment)
    found = prior(d, pool(d, "prefill"), "prefill")
    assert found.source == "profile Qwen/Qwen3-32B h200_sxm TP1"
    # The table: 4,096 tokens take 402 ms; this form errs up to 11.6 % on it (research §3.3).
    assert PrefillModel(*found.coefficients).seconds(4096) == pytest.approx(0.402, rel=0.10)


def test_decode_of_two_gpus_comes_from_the_profile() -> None:
    d = known(world().deployment)
    row = pool(d, "decode")
    row.tensor_parallel = 2
    found = prior(d, row, "decode")
    assert found.source.endswith("TP2")
    # batch 64 x 4,096 tokens: 19.8 ms
    assert DecodeModel(*found.coefficients).step_seconds(64, 64 * 4096) == pytest.approx(
        0.0198, rel=0.1
    )


def test_decode_of_one_gpu_has_no_rows_and_starts_from_the_roofline() -> None:
    d = known(world().deployment)
    found = prior(d, pool(d, "decode"), "decode")
    assert found.source == "roofline qwen3-32b h200-sxm TP1"
    assert found.coefficients[0] == pytest.approx(65.6e9 / (4800e9 * 0.75))


def test_an_unknown_model_starts_generic() -> None:
    d = world().deployment
    assert prior(d, pool(d, "decode"), "decode").coefficients == GENERIC["decode"]
    assert prior(d, None, "prefill").source == "generic"
