"""Small real HTTP servers that expose metrics under the engines' true names.

Written from the recordings, not from the product's profiles. Labels and number styles follow the
exporters: SGLang writes le="1.0", smg le="1".
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Iterable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

TTFT = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8, 1, 1.25, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10, 15, 20, 30, 60)
TPOT = (
    0.002,
    0.004,
    0.006,
    0.008,
    0.01,
    0.015,
    0.02,
    0.025,
    0.03,
    0.035,
    0.04,
    0.06,
    0.08,
    0.1,
    0.2,
)
QUEUE = (0, 0.001, 0.005, 0.01, 0.05, 0.1, 0.2, 0.5, 1, 2, 3, 4, 5, 10)
TRANSFER_MS = (1, 2, 5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000)


class Histogram:
    def __init__(self, bounds: Iterable[float]) -> None:
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(self.bounds) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value


class Registry:
    """Series of one process; `style` is how its bounds are written."""

    def __init__(self, style: str) -> None:
        self.style = style
        self.values: dict[tuple[str, str], float] = {}
        self.histograms: dict[tuple[str, str], Histogram] = {}
        self._lock = threading.Lock()

    @staticmethod
    def labels(**labels: str) -> str:
        return ",".join(f'{k}="{v}"' for k, v in sorted(labels.items()))

    def set(self, name: str, value: float, **labels: str) -> None:
        with self._lock:
            self.values[(name, self.labels(**labels))] = value

    def add(self, name: str, value: float = 1, **labels: str) -> None:
        with self._lock:
            key = (name, self.labels(**labels))
            self.values[key] = self.values.get(key, 0) + value

    def observe(self, name: str, bounds: Iterable[float], value: float, **labels: str) -> None:
        with self._lock:
            key = (name, self.labels(**labels))
            self.histograms.setdefault(key, Histogram(bounds)).observe(value)

    def clear(self) -> None:
        with self._lock:
            self.values.clear()
            self.histograms.clear()

    def text(self) -> str:
        lines = []
        with self._lock:
            for (name, labels), value in self.values.items():
                lines.append(f"{name}{{{labels}}} {value}")
            for (name, labels), hist in self.histograms.items():
                lines += self._histogram(name, labels, hist)
        return "\n".join(lines) + "\n"

    def _histogram(self, name: str, labels: str, hist: Histogram) -> list[str]:
        comma = "," if labels else ""
        lines, below = [], 0
        for bound, count in zip((*hist.bounds, None), hist.counts, strict=True):
            below += count
            number = "+Inf" if bound is None else self._number(bound)
            lines.append(f'{name}_bucket{{{labels}{comma}le="{number}"}} {below}')
        lines.append(f"{name}_sum{{{labels}}} {hist.total}")
        lines.append(f"{name}_count{{{labels}}} {below}")
        return lines

    def _number(self, bound: float) -> str:
        return str(float(bound)) if self.style == "python" else f"{bound:g}"


class Sglang(Registry):
    """A SGLang worker in one role; a switch starts a new label set at zero."""

    def __init__(self, role: str) -> None:
        super().__init__("python")
        self.role = role
        self.gauges()

    @property
    def base(self) -> Mapping[str, str]:
        return {"engine_type": self.role, "model_name": "qwen3-32b"}

    @property
    def rank(self) -> Mapping[str, str]:
        return {**self.base, "tp_rank": "0", "pp_rank": "0", "moe_ep_rank": "0"}

    def switch(self, role: str) -> None:
        self.role = role
        self.gauges()

    def gauges(self, *, running: float = 0, queue: float = 0, usage: float = 0.1) -> None:
        for name, value in (
            ("num_running_reqs", running),
            ("num_queue_reqs", queue),
            ("token_usage", usage),
            ("num_prefill_bootstrap_queue_reqs", 1 if self.role == "prefill" else 0),
            ("num_prefill_inflight_queue_reqs", 2 if self.role == "prefill" else 0),
            ("num_decode_prealloc_queue_reqs", 0),
            ("num_decode_transfer_queue_reqs", 3 if self.role == "decode" else 0),
            ("max_total_num_tokens", 60_000),
        ):
            self.set(f"sglang:{name}", value, **self.rank)
        for name in ("num_retracted_requests_total", "num_transfer_failed_reqs_total"):
            self.add(f"sglang:{name}", 0, **self.rank)
        for mode in ("input", "device_hit", "host_hit", "storage_hit"):
            self.add("sglang:prefill_effective_tokens_total", 0, mode=mode, **self.rank)
        self.add("sglang:scheduler_idle_seconds_total", 0, **self.rank)

    def prefill(self, *, tokens: int, queue_s: float, forward_s: float, transfer_s: float) -> None:
        """One prefill leg."""
        self.observe("sglang:queue_time_seconds", QUEUE, queue_s, **self.rank)
        self.observe(
            "sglang:per_stage_req_latency_seconds", QUEUE, forward_s,
            stage="prefill_forward", **self.rank,
        )  # fmt: skip
        self.observe("sglang:kv_transfer_latency_ms", TRANSFER_MS, 1000 * transfer_s, **self.rank)
        self.add(
            "sglang:forward_execution_seconds_total", forward_s, category="extend", **self.rank
        )
        self.add("sglang:prefill_effective_tokens_total", tokens, mode="input", **self.rank)
        self._finished(tokens, 1)

    def decode(self, *, prompt: int, tokens: int, tpot_s: float) -> None:
        """One decode leg."""
        self.observe(
            "sglang:request_time_per_output_token_seconds", TPOT, tpot_s,
            is_streaming="true", **self.base,
        )  # fmt: skip
        self.add(
            "sglang:forward_execution_seconds_total", tokens * tpot_s / 4, category="decode",
            **self.rank,
        )  # fmt: skip
        self._finished(prompt, tokens)

    def _finished(self, prompt: int, output: int) -> None:
        streamed = {**self.base, "is_streaming": "true"}
        self.add("sglang:prompt_tokens_total", prompt, **streamed)
        self.add("sglang:generation_tokens_total", output, **streamed)
        self.add("sglang:num_requests_total", 1, **streamed)


class Smg(Registry):
    """The router, before its first request: only what it knows of its workers."""

    _route = {"backend_type": "pd", "connection_mode": "http", "router_type": "http"}

    def __init__(self, workers: Iterable[str]) -> None:
        super().__init__("rust")
        self.set("smg_tokio_workers", 2)
        self.add("smg_http_requests_total", 3, method="GET", path="/readiness")
        self.add("smg_http_responses_total", 3, path="/readiness", status_code="200", error_code="")
        for worker in workers:
            self.set("smg_worker_health", 1, worker=worker)
            self.set("smg_worker_requests_active", 0, worker=worker)
            self.set("smg_pd_admission_window", 48, worker=worker)

    def arrived(self) -> None:
        self.add("smg_router_requests_total", endpoint="chat", streaming="true", **self._route)

    def first_token(self, seconds: float) -> None:
        self.observe("smg_pd_ttft_seconds", TTFT, seconds, backend_type="pd", runtime="sglang")

    def completed(self, status: int = 200) -> None:
        self.add(
            "smg_http_responses_total", path="/v1/chat/completions",
            status_code=str(status), error_code="",
        )  # fmt: skip

    def cut(self) -> None:
        """A stream cut by a dying engine: counted as 200, and as an error."""
        self.completed()
        self.add(
            "smg_router_request_errors_total", endpoint="chat", error_type="backend_error",
            **self._route,
        )  # fmt: skip


class MetricServer:
    """Serves a registry on an ephemeral loopback port; can be stopped and started again."""

    def __init__(self, registry: Registry) -> None:
        self.registry = registry
        self.status = 200
        self.port = 0
        self.requests = 0
        self.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def metrics_url(self) -> str:
        return f"{self.url}/metrics"

    def start(self) -> None:
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.requests += 1
                body = outer.registry.text().encode()
                self.send_response(outer.status)
                self.send_header("Content-Type", "text/plain; version=0.0.4")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", self.port), Handler)
        self.port = self._server.server_address[1]
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.05,), daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
