"""A draft of the Connect wizard at the time of the pictures: one fleet found, one step to go."""

from __future__ import annotations

from typing import Any

from apps.telemetry.domain.found import (
    Discovery,
    FoundDeployment,
    FoundEdge,
    FoundGroup,
    FoundWorker,
    Unread,
)
from apps.telemetry.models import ConnectDraft

from .base import NOW

_COMMON = ("input_tokens", "output_tokens", "requests_completed", "running", "waiting")
_SIGNALS = {
    "prefill": (*_COMMON, "queue_time", "kv_transfer_time"),
    "decode": (*_COMMON, "ttft", "tpot", "itl", "kv_used"),
}


def _workers(role: str, count: int, devices: str | None, *, source: str) -> tuple[FoundWorker, ...]:
    evidence = {"metric_label": ("engine_type", role), "behaviour": ("tokens_per_request", "0.02")}
    name, value = evidence[source]
    return tuple(
        FoundWorker(
            instance=f"10.20.{4 if role == 'prefill' else 5}.{number}:30000",
            url=f"http://10.20.4.{number}:30000",
            metrics_url=f"http://10.20.4.{number}:30000/metrics",
            name=f"assist-{role}-{number}",
            role=role,
            role_source=source,
            evidence=name,
            evidence_value=value,
            against=("llm_d_ai_role=decode",) if number == 2 and role == "prefill" else (),
            profile="sglang",
            pod=f"assist-{role}-{number}",
            accelerator="h200-sxm" if devices else "",
            devices=devices,
            age_s=9.0,
            signals=_SIGNALS[role],
        )
        for number in range(count)
    )


def _group(key: str, workers: tuple[FoundWorker, ...]) -> FoundGroup:
    first = workers[0]
    return FoundGroup(
        key, first.role, first.role_source, first.evidence, first.evidence_value, first.profile,
        first.accelerator, first.devices, workers,
    )  # fmt: skip


def discovery() -> Discovery:
    """assist-chat with a router and joined GPUs, and a search model whose roles are guesses."""
    router = FoundEdge(
        "10.20.1.7:29000", "http://10.20.1.7:29000/metrics", "router", "smg",
        signals=("requests_arrived", "requests_completed", "ttft"), age_s=9.0,
    )  # fmt: skip
    chat = FoundDeployment(
        "a" * 10, "assist", "Qwen/Qwen3-235B-A22B", "qwen3-235b-a22b", "qwen3-235b-a22b",
        (
            _group("b" * 10, _workers("prefill", 4, "4", source="metric_label")),
            _group("c" * 10, _workers("decode", 6, "8", source="metric_label")),
        ),
        (router,),
    )  # fmt: skip
    search = FoundDeployment(
        "d" * 10, "search", "Qwen/Qwen3-32B", "qwen3-32b", "qwen3-32b",
        (_group("e" * 10, _workers("prefill", 1, None, source="behaviour")),),
    )  # fmt: skip
    return Discovery(
        (chat, search),
        (
            Unread("node", "hardware", 9, ("node-1:9100", "node-2:9100", "node-3:9100")),
            Unread("vllm-dev", "down", 2, ("10.20.9.1:8000", "10.20.9.2:8000"), "refused"),
            Unread("mystery", "no_profile", 41, ("10.21.0.1:80", "10.21.0.2:80", "10.21.0.3:80")),
        ),
        {"smg": {"ttft": (0.5, 1.0, 2.5, 5.0)}, "sglang": {"tpot": (0.02, 0.04, 0.06)}},
    )


def tested() -> dict[str, Any]:
    return {
        "kind": "prometheus", "url": "https://prometheus.assist.example:9090", "problem": "",
        "status": None, "version": "3.5.0", "retention": "15d",
        "intervals": [[15.0, 61], [60.0, 9]],
        "skew_s": -3.2, "skew_within_s": 0.004, "targets_up": 68, "targets_down": 2,
        "addresses": [],
    }  # fmt: skip


def draft(owner: Any) -> ConnectDraft:
    """A stored draft of which every step may be opened."""
    return ConnectDraft.objects.create(
        owner=owner,
        step="commands",
        typed={
            "source": {
                "kind": "prometheus", "url": "https://prometheus.assist.example:9090",
                "cluster_name": "Assist west", "interval_s": "15",
            },
            "find": {f"include-{'d' * 10}": ""},
            "prices": {f"ttft-{'a' * 10}": "1.2"},
            "commands": {f"adapter-{'a' * 10}": "router_workers",
                         f"address-{'a' * 10}": "http://10.20.1.7:30000"},
        },
        sealed={"token": "v1.sealed", f"control:{'a' * 10}": "v1.sealed"},
        test=tested(),
        tested_at=NOW,
        found=discovery().to_json(),
        found_at=NOW,
        dry_runs={},
        created_at=NOW,
        updated_at=NOW,
    )  # fmt: skip
