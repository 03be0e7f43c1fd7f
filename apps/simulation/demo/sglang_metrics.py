"""The metric names, labels and bucket bounds of SGLang 0.5.23, written from recordings.

Not imported from the product's profiles, so that a wrong profile fails against this fleet.
"""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING

from apps.simulation.demo.exposition import Counter, Histogram, Registry

if TYPE_CHECKING:
    from apps.simulation.demo.sglang import SglangEngine

TTFT = (0.1, 0.2, 0.4, 0.6, 0.8, 1, 2, 4, 6, 8, 10, 20, 40, 60, 80, 100, 200, 400)
E2E = (*TTFT, 600, 1200, 1800, 2400)
TPOT = (
    *(0.002, 0.004, 0.006, 0.008, 0.01, 0.015, 0.02, 0.025, 0.03, 0.035, 0.04),
    *(0.06, 0.08, 0.1, 0.2, 0.4, 0.6, 0.8, 1, 2, 4, 6, 8),
)
QUEUE = (
    *(0.0, 0.001, 0.005, 0.01, 0.05, 0.1, 0.2, 0.5, 1, 2, 3, 4, 5, 10, 15, 20, 30, 40, 50, 60, 70),
    *(80, 90, 100, 200, 300, 400, 500, 600, 700, 800, 900, 1000, 1200, 1400, 1600, 1800, 2000),
    *(2500, 3000),
)
TRANSFER_MS = (1, 2, 5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000)
SETUP_MS = TRANSFER_MS[:-1]
SPEED_GB_S = (0.1, 0.5, 1, 5, 10, 25, 50, 100, 200, 400)
SIZE_MB = (1, 5, 10, 50, 100, 500, 1000, 5000, 10000)
TOKENS = (
    *(100, 300, 500, 700, 1000, 1500, 2000, 3000, 4000, 5000, 6000, 7000, 8000, 9000, 10000),
    *(12500, 15000, 17500, 20000, 22500, 25000, 27500, 30000, 35000, 40000, 60000, 80000, 100000),
    *(200000, 300000, 400000, 600000, 800000, 1000000, 1100000),
)
PREFILL_STAGES = (
    "request_process",
    "prefill_bootstrap",
    "prefill_forward",
    "prefill_transfer_kv_cache",
)
DECODE_STAGES = (
    "request_process",
    "decode_prepare",
    "decode_bootstrap",
    "decode_transferred",
    "decode_waiting",
)
WEIGHT_GB = 65.5


def _stage_bounds() -> tuple[float, ...]:
    bounds = [0.001]
    while len(bounds) < 30:
        bounds.append(bounds[-1] * 1.62)
    return tuple(bounds)


STAGE = _stage_bounds()


class RoleMetrics:
    """The series of one engine under one role; a role switch makes a new set, from zero."""

    def __init__(self, engine: SglangEngine, role: str) -> None:
        self.gauges = Registry()
        self.totals = Registry()
        self.role = role
        self._engine = engine
        self._started = engine.loop.time()
        self._seen = (self._started, 0.0)
        self._occupancy = math.nan
        self._request = {"model_name": engine.profile.model, "engine_type": role}
        self._scheduler = {
            **self._request,
            "tp_rank": "0",
            "pp_rank": "0",
            "moe_ep_rank": "0",
        }
        self._add_gauges()
        self._add_scheduler_totals()
        self._add_request_totals()

    def refresh(self) -> None:
        """Bring the series that follow the clock up to date, before a scrape."""
        now = self._engine.loop.time()
        self.idle_s.value = max(self.idle_s.value, now - self._started - self.forward_s.value)
        then, forward = self._seen
        if self.role == "decode" and now - then > 0.5:
            self._occupancy = min(1.0, (self.forward_s.value - forward) / (now - then))
            self._seen = (now, self.forward_s.value)

    def _add_gauges(self) -> None:
        engine, profile, labels = self._engine, self._engine.profile, self._scheduler
        room = profile.kv_room_tokens
        prefill = self.role == "prefill"
        used = engine.kv_used
        queues = engine.queue_lengths

        def read(name: str) -> float:
            return float(queues()[name])

        def gauge(name: str, text: str, value: float | None = None, *, pid: bool = False) -> None:
            extra = {"pid": str(engine.pid)} if pid else {}
            one = self.gauges.gauge(f"sglang:{name}", text, {**labels, **extra})
            if value is None:
                one.read = lambda: read(name)
            else:
                one.value = value

        gauge("num_running_reqs", "Running requests.")
        gauge("num_queue_reqs", "Requests in the waiting queue.")
        gauge("num_grammar_queue_reqs", "Requests in the grammar queue.", 0.0)
        self.gauges.gauge(
            "sglang:gen_throughput", "Generation throughput (token/s).", labels
        ).read = lambda: engine.gen_throughput
        gauge("cache_hit_rate", "Prefix cache hit rate.", 0.0)
        self.gauges.gauge(
            "sglang:decode_sum_seq_lens", "Sum of sequence lengths in decode.", labels
        ).read = lambda: 0.0 if prefill else float(engine.decode.kv_running)
        for name in ("token_usage", "full_token_usage"):
            self.gauges.gauge(f"sglang:{name}", "KV token usage (0-1).", labels).read = lambda: (
                used() / room
            )
        for name in ("num_used_tokens", "kv_used_tokens"):
            self.gauges.gauge(f"sglang:{name}", "KV tokens in use.", labels).read = lambda: float(
                used()
            )
        self.gauges.gauge("sglang:kv_available_tokens", "Free KV tokens.", labels).read = lambda: (
            float(max(0, room - used()))
        )
        gauge("kv_evictable_tokens", "Evictable KV tokens.", 0.0)
        gauge("num_retracted_reqs", "Retracted requests.", 0.0, pid=True)
        gauge("num_paused_reqs", "Paused requests.", 0.0, pid=True)
        gauge("num_prefill_bootstrap_queue_reqs", "Requests in the prefill bootstrap queue.")
        gauge("num_prefill_inflight_queue_reqs", "Requests in the prefill inflight queue.")
        gauge("num_decode_prealloc_queue_reqs", "Requests in the decode prealloc queue.")
        gauge("num_decode_transfer_queue_reqs", "Requests in the decode transfer queue.")
        gauge("num_decode_host_receive_queue_reqs", "Requests in the host receive queue.", 0.0)
        gauge("num_decode_deferred_kv_release_reqs", "Requests with deferred KV release.", 0.0)
        self.gauges.gauge(
            "sglang:pending_prealloc_token_usage", "KV share asked for in prealloc.", labels
        ).read = lambda: sum(job.reserved for job in engine.decode.prealloc) / room
        self.gauges.gauge(
            "sglang:prealloc_full_token_usage", "KV share preallocated.", labels
        ).read = lambda: sum(job.prompt for job in engine.decode.transferring) / room
        gauge("utilization", "Utilization.", 0.0)
        self.gauges.gauge("sglang:fwd_occupancy", "Forward occupancy.", labels).read = lambda: (
            self._occupancy
        )
        gauge("new_token_ratio", "New token ratio.", 0.7)
        gauge("is_cuda_graph", "Whether the batch used a CUDA graph.", 0.0 if prefill else 1.0)
        gauge("max_total_num_tokens", "KV room in tokens.", float(room))
        gauge("page_size", "KV page size in tokens.", 1.0)
        gauge("num_pages", "KV pages.", float(room))
        gauge("context_len", "Longest context in tokens.", 32768.0)
        gauge("weight_memory_usage_gb", "Memory of the weights.", WEIGHT_GB)
        size_gb = room * profile.kv_bytes_per_token / 2**30
        gauge("kv_cache_memory_usage_gb", "Memory of the KV cache.", round(size_gb, 1))

    def _scheduler_counter(self, name: str, text: str, **labels: str) -> Counter:
        return self.totals.counter(f"sglang:{name}", text, {**self._scheduler, **labels})

    def _scheduler_histogram(
        self, name: str, text: str, bounds: tuple[float, ...], **labels: str
    ) -> Histogram:
        return self.totals.histogram(f"sglang:{name}", text, {**self._scheduler, **labels}, bounds)

    def _add_scheduler_totals(self) -> None:
        counter, histogram = self._scheduler_counter, self._scheduler_histogram
        counter("num_retracted_requests_total", "Retracted requests.")
        counter("num_retracted_input_tokens_total", "Input tokens of retracted requests.")
        counter("num_retracted_output_tokens_total", "Output tokens of retracted requests.")
        if self.role == "prefill":
            self.transfer_ms = histogram(
                "kv_transfer_latency_ms", "KV transfer latency (ms).", TRANSFER_MS
            )
            self.transfer_speed = histogram(
                "kv_transfer_speed_gb_s", "KV transfer speed (GB/s).", SPEED_GB_S
            )
            self.transfer_mb = histogram("kv_transfer_total_mb", "KV transfer size.", SIZE_MB)
        self.bootstrap_ms = histogram("kv_transfer_bootstrap_ms", "Bootstrap time (ms).", SETUP_MS)
        self.alloc_ms = histogram("kv_transfer_alloc_ms", "Allocation wait (ms).", SETUP_MS)
        self.bootstrap_failed = counter("num_bootstrap_failed_reqs_total", "Failed bootstraps.")
        self.transfer_failed = counter("num_transfer_failed_reqs_total", "Failed KV transfers.")
        counter("num_prefill_retries_total", "Prefill retries.")
        self.queue_s = histogram("queue_time_seconds", "Time in the waiting queue.", QUEUE)
        stages = PREFILL_STAGES if self.role == "prefill" else DECODE_STAGES
        self.stage_s = {
            stage: histogram(
                "per_stage_req_latency_seconds", "Latency of each stage.", STAGE, stage=stage
            )
            for stage in stages
        }
        self.realtime = {
            mode: counter("realtime_tokens_total", "Tokens processed, updated live.", mode=mode)
            for mode in ("prefill_compute", "prefill_cache", "decode")
        }
        self.effective = {
            mode: counter("prefill_effective_tokens_total", "Prompt tokens by source.", mode=mode)
            for mode in ("input", "device_hit", "host_hit", "storage_hit")
        }
        category = "extend" if self.role == "prefill" else "decode"
        self.forward_s = counter(
            "forward_execution_seconds_total", "Forward pass time.", category=category
        )
        self.idle_s = counter("scheduler_idle_seconds_total", "Scheduler idle time.")

    def _add_request_totals(self) -> None:
        plain = self._request
        streamed = {**plain, "is_streaming": "true"}
        totals = self.totals
        self.prompt_tokens = totals.counter(
            "sglang:prompt_tokens_total", "Number of prefill tokens processed.", streamed
        )
        self.generation_tokens = totals.counter(
            "sglang:generation_tokens_total", "Number of generation tokens processed.", streamed
        )
        self.prompt_length = totals.histogram(
            "sglang:prompt_tokens_histogram", "Prompt length.", plain, TOKENS
        )
        self.uncached_length = totals.histogram(
            "sglang:uncached_prompt_tokens_histogram", "Uncached prompt length.", plain, TOKENS
        )
        self.output_length = totals.histogram(
            "sglang:generation_tokens_histogram", "Output length.", plain, TOKENS
        )
        self.requests = totals.counter(
            "sglang:num_requests_total", "Number of requests processed.", streamed
        )
        self.aborted = totals.counter(
            "sglang:num_aborted_requests_total", "Number of requests aborted.", plain
        )
        self.e2e_s = totals.histogram(
            "sglang:e2e_request_latency_seconds", "End-to-end latency.", streamed, E2E
        )
        if self.role == "decode":  # prefill workers never have these series
            self.ttft_s = totals.histogram(
                "sglang:time_to_first_token_seconds", "Time to first token.", streamed, TTFT
            )
            self.itl_s = totals.histogram(
                "sglang:inter_token_latency_seconds", "Inter-token latency.", plain, TPOT
            )
            self.tpot_s = totals.histogram(
                "sglang:request_time_per_output_token_seconds",
                "Time per output token of a request.",
                streamed,
                TPOT,
            )

    def request_finished(self, prompt: int, output: int, seconds: float) -> None:
        """Count a request that ended well; SGLang writes these at its end."""
        self.prompt_tokens.inc(prompt)
        self.generation_tokens.inc(output)
        self.prompt_length.observe(prompt)
        self.uncached_length.observe(prompt)
        self.output_length.observe(output)
        self.requests.inc()
        self.e2e_s.observe(seconds)


class HttpMetrics:
    """The HTTP series of the process; they carry no role and live through a switch."""

    def __init__(self) -> None:
        self.registry = Registry()
        self._labels = {"endpoint": "/v1/chat/completions", "method": "POST"}
        self._responses: dict[int, Counter] = {}
        self.requests = self.registry.counter(
            "sglang:http_requests_total", "HTTP requests.", self._labels
        )
        self.active = self.registry.gauge(
            "sglang:http_requests_active", "Active HTTP requests.", self._labels
        )
        self.started = time.time()

    def responded(self, status: int) -> None:
        """Count an answer."""
        if status not in self._responses:
            self._responses[status] = self.registry.counter(
                "sglang:http_responses_total",
                "HTTP responses.",
                {**self._labels, "status_code": str(status)},
            )
        self._responses[status].inc()
