"""Stand-in engines behind the real routers: the demo fleet's engines, in a thread of their own.

They speak SGLang's and vLLM's prefill/decode protocols over HTTP, and count what they do."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from apps.simulation.demo.engine import Engine, WorkerPlan
from apps.simulation.demo.sglang import SglangEngine
from apps.simulation.demo.sglang_legs import Rendezvous
from apps.simulation.demo.vllm import Directory, VllmEngine
from apps.simulation.service_time import load_profile
from tests.support.components.process import ports

KEY = "engine-key"


@dataclass(frozen=True)
class Engines:
    """Prefill and decode engines of one deployment."""

    kind: str
    model: str
    engines: Sequence[Engine]
    loop: asyncio.AbstractEventLoop

    def of(self, role: str) -> list[WorkerPlan]:
        return [engine.plan for engine in self.engines if engine.plan.role == role]

    def fault(self, kind: str, *roles: str) -> None:
        """Break (or mend) all engines of some roles at once."""

        async def act() -> None:
            for engine in self.engines:
                if engine.plan.role in roles:
                    engine.set_fault(kind)

        asyncio.run_coroutine_threadsafe(act(), self.loop).result(5)


@contextmanager
def engines(kind: str, prefill: int = 2, decode: int = 2) -> Iterator[Engines]:
    """`sglang` or `vllm` engines, listening; closed at the end."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True, name=f"{kind} engines")
    thread.start()
    found = Engines(kind, load_profile().model, _build(kind, prefill, decode, loop), loop)

    async def listen() -> None:
        for engine in found.engines:
            await engine.open()

    async def close() -> None:
        for engine in found.engines:
            engine.close()

    try:
        asyncio.run_coroutine_threadsafe(listen(), loop).result(10)
        yield found
    finally:
        asyncio.run_coroutine_threadsafe(close(), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(5)
        loop.close()


def _build(kind: str, prefill: int, decode: int, loop: asyncio.AbstractEventLoop) -> list[Engine]:
    names = [("p", "prefill", i) for i in range(prefill)]
    names += [("d", "decode", i) for i in range(decode)]
    free = ports(2 * len(names))
    # A leg whose other half never comes is given up soon, so that a router gets its error.
    profile = replace(load_profile(), bootstrap_timeout_s=1.0)
    meeting, directory = Rendezvous(), Directory()
    found: list[Engine] = []
    for letter, role, number in names:
        port, bootstrap = free.pop(0), free.pop(0)
        name = f"{letter}-{number}"
        identity = f"{kind}-{name}"
        if kind == "sglang":
            plan = WorkerPlan(name, role, port, bootstrap, identity)
            found.append(SglangEngine(plan, profile, KEY, loop, meeting))
        else:
            plan = WorkerPlan(name, role, port, None, identity)
            found.append(VllmEngine(plan, profile, KEY, loop, directory))
    return found
