"""Where a calibration starts: a profile table, else the hardware's roofline (always model only)."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import cache

from apps.fleet.models import Deployment, Pool
from apps.simulation.service_time import (
    PROFILE_TABLE,
    TimeSample,
    decode_roofline,
    decode_sample,
    fit,
    prefill_roofline,
    prefill_sample,
)

Coefficients = tuple[float, float, float]

#: For a model and accelerator nobody knows: a 30B model on a current data-centre GPU.
GENERIC: dict[str, Coefficients] = {
    "prefill": (0.012, 9e-5, 2e-9),
    "decode": (0.015, 1e-4, 6e-8),
}
BYTES_PER_WEIGHT = {"fp8": 1.0, "int8": 1.0, "fp4": 0.5, "int4": 0.5}


@dataclass(frozen=True, slots=True)
class Prior:
    """Coefficients of `simulation.service_time` and where they come from."""

    coefficients: Coefficients
    source: str


def prior(deployment: Deployment, pool: Pool | None, phase: str) -> Prior:
    """The prior of one phase: profile rows of this model, GPU and parallelism, else a roofline."""
    roofline = _roofline(deployment, pool, phase)
    architecture = deployment.architecture
    if pool is None or pool.accelerator is None or architecture is None:
        return roofline
    key = (architecture.hf_id, pool.accelerator.slug.replace("-", "_"), pool.tensor_parallel, phase)
    samples = _profile_rows().get(key, ())
    if len(samples) < 3:
        return roofline
    found = fit(roofline.coefficients, samples)
    return Prior(found.coefficients, f"profile {key[0]} {key[1]} TP{key[2]}")


def _roofline(deployment: Deployment, pool: Pool | None, phase: str) -> Prior:
    architecture = deployment.architecture
    accelerator = pool.accelerator if pool else None
    if pool is None or accelerator is None or architecture is None:
        return Prior(GENERIC[phase], "generic")
    params = architecture.params_b
    active = architecture.active_params_b or params
    tflops, bandwidth = accelerator.tflops_fp16, accelerator.hbm_gbps
    kv = architecture.kv_bytes_per_token
    if not (params and active and tflops and bandwidth and kv):
        return Prior(GENERIC[phase], "generic")
    devices = pool.tensor_parallel
    flops, rate = tflops * 1e12 * devices, bandwidth * 1e9 * devices
    source = f"roofline {architecture.slug} {accelerator.slug} TP{devices}"
    if phase == "prefill":
        return Prior(prefill_roofline(active_params=active * 1e9, flops=flops).coefficients, source)
    weight = BYTES_PER_WEIGHT.get(pool.weight_precision.lower(), 2.0)
    model = decode_roofline(
        active_params=active * 1e9,
        weight_bytes=params * 1e9 * weight,
        kv_bytes_per_token=kv,
        flops=flops,
        bytes_per_s=rate,
    )
    return Prior(model.coefficients, source)


@cache
def _profile_rows() -> dict[tuple[str, str, int, str], tuple[TimeSample, ...]]:
    """Rows of the profile table by (model, system, TP, phase); empty where there is no table."""
    if not PROFILE_TABLE.exists():
        return {}
    found: dict[tuple[str, str, int, str], list[TimeSample]] = {}
    with PROFILE_TABLE.open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            tokens, batch = float(row["input_tokens"]), float(row["batch"])
            seconds = float(row["iteration_ms"]) / 1000.0
            if row["phase"] == "prefill" and batch == 1:
                sample = prefill_sample(tokens, 0.0, seconds)
            elif row["phase"] == "decode":
                sample = decode_sample(batch, batch * tokens, seconds)
            else:
                continue
            key = (row["model"], row["system"], int(row["tp"]), row["phase"])
            found.setdefault(key, []).append(sample)
    return {key: tuple(samples) for key, samples in found.items()}
