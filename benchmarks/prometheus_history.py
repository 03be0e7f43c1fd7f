"""A filled past for a real Prometheus: a fleet's series under the engines' true names.

Written as OpenMetrics text, turned into blocks by `promtool`, and served by a real Prometheus that
scrapes nothing, so that a run at any size costs no live exporters. Reused by every benchmark that
needs a fleet with history.
"""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import time
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TextIO

from tools.services import find, free_port

#: Ladders as the engines export them (research on metrics: 3.1 and 3.2).
VLLM_TOKEN: Final = (
    0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80,
)  # fmt: skip
VLLM_TTFT: Final = (
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40,
    80, 160, 640, 2560,
)  # fmt: skip
VLLM_REQUEST: Final = (
    0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680,
)  # fmt: skip
VLLM_NIXL: Final = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.2, 0.3, 0.5, 0.75, 1, 5)
SGLANG_TOKEN: Final = (
    0.002, 0.004, 0.006, 0.008, 0.01, 0.015, 0.02, 0.025, 0.03, 0.035, 0.04, 0.06, 0.08, 0.1, 0.2,
    0.4, 0.6, 0.8, 1, 2, 4, 6, 8,
)  # fmt: skip
SGLANG_QUEUE: Final = (
    0, 0.001, 0.005, 0.01, 0.05, 0.1, 0.2, 0.5, 1, 2, 3, 4, 5, 10, 15, 20, 30, 40, 50, 60, 70, 80,
    90, 100, 200, 300, 400, 500, 600, 700, 800, 900, 1000, 1200, 1400, 1600, 1800, 2000, 2500, 3000,
)  # fmt: skip
SGLANG_STAGE: Final = tuple(round(0.001 * 1.62**step, 6) for step in range(30))
SGLANG_TRANSFER_MS: Final = (1, 2, 5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000)
SMG_TIME: Final = (
    0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 15, 30, 45, 60, 90, 120, 180,
    240, 300, 480, 900, 1800, 3600, 7200,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Worker:
    """One engine of the made fleet; `url` is its identity in the inventory."""

    url: str
    instance: str
    role: str
    pod: str


@dataclass(frozen=True, slots=True)
class MadeDeployment:
    """A deployment with a prefill and a decode pool behind one router."""

    name: str
    namespace: str
    engine: str
    model: str
    router: str
    workers: tuple[Worker, ...]


@dataclass(frozen=True, slots=True)
class MadeFleet:
    """`pools` counts pools: two per deployment."""

    deployments: tuple[MadeDeployment, ...]

    @property
    def pools(self) -> int:
        return 2 * len(self.deployments)

    @property
    def workers(self) -> int:
        return sum(len(deployment.workers) for deployment in self.deployments)


def made_fleet(pools: int, workers_per_pool: int = 4) -> MadeFleet:
    """Half of the deployments serve with vLLM, half with SGLang."""
    deployments = []
    for number in range(pools // 2):
        engine = ("vllm", "sglang")[number % 2]
        workers = []
        for role_number, role in enumerate(("prefill", "decode")):
            for index in range(workers_per_pool):
                host = f"10.{100 + role_number}.{number // 250}.{number % 250}:{8000 + index}"
                pod = f"{role}-{index}"
                workers.append(Worker(f"http://{host}", host, role, pod))
        deployments.append(
            MadeDeployment(
                name=f"d{number:04d}",
                namespace=f"team-{number:04d}",
                engine=engine,
                model=f"Org/Model-{number % 20}",
                router=f"10.102.{number // 250}.{number % 250}:29000",
                workers=tuple(workers),
            )
        )
    return MadeFleet(tuple(deployments))


@dataclass(slots=True)
class _Line:
    """One series: value = base + step * scrapes."""

    prefix: str
    base: float
    step: float


def _labels(**labels: str) -> str:
    return ",".join(f'{name}="{value}"' for name, value in labels.items())


class _Exporter:
    """Collects the series of one target."""

    def __init__(self, **labels: str) -> None:
        self._base = _labels(**labels)
        self.lines: list[_Line] = []

    def add(self, name: str, step: float, base: float = 0.0, /, **labels: str) -> None:
        """A series that grows by `step` per scrape from `base`."""
        extra = f",{_labels(**labels)}" if labels else ""
        self.lines.append(_Line(f"{name}{{{self._base}{extra}}}", base, step))

    def histogram(
        self, name: str, bounds: Sequence[float], per_scrape: int, middle: float, **labels: str
    ) -> None:
        """`per_scrape` observations per scrape, spread around `middle` over three buckets."""
        index = next((i for i, bound in enumerate(bounds) if bound >= middle), len(bounds) - 1)
        for place, bound in enumerate((*bounds, None)):
            if place < index - 1:
                below = 0
            elif place == index - 1:
                below = per_scrape // 4
            elif place == index:
                below = 3 * per_scrape // 4
            else:
                below = per_scrape
            text = "+Inf" if bound is None else str(float(bound))
            self.add(f"{name}_bucket", below, 10.0 * below, **labels, le=text)
        self.add(f"{name}_sum", per_scrape * middle, 10 * per_scrape * middle, **labels)
        self.add(f"{name}_count", per_scrape, 10.0 * per_scrape, **labels)


def _target(deployment: MadeDeployment, instance: str, role: str, pod: str) -> dict[str, str]:
    return {
        "instance": instance, "job": "llm", "namespace": deployment.namespace,
        "role": role, "pod": f"{deployment.name}-{pod}",
    }  # fmt: skip


def _vllm(deployment: MadeDeployment, worker: Worker) -> _Exporter:
    found = _Exporter(
        **_target(deployment, worker.instance, worker.role, worker.pod),
        model_name=deployment.model, engine="0",
    )  # fmt: skip
    decode = worker.role == "decode"
    for name, value in (
        ("num_requests_running", 12.0), ("num_requests_waiting", 1.0), ("kv_cache_usage_perc", 0.4),
    ):  # fmt: skip
        found.add(f"vllm:{name}", 0.0, value)
    for reason in ("capacity", "deferred"):
        found.add("vllm:num_requests_waiting_by_reason", 0.0, 1.0, reason=reason)
    found.add(
        "vllm:cache_config_info", 0.0, 1.0, num_gpu_blocks="8192", block_size="16",
        cache_dtype="auto", gpu_memory_utilization="0.9", enable_prefix_caching="True",
        kv_cache_size_tokens="131072",
    )  # fmt: skip
    for reason in ("stop", "length", "abort", "error", "repetition"):
        step = 30.0 if reason == ("stop" if decode else "length") else 0.0
        found.add("vllm:request_success_total", step, finished_reason=reason)
    found.add("vllm:prompt_tokens_total", 60_000.0)
    found.add("vllm:generation_tokens_total", 6_000.0 if decode else 30.0)
    for source in ("local_compute", "local_cache_hit", "external_kv_transfer"):
        step = 60_000.0 if source == ("external_kv_transfer" if decode else "local_compute") else 0
        found.add("vllm:prompt_tokens_by_source_total", step, source=source)
    for name in (
        "num_preemptions_total", "nixl_num_failed_transfers_total",
        "nixl_num_kv_expired_reqs_total", "admission_rejections_total",
    ):  # fmt: skip
        found.add(f"vllm:{name}", 0.0)
    found.add("vllm:prefix_cache_hits_total", 1_000.0)
    found.add("vllm:nixl_bytes_transferred_sum", 1e8 if decode else 0.0)
    found.histogram("vllm:time_to_first_token_seconds", VLLM_TTFT, 30, 0.5)
    found.histogram("vllm:inter_token_latency_seconds", VLLM_TOKEN, 6000 if decode else 0, 0.02)
    found.histogram(
        "vllm:request_time_per_output_token_seconds", VLLM_TOKEN, 30, 0.02 if decode else 0.001
    )
    found.histogram("vllm:e2e_request_latency_seconds", VLLM_REQUEST, 30, 5.0)
    found.histogram("vllm:request_queue_time_seconds", VLLM_REQUEST, 30, 0.3)
    found.histogram("vllm:request_prefill_time_seconds", VLLM_REQUEST, 30, 0.5)
    found.histogram("vllm:nixl_xfer_time_seconds", VLLM_NIXL, 30 if decode else 0, 0.025)
    return found


def _sglang(deployment: MadeDeployment, worker: Worker) -> _Exporter:
    decode = worker.role == "decode"
    found = _Exporter(
        **_target(deployment, worker.instance, worker.role, worker.pod),
        model_name=deployment.model, engine_type=worker.role,
    )  # fmt: skip
    rank = {"tp_rank": "0", "pp_rank": "0", "moe_ep_rank": "0"}
    for name, value in (
        ("num_running_reqs", 12.0), ("num_queue_reqs", 1.0), ("token_usage", 0.4),
        ("full_token_usage", 0.4), ("max_total_num_tokens", 400_000.0),
        ("num_prefill_bootstrap_queue_reqs", 1.0), ("num_prefill_inflight_queue_reqs", 1.0),
        ("num_decode_prealloc_queue_reqs", 0.0), ("num_decode_transfer_queue_reqs", 1.0),
    ):  # fmt: skip
        found.add(f"sglang:{name}", 0.0, value, **rank)
    found.add("sglang:prompt_tokens_total", 60_000.0)
    found.add("sglang:generation_tokens_total", 6_000.0 if decode else 30.0)
    found.add("sglang:num_requests_total", 30.0)
    found.add("sglang:num_aborted_requests_total", 0.0)
    found.add("sglang:cached_tokens_total", 1_000.0, cache_source="device")
    for mode in ("input", "device_hit", "host_hit", "storage_hit"):
        found.add("sglang:prefill_effective_tokens_total", 1_000.0, mode=mode, **rank)
    for mode in ("prefill_compute", "prefill_cache", "decode"):
        found.add("sglang:realtime_tokens_total", 1_000.0, mode=mode, **rank)
    for category in ("extend", "decode"):
        found.add("sglang:forward_execution_seconds_total", 6.0, category=category, **rank)
    for name in (
        "num_retracted_requests_total", "num_transfer_failed_reqs_total",
        "num_bootstrap_failed_reqs_total", "scheduler_idle_seconds_total",
    ):  # fmt: skip
        found.add(f"sglang:{name}", 0.0, **rank)
    found.histogram("sglang:queue_time_seconds", SGLANG_QUEUE, 30, 0.2, **rank)
    found.histogram(
        "sglang:per_stage_req_latency_seconds", SGLANG_STAGE, 30, 0.3,
        stage="prefill_forward", **rank,
    )  # fmt: skip
    if not decode:
        found.histogram("sglang:kv_transfer_latency_ms", SGLANG_TRANSFER_MS, 30, 25, **rank)
        return found
    for name in ("inter_token_latency_seconds", "request_time_per_output_token_seconds"):
        per_scrape = 6000 if name.startswith("inter") else 30
        found.histogram(f"sglang:{name}", SGLANG_TOKEN, per_scrape, 0.02)
    found.histogram("sglang:time_to_first_token_seconds", SGLANG_TOKEN, 30, 0.6)
    return found


def _router(deployment: MadeDeployment) -> _Exporter:
    found = _Exporter(**_target(deployment, deployment.router, "router", "router"))
    route = {"backend_type": "pd", "connection_mode": "http", "router_type": "http"}
    found.add("smg_tokio_workers", 0.0, 2.0)
    found.add("smg_router_requests_total", 120.0, endpoint="chat", streaming="true", **route)
    for status in ("200", "503"):
        found.add(
            "smg_http_responses_total", 119.0 if status == "200" else 1.0,
            path="/v1/chat/completions", status_code=status, error_code="",
        )  # fmt: skip
    for worker in deployment.workers:
        found.add("smg_worker_health", 0.0, 1.0, worker=worker.url)
        found.add("smg_worker_requests_active", 0.0, 12.0, worker=worker.url)
        found.add("smg_pd_admission_window", 0.0, 48.0, worker=worker.url)
    found.histogram(
        "smg_pd_ttft_seconds", SMG_TIME, 120, 1.0, backend_type="pd", runtime=deployment.engine
    )
    return found


def series_of(fleet: MadeFleet) -> list[_Line]:
    """All series of the fleet, `up` included."""
    found: list[_Line] = []
    for deployment in fleet.deployments:
        make = _vllm if deployment.engine == "vllm" else _sglang
        exporters = [
            (
                _target(deployment, worker.instance, worker.role, worker.pod),
                make(deployment, worker),
            )
            for worker in deployment.workers
        ]
        router = _target(deployment, deployment.router, "router", "router")
        exporters.append((router, _router(deployment)))
        for target, exporter in exporters:
            found.append(_Line(f"up{{{_labels(**target)}}}", 1.0, 0.0))
            found += exporter.lines
    return found


def write_openmetrics(
    out: TextIO, lines: Sequence[_Line], *, first: float, scrapes: int, interval_s: float
) -> int:
    """Write `scrapes` samples of every series, oldest first; returns the number of samples."""
    for number in range(scrapes):
        at = f"{first + number * interval_s:.3f}"
        out.writelines(
            f"{line.prefix} {line.base + number * line.step:.12g} {at}\n" for line in lines
        )
    out.write("# EOF\n")
    return scrapes * len(lines)


@dataclass(frozen=True, slots=True)
class Past:
    """A filled folder: samples from `first` to `last` (Unix times)."""

    folder: Path
    first: float
    last: float
    series: int
    samples: int


#: The filled span lies inside one two-hour block, so that promtool reads its input once.
SPAN_STARTS: Final = 1_764_500_400.0


def fill(
    lines: Sequence[_Line],
    folder: Path,
    *,
    scrapes: int,
    interval_s: float = 15.0,
    first: float = SPAN_STARTS,
) -> Past:
    """Fill a Prometheus' data folder (`folder/data`) from `lines`."""
    promtool = _program("promtool")
    folder.mkdir(parents=True, exist_ok=True)
    text, data = folder / "history.om", folder / "data"
    with text.open("w", encoding="utf-8", buffering=1 << 22) as out:
        samples = write_openmetrics(out, lines, first=first, scrapes=scrapes, interval_s=interval_s)
    subprocess.run(
        [promtool, "tsdb", "create-blocks-from", "openmetrics", "--quiet", str(text), str(data)],
        check=True,
        capture_output=True,
    )
    text.unlink()
    return Past(folder, first, first + (scrapes - 1) * interval_s, len(lines), samples)


def add_rules(past: Past, rules: Path, *, since: float, every_s: int) -> None:
    """Add what recording rules would have recorded between `since` and the end of the past."""
    promtool, made = _program("promtool"), past.folder / "rules-data"
    with serving(past.folder) as (url, _):
        subprocess.run(
            [
                promtool, "tsdb", "create-blocks-from", "rules", f"--start={since:.0f}",
                f"--end={past.last:.0f}", f"--url={url}", f"--output-dir={made}",
                f"--eval-interval={every_s}s", str(rules),
            ],
            check=True,
            capture_output=True,
        )  # fmt: skip
    for block in made.iterdir():
        shutil.move(str(block), past.folder / "data" / block.name)


def _program(name: str) -> str:
    found = find(name)
    if found is None:
        raise RuntimeError(f"{name} is needed")
    return found


@contextlib.contextmanager
def serving(folder: Path) -> Iterator[tuple[str, int]]:
    """A Prometheus without targets over `folder/data`; yields its address and process id."""
    program, data = _program("prometheus"), folder / "data"
    port = free_port()
    config = folder / "prometheus.yml"
    config.write_text("global: {scrape_interval: 15s}\n", encoding="utf-8")
    process = subprocess.Popen(
        [program, f"--config.file={config}", f"--storage.tsdb.path={data}",
         "--storage.tsdb.retention.time=100y", f"--web.listen-address=127.0.0.1:{port}",
         "--query.max-samples=100000000", "--log.level=error"],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    url = f"http://127.0.0.1:{port}"
    try:
        _wait_ready(url)
        yield url, process.pid
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(5)


def _wait_ready(url: str, seconds: float = 120.0) -> None:
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        with contextlib.suppress(OSError), urllib.request.urlopen(f"{url}/-/ready", timeout=2) as a:
            if a.status == 200:
                return
        time.sleep(0.2)
    raise TimeoutError("the Prometheus did not become ready")
