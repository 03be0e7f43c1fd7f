"""A demo engine that speaks SGLang's prefill/decode protocol.

The work itself is in `sglang_legs.py`; here are its routes, its queues as gauges show them, and the
switch of its role in place.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from datetime import UTC, datetime

from apps.simulation.demo.engine import (
    DECODE,
    DRAINING,
    LOADING,
    PREFILL,
    READY,
    ROLES,
    Engine,
    Route,
    WorkerPlan,
)
from apps.simulation.demo.exposition import Registry
from apps.simulation.demo.http import BadRequest, Reply, Request
from apps.simulation.demo.sglang_legs import LegDesk, Rendezvous
from apps.simulation.demo.sglang_metrics import HttpMetrics, RoleMetrics
from apps.simulation.service_time import EngineProfile

VERSION = "0.5.23"
MAX_DRAIN_S = 300.0


class SglangEngine(Engine):
    """One SGLang engine, prefill or decode, able to switch in place."""

    def __init__(
        self,
        plan: WorkerPlan,
        profile: EngineProfile,
        admin_key: str,
        loop: asyncio.AbstractEventLoop,
        rendezvous: Rendezvous,
    ) -> None:
        super().__init__(plan, profile, admin_key, loop)
        self.pid = 1000 + plan.port % 1000
        self.gen_throughput = 0.0
        self.desk = LegDesk(self, rendezvous)
        self._old: list[RoleMetrics] = []
        self.http = HttpMetrics()
        self.metrics = RoleMetrics(self, self.role)
        self.prefill.on_pass = self._prefill_pass
        self.decode.on_step = self._decode_step

    # --- what is exported ----------------------------------------------------------------------

    def registries(self) -> Iterable[Registry]:
        """Series now; after a switch the old role's counters stay for a while, gauges do not."""
        self.metrics.refresh()
        self.http.active.value = float(len(self.desk.open))
        old = [metrics.totals for metrics in self._old]
        return [self.metrics.gauges, *old, self.metrics.totals, self.http.registry]

    def queue_lengths(self) -> dict[str, int]:
        """Requests per queue, by the name of the gauge that shows it."""
        prefill = self.role == PREFILL
        bootstrap = sum(1 for leg in self.desk.open if leg.prefill is None and leg.decode is None)
        return {
            "num_running_reqs": len(self.prefill.running if prefill else self.decode.running),
            "num_queue_reqs": len(self.prefill.waiting if prefill else self.decode.waiting),
            "num_prefill_bootstrap_queue_reqs": bootstrap if prefill else 0,
            "num_prefill_inflight_queue_reqs": sum(1 for leg in self.desk.open if leg.inflight),
            "num_decode_prealloc_queue_reqs": len(self.decode.prealloc),
            "num_decode_transfer_queue_reqs": len(self.decode.transferring),
        }

    def counts(self) -> dict[str, int]:
        """Requests running, queued (bootstrap, prealloc or waiting) and transferring."""
        queues = self.queue_lengths()
        return {
            "running": queues["num_running_reqs"],
            "queued": queues["num_queue_reqs"]
            + queues["num_prefill_bootstrap_queue_reqs"]
            + queues["num_decode_prealloc_queue_reqs"],
            "transferring": queues["num_prefill_inflight_queue_reqs"]
            + queues["num_decode_transfer_queue_reqs"],
        }

    @property
    def idle(self) -> bool:
        """No leg is open and nothing is in a queue."""
        return not self.desk.open and super().idle

    def kv_used(self) -> int:
        """KV tokens allocated now."""
        if self.role == DECODE:
            return self.decode.kv_used
        computing = sum(job.tokens for job in self.prefill.running)
        return computing + sum(leg.chat.prompt_tokens for leg in self.desk.open if leg.inflight)

    def routes(self) -> dict[tuple[str, str], Route]:
        """SGLang's own routes."""
        return {
            ("GET", "/server_info"): self._server_info,
            ("GET", "/get_server_info"): self._server_info,
            ("GET", "/model_info"): self._model_info,
            ("GET", "/get_model_info"): self._model_info,
            ("GET", "/v1/loads"): self._loads,
            ("POST", "/pd_role_switch"): self._role_switch,
            ("POST", "/flush_cache"): lambda _, reply: reply.send(
                200, "Cache flushed.", "text/plain"
            ),
        }

    def _description(self) -> dict[str, object]:
        model = self.profile.model
        return {
            "model_path": model,
            "tokenizer_path": model,
            "served_model_name": model,
            "is_generation": True,
            "model_type": "qwen3",
            "architectures": ["Qwen3ForCausalLM"],
            "context_length": 32768,
        }

    def _model_info(self, request: Request, reply: Reply) -> None:
        reply.send_json(200, self._description())

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
            "last_gen_throughput": self.gen_throughput,
            "memory_usage": {"token_capacity": self.profile.kv_room_tokens},
            "effective_max_running_requests_per_dp": self.profile.max_running,
        }
        reply.send_json(
            200,
            {
                **self._description(),
                # The launch argument: it stays as it was when the role is switched.
                "disaggregation_mode": self.plan.role,
                "disaggregation_bootstrap_port": self.plan.bootstrap_port,
                "dp_size": 1,
                "tp_size": self.profile.devices,
                "chunked_prefill_size": self.profile.batch_tokens,
                "max_total_num_tokens": self.profile.kv_room_tokens,
                "enable_pd_role_switch": True,
                "enable_metrics": True,
                "version": VERSION,
                "instance_id": self.plan.instance_id,
                "internal_states": [state],
            },
        )

    def _loads(self, request: Request, reply: Reply) -> None:
        queues = self.queue_lengths()
        running, waiting = queues["num_running_reqs"], queues["num_queue_reqs"]
        used, room = self.kv_used(), self.profile.kv_room_tokens
        load = {
            "dp_rank": 0,
            "num_running_reqs": running,
            "num_waiting_reqs": waiting,
            "num_total_reqs": running + waiting,
            "num_used_tokens": used,
            "max_total_num_tokens": room,
            "token_usage": used / room,
            "gen_throughput": self.gen_throughput,
            "cache_hit_rate": 0.0,
            "utilization": 0.0,
        }
        reply.send_json(
            200,
            {
                "timestamp": datetime.now(UTC).isoformat(),
                "version": VERSION,
                "dp_rank_count": 1,
                "loads": [load],
            },
        )

    # --- role switch ---------------------------------------------------------------------------

    def _role_switch(self, request: Request, reply: Reply) -> None:
        if not self.authorised(request, reply):
            return
        body = request.json()
        role, patience = body.get("new_role"), body.get("drain_timeout_s", 0)
        if role not in ROLES:
            raise BadRequest(f"new_role must be one of {', '.join(ROLES)}")
        if isinstance(patience, bool) or not isinstance(patience, int | float):
            raise BadRequest("drain_timeout_s must be a number of seconds")
        if self.status != READY:
            self._switch_refused(reply, f"the engine is {self.status}")
        elif role == self.role:
            reply.send_json(200, self._switch_answer(True, f"the role is {role} already"))
        else:
            self.status = DRAINING
            until = self.loop.time() + min(float(patience), MAX_DRAIN_S)
            self._switch_when_idle(role, until, reply)

    def _switch_when_idle(self, role: str, until: float, reply: Reply) -> None:
        if self.status != DRAINING:  # the process died meanwhile
            return
        if self.idle:
            self._switch(role)
            reply.send_json(200, self._switch_answer(True, f"switched to {role}, loading"))
        elif self.loop.time() >= until:
            self.status = READY
            counts = ", ".join(f"{count} {name}" for name, count in self.counts().items())
            self._switch_refused(
                reply, f"the engine is not idle: {counts}, {len(self.desk.open)} open"
            )
        else:
            self.loop.call_later(0.05, self._switch_when_idle, role, until, reply)

    def _switch_refused(self, reply: Reply, why: str) -> None:
        reply.send_json(409, self._switch_answer(False, f"role switch refused: {why}"))

    def _switch_answer(self, success: bool, message: str) -> dict[str, object]:
        return {
            "success": success,
            "message": message,
            "role": self.role,
            "status": self.status,
            **self.counts(),
        }

    def _switch(self, role: str) -> None:
        """Become `role`: counters restart under the new label, the old series stay for a scrape."""
        old = self.metrics
        self.role = role
        self.gen_throughput = 0.0
        self.metrics = RoleMetrics(self, role)
        self._old.append(old)
        self.status = LOADING
        self.loop.call_later(self.profile.warmup_s, self._loaded, self.metrics)
        self.loop.call_later(self.profile.keep_old_series_s, self._drop_old, old)

    def _loaded(self, metrics: RoleMetrics) -> None:
        if self.metrics is metrics and self.status == LOADING:
            self.status = READY

    def _drop_old(self, metrics: RoleMetrics) -> None:
        if metrics in self._old:
            self._old.remove(metrics)

    def reset(self) -> None:
        """A new process under the same address: it starts in its last role with zero counters."""
        self.status = READY
        self._old = []
        self.desk.open.clear()
        self.gen_throughput = 0.0
        self.http = HttpMetrics()
        self.metrics = RoleMetrics(self, self.role)

    # --- work ----------------------------------------------------------------------------------

    def http_seen(self, request: Request, reply: Reply) -> None:
        """Count the request, then let it through if the engine is ready."""
        self.http.requests.inc()
        if self.status != READY:
            self.http.responded(503)
        super().http_seen(request, reply)

    def chat(self, request: Request, reply: Reply) -> None:
        """Take one leg."""
        try:
            self.desk.take(request, reply)
        except BadRequest:
            self.http.responded(400)
            raise

    # --- meters --------------------------------------------------------------------------------

    def _prefill_pass(self, seconds: float, tokens: int) -> None:
        self.metrics.forward_s.inc(seconds)
        self.metrics.realtime["prefill_compute"].inc(tokens)
        self.metrics.effective["input"].inc(tokens)

    def _decode_step(self, seconds: float, running: int) -> None:
        self.metrics.forward_s.inc(seconds)
        self.metrics.realtime["decode"].inc(running)
        if running:
            self.gen_throughput = running / seconds
