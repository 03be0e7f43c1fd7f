"""Stand-ins of the GPU and host exporters beside the demo engines.

The names are those of dcgm-exporter and node_exporter, written from their samples and not from the
product's profiles. The GPUs' figures follow the engines' passes and steps: what a H200 is known to
show of each phase (prefill: tensor cores and power high; decode: memory high, tensor cores low).
Integrals are added as work ends, so a scrape costs nothing and two scrapers do not disturb each
other.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from apps.simulation.demo.engine import Engine
from apps.simulation.demo.exposition import CONTENT_TYPE, Counter, Registry, render
from apps.simulation.demo.http import Reply, Request

GPUS_PER_NODE = 8
CPUS_PER_NODE = 64
#: Watts without work, and above that while a prefill pass or a decode step runs. A batch of 64
#: sequences takes the second decode value.
IDLE_W, PREFILL_W, DECODE_W, BATCH_W = 110.0, 530.0, 200.0, 160.0
PREFILL_TENSOR, PREFILL_DRAM = 0.62, 0.22
DECODE_TENSOR, BATCH_TENSOR, DECODE_DRAM = 0.02, 0.10, 0.58
FULL_BATCH = 64.0
#: CPU seconds of one engine process per second, idle and with work.
IDLE_CPU, WORK_CPU = 0.6, 3.0
#: A gauge is the mean of this long, as an exporter's sampling is, seconds.
MEMORY_S = 5.0
MIB_USED, MIB_FREE = 131_072.0, 9_728.0
#: Energy before the fleet started: a real counter counts since boot.
BOOT_J = 3.6e7


@dataclass(slots=True)
class Integrals:
    """Seconds of activity, and joules above idle, since the start."""

    at: float
    tensor: float = 0.0
    dram: float = 0.0
    active: float = 0.0
    joules: float = 0.0


class Gpu:
    """The GPU of one engine; listens to its passes and steps."""

    def __init__(self, engine: Engine, node: str, index: int) -> None:
        self.engine, self.node, self.index = engine, node, index
        self._loop = engine.loop
        self._started = self._loop.time()
        self.sums = Integrals(self._started)
        self._past: deque[Integrals] = deque()
        engine.prefill.on_pass = _both(engine.prefill.on_pass, self._prefill)
        engine.decode.on_step = _both(engine.decode.on_step, self._decode)

    def _prefill(self, seconds: float, tokens: int) -> None:
        self._add(seconds, PREFILL_TENSOR, PREFILL_DRAM, PREFILL_W)

    def _decode(self, seconds: float, running: int) -> None:
        batch = min(1.0, running / FULL_BATCH)
        tensor = DECODE_TENSOR + BATCH_TENSOR * batch
        self._add(seconds, tensor, DECODE_DRAM, DECODE_W + BATCH_W * batch)

    def _add(self, seconds: float, tensor: float, dram: float, watts: float) -> None:
        sums, now = self.sums, self._loop.time()
        if not self._past or now - self._past[-1].at >= 1.0:
            # What stood when this work began.
            began = now - seconds
            self._past.append(Integrals(began, sums.tensor, sums.dram, sums.active, sums.joules))
            self._forget(now)
        sums.active += seconds
        sums.tensor += seconds * tensor
        sums.dram += seconds * dram
        sums.joules += seconds * watts
        sums.at = now

    def _forget(self, now: float) -> None:
        while self._past and self._past[0].at < now - MEMORY_S:
            self._past.popleft()

    @property
    def joules(self) -> float:
        """Energy since boot."""
        return BOOT_J + (self._loop.time() - self._started) * IDLE_W + self.sums.joules

    def mean(self, name: str) -> float:
        """The mean of an activity over the last seconds, 0..1; of `joules` the watts above idle."""
        now = self._loop.time()
        self._forget(now)
        if not self._past:
            return 0.0
        # Steady work has left marks over nearly the whole time; before a late first one was none.
        span = now - self._past[0].at
        seconds = span if span >= MEMORY_S - 1.0 else max(0.1, min(MEMORY_S, now - self._started))
        value = float(getattr(self.sums, name) - getattr(self._past[0], name)) / seconds
        return value if name == "joules" else min(1.0, value)

    @property
    def cpu_seconds(self) -> float:
        """CPU time of the engine's process."""
        return (self._loop.time() - self._started) * IDLE_CPU + self.sums.active * WORK_CPU


Listener = Callable[[float, int], None]


def _both(first: Listener, second: Listener) -> Listener:
    def call(seconds: float, value: int) -> None:
        first(seconds, value)
        second(seconds, value)

    return call


class Exporters:
    """All nodes' exporters behind one port: `/<node>/gpu` and `/<node>/host`."""

    def __init__(self, engines: Sequence[Engine], loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._started = loop.time()
        self.gpus = [
            Gpu(engine, f"demo-node-{place // GPUS_PER_NODE + 1}", place % GPUS_PER_NODE)
            for place, engine in enumerate(engines)
        ]
        self._counters: list[tuple[Counter, Callable[[], float]]] = []
        self._registries: dict[str, Registry] = {}
        for node in self.nodes:
            mine = [gpu for gpu in self.gpus if gpu.node == node]
            self._registries[f"/{node}/gpu"] = self._gpu_registry(mine)
            self._registries[f"/{node}/host"] = self._host_registry(mine)

    @property
    def nodes(self) -> list[str]:
        return list(dict.fromkeys(gpu.node for gpu in self.gpus))

    def state(self, port: int) -> list[dict[str, str]]:
        """What the state file says of them, in the form of a source's `exporters`."""
        return [
            {"profile": profile, "url": f"http://127.0.0.1:{port}/{node}/{path}", "node": node}
            for node in self.nodes
            for profile, path in (("dcgm", "gpu"), ("node", "host"))
        ]

    def handle(self, request: Request, reply: Reply) -> None:
        """Answer one scrape."""
        registry = self._registries.get(request.path)
        if registry is None or request.method != "GET":
            reply.send_json(404, {"error": "not found", "paths": list(self._registries)})
            return
        for counter, read in self._counters:
            counter.value = read()
        reply.send(200, render([registry]), CONTENT_TYPE)

    def _host_registry(self, gpus: Sequence[Gpu]) -> Registry:
        registry = Registry()

        def used() -> float:
            return sum(gpu.cpu_seconds for gpu in gpus)

        def idle() -> float:
            return (self._loop.time() - self._started) * CPUS_PER_NODE - used()

        text = "Seconds the CPUs spent in each mode."
        for cpu in range(CPUS_PER_NODE):
            for mode, read in (("user", used), ("idle", idle)):
                labels = {"cpu": str(cpu), "mode": mode}
                counter = registry.counter("node_cpu_seconds_total", text, labels)
                self._counters.append((counter, _share(read, CPUS_PER_NODE)))
        registry.gauge(
            "node_load1", "1m load average.", {},
            read=lambda: sum(IDLE_CPU + WORK_CPU * gpu.mean("active") for gpu in gpus),
        )  # fmt: skip
        registry.gauge("node_memory_MemAvailable_bytes", "Memory available.", {}).value = 1.4e12
        return registry

    def _gpu_registry(self, gpus: Sequence[Gpu]) -> Registry:
        registry = Registry()

        def activity(gpu: Gpu, name: str) -> Callable[[], float]:
            return lambda: gpu.mean(name)

        def energy(gpu: Gpu) -> Callable[[], float]:
            return lambda: 1000.0 * gpu.joules

        def power(gpu: Gpu) -> Callable[[], float]:
            return lambda: IDLE_W + gpu.mean("joules")

        for gpu in gpus:
            labels = {
                "gpu": str(gpu.index),
                "UUID": f"GPU-{gpu.node}-{gpu.index}",
                "device": f"nvidia{gpu.index}",
                "modelName": "NVIDIA H200",
                "hostname": gpu.node,
            }
            spent = registry.counter(
                "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "Energy since boot (in mJ).", labels
            )
            self._counters.append((spent, energy(gpu)))
            for name, text, read in (
                ("DCGM_FI_DEV_POWER_USAGE", "Power draw (in W).", power(gpu)),
                ("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", "Tensor pipe active.", activity(gpu, "tensor")),
                ("DCGM_FI_PROF_DRAM_ACTIVE", "Memory interface active.", activity(gpu, "dram")),
                ("DCGM_FI_PROF_SM_ACTIVE", "SM active.", activity(gpu, "active")),
            ):
                registry.gauge(name, text, labels, read=read)
            for name, text, value in (
                ("DCGM_FI_DEV_FB_USED", "Framebuffer used (in MiB).", MIB_USED),
                ("DCGM_FI_DEV_FB_FREE", "Framebuffer free (in MiB).", MIB_FREE),
                ("DCGM_FI_DEV_XID_ERRORS", "Last XID.", 0.0),
            ):
                registry.gauge(name, text, labels).value = value
        return registry


def _share(read: Callable[[], float], parts: int) -> Callable[[], float]:
    return lambda: read() / parts
