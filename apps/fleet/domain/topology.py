"""A deployment's inventory as upper rooms read it: pools, workers, revision."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from uuid import UUID


@dataclass(frozen=True, slots=True)
class PoolFacts:
    """One pool. Units: GPUs per worker, tokens, sequences, tokens per step."""

    id: UUID
    role: str
    accelerator: str | None
    devices_per_worker: Decimal | None
    wanted: int
    min_workers: int
    max_workers: int | None
    kv_capacity_tokens: int | None
    max_sequences: int | None
    prefill_tokens_per_step: int | None
    engine: str
    engine_version: str
    ratio_target: float | None
    parallelism: str = ""


@dataclass(frozen=True, slots=True)
class WorkerFacts:
    """One worker; `url` is its identity towards router and engine."""

    id: UUID
    url: str
    name: str
    role: str
    role_source: str
    serving: str
    bootstrap_port: int | None
    metrics_url: str
    router_worker_id: str


@dataclass(frozen=True, slots=True)
class Topology:
    """All pools and living workers of one deployment at one revision."""

    deployment_id: UUID
    slug: str
    cluster_id: UUID
    revision: int
    environment: str
    mode: str
    pools: Mapping[str, PoolFacts]
    workers: tuple[WorkerFacts, ...]

    def workers_of(self, role: str) -> tuple[WorkerFacts, ...]:
        """The workers whose present role is `role`."""
        return tuple(worker for worker in self.workers if worker.role == role)

    def serving_count(self, role: str) -> int:
        """How many workers of the role the router reports as serving."""
        return sum(1 for worker in self.workers_of(role) if worker.serving == "serving")

    def gpus_of(self, role: str, workers: int | None = None) -> Decimal | None:
        """GPUs of `workers` (default: the present ones) of a role; None if the unit is unknown."""
        pool = self.pools.get(role)
        if pool is None or pool.devices_per_worker is None:
            return None
        count = len(self.workers_of(role)) if workers is None else workers
        return pool.devices_per_worker * count
