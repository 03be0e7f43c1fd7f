"""A fleet of real metric servers under the planner: exposition text in, recommendation out."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from apps.accounts.domain.authorize import SYSTEM
from apps.fleet import services as fleet
from apps.fleet.models import Accelerator, Backend, Worker
from apps.planning import services as planning
from apps.planning.services import EvaluationResult
from apps.slo import services as slo
from apps.slo.domain.objective import ObjectiveSignal
from apps.telemetry import services as telemetry
from tests.integration.telemetry.conftest import T0, Fleet
from tests.integration.telemetry.metric_servers import MetricServer, Sglang, Smg


class LiveFleet(Fleet):
    """The servers, the inventory and the clock; evaluates after each collect."""

    def tick(self, seconds: float = 5) -> EvaluationResult:
        """Let time pass, collect, read the inventory (as if), evaluate."""
        self.collect(seconds)
        return self.evaluate()

    def serve(
        self, *, ttft_s: float = 0.5, tpot_s: float = 0.018, prompt: int = 1000, output: int = 200,
        prefill: str = "p0", decode: str = "d0", finish: bool = True,
    ) -> None:  # fmt: skip
        """One request; prefill takes 0.1 ms per token of its prompt."""
        forward_s = prompt * 1e-4
        self.router.arrived()
        self.engine(prefill).prefill(
            tokens=prompt, queue_s=max(0.0, ttft_s - forward_s - 0.02), forward_s=forward_s,
            transfer_s=0.02,
        )  # fmt: skip
        self.router.first_token(ttft_s)
        if finish:
            self.engine(decode).decode(prompt=prompt, tokens=output, tpot_s=tpot_s)
            self.router.completed()

    def evaluate(self) -> EvaluationResult:
        return planning.evaluate(deployment_id=self.deployment.pk, now=self.at)

    def load(self, ticks: int, per_tick: int, **request: Any) -> EvaluationResult:
        """Requests in turn through all workers, `per_tick` in every five seconds."""
        names = {
            r: [n for n, w in self.workers.items() if w.role == r] for r in ("prefill", "decode")
        }
        result = None
        for tick in range(ticks):
            for index in range(per_tick):
                at = tick * per_tick + index
                self.serve(
                    prefill=names["prefill"][at % len(names["prefill"])],
                    decode=names["decode"][at % len(names["decode"])],
                    **request,
                )
            result = self.tick()
        assert result is not None
        return result

    def idle(self, ticks: int) -> EvaluationResult:
        result = None
        for _ in range(ticks):
            result = self.tick()
        assert result is not None
        return result

    def saw_inventory(self, at: datetime) -> None:
        Backend.objects.filter(pk=self.deployment.pk).update(last_ok_at=at)


@contextmanager
def live_fleet(
    settings: Any,
    *,
    prefill: int,
    decode: int,
    gpus: int,
    ttft_s: float = 2.5,
    tpot_s: float = 0.025,
) -> Iterator[LiveFleet]:
    """A deployment in mode `approve` behind a router whose workers a provisioner may add."""
    names = {
        **{f"p{i}": "prefill" for i in range(prefill)},
        **{f"d{i}": "decode" for i in range(decode)},
    }
    servers = {name: MetricServer(Sglang(role)) for name, role in names.items()}
    for server in servers.values():
        assert isinstance(server.registry, Sglang)
        server.registry.set("sglang:max_total_num_tokens", 1_000_000, **server.registry.rank)
    servers["router"] = MetricServer(Smg([server.url for server in servers.values()]))
    settings.FULCRUM_LOOPBACK_PORTS = frozenset(server.port for server in servers.values())
    Accelerator.objects.get_or_create(
        slug="h200-sxm", defaults={"vendor": "nvidia", "name": "H200"}
    )
    early = T0 - timedelta(hours=1)
    cluster = fleet.register_cluster(
        actor=SYSTEM, now=early, slug="lab", name="Lab", uid="lab", mode_cap="auto"
    )
    fleet.declare_node(
        actor=SYSTEM, now=early, cluster=cluster, name="n1", accelerator="h200-sxm", devices=gpus
    )
    deployment = fleet.register_deployment(
        actor=SYSTEM, now=early, cluster=cluster, slug="chat", name="chat",
        served_model="Qwen/Qwen3-32B", environment="demo", preset="demo",
    )  # fmt: skip
    fleet.set_mode(actor=SYSTEM, now=early, deployment=deployment, mode="approve")
    for role, count in (("prefill", prefill), ("decode", decode)):
        fleet.declare_pool(
            actor=SYSTEM, now=early, deployment=deployment, role=role, accelerator="h200-sxm",
            devices_per_worker=Decimal(1), engine="sglang", engine_version="0.5.23", wanted=count,
            facts={"max_sequences": 48},
        )  # fmt: skip
    workers = {
        name: fleet.declare_worker(
            now=early, deployment=deployment, name=name, url=servers[name].url, role=role,
            metrics_url=servers[name].metrics_url, bootstrap_port=None,
        )
        for name, role in names.items()
    }  # fmt: skip
    Worker.objects.update(serving="serving")
    fleet.connect_backend(
        actor=SYSTEM, now=early, deployment=deployment, adapter="router_workers",
        address=servers["router"].url,
        parameters={"metrics_url": servers["router"].metrics_url, "provisions": "yes"},
    )  # fmt: skip
    for signal, seconds in ((ObjectiveSignal.TTFT, ttft_s), (ObjectiveSignal.TPOT, tpot_s)):
        slo.set_objective(
            actor=SYSTEM, now=early, deployment_id=deployment.pk, signal=signal, threshold_s=seconds
        )
    telemetry.create_source(
        actor=SYSTEM, now=early, cluster=cluster, deployment=deployment, kind="scrape", interval_s=5
    )
    deployment.refresh_from_db()
    try:
        yield LiveFleet(deployment, servers, workers)
    finally:
        for server in servers.values():
            if server._thread.is_alive():
                server.stop()
