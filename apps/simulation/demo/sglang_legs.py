"""The two legs of an SGLang request: what a prefill and a decode worker do with their half.

Both legs carry the same body with `bootstrap_host`, `bootstrap_port` and `bootstrap_room`. The
decode leg reserves KV room first; that wakes the prefill leg, which computes the prompt and sends
its KV over the worker's own link; then the decode leg streams. Its response head goes out together
with the first token, so a router's time to the head is the user's TTFT.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from apps.simulation.demo.chat import EVENT_STREAM, ChatRequest, EventWriter, parse_chat
from apps.simulation.demo.engine import DEAD_WORKER, DECODE, PREFILL
from apps.simulation.demo.http import BadRequest, Reply, Request
from apps.simulation.demo.sglang_metrics import RoleMetrics
from apps.simulation.demo.work import DecodeJob, PrefillJob

if TYPE_CHECKING:
    from apps.simulation.demo.sglang import SglangEngine


@dataclass(slots=True, eq=False)
class Leg:
    """One half of a request at one engine."""

    desk: LegDesk
    metrics: RoleMetrics
    chat: ChatRequest
    reply: Reply
    arrived: float
    events: EventWriter
    room: int
    prefill: PrefillJob | None = None
    decode: DecodeJob | None = None
    first_at: float = 0.0
    last_at: float = 0.0
    timer: asyncio.TimerHandle | None = None
    inflight: bool = False
    closed: bool = False


@dataclass(slots=True)
class Rendezvous:
    """Where the two legs of a request meet, by bootstrap room; one per deployment."""

    prefill: dict[int, Leg] = field(default_factory=dict)
    decode: dict[int, Leg] = field(default_factory=dict)


class LegDesk:
    """The legs that are open at one engine."""

    def __init__(self, engine: SglangEngine, rendezvous: Rendezvous) -> None:
        self._engine = engine
        self._loop = engine.loop
        self._profile = engine.profile
        self._rendezvous = rendezvous
        self.open: set[Leg] = set()

    def take(self, request: Request, reply: Reply) -> None:
        """Take one leg of a chat request."""
        engine = self._engine
        body = request.json()
        chat = parse_chat(body, engine.next_id(), self._profile.model)
        room, port = body.get("bootstrap_room"), body.get("bootstrap_port")
        if not isinstance(room, int) or not isinstance(port, int):
            raise BadRequest(
                "bootstrap_room and bootstrap_port are needed: this engine runs one phase"
            )
        wanted = PREFILL if port == engine.plan.bootstrap_port else DECODE
        if wanted != engine.role:
            self._engine.http.responded(409)
            text = f"this is {wanted} work and engine {engine.plan.name} is a {engine.role} worker"
            reply.send_json(409, {"error": {"message": text, "type": "wrong_role"}})
            return
        if chat.prompt_tokens + chat.output_tokens > self._profile.kv_room_tokens:
            raise BadRequest("the request is longer than the KV room")
        leg = Leg(self, engine.metrics, chat, reply, self._loop.time(), EventWriter(chat), room)
        self.open.add(leg)
        reply.on_abort = lambda: self._aborted(leg)
        if engine.role == PREFILL:
            self._open_prefill(leg)
        else:
            self._open_decode(leg)

    def _open_prefill(self, leg: Leg) -> None:
        self._rendezvous.prefill[leg.room] = leg
        peer = self._rendezvous.decode.get(leg.room)
        if peer is not None and peer.decode is not None and peer.decode.state == "transfer":
            self._queue_prefill(leg)
        else:
            leg.timer = self._loop.call_later(
                self._profile.bootstrap_timeout_s, self._bootstrap_timeout, leg
            )

    def _bootstrap_timeout(self, leg: Leg) -> None:
        if not leg.closed and leg.prefill is None:
            leg.metrics.bootstrap_failed.inc()
            self._fail(leg, "no decode worker came to the rendezvous in time")

    def _queue_prefill(self, leg: Leg) -> None:
        if leg.timer is not None:
            leg.timer.cancel()
        if leg.prefill is not None or leg.closed:
            return
        waited = self._loop.time() - leg.arrived
        leg.metrics.stage_s["prefill_bootstrap"].observe(waited)
        leg.metrics.bootstrap_ms.observe(1000 * waited)
        leg.prefill = PrefillJob(leg.chat.prompt_tokens, lambda end: self._computed(leg, end))
        self._engine.prefill.add(leg.prefill)

    def _computed(self, leg: Leg, planned_end: float) -> None:
        job = leg.prefill
        if leg.closed or job is None:
            return
        computed = self._loop.time()
        leg.metrics.queue_s.observe(max(0.0, job.started_at - job.queued_at))
        leg.metrics.stage_s["prefill_forward"].observe(computed - job.started_at)
        leg.metrics.alloc_ms.observe(0.0)
        leg.inflight = True
        self._engine.link.send(
            leg.chat.prompt_tokens,
            planned_end,
            lambda seconds, size: self._kv_sent(leg, computed, size),
        )

    def _kv_sent(self, leg: Leg, computed: float, size: int) -> None:
        if leg.closed:
            return
        now = self._loop.time()
        leg.inflight = False
        peer = self._rendezvous.decode.get(leg.room)
        if peer is None or peer.decode is None or peer.decode.state != "transfer":
            leg.metrics.transfer_failed.inc()
            self._fail(leg, "the decode worker is gone: KV transfer failed")
            return
        seconds = max(1e-6, now - computed)
        leg.metrics.transfer_ms.observe(1000 * seconds)
        leg.metrics.transfer_speed.observe(size / seconds / 1e9)
        leg.metrics.transfer_mb.observe(size / 2**20)
        leg.metrics.stage_s["prefill_transfer_kv_cache"].observe(seconds)
        leg.metrics.stage_s["request_process"].observe(now - leg.arrived - seconds)
        leg.metrics.realtime["decode"].inc()
        leg.metrics.request_finished(leg.chat.prompt_tokens, 1, now - leg.arrived)
        self._answer(leg, 1)
        peer.desk._engine.decode.deliver(peer.decode)

    def _open_decode(self, leg: Leg) -> None:
        self._rendezvous.decode[leg.room] = leg
        leg.metrics.stage_s["request_process"].observe(0.001)
        leg.metrics.stage_s["decode_prepare"].observe(0.0005)
        leg.decode = DecodeJob(
            prompt=leg.chat.prompt_tokens,
            output=leg.chat.output_tokens,
            free_first=True,
            on_admit=lambda: self._admitted(leg),
            on_tokens=lambda count, last: self._tokens(leg, count, last),
        )
        self._engine.decode.add(leg.decode)

    def _admitted(self, leg: Leg) -> None:
        waited = self._loop.time() - leg.arrived
        leg.metrics.stage_s["decode_bootstrap"].observe(waited)
        leg.metrics.bootstrap_ms.observe(1.0)
        leg.metrics.alloc_ms.observe(1000 * waited)
        peer = self._rendezvous.prefill.get(leg.room)
        if peer is not None:
            peer.desk._queue_prefill(peer)

    def _tokens(self, leg: Leg, count: int, last: bool) -> None:
        now, job, metrics, chat = self._loop.time(), leg.decode, leg.metrics, leg.chat
        if leg.closed or job is None:
            return
        if leg.first_at == 0.0:
            leg.first_at = now
            metrics.realtime["decode"].inc()
            metrics.ttft_s.observe(now - leg.arrived)
            metrics.queue_s.observe(job.joined_at - job.delivered_at)
            metrics.stage_s["decode_waiting"].observe(job.joined_at - job.delivered_at)
            metrics.stage_s["decode_transferred"].observe(job.delivered_at - job.admitted_at)
        else:
            metrics.itl_s.observe((now - leg.last_at) / count, count)
        leg.last_at = now
        if last:
            if chat.output_tokens > 1:
                metrics.tpot_s.observe((now - leg.first_at) / (chat.output_tokens - 1))
            metrics.request_finished(chat.prompt_tokens, chat.output_tokens, now - leg.arrived)
        if last and not leg.reply.started:
            self._answer(leg, chat.output_tokens)
        elif last:
            leg.reply.finish(
                leg.events.tokens(count, last=True) + leg.events.end(chat.output_tokens)
            )
            self._close(leg, 200)
        elif chat.stream and not leg.reply.started:
            leg.reply.start(200, EVENT_STREAM, leg.events.tokens(count, last=False))
        elif chat.stream:
            leg.reply.write(leg.events.tokens(count, last=False))

    def _answer(self, leg: Leg, output: int) -> None:
        """A whole answer: the prefill leg's one token, or a request that does not stream."""
        if leg.chat.stream:
            events = leg.events.tokens(output, last=True) + leg.events.end(output)
            leg.reply.start(200, EVENT_STREAM, events)
            leg.reply.finish()
        else:
            leg.reply.send(200, leg.events.whole(output))
        self._close(leg, 200)

    def _close(self, leg: Leg, status: int) -> None:
        leg.closed = True
        leg.inflight = False
        if leg.timer is not None:
            leg.timer.cancel()
        self.open.discard(leg)
        side = self._rendezvous.prefill if leg.decode is None else self._rendezvous.decode
        if side.get(leg.room) is leg:
            del side[leg.room]
        if status:
            self._engine.http.responded(status)

    def _fail(self, leg: Leg, why: str) -> None:
        """End a leg with an error and free what it holds."""
        if leg.closed:
            return
        if leg.prefill is not None:
            self._engine.prefill.cancel(leg.prefill)
        if leg.decode is not None:
            self._engine.decode.cancel(leg.decode)
        self._close(leg, 500)
        leg.metrics.aborted.inc()
        error = {"message": why, "type": "KVTransferError"}
        leg.reply.send_json(500, {"error": error})

    def _aborted(self, leg: Leg) -> None:
        """The peer's connection is gone. The other leg learns it, unless this engine died."""
        if leg.closed:
            return
        if leg.prefill is not None:
            self._engine.prefill.cancel(leg.prefill)
        if leg.decode is not None:
            self._engine.decode.cancel(leg.decode)
        was_prefill = leg.decode is None
        self._close(leg, 0)
        leg.metrics.aborted.inc()
        if was_prefill:
            peer = self._rendezvous.decode.get(leg.room)
            if (
                peer is not None
                and peer.decode is not None
                and peer.decode.state
                in (
                    "prealloc",
                    "transfer",
                )
            ):
                peer.metrics.transfer_failed.inc()
                peer.desk._fail(peer, "the prefill leg was aborted")
        elif self._engine.fault != DEAD_WORKER:
            peer = self._rendezvous.prefill.get(leg.room)
            if peer is not None:
                peer.desk._fail(peer, "the decode leg was aborted")
