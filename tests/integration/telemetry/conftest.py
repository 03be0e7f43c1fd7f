"""A small fleet of metric servers and its inventory: 2 prefill, 2 decode, one router."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest

from apps.accounts.domain.authorize import SYSTEM
from apps.fleet import services as fleet
from apps.fleet.models import Accelerator, Deployment, Worker
from apps.telemetry import services
from apps.telemetry.models import Source

from .metric_servers import MetricServer, Sglang, Smg

T0 = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)


@dataclass
class Fleet:
    """The servers by name (p0, p1, d0, d1, router), the inventory, and a clock of its own."""

    deployment: Deployment
    servers: dict[str, MetricServer]
    workers: dict[str, Worker]
    at: datetime = T0
    woken: list[tuple[str, str]] = field(default_factory=list)

    @property
    def router(self) -> Smg:
        registry = self.servers["router"].registry
        assert isinstance(registry, Smg)
        return registry

    def engine(self, name: str) -> Sglang:
        registry = self.servers[name].registry
        assert isinstance(registry, Sglang)
        return registry

    def url(self, name: str) -> str:
        return self.servers[name].url

    def source(self) -> Source:
        return Source.objects.get(deployment=self.deployment)

    def collect(self, seconds: float = 5) -> services.CollectResult | None:
        """Let time pass and collect once."""
        self.at += timedelta(seconds=seconds)
        return services.collect_source(source_id=self.source().pk, now=self.at, owner="test")

    def serve(
        self, *, ttft_s: float = 0.5, tpot_s: float = 0.018, prompt: int = 1000, output: int = 200,
        prefill: str = "p0", decode: str = "d0", finish: bool = True,
    ) -> None:  # fmt: skip
        """One request, through one prefill and one decode worker."""
        self.router.arrived()
        self.engine(prefill).prefill(
            tokens=prompt, queue_s=ttft_s / 2, forward_s=0.1, transfer_s=0.02
        )
        self.router.first_token(ttft_s)
        if finish:
            self.engine(decode).decode(prompt=prompt, tokens=output, tpot_s=tpot_s)
            self.router.completed()


@pytest.fixture
def metric_fleet(db, settings, monkeypatch) -> Iterator[Fleet]:
    names = {"p0": "prefill", "p1": "prefill", "d0": "decode", "d1": "decode"}
    servers = {name: MetricServer(Sglang(role)) for name, role in names.items()}
    servers["router"] = MetricServer(Smg(server.url for server in servers.values()))
    settings.FULCRUM_LOOPBACK_PORTS = frozenset(server.port for server in servers.values())
    Accelerator.objects.get_or_create(
        slug="h200-sxm", defaults={"vendor": "nvidia", "name": "H200"}
    )
    early = T0 - timedelta(hours=1)
    cluster = fleet.register_cluster(
        actor=SYSTEM, now=early, slug="lab", name="Lab", uid="lab", mode_cap="auto"
    )
    deployment = fleet.register_deployment(
        actor=SYSTEM, now=early, cluster=cluster, slug="chat", name="chat",
        served_model="Qwen/Qwen3-32B", environment="demo", preset="demo",
    )  # fmt: skip
    for role in ("prefill", "decode"):
        fleet.declare_pool(
            actor=SYSTEM, now=early, deployment=deployment, role=role, accelerator="h200-sxm",
            devices_per_worker=Decimal(1), engine="sglang", engine_version="0.5.23", wanted=2,
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
        actor=SYSTEM, now=early, deployment=deployment, adapter="noop", address="",
        parameters={"metrics_url": servers["router"].metrics_url},
    )  # fmt: skip
    services.create_source(
        actor=SYSTEM, now=early, cluster=cluster, deployment=deployment, kind="scrape", interval_s=5
    )
    deployment.refresh_from_db()
    found = Fleet(deployment, servers, workers)
    monkeypatch.setattr(
        "celery.current_app.send_task",
        lambda name, args=(), **options: found.woken.append((name, args[0])),
    )
    yield found
    for server in servers.values():
        if server._thread.is_alive():
            server.stop()
