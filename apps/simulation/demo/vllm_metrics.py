"""The metric names, labels and bucket bounds of vLLM 0.32.0, written from recordings.

Not imported from the product's profiles, so that a wrong profile fails against this fleet.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from apps.simulation.demo.exposition import Counter, Gauge, Histogram, Registry

if TYPE_CHECKING:
    from apps.simulation.demo.vllm import VllmEngine

TTFT = (
    *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20),
    *(40, 80, 160, 640, 2560),
)
TPOT = (
    *(0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20),
    *(40, 80),
)
SECONDS = (
    *(0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920),
    7680,
)
TOKENS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 20000)
ITERATION = (1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)
PREEMPTIONS = (1, 2, 3, 4, 5, 10, 20)
PARAM_N = (1, 2, 5, 10, 20)
XFER_S = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.2, 0.3, 0.5, 0.75, 1, 5)
XFER_BYTES = tuple(2048 * 4**i for i in range(12))
DESCRIPTORS = (10, 20, 30, 50, 75, 100, 200, 400, 1000, 2000, 4000, 10000, 20000, 50000)
BLOCK = 16
LAYERS = 64


class VllmMetrics:
    """The series of one vLLM engine. vLLM has no role label: behaviour tells the roles apart."""

    def __init__(self, engine: VllmEngine) -> None:
        now = time.time()
        self.registry = Registry(created=now)
        self._engine = engine
        self._labels = {"engine": "0", "model_name": engine.profile.model}
        self._http: dict[str, Counter] = {}
        start = self.registry.gauge(
            "process_start_time_seconds", "Start time of the process since unix epoch.", {}
        )
        start.value = now
        self._add_transfer()
        self._add_gauges()
        self._add_counters()
        self._add_histograms()

    # --- builders ------------------------------------------------------------------------------

    def _counter(self, name: str, text: str, **labels: str) -> Counter:
        return self.registry.counter(f"vllm:{name}", text, {**self._labels, **labels})

    def _gauge(self, name: str, text: str, value: float = 0.0, **labels: str) -> Gauge:
        gauge = self.registry.gauge(f"vllm:{name}", text, {**self._labels, **labels})
        gauge.value = value
        return gauge

    def _histogram(self, name: str, text: str, bounds: Sequence[float]) -> Histogram:
        return self.registry.histogram(f"vllm:{name}", text, self._labels, bounds)

    def _add_transfer(self) -> None:
        self.xfer_s = self._histogram("nixl_xfer_time_seconds", "KV transfer time.", XFER_S)
        self.post_s = self._histogram(
            "nixl_post_time_seconds", "Transfer post time.", (0.001, *XFER_S)
        )
        self.xfer_bytes = self._histogram("nixl_bytes_transferred", "Bytes moved.", XFER_BYTES)
        self.descriptors = self._histogram("nixl_num_descriptors", "Descriptors.", DESCRIPTORS)
        self.xfer_failed = self._counter("nixl_num_failed_transfers_total", "Failed transfers.")
        self._counter("nixl_num_failed_notifications_total", "Failed notifications.")
        self.kv_expired = self._counter("nixl_num_kv_expired_reqs_total", "Expired KV.")
        self._counter("nixl_num_notifications_after_expiry_total", "Late notifications.")

    def _add_gauges(self) -> None:
        engine = self._engine
        counts = engine.counts
        self._gauge("num_requests_running", "Requests in model execution batches.").read = lambda: (
            float(counts()["running"])
        )
        self._gauge("num_requests_waiting", "Requests waiting to be processed.").read = lambda: (
            float(counts()["queued"] + counts()["transferring"])
        )
        for reason, key in (("capacity", "queued"), ("deferred", "transferring")):
            self._by_count(
                "num_requests_waiting_by_reason", "Waiting by reason.", key, reason=reason
            )
        if engine.role == "decode":
            stages = (
                ("waiting_to_start", ""),
                ("in_progress", "transferring"),
                ("completed_waiting", ""),
            )
            for stage, key in stages:
                self._by_count("num_requests_kv_fetch_by_stage", "KV fetches.", key, stage=stage)
        for state in ("awake", "weights_offloaded", "discard_all"):
            value = 1.0 if state == "awake" else 0.0
            self._gauge("engine_sleep_state", "Engine sleep state.", value, sleep_state=state)
        room = engine.profile.kv_room_tokens
        self._gauge("kv_cache_usage_perc", "KV-cache usage. 1 means 100 percent usage.").read = (
            lambda: engine.kv_used() / room
        )
        info = {
            "block_size": str(BLOCK),
            "cache_dtype": "auto",
            "enable_prefix_caching": "True",
            "engine": "0",
            "gpu_memory_utilization": "0.92",
            "kv_cache_size_tokens": str(room),
            "num_cpu_blocks": "None",
            "num_gpu_blocks": str(room // BLOCK),
            "sliding_window": "None",
        }
        cache = self.registry.gauge("vllm:cache_config_info", "Cache configuration.", info)
        cache.value = 1.0

    def _by_count(self, name: str, text: str, key: str, **labels: str) -> None:
        engine = self._engine
        gauge = self._gauge(name, text, 0.0, **labels)
        if key:
            gauge.read = lambda: float(engine.counts()[key])

    def _add_counters(self) -> None:
        counter = self._counter
        self.prefix_queries = counter("prefix_cache_queries_total", "Prefix cache queries.")
        counter("prefix_cache_hits_total", "Prefix cache hits.")
        self.external_queries = counter("external_prefix_cache_queries_total", "External queries.")
        self.external_hits = counter("external_prefix_cache_hits_total", "External hits.")
        counter("mm_cache_queries_total", "Multi-modal cache queries.")
        counter("mm_cache_hits_total", "Multi-modal cache hits.")
        counter("num_preemptions_total", "Preemptions.")
        self.prompt_tokens = counter("prompt_tokens_total", "Prefill tokens processed.")
        self.by_source = {
            source: counter("prompt_tokens_by_source_total", "Prompt tokens.", source=source)
            for source in ("local_compute", "local_cache_hit", "external_kv_transfer")
        }
        self.cached = counter("prompt_tokens_cached_total", "Cached prompt tokens.")
        self.cached_by = {
            source: counter("prompt_tokens_cached_by_source_total", "Cached.", source=source)
            for source in ("device", "host", "p2p", "disk", "external_unspecified")
        }
        self.generation_tokens = counter("generation_tokens_total", "Generation tokens processed.")
        self.finished = {
            reason: counter("request_success_total", "Finished.", finished_reason=reason)
            for reason in ("stop", "length", "abort", "error", "repetition")
        }
        for reason in ("max_num_queued_reqs", "max_num_queued_tokens"):
            self.registry.counter(
                "vllm:admission_rejections_total",
                "Rejected requests.",
                {"model_name": self._labels["model_name"], "reason": reason},
            )

    def _add_histograms(self) -> None:
        histogram = self._histogram
        self.request_prompt = histogram("request_prompt_tokens", "Prompt length.", TOKENS)
        self.request_output = histogram("request_generation_tokens", "Output length.", TOKENS)
        self.iteration = histogram("iteration_tokens_total", "Tokens per step.", ITERATION)
        self.max_output = histogram("request_max_num_generation_tokens", "Longest.", TOKENS)
        self.param_n = histogram("request_params_n", "The n parameter.", PARAM_N)
        self.param_max = histogram("request_params_max_tokens", "The max_tokens.", TOKENS)
        self.ttft_s = histogram("time_to_first_token_seconds", "Time to first token.", TTFT)
        self.itl_s = histogram("inter_token_latency_seconds", "Inter-token latency.", TPOT)
        self.tpot_s = histogram("request_time_per_output_token_seconds", "TPOT.", TPOT)
        self.e2e_s = histogram("e2e_request_latency_seconds", "E2E latency.", SECONDS)
        self.queue_s = histogram("request_queue_time_seconds", "Queue time.", SECONDS)
        self.inference_s = histogram("request_inference_time_seconds", "Inference.", SECONDS)
        self.prefill_s = histogram("request_prefill_time_seconds", "Prefill time.", SECONDS)
        self.decode_s = histogram("request_decode_time_seconds", "Decode time.", SECONDS)
        self.preemptions = histogram("request_num_preemptions", "Preemptions.", PREEMPTIONS)
        self.kv_computed = histogram("request_prefill_kv_computed_tokens", "Computed.", TOKENS)

    # --- events --------------------------------------------------------------------------------

    def transferred(self, tokens: int, size: int, seconds: float) -> None:
        """Count a KV pull that ended well (vLLM counts it on the decode side)."""
        self.xfer_s.observe(seconds)
        self.post_s.observe(seconds * 0.1)
        self.xfer_bytes.observe(size)
        self.descriptors.observe(LAYERS * 2 * -(-tokens // BLOCK))
        self.external_hits.inc(tokens)

    def first_token(self, prompt: int, computed: int, seconds: float) -> None:
        """Count the prompt: `computed` of its tokens here, the rest came over the link."""
        pulled = prompt - computed
        self.prompt_tokens.inc(prompt)
        self.by_source["local_compute"].inc(computed)
        self.by_source["external_kv_transfer"].inc(pulled)
        self.cached.inc(pulled)
        self.cached_by["p2p"].inc(pulled)
        self.prefix_queries.inc(prompt)
        self.external_queries.inc(prompt)
        self.ttft_s.observe(seconds)

    def request_finished(
        self,
        prompt: int,
        output: int,
        computed: int,
        *,
        queue: float,
        prefill: float,
        decode: float,
    ) -> None:
        """Count a request that ended well; times in seconds."""
        self.finished["length"].inc()
        self.request_prompt.observe(prompt)
        self.request_output.observe(output)
        self.max_output.observe(output)
        self.param_n.observe(1)
        self.param_max.observe(output)
        self.tpot_s.observe(decode / (output - 1) if output > 1 else 0.0)
        self.e2e_s.observe(queue + prefill + decode)
        self.queue_s.observe(queue)
        self.inference_s.observe(prefill + decode)
        self.prefill_s.observe(prefill)
        self.decode_s.observe(decode)
        self.preemptions.observe(0)
        self.kv_computed.observe(computed)

    def responded(self, status: int) -> None:
        """Count an HTTP answer by its status class."""
        group = f"{status // 100}xx"
        if group not in self._http:
            labels = {"handler": "/v1/chat/completions", "method": "POST", "status": group}
            self._http[group] = self.registry.counter(
                "http_requests_total", "Total number of requests.", labels
            )
        self._http[group].inc()
