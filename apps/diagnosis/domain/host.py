"""The host CPU as the limit: GPUs wait for the processes around them, and more GPUs would too."""

from __future__ import annotations

from apps.common.measurement import Measurement
from apps.telemetry.domain.figures import HardwareFigures

from . import evidence as ev
from .causes import Cause, Evidence, Finding, Severity
from .structural import SATURATED, severity
from .symptoms import Symptoms, number

#: A recorded engine on starved CPUs spent 89 of 418 s of TTFT outside queue and prefill (metrics
#: research 8.7); a tenth of a second is tokenising on any host.
OVERHEAD_SHARE, OVERHEAD_FLOOR_S = 0.20, 0.1
#: CPUs that hardly idle, while more processes want to run than there are CPUs.
CPU_FULL, PRESSURE = 0.90, 1.0


def host_bound(s: Symptoms) -> Finding | None:
    """An objective is missed, the pool's GPUs have room, and its hosts do not.

    By time where engines export it: what queue and prefill leave of a worker's TTFT. By CPU where
    hosts are exported. The GPUs' tensor activity stands beside both.
    """
    for role, is_breached in (
        ("prefill", s.ttft_breached),
        ("mixed", s.ttft_breached or s.tpot_breached),
        ("decode", s.tpot_breached),
    ):
        found = s.figures.hardware.get(role)
        if not is_breached or found is None or _busy(s, role) > SATURATED:
            continue
        overhead, share = number(found.host_overhead), _share(s, found)
        by_time = overhead > OVERHEAD_FLOOR_S and share > OVERHEAD_SHARE
        by_cpu = number(found.host_cpu_busy) > CPU_FULL and number(found.host_pressure) > PRESSURE
        if by_time or by_cpu:
            return Finding(
                Cause.HOST_BOUND,
                severity(True),
                _evidence(s, role, found),
                "host_bound",
                {"role": role, "overhead_s": overhead, "share": min(1.0, share)},
                wont_help="more_gpus_will_not_help",
                role=role,
            )
    return None


def _busy(s: Symptoms, role: str) -> float:
    figure = {"prefill": s.busy.prefill, "decode": s.busy.decode}.get(role)
    return 0.0 if figure is None else number(figure)


def _share(s: Symptoms, found: HardwareFigures) -> float:
    return number(found.host_overhead) / s.ttft_mean_s if s.ttft_mean_s else 0.0


def _evidence(s: Symptoms, role: str, found: HardwareFigures) -> tuple[Evidence, ...]:
    limits: tuple[tuple[str, Measurement, float], ...] = (
        ("host_overhead", found.host_overhead, OVERHEAD_SHARE * s.ttft_mean_s),
        ("host_cpu_busy", found.host_cpu_busy, CPU_FULL),
        ("host_pressure", found.host_pressure, PRESSURE),
    )
    tiles = [
        ev.limit(code, figure, value, Severity.CRIT)
        for code, figure, value in limits
        if figure.value is not None
    ]
    if found.tensor_active.value is not None:
        tiles.append(Evidence("tensor_active", Severity.INFO, found.tensor_active))
    beside = [ev.busy(role, s)] if role in ("prefill", "decode") else []
    latency = ev.latencies(s)[1 if role == "decode" else 0]
    return (*tiles, latency, *beside)[:5]
