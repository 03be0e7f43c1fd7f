"""Builders of evidence tiles, so that the rules read as rules."""

from __future__ import annotations

from collections.abc import Mapping

from apps.common.measurement import Measurement, Place, State
from apps.common.units import Unit
from apps.telemetry.domain.figures import PhaseFigures

from .causes import Evidence, Severity
from .symptoms import Symptoms, number


def busy(role: str, s: Symptoms, limit: float | None = None) -> Evidence:
    """The busy share of a role, against a limit where one was crossed."""
    figure = s.busy.prefill if role == "prefill" else s.busy.decode
    usual = s.usual.prefill_busy if role == "prefill" else s.usual.decode_busy
    value = number(figure)
    status = Severity.CRIT if value > 0.92 else Severity.WARN if value > 0.85 else Severity.OK
    if figure.value is None:
        status = Severity.UNKNOWN
    if limit is not None:
        return Evidence(f"{role}_busy", status, figure, "limit", {"value": limit})
    if usual is not None:
        return Evidence(f"{role}_busy", status, figure, "usual", {"value": usual})
    return Evidence(f"{role}_busy", status, figure)


def latencies(s: Symptoms) -> tuple[Evidence, ...]:
    """TTFT and TPOT P95 against their objectives."""
    return (
        objective("ttft_p95", s.figures.ttft.p95, s.ttft_objective_s),
        objective("tpot_p95", s.figures.tpot.p95, s.tpot_objective_s),
    )


def objective(code: str, figure: Measurement, threshold_s: float | None) -> Evidence:
    """A latency against its objective; a figure without a value is unknown, not fine."""
    if figure.value is None:
        return Evidence(code, Severity.UNKNOWN, figure)
    if threshold_s is None:
        return Evidence(code, Severity.INFO, figure, "no_objective")
    status = Severity.CRIT if figure.number() > threshold_s else Severity.OK
    return Evidence(code, status, figure, "objective", {"value": threshold_s})


def against_usual(
    code: str, figure: Measurement, usual: float | None, status: Severity
) -> Evidence:
    """A figure against its usual value, or alone when there is no usual yet."""
    if figure.value is None:
        return Evidence(code, Severity.UNKNOWN, figure)
    if usual is None:
        return Evidence(code, status, figure, "no_usual")
    return Evidence(code, status, figure, "usual", {"value": usual})


def limit(code: str, figure: Measurement, value: float, status: Severity) -> Evidence:
    """A figure against the limit of a rule."""
    over = figure.value is not None and figure.number() > value
    return Evidence(code, status if over else Severity.WARN, figure, "limit", {"value": value})


def share(code: str, figure: Measurement, over: float = 0.0) -> Evidence:
    """A share of TTFT."""
    status = Severity.CRIT if number(figure) > over else Severity.OK
    if figure.value is None:
        status = Severity.UNKNOWN
    return Evidence(code, status, figure, "of_ttft")


def serving(phase: PhaseFigures) -> Evidence:
    """Serving workers against wanted ones."""
    now = phase.workers_serving
    count = Measurement(now, Unit.WORKERS, State.OK, None, Place.ROUTER, "serving")
    return Evidence("serving", Severity.CRIT, count, "wanted", {"value": phase.workers_wanted})


def reporting(role: str, phase: PhaseFigures | None) -> Evidence:
    """Reporting workers against serving ones."""
    reported = phase.workers_reporting if phase else 0
    expected = (phase.workers_serving or phase.workers_wanted) if phase else 0
    count = Measurement(
        reported,
        Unit.WORKERS,
        State.PARTIAL,
        None,
        Place.ENGINE,
        "reporting",
        coverage=(reported, expected),
    )
    return Evidence(f"{role}_reporting", Severity.UNKNOWN, count, "of_workers", {"value": expected})


def waiting(phase: PhaseFigures) -> tuple[Evidence, ...]:
    """Requests that stand before a pool."""
    status = Severity.WARN if number(phase.waiting) > 0 else Severity.OK
    return (Evidence(f"{phase.role}_waiting", status, phase.waiting),)


def transferring(s: Symptoms) -> tuple[Evidence, ...]:
    """Requests whose KV is on the way."""
    phase = s.figures.prefill
    if phase is None or phase.transferring.value is None:
        return ()
    return (Evidence("transferring", Severity.WARN, phase.transferring),)


def demand(s: Symptoms) -> tuple[Evidence, ...]:
    """Arrivals against what is completed."""
    arrivals, done = s.figures.arrivals_per_s, s.figures.completions_per_s
    if done.value is None:
        return (Evidence("arrivals", Severity.INFO, arrivals),)
    return (Evidence("arrivals", Severity.CRIT, arrivals, "completions", {"value": done.number()}),)


def rest(phase: PhaseFigures) -> Mapping[str, float]:
    """The pool's total, beside one worker's."""
    return {"value": number(phase.waiting)}


def kv_used_number(s: Symptoms) -> float:
    """KV used of decode as a ratio; 0 when unknown."""
    return number(s.figures.decode.kv_used) if s.figures.decode else 0.0
