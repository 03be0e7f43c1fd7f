"""Loading the catalog of accelerators and model architectures from its YAML fixtures."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import yaml
from django.db import transaction

from ..models import Accelerator, ModelArchitecture

CATALOG: Final = Path(__file__).resolve().parent.parent / "fixtures" / "catalog"


@transaction.atomic
def load_catalog() -> tuple[int, int]:
    """Insert or refresh every row; returns (accelerators, architectures)."""
    accelerators = _read("accelerators.yaml")
    for row in accelerators["accelerators"]:
        price = row.get("usd_per_hour")
        Accelerator.objects.update_or_create(
            slug=row["id"],
            defaults={
                "vendor": row["vendor"],
                "name": row["name"],
                "memory_gb": row.get("memory_gb"),
                "hbm_gbps": row.get("hbm_gbps"),
                "tflops_fp16": row.get("tflops_fp16"),
                "tflops_fp8": row.get("tflops_fp8"),
                "tdp_w": row.get("tdp_w"),
                "list_price_usd_per_hour": "" if price is None else str(price),
                "facts": row,
                "sources": [*row.get("spec_src", []), *row.get("price_src", [])],
            },
        )
    models = _read("models.yaml")
    for row in models["models"]:
        ModelArchitecture.objects.update_or_create(
            slug=row["id"].replace(".", "-"),
            defaults={
                "name": row["name"],
                "hf_id": row["hf_id"],
                "params_b": row.get("params_b"),
                "active_params_b": row.get("active_params_b"),
                "kv_bytes_per_token": row.get("kv_bytes_per_token_bf16"),
                "facts": row,
                "source": row.get("source", ""),
            },
        )
    return len(accelerators["accelerators"]), len(models["models"])


def _read(name: str) -> dict[str, Any]:
    data: dict[str, Any] = yaml.safe_load((CATALOG / name).read_text(encoding="utf-8"))
    return data
