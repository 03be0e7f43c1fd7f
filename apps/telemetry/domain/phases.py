"""The figures of one pool and of its workers. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from apps.common.measurement import Measurement, Place, State, Trace, missing
from apps.common.units import Unit
from apps.engines.window import CounterIncrease, HistogramIncrease, Signal, Window
from apps.fleet.domain.topology import PoolFacts, Topology, WorkerFacts

from .figures import PhaseFigures, WorkerFigures
from .identity import of_inventory
from .latency import mean
from .states import View, nothing

_TOKENS = {"prefill": Signal.INPUT_TOKENS}
_STAGE = {"decode": Signal.TPOT}
#: What stands in for forward time where the engine exports none (metrics research §2a).
_REQUEST_TIME = {"prefill": Signal.PREFILL_TIME, "mixed": Signal.PREFILL_TIME}


def phase(
    role: str,
    view: View | None,
    router: View | None,
    topology: Topology,
    *,
    is_down: bool,
    has_traffic: bool,
) -> PhaseFigures | None:
    """The pool's figures; None when neither inventory nor windows know the role."""
    pool = topology.pools.get(role)
    workers = topology.workers_of(role)
    if pool is None and not workers and view is None:
        return None
    tokens = _TOKENS.get(role, Signal.OUTPUT_TOKENS)
    return PhaseFigures(
        role=role,
        workers_wanted=pool.wanted if pool else len(workers),
        workers_serving=topology.serving_count(role),
        workers_reporting=_reporting(view),
        waiting=_total(view, Signal.WAITING, Unit.COUNT, is_down),
        running=_total(view, Signal.RUNNING, Unit.COUNT, is_down),
        transferring=_total(view, Signal.WAITING_TRANSFER, Unit.COUNT, is_down),
        kv_used=_average(view, Signal.KV_USED, Unit.RATIO, is_down),
        kv_capacity_tokens=_capacity(view, pool, len(workers), is_down),
        max_running=_max_running(view, router, pool, workers, is_down),
        tokens_per_s=rate(view, tokens, Unit.TOKENS_PER_SECOND, has_traffic, is_down),
        forward_seconds_per_s=_forward(role, view, is_down),
        queue_time_mean=_mean(view, Signal.QUEUE_TIME, has_traffic, is_down),
        stage_time_mean=_mean(view, _STAGE.get(role, Signal.PREFILL_TIME), has_traffic, is_down),
        kv_transfer_mean=_mean(view, Signal.KV_TRANSFER_TIME, has_traffic, is_down),
        preemptions=_count(view, Signal.PREEMPTIONS, is_down),
        workers=tuple(
            _worker(role, worker, view, tokens) for worker in sorted(workers, key=lambda w: w.name)
        ),
    )


def rate(
    view: View | None, signal: Signal, unit: Unit, has_traffic: bool, is_down: bool
) -> Measurement:
    """Increase per second. A rate of 0 is an answer while requests pass, else `no_traffic`."""
    if view is None:
        return nothing(unit, Place.ENGINE, signal, is_down=is_down)
    value = view.rate(signal)
    idle = value == 0 and not has_traffic
    return view.figure(
        None if idle else value,
        unit,
        signal,
        "increase({name}[{span}]) / {span}",
        state=State.NO_TRAFFIC if idle else State.OK,
        method="increase",
    )


def _reporting(view: View | None) -> int:
    if view is None or view.age_state is not State.OK:
        return 0
    return len(set(view.window.reported) & set(view.window.expected))


def _total(view: View | None, signal: Signal, unit: Unit, is_down: bool) -> Measurement:
    if view is None:
        return nothing(unit, Place.ENGINE, signal, is_down=is_down)
    gauge = view.gauge(signal)
    value = None if gauge is None else gauge.total
    return view.figure(value, unit, signal, "sum(last({name}))", method="last_value")


def _average(view: View | None, signal: Signal, unit: Unit, is_down: bool) -> Measurement:
    if view is None:
        return nothing(unit, Place.ENGINE, signal, is_down=is_down)
    gauge = view.gauge(signal)
    value = None if gauge is None or not gauge.by_worker else gauge.mean
    return view.figure(value, unit, signal, "avg(last({name}))", method="mean_of_workers")


def _capacity(
    view: View | None, pool: PoolFacts | None, workers: int, is_down: bool
) -> Measurement:
    measured = _total(view, Signal.KV_CAPACITY_TOKENS, Unit.TOKENS, is_down)
    if measured.is_known or pool is None or pool.kv_capacity_tokens is None:
        return measured
    return _declared(pool.kv_capacity_tokens * workers, Unit.TOKENS, "pool.kv_capacity_tokens")


def _max_running(
    view: View | None,
    router: View | None,
    pool: PoolFacts | None,
    workers: tuple[WorkerFacts, ...],
    is_down: bool,
) -> Measurement:
    """From the engines, else as the router learned it per worker, else declared."""
    measured = _total(view, Signal.MAX_RUNNING, Unit.COUNT, is_down)
    if measured.is_known:
        return measured
    known = router.gauge(Signal.MAX_RUNNING) if router is not None else None
    joined = of_inventory(known.by_worker, [w.url for w in workers]) if known else {}
    mine = list(joined.values())
    if router is not None and mine and len(mine) == len(workers):
        return router.figure(
            sum(mine), Unit.COUNT, Signal.MAX_RUNNING, "sum(last({name}))", method="last_value"
        )
    if pool is None or pool.max_sequences is None:
        return measured
    return _declared(pool.max_sequences * len(workers), Unit.COUNT, "pool.max_sequences")


def _declared(value: float, unit: Unit, what: str) -> Measurement:
    return Measurement(
        float(value),
        unit,
        State.OK,
        None,
        Place.DECLARED,
        "declared",
        trace=Trace("inventory", what),
    )


def _forward(role: str, view: View | None, is_down: bool) -> Measurement:
    if view is None:
        return nothing(Unit.RATIO, Place.ENGINE, Signal.FORWARD_SECONDS, is_down=is_down)
    value = view.rate(Signal.FORWARD_SECONDS)
    formula = "increase({name}[{span}]) / {span}"
    if value is not None:
        return view.figure(value, Unit.RATIO, Signal.FORWARD_SECONDS, formula, method="engine_time")
    stand_in = _REQUEST_TIME.get(role)
    hist = view.histogram(stand_in) if stand_in else None
    if stand_in is None or hist is None or view.window.seconds <= 0:
        return view.figure(None, Unit.RATIO, Signal.FORWARD_SECONDS, formula)
    # Prompts that share an iteration each count its whole time, so this can only be too high.
    value = hist.total / view.window.seconds
    return view.figure(
        value,
        Unit.RATIO,
        stand_in,
        "increase({name}_sum[{span}]) / {span}",
        method="request_time",
        upper=value,
    )


def _mean(view: View | None, signal: Signal, has_traffic: bool, is_down: bool) -> Measurement:
    if view is None:
        return nothing(Unit.SECONDS, Place.ENGINE, signal, is_down=is_down)
    return mean(signal, view, has_traffic=has_traffic)


def _count(view: View | None, signal: Signal, is_down: bool) -> Measurement:
    if view is None:
        return nothing(Unit.COUNT, Place.ENGINE, signal, is_down=is_down)
    counter = view.counter(signal)
    value = None if counter is None else counter.increase
    return view.figure(value, Unit.COUNT, signal, "increase({name}[{span}])", method="increase")


def _worker(role: str, worker: WorkerFacts, view: View | None, tokens: Signal) -> WorkerFigures:
    reports = view is not None and view.age_state is State.OK and worker.url in view.window.reported
    return WorkerFigures(
        url=worker.url,
        name=worker.name,
        role=worker.role,
        serving=worker.serving,
        is_reporting=reports,
        waiting=_own_gauge(view, Signal.WAITING, Unit.COUNT, worker),
        running=_own_gauge(view, Signal.RUNNING, Unit.COUNT, worker),
        kv_used=_own_gauge(view, Signal.KV_USED, Unit.RATIO, worker),
        tokens_per_s=_own_rate(view, tokens, Unit.TOKENS_PER_SECOND, worker),
        forward_share=_own_rate(view, Signal.FORWARD_SECONDS, Unit.RATIO, worker),
        seconds_per_token=_seconds_per_token(role, view, worker, tokens),
    )


def _own(
    view: View | None,
    signal: Signal,
    unit: Unit,
    value: float | None,
    formula: str,
    worker: WorkerFacts,
    method: str,
) -> Measurement:
    if view is None or value is None:
        return missing(unit, trace=Trace(query=signal.value))
    # One worker is complete in itself: the pool's coverage does not make it partial.
    alone = View(_only(view, worker.url), view.age_state)
    return alone.figure(value, unit, signal, f"{formula} of {worker.url}", method=method)


def _only(view: View, url: str) -> Window:
    reported = tuple(u for u in view.window.reported if u == url)
    return replace(view.window, expected=(url,), reported=reported)


def _own_gauge(view: View | None, signal: Signal, unit: Unit, worker: WorkerFacts) -> Measurement:
    gauge = view.gauge(signal) if view else None
    value = gauge.by_worker.get(worker.url) if gauge else None
    return _own(view, signal, unit, value, "last({name})", worker, "last_value")


def _own_rate(view: View | None, signal: Signal, unit: Unit, worker: WorkerFacts) -> Measurement:
    counter = view.counter(signal) if view else None
    increase = counter.by_worker.get(worker.url) if counter else None
    seconds = view.window.seconds if view else 0.0
    value = None if increase is None or seconds <= 0 else increase / seconds
    return _own(view, signal, unit, value, "increase({name}[{span}]) / {span}", worker, "increase")


def _seconds_per_token(
    role: str, view: View | None, worker: WorkerFacts, tokens: Signal
) -> Measurement:
    """Forward time per computed token, against which peers are compared; prefill's time per
    request or decode's time per token where the engine exports no forward time."""
    if view is None:
        return missing(Unit.SECONDS)
    counted = _part(view.counter(tokens), worker)
    cached = _part(view.counter(Signal.CACHED_TOKENS), worker) if role != "decode" else None
    computed = None if counted is None else counted - (cached or 0.0)
    forward = _part(view.counter(Signal.FORWARD_SECONDS), worker)
    signal, method = Signal.FORWARD_SECONDS, "engine_time"
    if forward is None and role in _REQUEST_TIME:
        signal, method = Signal.PREFILL_TIME, "request_time"
        hist = view.histogram(signal)
        forward = hist.sum_by_worker.get(worker.url) if hist else None
    elif forward is None:
        signal, method = Signal.TPOT, "tpot_mean"
        hist = view.histogram(signal)
        forward, computed = _sum_and_count(hist, worker)
    if forward is None or not computed or computed <= 0:
        return missing(Unit.SECONDS, trace=Trace(query=signal.value))
    return _own(
        view, signal, Unit.SECONDS, forward / computed, "increase({name}[{span}]) / tokens", worker,
        method,
    )  # fmt: skip


def _part(counter: CounterIncrease | None, worker: WorkerFacts) -> float | None:
    return counter.by_worker.get(worker.url) if counter else None


def _sum_and_count(
    hist: HistogramIncrease | None, worker: WorkerFacts
) -> tuple[float | None, float | None]:
    if hist is None:
        return None, None
    sums: Mapping[str, float] = hist.sum_by_worker
    return sums.get(worker.url), hist.count_by_worker.get(worker.url)
