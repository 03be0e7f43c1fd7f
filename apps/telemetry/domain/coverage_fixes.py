"""What to do about a missing signal: the code of a sentence, and text to copy. Pure.

The texts are configuration of engines, exporters and scrapers: they are the same in every language.
Sources: metrics research §3, the projects' own options.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from apps.engines.window import Signal


@dataclass(frozen=True, slots=True)
class Fix:
    """`code` names the sentence, `text` is what to copy (may be empty)."""

    code: str
    text: str = ""


#: An engine's own switch for its metrics.
_SWITCH: Final[Mapping[str, Fix]] = {
    "sglang": Fix("enable_metrics", "--enable-metrics"),
    "trtllm": Fix(
        "enable_metrics",
        "# extra LLM API options (YAML); scrape the path /prometheus/metrics\n"
        "return_perf_metrics: true\n"
        "enable_iter_perf_stats: true\n",
    ),
    "dynamo_component": Fix("enable_metrics", "DYN_SYSTEM_PORT=9090"),
}

#: How a profile's bucket bounds are set: signal to text, `{bounds}` and `{largest}` are filled.
_BUCKETS: Final[Mapping[tuple[str, Signal], str]] = {
    ("sglang", Signal.TTFT): "--bucket-time-to-first-token {bounds}",
    ("sglang", Signal.ITL): "--bucket-inter-token-latency {bounds}",
    ("dynamo_frontend", Signal.TTFT): "DYN_METRICS_TTFT_MAX={largest}",
    ("dynamo_frontend", Signal.ITL): "DYN_METRICS_ITL_MAX={largest}",
}

SCRAPE: Final = """\
apiVersion: monitoring.coreos.com/v1
kind: PodMonitor
metadata:
  name: {name}
spec:
  selector:
    matchLabels:
      app: {name}
  podMetricsEndpoints:
    - port: metrics
      path: {path}
      interval: {interval_s:g}s
      relabelings:
        - sourceLabels: [__meta_kubernetes_pod_label_llm_d_ai_role]
          targetLabel: llm_d_ai_role
"""

ROLE_LABEL: Final = """\
relabel_configs:
  - source_labels: [__meta_kubernetes_pod_label_llm_d_ai_role]
    target_label: llm_d_ai_role
  - source_labels: [__meta_kubernetes_pod_label_nvidia_com_dynamo_sub_component_type]
    target_label: dynamo_sub_component_type
"""

DCGM_FIELDS: Final = """\
DCGM_FI_PROF_SM_ACTIVE, gauge, The ratio of cycles an SM has at least 1 warp assigned.
DCGM_FI_PROF_PIPE_TENSOR_ACTIVE, gauge, Ratio of cycles the tensor pipe is active.
DCGM_FI_PROF_DRAM_ACTIVE, gauge, Ratio of cycles the device memory interface is active.
DCGM_FI_DEV_POWER_USAGE, gauge, Power draw (in W).
DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION, counter, Total energy consumption since boot (in mJ).
"""

NODE_EXPORTER: Final = "node_exporter --collector.cpu --collector.netdev --collector.infiniband"


def missing_signal(profile: str, *, near: str, is_up: bool, name: str, interval_s: float) -> Fix:
    """What brings a signal that the profile can read: a renamed metric first, then a target that
    does not answer, then the engine's own switch."""
    if near:
        return Fix("renamed", near)
    if not is_up:
        return scrape(profile, name, interval_s)
    return _SWITCH.get(profile, Fix("upgrade"))


def scrape(profile: str, name: str, interval_s: float) -> Fix:
    """How to have a target scraped."""
    path = "/prometheus/metrics" if profile == "trtllm" else "/metrics"
    text = SCRAPE.format(name=name, path=path, interval_s=interval_s)
    switch = _SWITCH.get(profile)
    return Fix("scrape", f"{switch.text}\n---\n{text}" if switch else text)


def buckets(profile: str, signal: Signal, threshold_s: float, bounds: tuple[float, ...]) -> Fix:
    """How to get a bound at an objective's threshold."""
    template = _BUCKETS.get((profile, Signal.ITL if signal is Signal.TPOT else signal))
    if template is None:
        return Fix("choose_bound")
    wanted = sorted({*bounds, threshold_s, 2 * threshold_s})
    shown = " ".join(f"{bound:g}" for bound in wanted if bound > 0)
    return Fix("set_buckets", template.format(bounds=shown, largest=f"{2 * threshold_s:g}"))
