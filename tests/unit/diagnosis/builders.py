"""Figures for tests: a healthy demo fleet in its calm phase, and ways to change it."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from apps.common.measurement import Measurement, Place, State
from apps.common.units import Unit
from apps.engines.window import HistogramIncrease
from apps.telemetry.domain.figures import (
    DeploymentFigures,
    HardwareFigures,
    PhaseFigures,
    Quantiles,
    Usual,
    WorkerFigures,
)

AT = datetime(2026, 11, 30, 3, 8, tzinfo=UTC)
TTFT_BOUNDS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8, 1, 1.5, 2, 2.5, 3, 4, 5, 8, 10, 15, 30, 60)
TPOT_BOUNDS = (0.01, 0.015, 0.02, 0.025, 0.03, 0.035, 0.04, 0.06, 0.1)


def ok(value: float, unit: Unit = Unit.COUNT, **fields: Any) -> Measurement:
    return Measurement(value, unit, State.OK, fields.pop("at", AT), **fields)


def lost(unit: Unit = Unit.COUNT, state: State = State.NO_DATA) -> Measurement:
    return Measurement(None, unit, state, AT)


def spread_over(bounds: tuple[float, ...], p95: float, count: float = 200) -> HistogramIncrease:
    """95 % of the observations in the bucket that holds `p95`, the rest in the one above."""
    index = next((i for i, b in enumerate(bounds) if b >= p95 * (1 - 1e-9)), len(bounds))
    counts = [0.0] * (len(bounds) + 1)
    counts[index] = 0.95 * count
    counts[min(index + 1, len(bounds))] += 0.05 * count
    return HistogramIncrease(bounds, tuple(counts), count * p95 / 2, count)


def latency(
    p95: float,
    *,
    mean: float | None = None,
    bounds: tuple[float, ...] = TTFT_BOUNDS,
    place: Place = Place.ROUTER,
    state: State = State.OK,
    count: int = 200,
    at: datetime = AT,
) -> Quantiles:
    def figure(value: float) -> Measurement:
        known = None if state in (State.NO_DATA, State.NO_TRAFFIC, State.TOO_FEW) else value
        return Measurement(known, Unit.SECONDS, state, at, place, sample_count=count)

    return Quantiles(
        p50=figure(p95 / 2),
        p95=figure(p95),
        p99=figure(p95 * 1.3),
        mean=figure(p95 / 2 if mean is None else mean),
        histogram=spread_over(bounds, p95, count),
    )


def worker(name: str, role: str, seconds_per_token: float, **changes: Any) -> WorkerFigures:
    fields: dict[str, Any] = {
        "url": f"http://{name}",
        "name": name,
        "role": role,
        "serving": "serving",
        "is_reporting": True,
        "waiting": ok(0),
        "running": ok(5),
        "kv_used": ok(0.1, Unit.RATIO),
        "tokens_per_s": ok(1000, Unit.TOKENS_PER_SECOND),
        "forward_share": ok(0.3, Unit.RATIO),
        "seconds_per_token": ok(seconds_per_token, Unit.SECONDS),
    }
    return WorkerFigures(**{**fields, **changes})


def phase(role: str, count: int, **changes: Any) -> PhaseFigures:
    per_token = 1.05e-4 if role == "prefill" else 0.0027
    fields: dict[str, Any] = {
        "role": role,
        "workers_wanted": count,
        "workers_serving": count,
        "workers_reporting": count,
        "waiting": ok(0),
        "running": ok(1 if role == "prefill" else 16),
        "transferring": ok(0),
        "kv_used": ok(0.05, Unit.RATIO),
        "kv_capacity_tokens": ok(230_000 * count, Unit.TOKENS),
        "max_running": ok(96 * count),
        "tokens_per_s": ok(6325 if role == "prefill" else 1100, Unit.TOKENS_PER_SECOND),
        "forward_seconds_per_s": ok(0.66 if role == "prefill" else 4.0, Unit.RATIO),
        "queue_time_mean": ok(0.02, Unit.SECONDS),
        "stage_time_mean": ok(0.12 if role == "prefill" else 0.0135, Unit.SECONDS),
        "kv_transfer_mean": ok(0.02, Unit.SECONDS),
        "preemptions": ok(0),
        "workers": tuple(
            worker(f"{role[0]}-{i}", role, per_token * (1 + 0.01 * i)) for i in range(count)
        ),
    }
    return PhaseFigures(**{**fields, **changes})


def figures(
    *,
    prefill: int = 2,
    decode: int = 4,
    at: datetime = AT,
    prefill_changes: dict[str, Any] | None = None,
    decode_changes: dict[str, Any] | None = None,
    **changes: Any,
) -> DeploymentFigures:
    """Calm: 5.5 req/s of 1,150 in and 200 out on 2 + 4 workers."""
    fields: dict[str, Any] = {
        "at": at,
        "span_s": 30.0,
        "ttft": latency(0.5, mean=0.2),
        "tpot": latency(0.0145, mean=0.0135, bounds=TPOT_BOUNDS, place=Place.ENGINE),
        "arrivals_per_s": ok(5.5, Unit.REQUESTS_PER_SECOND, place=Place.ROUTER),
        "completions_per_s": ok(5.5, Unit.REQUESTS_PER_SECOND, place=Place.ROUTER),
        "failures_per_s": ok(0.0, Unit.REQUESTS_PER_SECOND),
        "input_tokens_per_s": ok(6325, Unit.TOKENS_PER_SECOND),
        "output_tokens_per_s": ok(1100, Unit.TOKENS_PER_SECOND),
        "cached_tokens_per_s": lost(Unit.TOKENS_PER_SECOND),
        "mean_input_tokens": ok(1150, Unit.TOKENS),
        "mean_output_tokens": ok(200, Unit.TOKENS),
        "prefill": phase("prefill", prefill, **(prefill_changes or {})),
        "decode": phase("decode", decode, **(decode_changes or {})),
        "mixed": None,
    }
    return DeploymentFigures(**{**fields, **changes})


def overloaded(*, at: datetime = AT, backlog: float = 30.0, prefill: int = 2, decode: int = 4,
               **changes: Any) -> DeploymentFigures:  # fmt: skip
    """The story's long phase on 2 prefill workers: 7.5 req/s of 2,850 in, capacity 6.85 req/s."""
    done = 6.85
    fields: dict[str, Any] = {
        "ttft": latency(8.0, mean=4.5),
        "tpot": latency(0.0185, mean=0.0152, bounds=TPOT_BOUNDS, place=Place.ENGINE),
        "arrivals_per_s": ok(7.5, Unit.REQUESTS_PER_SECOND, place=Place.ROUTER),
        "completions_per_s": ok(done, Unit.REQUESTS_PER_SECOND, place=Place.ROUTER),
        "input_tokens_per_s": ok(done * 2850, Unit.TOKENS_PER_SECOND),
        "output_tokens_per_s": ok(done * 200, Unit.TOKENS_PER_SECOND),
        "mean_input_tokens": ok(2850, Unit.TOKENS),
        "prefill_changes": {
            "waiting": ok(backlog + 2),
            "transferring": ok(2),
            "running": ok(4),
            "tokens_per_s": ok(done * 2850, Unit.TOKENS_PER_SECOND),
            "forward_seconds_per_s": ok(1.99, Unit.RATIO),
            "queue_time_mean": ok(3.9, Unit.SECONDS),
            "stage_time_mean": ok(0.35, Unit.SECONDS),
            "kv_transfer_mean": ok(0.035, Unit.SECONDS),
        },
        "decode_changes": {
            "running": ok(21),
            "waiting": ok(backlog),
            "transferring": ok(backlog),
            "kv_used": ok(0.17, Unit.RATIO),
            "tokens_per_s": ok(done * 200, Unit.TOKENS_PER_SECOND),
        },
    }
    return figures(prefill=prefill, decode=decode, at=at, **{**fields, **changes})


NO_USUAL = Usual("since_start")
USUAL = replace(
    NO_USUAL,
    basis="last_24_h",
    ttft_mean_s=0.2,
    kv_transfer_s=0.02,
    prefill_time_s=0.12,
    mean_input_tokens=1150,
    mean_output_tokens=200,
    prefill_busy=0.33,
    decode_busy=0.2,
)


def hardware(role: str, **changes: Any) -> HardwareFigures:
    """GPUs at work and a host with room."""
    units = {
        "power": Unit.WATTS,
        "energy_per_token": Unit.JOULES_PER_TOKEN,
        "energy_per_million": Unit.KWH_PER_MILLION_TOKENS,
        "host_overhead": Unit.SECONDS,
    }
    fields: dict[str, Any] = {
        name: lost(units.get(name, Unit.RATIO))
        for name in HardwareFigures.__dataclass_fields__
        if name != "role"
    }
    fields |= {
        "tensor_active": ok(0.6, Unit.RATIO, place=Place.EXPORTER),
        "power": ok(800.0, Unit.WATTS, place=Place.EXPORTER),
        "host_cpu_busy": ok(0.3, Unit.RATIO, place=Place.EXPORTER),
        "host_pressure": ok(0.4, Unit.RATIO, place=Place.EXPORTER),
        "host_overhead": ok(0.02, Unit.SECONDS),
    }
    return HardwareFigures(role=role, **{**fields, **changes})
