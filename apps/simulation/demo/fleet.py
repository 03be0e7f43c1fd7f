"""The whole demo fleet: two deployments of engines, their routers, load, control port, state file.

Everything but the routers runs in this process and on one event loop. What stands where is decided
before anything starts; after the start each engine's identity is compared with that plan.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from apps.simulation import stories
from apps.simulation.demo import sglang, vllm
from apps.simulation.demo.client import call
from apps.simulation.demo.control import Control
from apps.simulation.demo.engine import DECODE, PREFILL, Engine, WorkerPlan
from apps.simulation.demo.guard import alive
from apps.simulation.demo.hardware import Exporters
from apps.simulation.demo.http import Server
from apps.simulation.demo.load import Load, StallWatch
from apps.simulation.demo.ports import free_block
from apps.simulation.demo.router import KILL_AFTER_S, VERSION, Router, RouterFailed, RouterPlan
from apps.simulation.demo.sglang import SglangEngine
from apps.simulation.demo.sglang_legs import Rendezvous
from apps.simulation.demo.vllm import Directory, VllmEngine
from apps.simulation.service_time import EngineProfile, load_profile
from apps.simulation.trace import load_trace

OBJECTIVES = {"ttft_p95_s": 2.5, "tpot_p95_s": 0.025}
SEARCH_SEED = 1_000_003


@dataclass(frozen=True, slots=True)
class Options:
    """What the command line decides. Seconds; `duration_s` 0 means until stopped."""

    state: Path
    seed: int = 1
    rate_scale: float = 1.0
    shift_after_s: float = 75.0
    scenario: str = "story"
    port_base: int | None = None
    load: bool = True
    parent_pid: int | None = None
    duration_s: float = 0.0


@dataclass(slots=True)
class Deployment:
    """One served model: engines, router and load."""

    slug: str
    name: str
    engine: str
    engine_version: str
    engine_key: str
    profile: EngineProfile
    engines: Sequence[Engine]
    router: Router
    load: Load

    def state(self) -> dict[str, Any]:
        """The deployment's part of the state file."""
        plan = self.router.plan
        return {
            "slug": self.slug,
            "name": self.name,
            "model": self.profile.model,
            "engine": self.engine,
            "engine_version": self.engine_version,
            "router": {
                "kind": "smg",
                "version": VERSION,
                "url": plan.url,
                "metrics_url": plan.metrics_url,
                "admin_key": plan.admin_key,
                "read_key": plan.read_key,
            },
            "engine_key": self.engine_key,
            "objectives": OBJECTIVES,
            "workers": [
                {
                    "name": engine.plan.name,
                    "url": engine.plan.url,
                    "bootstrap_port": engine.plan.bootstrap_port,
                    "role": engine.role,
                    "metrics_url": engine.plan.url + "/metrics",
                    "accelerator": self.profile.accelerator,
                    "devices": self.profile.devices,
                    "instance_id": engine.plan.instance_id,
                }
                for engine in self.engines
            ],
        }


def plan_workers(
    ports: list[int], prefill: int, decode: int, *, bootstrap: bool
) -> list[WorkerPlan]:
    """Names, ports and identities of `prefill` + `decode` engines; takes from `ports`."""
    names = [(f"p-{i}", PREFILL) for i in range(prefill)]
    names += [(f"d-{i}", DECODE) for i in range(decode)]
    return [
        WorkerPlan(
            name, role, ports.pop(0), ports.pop(0) if bootstrap else None, secrets.token_hex(8)
        )
        for name, role in names
    ]


class Fleet:
    """The running fleet."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        self._failure = ""
        self._faults_timed = False
        self._tasks: list[asyncio.Task[None]] = []
        self.stalls = StallWatch(self._loop)
        self.scenario = stories.scenario(options.scenario, options.shift_after_s).scaled(
            options.rate_scale
        )
        workers = self.scenario.prefill + self.scenario.decode
        search = stories.SEARCH_PREFILL + stories.SEARCH_DECODE
        ports = free_block(2 + 4 + 2 * workers + search, options.port_base)
        self._control_port, self._exporter_port = ports.pop(0), ports.pop(0)
        self._trace = load_trace()
        self.deployments = [self._chat(ports), self._search(ports)]
        self._control = Server(self._control_port, Control(self).handle)
        engines = [engine for deployment in self.deployments for engine in deployment.engines]
        self.exporters = Exporters(engines, self._loop)
        self._exporter_server = Server(self._exporter_port, self.exporters.handle)

    # --- building ------------------------------------------------------------------------------

    def _chat(self, ports: list[int]) -> Deployment:
        profile, scenario = load_profile(), self.scenario
        profile = profile.with_room(
            kv_room_tokens=scenario.kv_room_tokens or profile.kv_room_tokens,
            max_running=scenario.max_running or profile.max_running,
        )
        router = _plan_router("chat-pd", ports, None)
        plans = plan_workers(ports, scenario.prefill, scenario.decode, bootstrap=True)
        meeting, key = Rendezvous(), secrets.token_urlsafe(24)
        return Deployment(
            slug="chat-pd",
            name="Chat",
            engine="sglang",
            engine_version=sglang.VERSION,
            engine_key=key,
            profile=profile,
            engines=[SglangEngine(plan, profile, key, self._loop, meeting) for plan in plans],
            router=Router(router, plans),
            load=Load(
                "chat-pd",
                router.url,
                profile.model,
                scenario.phases,
                self._trace,
                self.options.seed,
                self._loop,
            ),
        )

    def _search(self, ports: list[int]) -> Deployment:
        profile = load_profile()
        router = _plan_router("search-pd", ports, "vllm")
        plans = plan_workers(ports, stories.SEARCH_PREFILL, stories.SEARCH_DECODE, bootstrap=False)
        directory, key = Directory(), secrets.token_urlsafe(24)
        return Deployment(
            slug="search-pd",
            name="Search",
            engine="vllm",
            engine_version=vllm.VERSION,
            engine_key=key,
            profile=profile,
            engines=[VllmEngine(plan, profile, key, self._loop, directory) for plan in plans],
            router=Router(router, plans),
            load=Load(
                "search-pd",
                router.url,
                profile.model,
                stories.scaled(stories.SEARCH_PHASES, self.options.rate_scale),
                self._trace,
                self.options.seed + SEARCH_SEED,
                self._loop,
            ),
        )

    # --- life ----------------------------------------------------------------------------------

    def request_stop(self, failure: str = "") -> None:
        """End the fleet; with `failure` as an error."""
        self._failure = self._failure or failure
        self._stop.set()

    async def run(self) -> None:
        """Start, serve until stopped, clean up. RouterFailed or OSError when something fails."""
        try:
            await self._start()
            await self._stop.wait()
        finally:
            await self._shut_down()
        if self._failure:
            raise RouterFailed(self._failure)

    async def _start(self) -> None:
        await self._control.open()
        await self._exporter_server.open()
        for deployment in self.deployments:
            for engine in deployment.engines:
                await engine.open()
        self._spawn(self.stalls.run())
        if self.options.parent_pid is not None:
            self._spawn(self._watch_parent(self.options.parent_pid))
        if not await self._start_routers():
            return
        await self._check_identities()
        write_state(self.options.state, self.state())
        if self.options.load:
            self.start_load(self.deployments)
        if self.options.duration_s > 0:
            self._loop.call_later(self.options.duration_s, self.request_stop)

    def start_load(self, chosen: list[Deployment]) -> None:
        """Let load generators begin; the scenario's faults are timed from the first start."""
        for deployment in chosen:
            deployment.load.start()
        if not self._faults_timed:
            self._faults_timed = True
            for fault in self.scenario.faults:
                self._loop.call_later(fault.at_s, self._apply, fault)

    async def _start_routers(self) -> bool:
        """Start all routers; False if the fleet was stopped meanwhile."""
        starting: asyncio.Future[Any] = asyncio.gather(
            *(self._start_router(deployment) for deployment in self.deployments)
        )
        stopped: asyncio.Future[Any] = asyncio.ensure_future(self._stop.wait())
        await asyncio.wait({starting, stopped}, return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        if starting.done():
            starting.result()
            return True
        starting.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await starting
        return False

    async def _start_router(self, deployment: Deployment) -> None:
        await deployment.router.start()
        self._spawn(self._watch_router(deployment))
        await deployment.router.wait_ready()

    async def _watch_router(self, deployment: Deployment) -> None:
        code = await deployment.router.wait()
        if not self._stop.is_set():
            self.request_stop(f"the router of {deployment.slug} ended with code {code}")

    async def _watch_parent(self, pid: int) -> None:
        while alive(pid):
            await asyncio.sleep(0.5)
        self.request_stop()

    async def _check_identities(self) -> None:
        """Ask every engine over its port who it is: a router must not reach another fleet."""
        for deployment in self.deployments:
            for engine in deployment.engines:
                _, info = await call("GET", engine.plan.url + "/server_info")
                found = info.get("instance_id") if isinstance(info, dict) else None
                if found != engine.plan.instance_id:
                    raise RouterFailed(
                        f"port {engine.plan.port} is answered by another program than "
                        f"{deployment.slug} {engine.plan.name}"
                    )

    def _apply(self, fault: stories.Fault) -> None:
        for engine in self.deployments[0].engines:
            if engine.plan.name == fault.worker:
                engine.set_fault(fault.kind, fault.value)

    def state(self) -> dict[str, Any]:
        """What the state file holds."""
        return {
            "pid": os.getpid(),
            "seed": self.options.seed,
            "scenario": self.scenario.name,
            "control_url": f"http://127.0.0.1:{self._control_port}",
            "exporters": self.exporters.state(self._exporter_port),
            "deployments": [deployment.state() for deployment in self.deployments],
        }

    async def _shut_down(self) -> None:
        self._stop.set()
        for task in self._tasks:
            task.cancel()
        for deployment in self.deployments:
            deployment.load.close()
            deployment.router.terminate()
        for deployment in self.deployments:
            for engine in deployment.engines:
                engine.close()
        self._control.close()
        self._exporter_server.close()
        with contextlib.suppress(FileNotFoundError):
            self.options.state.unlink()
        await asyncio.gather(*(d.router.kill_after(KILL_AFTER_S) for d in self.deployments))

    def _spawn(self, work: Any) -> None:
        self._tasks.append(self._loop.create_task(work))


def _plan_router(slug: str, ports: list[int], backend: str | None) -> RouterPlan:
    return RouterPlan(
        slug=slug,
        port=ports.pop(0),
        metrics_port=ports.pop(0),
        admin_key=secrets.token_urlsafe(24),
        read_key=secrets.token_urlsafe(24),
        backend=backend,
    )


def write_state(path: Path, state: dict[str, Any]) -> None:
    """Write the state file whole or not at all, readable by its owner only."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")  # mode 0600
    try:
        with os.fdopen(handle, "w") as file:
            json.dump(state, file, indent=1)
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise
