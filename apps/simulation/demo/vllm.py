"""A demo engine that speaks vLLM's prefill/decode flow (NIXL, pull mode).

The router asks in sequence: a prefill leg with `max_tokens` 1 whose answer carries
`kv_transfer_params`, then the decode leg with those parameters, which pulls the KV over the prefill
worker's link. The decode leg's response head goes out together with its first token.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from apps.simulation.demo.chat import EVENT_STREAM, ChatRequest, EventWriter, parse_chat
from apps.simulation.demo.engine import DECODE, PREFILL, Engine, Route, WorkerPlan
from apps.simulation.demo.exposition import Registry
from apps.simulation.demo.http import Reply, Request
from apps.simulation.demo.vllm_metrics import BLOCK, VllmMetrics
from apps.simulation.demo.work import DecodeJob, PrefillJob
from apps.simulation.service_time import EngineProfile

VERSION = "0.32.0"
KV_LIFE_S = 120.0


@dataclass(slots=True, eq=False)
class Open:
    """One request in work at this engine."""

    chat: ChatRequest
    reply: Reply
    arrived: float
    events: EventWriter
    prefill: PrefillJob | None = None
    decode: DecodeJob | None = None
    first_at: float = 0.0
    last_at: float = 0.0
    closed: bool = False


@dataclass(slots=True)
class Directory:
    """The vLLM engines of one deployment by instance id, so that a pull finds its source."""

    engines: dict[str, VllmEngine] = field(default_factory=dict)


class VllmEngine(Engine):
    """One vLLM engine; its role is fixed at the start."""

    def __init__(
        self,
        plan: WorkerPlan,
        profile: EngineProfile,
        admin_key: str,
        loop: asyncio.AbstractEventLoop,
        directory: Directory,
    ) -> None:
        super().__init__(plan, profile, admin_key, loop)
        self._directory = directory
        directory.engines[plan.instance_id] = self
        self._open: set[Open] = set()
        self._held: dict[str, int] = {}  # KV tokens that wait to be pulled, by request id
        self._blocks = 0
        self.metrics = VllmMetrics(self)
        self.prefill.on_pass = self._prefill_pass
        self.decode.on_step = self._decode_step

    # --- what is exported ----------------------------------------------------------------------

    def registries(self) -> Iterable[Registry]:
        """The engine's one set of series."""
        return [self.metrics.registry]

    def counts(self) -> dict[str, int]:
        """Requests running, waiting for room or a pass, and pulling KV."""
        decode = self.decode
        return {
            "running": len(self.prefill.running) + len(decode.running),
            "queued": len(self.prefill.waiting) + len(decode.prealloc) + len(decode.waiting),
            "transferring": len(decode.transferring),
        }

    def kv_used(self) -> int:
        """KV tokens allocated now, those that wait to be pulled included."""
        computing = sum(job.tokens for job in self.prefill.running)
        return computing + sum(self._held.values()) + self.decode.kv_used

    def routes(self) -> dict[tuple[str, str], Route]:
        """vLLM's own routes."""
        return {
            ("GET", "/version"): lambda _, reply: reply.send_json(200, {"version": VERSION}),
            ("GET", "/server_info"): self._server_info,
            ("POST", "/pd_role_switch"): self._no_switch,
        }

    def _server_info(self, request: Request, reply: Reply) -> None:
        counts = self.counts()
        state = {
            "disaggregation_mode": self.role,
            "instance_id": self.plan.instance_id,
            "status": self.status,
            "num_running_reqs": counts["running"],
            "num_queued_reqs": counts["queued"],
            "num_transferring_reqs": counts["transferring"],
            "idle": self.idle,
        }
        reply.send_json(
            200,
            {
                "version": VERSION,
                "served_model_name": self.profile.model,
                "instance_id": self.plan.instance_id,
                "internal_states": [state],
            },
        )

    def _no_switch(self, request: Request, reply: Reply) -> None:
        reply.send_json(404, {"detail": "vLLM 0.32.0 cannot switch its role"})

    def reset(self) -> None:
        """A new process under the same address, counters at zero."""
        self._open.clear()
        self._held.clear()
        self.metrics = VllmMetrics(self)

    # --- work ----------------------------------------------------------------------------------

    def chat(self, request: Request, reply: Reply) -> None:
        """Take a prefill or a decode leg, told apart by `kv_transfer_params`."""
        body = request.json()
        chat = parse_chat(body, self.next_id(), self.profile.model)
        given = body.get("kv_transfer_params")
        params: dict[str, Any] = given if isinstance(given, dict) else {}
        wanted = DECODE if params.get("do_remote_prefill") else PREFILL
        if wanted != self.role:
            self.metrics.responded(409)
            text = f"this is {wanted} work and engine {self.plan.name} is a {self.role} worker"
            reply.send_json(409, {"error": {"message": text, "type": "wrong_role"}})
            return
        one = Open(chat, reply, self.loop.time(), EventWriter(chat))
        self._open.add(one)
        reply.on_abort = lambda: self._aborted(one)
        if self.role == PREFILL:
            one.prefill = PrefillJob(chat.prompt_tokens, lambda end: self._computed(one))
            self.prefill.add(one.prefill)
        else:
            one.decode = DecodeJob(
                prompt=chat.prompt_tokens,
                output=chat.output_tokens,
                free_first=False,
                on_admit=lambda: self._pull(one, params),
                on_tokens=lambda count, last: self._tokens(one, count, last),
            )
            self.decode.add(one.decode)

    def _computed(self, one: Open) -> None:
        job, chat, now = one.prefill, one.chat, self.loop.time()
        if one.closed or job is None:
            return
        tokens = chat.prompt_tokens
        queue = max(0.0, job.started_at - job.queued_at)
        self.metrics.first_token(tokens, tokens, now - one.arrived)
        self.metrics.generation_tokens.inc()
        self.metrics.request_finished(
            tokens, 1, tokens, queue=queue, prefill=now - job.started_at, decode=0.0
        )
        self._held[chat.id] = tokens
        self.loop.call_later(KV_LIFE_S, self._expire, chat.id)
        count = -(-tokens // BLOCK)
        first = self._blocks
        self._blocks = (self._blocks + count) % (self.profile.kv_room_tokens // BLOCK)
        params = {
            "do_remote_prefill": True,
            "do_remote_decode": False,
            "remote_block_ids": [first, first + count - 1],
            "remote_engine_id": self.plan.instance_id,
            "remote_request_id": chat.id,
            "remote_host": "127.0.0.1",
            "remote_port": self.plan.bootstrap_port or 0,
            "tp_size": self.profile.devices,
            "dcp_size": 1,
            "pp_size": 1,
            "remote_num_tokens": tokens,
            "remote_blocks_expiry_time": None,
            "transfer_mode": "pull",
            "remote_prefill_cached_tokens": 0,
        }
        one.reply.send(200, one.events.whole(1, {"kv_transfer_params": params}))
        self._close(one, 200)

    def _expire(self, request_id: str) -> None:
        if self._held.pop(request_id, None) is not None:
            self.metrics.kv_expired.inc()

    def release(self, request_id: str) -> None:
        """A decode worker has pulled the KV of `request_id`."""
        self._held.pop(request_id, None)

    def _pull(self, one: Open, params: dict[str, Any]) -> None:
        source = self._directory.engines.get(str(params.get("remote_engine_id")))
        request_id = str(params.get("remote_request_id"))
        if source is None or request_id not in source._held:
            self.loop.call_soon(self._fail, one, "the KV to pull is not there")
            return
        source.link.send(
            one.chat.prompt_tokens,
            self.loop.time(),
            lambda seconds, size: self._pulled(one, source, request_id, size),
        )

    def _pulled(self, one: Open, source: VllmEngine, request_id: str, size: int) -> None:
        if one.closed or one.decode is None:
            source.release(request_id)
            return
        if request_id not in source._held:
            self._fail(one, "the prefill worker is gone: KV pull failed")
            return
        source.release(request_id)
        waited = self.loop.time() - one.decode.admitted_at
        self.metrics.transferred(one.chat.prompt_tokens, size, waited)
        self.decode.deliver(one.decode)

    def _tokens(self, one: Open, count: int, last: bool) -> None:
        now, job, chat = self.loop.time(), one.decode, one.chat
        if one.closed or job is None:
            return
        self.metrics.generation_tokens.inc(count)
        if one.first_at == 0.0:
            one.first_at = now
            self.metrics.first_token(chat.prompt_tokens, 0, now - one.arrived)
        else:
            self.metrics.itl_s.observe((now - one.last_at) / count, count)
        one.last_at = now
        if last:
            self.metrics.request_finished(
                chat.prompt_tokens,
                chat.output_tokens,
                0,
                queue=job.joined_at - one.arrived,
                prefill=one.first_at - job.joined_at,
                decode=now - one.first_at,
            )
        if not chat.stream:
            if last:
                one.reply.send(200, one.events.whole(chat.output_tokens))
        else:
            data = one.events.tokens(count, last=last)
            if last:
                data += one.events.end(chat.output_tokens)
            if not one.reply.started:
                one.reply.start(200, EVENT_STREAM, data)
            else:
                one.reply.write(data)
            if last:
                one.reply.finish()
        if last:
            self._close(one, 200)

    def _close(self, one: Open, status: int) -> None:
        one.closed = True
        self._open.discard(one)
        if status:
            self.metrics.responded(status)

    def _drop_work(self, one: Open) -> None:
        if one.prefill is not None:
            self.prefill.cancel(one.prefill)
        if one.decode is not None:
            self.decode.cancel(one.decode)

    def _fail(self, one: Open, why: str) -> None:
        if one.closed:
            return
        self._drop_work(one)
        self._close(one, 500)
        self.metrics.finished["error"].inc()
        self.metrics.xfer_failed.inc()
        one.reply.send_json(500, {"error": {"message": why, "type": "InternalServerError"}})

    def _aborted(self, one: Open) -> None:
        if one.closed:
            return
        self._drop_work(one)
        self._close(one, 0)
        self.metrics.finished["abort"].inc()

    # --- meters --------------------------------------------------------------------------------

    def _prefill_pass(self, seconds: float, tokens: int) -> None:
        self.metrics.iteration.observe(tokens)

    def _decode_step(self, seconds: float, running: int) -> None:
        if running:
            self.metrics.iteration.observe(running)
