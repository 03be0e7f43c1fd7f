"""What every demo engine has, whatever it imitates: sockets, faults, life cycle, routes."""

from __future__ import annotations

import asyncio
import hmac
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from apps.simulation.demo.exposition import CONTENT_TYPE, Registry, render
from apps.simulation.demo.http import BadRequest, Reply, Request, Server
from apps.simulation.demo.work import DecodeBatch, KvLink, PrefillQueue
from apps.simulation.service_time import EngineProfile

PREFILL, DECODE = "prefill", "decode"
ROLES = (PREFILL, DECODE)
READY, DRAINING, LOADING = "ready", "draining", "loading"

SLOW_WORKER, DEAD_WORKER, SLOW_LINK = "slow_worker", "dead_worker", "slow_link"
NO_METRICS, NORMAL = "no_metrics", "normal"
FAULTS = (SLOW_WORKER, DEAD_WORKER, SLOW_LINK, NO_METRICS, NORMAL)
SLOW_FACTOR = 4.0
SLOW_LINK_BYTES_PER_S = 1.3e9


@dataclass(frozen=True, slots=True)
class WorkerPlan:
    """Where one engine stands: its name, role at the start, ports on 127.0.0.1, identity."""

    name: str
    role: str
    port: int
    bootstrap_port: int | None
    instance_id: str

    @property
    def url(self) -> str:
        """The engine's address, by which the router and the product know it."""
        return f"http://127.0.0.1:{self.port}"


Route = Callable[[Request, Reply], None]


class Engine(ABC):
    """One simulated engine. All methods run on the event loop's thread."""

    def __init__(
        self,
        plan: WorkerPlan,
        profile: EngineProfile,
        admin_key: str,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self.plan = plan
        self.profile = profile
        self.loop = loop
        self.role = plan.role
        self.status = READY
        self.fault = NORMAL
        self._admin_key = admin_key
        self._hidden: tuple[str, ...] | None = None
        self.request_number = 0
        self.server = Server(plan.port, self.handle)
        self.bootstrap: Server | None = None
        if plan.bootstrap_port is not None:
            self.bootstrap = Server(plan.bootstrap_port, _bootstrap_answer)
        self.link = KvLink(loop, profile)
        self.prefill = PrefillQueue(loop, profile)
        self.decode = DecodeBatch(loop, profile)

    # --- what an engine kind defines -----------------------------------------------------------

    @abstractmethod
    def registries(self) -> Iterable[Registry]:
        """The series to export now."""

    @abstractmethod
    def routes(self) -> dict[tuple[str, str], Route]:
        """The kind's own routes by (method, path)."""

    @abstractmethod
    def chat(self, request: Request, reply: Reply) -> None:
        """Serve a chat completion."""

    @abstractmethod
    def reset(self) -> None:
        """Start again as a new process: no work, counters at zero."""

    @abstractmethod
    def counts(self) -> dict[str, int]:
        """Requests `running`, `queued` and `transferring` now."""

    # --- sockets -------------------------------------------------------------------------------

    async def open(self) -> None:
        """Listen. OSError if a port is taken."""
        await self.server.open()
        if self.bootstrap is not None:
            await self.bootstrap.open()

    def close(self) -> None:
        """Close the sockets and reset the connections."""
        self.server.close()
        if self.bootstrap is not None:
            self.bootstrap.close()

    @property
    def idle(self) -> bool:
        """No work of any kind is left."""
        return not any(self.counts().values())

    # --- requests ------------------------------------------------------------------------------

    def handle(self, request: Request, reply: Reply) -> None:
        """Answer one request."""
        key = (request.method, request.path)
        if key == ("POST", "/v1/chat/completions"):
            self.http_seen(request, reply)
            return
        route = self._common_routes().get(key) or self.routes().get(key)
        if route is None:
            reply.send_json(404, {"error": "Not Found"})
            return
        route(request, reply)

    def http_seen(self, request: Request, reply: Reply) -> None:
        """Gate of the work routes: nothing is taken while loading or draining."""
        if self.status != READY:
            text = f"engine {self.plan.name} is {self.status} and takes no requests"
            reply.send_json(503, {"error": {"message": text, "type": "unavailable"}})
            return
        self.chat(request, reply)

    def next_id(self) -> str:
        """A request id that is unique in this process."""
        self.request_number += 1
        return f"chatcmpl-{self.plan.name}-{self.request_number}"

    def authorised(self, request: Request, reply: Reply) -> bool:
        """Whether the request carries the engine's admin key; answers 401 if not."""
        given = request.headers.get("authorization", "")
        if hmac.compare_digest(given.encode(), f"Bearer {self._admin_key}".encode()):
            return True
        reply.send_json(401, {"error": {"message": "the engine's admin key is needed"}})
        return False

    def _common_routes(self) -> dict[tuple[str, str], Route]:
        return {
            ("GET", "/health"): self._health,
            ("GET", "/metrics"): self._metrics,
            ("GET", "/v1/models"): self._models,
            ("POST", "/fault"): self._fault,
        }

    def _health(self, request: Request, reply: Reply) -> None:
        if self.status == LOADING:
            reply.send(503, "", "text/plain")
        else:
            reply.send(200, "", "text/plain")

    def _models(self, request: Request, reply: Reply) -> None:
        model = {
            "id": self.profile.model,
            "object": "model",
            "created": int(time.time()),
            "owned_by": "demo",
            "root": self.profile.model,
            "max_model_len": 32768,
        }
        reply.send_json(200, {"object": "list", "data": [model]})

    def _metrics(self, request: Request, reply: Reply) -> None:
        if self._hidden == ():
            reply.send(404, "Not Found", "text/plain")
            return
        text = render(self.registries())
        if self._hidden:
            text = _without(text, self._hidden)
        reply.send(200, text, CONTENT_TYPE)

    def _fault(self, request: Request, reply: Reply) -> None:
        if not self.authorised(request, reply):
            return
        body = request.json()
        try:
            state = self.set_fault(str(body.get("kind")), body.get("value"))
        except ValueError as error:
            raise BadRequest(str(error)) from error
        reply.send_json(200, state)

    # --- faults --------------------------------------------------------------------------------

    def set_fault(self, kind: str, value: object = None) -> dict[str, object]:
        """Break this engine in one way, or mend it with `normal`; one fault at a time.

        `slow_worker`: passes take `value` times as long (default 4). `slow_link`: KV leaves at
        `value` bytes/s (default 1.3e9). `dead_worker`: sockets closed, connections reset, work
        lost. `no_metrics`: /metrics answers 404, or leaves out the families whose names start with
        one of `value` (a list). ValueError for anything else.
        """
        if kind not in FAULTS:
            raise ValueError(f"unknown fault {kind!r}; known: {', '.join(FAULTS)}")
        amount = 0.0
        hidden: tuple[str, ...] | None = None
        if kind in (SLOW_WORKER, SLOW_LINK):
            default = SLOW_FACTOR if kind == SLOW_WORKER else SLOW_LINK_BYTES_PER_S
            if value is not None and (
                isinstance(value, bool) or not isinstance(value, int | float)
            ):
                raise ValueError(f"{kind} takes a number")
            amount = default if value is None else float(value)
            if not amount > 0:
                raise ValueError(f"{kind} takes a number above 0")
        elif kind == NO_METRICS:
            if value is not None and not isinstance(value, list):
                raise ValueError("no_metrics takes a list of metric names or nothing")
            hidden = tuple(str(name) for name in value) if isinstance(value, list) else ()
        self._mend()
        self.fault = kind
        if kind == SLOW_WORKER:
            self.prefill.slow_factor = self.decode.slow_factor = amount
        elif kind == SLOW_LINK:
            self.link.bytes_per_s = amount
        elif kind == NO_METRICS:
            self._hidden = hidden
        elif kind == DEAD_WORKER:
            self._die()
        return {"worker": self.plan.name, "url": self.plan.url, "kind": kind, "value": value}

    def _mend(self) -> None:
        dead = self.fault == DEAD_WORKER
        self.fault = NORMAL
        self.prefill.slow_factor = self.decode.slow_factor = 1.0
        self.link.bytes_per_s = self.profile.link_bytes_per_s
        self._hidden = None
        if dead:
            self.reset()
            task = self.loop.create_task(self.open())
            task.add_done_callback(_log_failure)

    def _die(self) -> None:
        self.close()
        self.prefill.clear()
        self.decode.clear()


def _without(text: str, prefixes: tuple[str, ...]) -> str:
    kept = []
    for line in text.splitlines():
        name = line.split(" ", 3)[2] if line.startswith("# ") else line
        if not name.startswith(prefixes):
            kept.append(line)
    return "\n".join(kept) + "\n"


def _bootstrap_answer(request: Request, reply: Reply) -> None:
    """The rendezvous port only has to be there: engines of this process meet in memory."""
    reply.send(200, "OK", "text/plain")


def _log_failure(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and task.exception() is not None:
        print(f"demo fleet: an engine could not listen again: {task.exception()}", flush=True)
