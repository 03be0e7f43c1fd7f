"""Prefill and decode pools side by side: meters, worker cells, facts."""

from __future__ import annotations

from dataclasses import replace

from apps.common.measurement import Measurement, Place, State
from apps.common.units import Unit
from apps.fleet.domain.topology import PoolFacts
from apps.telemetry.domain.figures import PhaseFigures, WorkerFigures

from .domain.types import Figure, Meter, PoolView, Status, Text, WorkerCell
from .labels import in_order
from .loaded import Loaded, unknown
from .recommendation import spend_per_hour

SATURATED = 0.92
BUSY_LIMIT = 0.85


def views(loaded: Loaded) -> tuple[PoolView, ...]:
    """The planned pools first, in the fixed order; other roles after them."""
    return tuple(
        _pool(loaded, role, loaded.topology.pools[role]) for role in in_order(loaded.topology.pools)
    )


def busy_of(loaded: Loaded, role: str) -> Measurement:
    """The busy share of a role from the latest evaluation, aged."""
    stored = loaded.evaluation.busy if loaded.evaluation else {}
    return loaded.evaluated(stored.get(role), Unit.RATIO)


def _pool(loaded: Loaded, role: str, pool: PoolFacts) -> PoolView:
    phase = loaded.figures.phase(role)
    busy = busy_of(loaded, role)
    status, headline = _headline(loaded, role, pool, phase, busy)
    usual = loaded.usual.prefill_busy if role == "prefill" else loaded.usual.decode_busy
    meters = [Meter("busy", busy, usual, BUSY_LIMIT, _busy_status(busy))]
    if phase is not None and role != "prefill":
        meters.append(Meter("kv_used", phase.kv_used, None, 0.82))
        meters.append(Meter("batch_slots", _slots(loaded)))
    amount = spend_per_hour(loaded, {role: pool.wanted})
    per_hour = (
        unknown(Unit.USD_PER_HOUR)
        if amount is None
        else Measurement(amount, Unit.USD_PER_HOUR, State.OK, place=Place.DECLARED, method="price")
    )
    source_of = {w.url: w.role_source for w in loaded.topology.workers_of(role)}
    return PoolView(
        role=role,
        status=status,
        headline=headline,
        ready=loaded.topology.serving_count(role),
        wanted=pool.wanted,
        parallelism=pool.parallelism,
        gpus=loaded.topology.gpus_of(role, pool.wanted),
        accelerator=pool.accelerator or "",
        cost_per_hour=per_hour,
        role_source=", ".join(sorted(set(source_of.values()))),
        meters=tuple(meters),
        cells=tuple(
            _cell(pool, worker, source_of.get(worker.url, "unknown"))
            for worker in (phase.workers if phase else ())
        ),
        facts=tuple(_facts(loaded, role, phase)),
    )


def _slots(loaded: Loaded) -> Measurement:
    stored = loaded.evaluation.busy if loaded.evaluation else {}
    return loaded.evaluated(stored.get("slots"), Unit.RATIO)


def _busy_status(busy: Measurement) -> Status | None:
    if busy.value is None or busy.state in (State.STALE, State.SOURCE_DOWN):
        return None
    return Status.CRIT if busy.number() > SATURATED else None


def _headline(
    loaded: Loaded, role: str, pool: PoolFacts, phase: PhaseFigures | None, busy: Measurement
) -> tuple[Status, Text]:
    ready = loaded.topology.serving_count(role)
    cause = loaded.diagnosis.cause if loaded.diagnosis else ""
    if not loaded.topology.workers_of(role):
        return Status.CRIT, Text("pool.empty")
    if loaded.is_stale or phase is None:
        return Status.UNKNOWN, Text("pool.stale")
    if ready < pool.wanted and loaded.active_command is None:
        return Status.CRIT, Text("pool.missing", {"missing": pool.wanted - ready})
    if cause == "bad_worker" and loaded.diagnosis and loaded.diagnosis.role == role:
        return Status.WARN, Text("pool.bad_worker", {"worker": loaded.diagnosis.worker})
    if loaded.figures.arrivals_per_s.state is State.NO_TRAFFIC:
        return Status.INFO, Text("pool.no_traffic")
    if busy.value is None:
        return Status.UNKNOWN, Text("pool.model_only")
    share = busy.number()
    if share > SATURATED:
        return Status.CRIT, Text("pool.saturated")
    if share > BUSY_LIMIT:
        return Status.WARN, Text("pool.busy")
    survivors = ready - 1
    if survivors >= 1 and share * ready / survivors < 0.75:
        return Status.OK, Text("pool.room", {"count": 1})
    return Status.OK, Text("pool.ok")


def _cell(pool: PoolFacts, worker: WorkerFigures, role_source: str) -> WorkerCell:
    """Prefill fills by its share of forward time, decode by the KV cache it holds."""
    fill = worker.forward_share if worker.role == "prefill" else worker.kv_used
    if not worker.is_reporting:
        fill = replace(unknown(fill.unit), place=fill.place)
    return WorkerCell(
        name=worker.name,
        url=worker.url,
        gpus=pool.devices_per_worker,
        fill=fill,
        serving=worker.serving,
        waiting=worker.waiting,
        running=worker.running,
        role_source=role_source,
    )


def _facts(loaded: Loaded, role: str, phase: PhaseFigures | None) -> list[Figure]:
    if phase is None:
        return []
    costs = loaded.evaluation.costs if loaded.evaluation else {}
    waiting = Figure("waiting", phase.waiting, None, None, None)
    running = Figure("running", phase.running, None, None, None)
    if role == "prefill":
        price = loaded.evaluated(costs.get("input_per_million"), Unit.USD_PER_MILLION_TOKENS)
        return [
            waiting,
            Figure("transferring", phase.transferring, None, None, None),
            Figure("input_rate", phase.tokens_per_s, None, None, None),
            Figure("cost_per_million_input", price, None, None, None),
        ]
    price = loaded.evaluated(costs.get("output_per_million"), Unit.USD_PER_MILLION_TOKENS)
    return [
        running,
        Figure("output_rate", phase.tokens_per_s, None, None, None),
        Figure("preemptions", phase.preemptions, None, None, None),
        Figure("cost_per_million_output", price, None, None, None),
    ]
