"""The real router (smg) of one deployment as a child process that cannot outlive the fleet."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import shutil
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from apps.simulation.demo.client import call
from apps.simulation.demo.engine import PREFILL, WorkerPlan

VERSION = "1.13.0"
READY_TIMEOUT_S = 60.0
KILL_AFTER_S = 1.5
PR_SET_PDEATHSIG = 1
TTFT_BUCKETS = (
    *(0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8, 1, 1.25, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10, 15, 20, 30),
    60,
)


class RouterFailed(RuntimeError):
    """The router is missing, ended, or did not become ready."""


@dataclass(frozen=True, slots=True)
class RouterPlan:
    """Where the router of a deployment stands and who may command it."""

    slug: str
    port: int
    metrics_port: int
    admin_key: str
    read_key: str
    backend: str | None  # "vllm", or None for SGLang, smg's default

    @property
    def url(self) -> str:
        """Requests and the control API."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def metrics_url(self) -> str:
        """The router's own Prometheus page."""
        return f"http://127.0.0.1:{self.metrics_port}/metrics"


def find_smg() -> str:
    """The smg executable beside this Python, else on PATH. RouterFailed if there is none."""
    beside = Path(sys.executable).parent / "smg"
    if beside.is_file() and os.access(beside, os.X_OK):
        return str(beside)
    found = shutil.which("smg")
    if found is None:
        raise RouterFailed(
            f"the demo fleet needs the smg router: install it with `pip install smg=={VERSION}`"
        )
    return found


def command(smg: str, plan: RouterPlan, workers: Sequence[WorkerPlan]) -> list[str]:
    """The command line. Balancing by request counts and no overload protection: the defaults pile
    requests on one decode worker and take prefill workers out exactly when they are the limit."""
    line = [smg, "launch", "--host", "127.0.0.1", "--port", str(plan.port), "--pd-disaggregation"]
    if plan.backend is not None:
        line += ["--backend", plan.backend]
    for worker in workers:
        if worker.role == PREFILL:
            bootstrap = worker.bootstrap_port
            line += ["--prefill", worker.url, "none" if bootstrap is None else str(bootstrap)]
        else:
            line += ["--decode", worker.url]
    line += ["--policy", "power_of_two", "--power-of-two-load-metric", "requests"]
    line += ["--disable-worker-overload-protection", "--disable-tokenizer-autoload"]
    line += ["--prometheus-host", "127.0.0.1", "--prometheus-port", str(plan.metrics_port)]
    line += ["--prometheus-duration-buckets", *(str(bound) for bound in TTFT_BUCKETS)]
    line += ["--health-check-interval-secs", "3", "--health-check-timeout-secs", "5"]
    line += ["--health-failure-threshold", "3", "--worker-startup-timeout-secs", "60"]
    line += ["--worker-startup-check-interval", "1", "--log-level", "warn"]
    line += ["--control-plane-api-keys", f"admin:Fulcrum:admin:{plan.admin_key}"]
    line += [f"read:Reader:user:{plan.read_key}"]
    return line


def _die_with_parent() -> Callable[[], None] | None:
    """What the child runs before exec so that the kernel ends it with its parent (Linux only)."""
    if not sys.platform.startswith("linux"):
        return None
    libc = ctypes.CDLL(None, use_errno=True)
    parent = os.getpid()

    def prepare() -> None:
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # the parent died before prctl
            os._exit(1)

    return prepare


class Router:
    """One smg process in its own process group."""

    def __init__(self, plan: RouterPlan, workers: Sequence[WorkerPlan]) -> None:
        self.plan = plan
        self._workers = workers
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        """Start the process. RouterFailed if smg is missing."""
        line = command(find_smg(), self.plan, self._workers)
        prepare = _die_with_parent()
        if prepare is None:  # elsewhere a guard process polls the parent
            guard = [sys.executable, "-m", "apps.simulation.demo.guard", str(os.getpid())]
            line = guard + line
        self._process = await asyncio.create_subprocess_exec(
            *line,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            start_new_session=True,
            preexec_fn=prepare,
        )

    async def wait_ready(self) -> None:
        """Wait until /readiness is 200 and /workers lists every worker as ready."""
        deadline = asyncio.get_running_loop().time() + READY_TIMEOUT_S
        why = "no answer"
        while asyncio.get_running_loop().time() < deadline:
            if self._process is not None and self._process.returncode is not None:
                raise RouterFailed(
                    f"the router of {self.plan.slug} ended with code {self._process.returncode}"
                )
            with contextlib.suppress(OSError, TimeoutError):
                why = await self._not_ready()
                if not why:
                    return
            await asyncio.sleep(0.1)
        raise RouterFailed(f"the router of {self.plan.slug} is not ready: {why}")

    async def _not_ready(self) -> str:
        status, _ = await call("GET", self.plan.url + "/readiness")
        if status != 200:
            return f"/readiness answers {status}"
        status, answer = await call("GET", self.plan.url + "/workers", key=self.plan.read_key)
        if status != 200 or not isinstance(answer, dict):
            return f"/workers answers {status}"
        listed = {(w["url"], w["worker_type"]) for w in answer["workers"] if w["status"] == "ready"}
        wanted = {(worker.url, worker.role) for worker in self._workers}
        return "" if listed == wanted else f"{len(listed & wanted)} of {len(wanted)} workers ready"

    async def wait(self) -> int:
        """Wait until the process ends; its return code."""
        assert self._process is not None
        return await self._process.wait()

    def terminate(self) -> None:
        """Ask the process to end; smg takes seconds for it even when idle."""
        self._signal(signal.SIGTERM)

    async def kill_after(self, seconds: float) -> None:
        """Give the process `seconds` to end, then kill its group."""
        if self._process is None or self._process.returncode is not None:
            return
        try:
            async with asyncio.timeout(seconds):
                await self._process.wait()
        except TimeoutError:
            self._signal(signal.SIGKILL)
            await self._process.wait()

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)
