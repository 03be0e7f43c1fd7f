"""Busy shares, attainment, goodput and unit costs of one evaluation, and their JSON."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from apps.common.measurement import Measurement
from apps.cost.domain.unit_cost import PoolUse, TokenRates, UnitCosts, unit_costs
from apps.diagnosis.domain.busy import BusyShares, Capacity, busy_shares
from apps.fleet.domain.defaults import Defaults
from apps.simulation.service_time import ObjectiveRate
from apps.slo.domain.attainment import Attainment, Goodput, attainment
from apps.slo.domain.objective import Objectives, ObjectiveSignal
from apps.telemetry.domain.figures import DeploymentFigures

from .. import inputs as reading
from ..domain.demand import LoadSample
from ..domain.model import Engine, Targets
from ..domain.size import decode_rate
from ..inputs import Loaded


def measured_now(
    figures: DeploymentFigures, good: Goodput, costs: UnitCosts
) -> dict[str, Measurement]:
    """The four predicted figures as they are measured now."""
    return {
        "ttft_p95": figures.ttft.p95,
        "tpot_p95": figures.tpot.p95,
        "goodput": good.share,
        "cost_per_million": costs.good_per_million,
    }


def busy(loaded: Loaded, engine: Engine, targets: Targets) -> BusyShares:
    figures = loaded.figures
    prompt, context = figures.mean_uncached_tokens, reading.mean_context(loaded)
    seconds = None
    if prompt.value:
        seconds = engine.prefill.mean_seconds(prompt.number(), engine.length_cv2)
    rate: ObjectiveRate | None = None
    if context is not None and targets.tpot_s is not None:
        rate = decode_rate(engine, targets, context)
    return busy_shares(figures, Capacity(seconds, engine.prefill_basis, rate, engine.decode_basis))


def attainments(
    figures: DeploymentFigures, defaults: Defaults, objectives: Objectives
) -> dict[str, Attainment]:
    latencies = {ObjectiveSignal.TTFT: figures.ttft, ObjectiveSignal.TPOT: figures.tpot}
    return {
        signal.value: attainment(
            latencies[signal],
            facts.threshold_s,
            min_requests=defaults.percentile_min_requests,
            observed_at=figures.at,
        )
        for signal, facts in objectives.items()
    }


def costs(loaded: Loaded, busy: BusyShares, good: Goodput) -> UnitCosts:
    figures, pools = loaded.figures, loaded.topology.pools
    shares = {"prefill": busy.prefill, "decode": busy.decode}
    uses, lacking = [], []
    for role, pool in sorted(pools.items()):
        price = loaded.prices.get(pool.accelerator) if pool.accelerator else None
        if price is None:
            lacking.append(pool.accelerator or role)
        # Money follows what is provisioned: wanted workers, or those that serve if they are more.
        workers = max(pool.wanted, loaded.topology.serving_count(role))
        uses.append(PoolUse(role, loaded.topology.gpus_of(role, workers), price, shares.get(role)))
    cached = figures.cached_tokens_per_s
    uncached = figures.input_tokens_per_s
    if cached.value is not None and uncached.value is not None:
        uncached = replace(uncached, value=max(0.0, uncached.number() - cached.number()))
    return unit_costs(
        pools=uses,
        components=loaded.components,
        tokens=TokenRates(uncached, cached, figures.output_tokens_per_s),
        good_share=good.share,
        missing_prices=sorted(set(lacking)),
    )


def costs_to_json(costs: UnitCosts) -> dict[str, Any]:
    """Money as strings, every figure as a Measurement."""
    return {
        "per_hour": {code: figure.to_json() for code, figure in costs.per_hour.items()},
        "phase_per_hour": {code: f.to_json() for code, f in costs.phase_per_hour.items()},
        "total_per_hour": costs.total_per_hour.to_json(),
        "idle_per_hour": costs.idle_per_hour.to_json(),
        "idle_share": costs.idle_share.to_json(),
        "input_per_million": costs.input_per_million.to_json(),
        "output_per_million": costs.output_per_million.to_json(),
        "completed_per_million": costs.completed_per_million.to_json(),
        "good_per_million": costs.good_per_million.to_json(),
        "missing_prices": list(costs.missing_prices),
    }


def load_to_json(sample: LoadSample | None) -> dict[str, Any]:
    if sample is None:
        return {}
    return {
        "at": sample.at.isoformat(),
        "arrivals_per_s": sample.arrivals_per_s,
        "mean_input": sample.mean_input,
        "mean_output": sample.mean_output,
        "in_flight": sample.in_flight,
    }
