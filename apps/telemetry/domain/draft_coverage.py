"""Coverage of what discovery found, before anything is stored (design §6.11, step 3). Pure.

The same lines as the report of a connected deployment, from names instead of windows: a signal is
found where its metric exists. Whether its figures are good shows only once windows arrive.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from apps.engines.window import Signal

from . import coverage_fixes as fixes
from .coverage import CoverageLine, CoverageReport, Found, Level
from .found import FoundDeployment, FoundWorker

PREFILL: Final = "prefill"
DECODE: Final = "decode"
_EDGES: Final = ("frontend", "router")
_ENDING: Final = ("decode", "mixed")
_PROMPT: Final = ("prefill", "mixed")


@dataclass(frozen=True, slots=True)
class _Wanted:
    code: str
    level: Level
    signals: tuple[Signal, ...]
    scopes: tuple[str, ...]
    used_by: tuple[str, ...]
    #: True where each role has to export it, not only the first place that does.
    is_per_role: bool = False


#: Scopes in the order of preference of DESIGN laws 3 and 4.
_WANTED: Final = (
    _Wanted("ttft", Level.SEE, (Signal.TTFT,), (*_EDGES, *_ENDING),
            ("diagnosis", "objectives", "planner")),
    _Wanted("tpot", Level.SEE, (Signal.TPOT, Signal.ITL), ("frontend", *_ENDING, "router"),
            ("diagnosis", "objectives", "planner")),
    _Wanted("requests", Level.SEE, (Signal.REQUESTS_ARRIVED,), _EDGES, ("diagnosis", "planner")),
    _Wanted("completions", Level.SEE, (Signal.REQUESTS_COMPLETED,), (*_EDGES, *_ENDING),
            ("objectives", "cost")),
    _Wanted("input_tokens", Level.SEE, (Signal.INPUT_TOKENS,), ("frontend", *_PROMPT),
            ("cost", "planner")),
    _Wanted("output_tokens", Level.SEE, (Signal.OUTPUT_TOKENS,), ("frontend", *_ENDING),
            ("cost", "planner")),
    _Wanted("waiting", Level.EXPLAIN, (Signal.WAITING,), (PREFILL, *_ENDING),
            ("diagnosis", "planner"), True),
    _Wanted("running", Level.EXPLAIN, (Signal.RUNNING,), (PREFILL, *_ENDING),
            ("diagnosis", "planner"), True),
    _Wanted("kv_used", Level.EXPLAIN, (Signal.KV_USED,), (PREFILL, *_ENDING),
            ("diagnosis", "planner"), True),
    _Wanted("queue_time", Level.EXPLAIN, (Signal.QUEUE_TIME,), _PROMPT, ("diagnosis", "path")),
    _Wanted("kv_transfer", Level.HARDWARE, (Signal.KV_TRANSFER_TIME,), (PREFILL, DECODE, "router"),
            ("diagnosis", "path")),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class DraftWorker:
    """A found worker with the role that a person confirmed (empty: not chosen yet)."""

    worker: FoundWorker
    role: str
    has_devices: bool


@dataclass(frozen=True, slots=True)
class _Place:
    scope: str
    have: int
    total: int
    age_s: float | None
    profile: str


def draft_report(
    deployment: FoundDeployment,
    workers: Sequence[DraftWorker],
    *,
    ladders: Mapping[str, Sequence[float]] | None = None,
    objectives: Mapping[str, float] | None = None,
    can_act: bool | None = None,
) -> CoverageReport:
    """The report of a draft. `ladders` are bucket bounds by `ttft` and `tpot` at their places,
    `objectives` thresholds in seconds, `can_act` the outcome of the dry run (None: not run)."""
    lines = [line for wanted in _WANTED if (line := _line(wanted, deployment, workers)) is not None]
    lines += bucket_coverage(ladders or {}, objectives or {})
    named = [item for item in workers if item.role]
    lines.append(
        _counted("roles", Level.EXPLAIN, len(named), len(workers), ("diagnosis",), "role_label")
    )
    joined = sum(1 for item in workers if item.has_devices)
    lines.append(
        _counted("devices", Level.HARDWARE, joined, len(workers), ("path", "cost"), "dcgm_exporter")
    )
    lines.append(
        CoverageLine("commands", Level.ACT, Found.FOUND, "router", {}, ("commands",))
        if can_act
        else CoverageLine(
            "commands", Level.ACT, Found.MISSING, "router", {}, ("commands",), "commands.missing",
            "connect_backend",
        )
    )  # fmt: skip
    ordered = tuple(sorted(lines, key=lambda line: line.level))
    blocked = [line.level for line in ordered if line.found in (Found.MISSING, Found.UNAVAILABLE)]
    return CoverageReport(Level(min(blocked) - 1) if blocked else Level.ACT, ordered)


def _places(
    wanted: _Wanted, deployment: FoundDeployment, workers: Sequence[DraftWorker]
) -> list[_Place]:
    """Each scope that exists, in order of preference, with how many of it export the signal."""
    found: list[_Place] = []
    names = {signal.value for signal in wanted.signals}
    for scope in wanted.scopes:
        rows: list[tuple[tuple[str, ...], float | None, str]] = (
            [(e.signals, e.age_s, e.profile) for e in deployment.edges if e.scope == scope]
            if scope in _EDGES
            else [
                (w.worker.signals, w.worker.age_s, w.worker.profile)
                for w in workers
                if w.role == scope
            ]
        )
        if not rows:
            continue
        having = [age for signals, age, _ in rows if names & set(signals)]
        ages = [age for age in having if age is not None]
        found.append(_Place(scope, len(having), len(rows), max(ages, default=None), rows[0][2]))
    return found


def _line(
    wanted: _Wanted, deployment: FoundDeployment, workers: Sequence[DraftWorker]
) -> CoverageLine | None:
    if wanted.code == "kv_transfer" and not {PREFILL, DECODE} <= {w.role for w in workers}:
        return None
    places = _places(wanted, deployment, workers)
    first = next((place for place in places if place.have), None)
    if first is None:
        profiles = sorted({place.profile for place in places})
        return CoverageLine(
            wanted.code, wanted.level, Found.MISSING, "", {"profiles": tuple(profiles)},
            wanted.used_by, f"{wanted.code}.missing", _fix(wanted.code),
        )  # fmt: skip
    lacking = [place.scope for place in places if place.have < place.total]
    is_part = first.have < first.total or (wanted.is_per_role and bool(lacking))
    params: dict[str, Any] = {
        "have": sum(p.have for p in places) if wanted.is_per_role else first.have,
        "total": sum(p.total for p in places) if wanted.is_per_role else first.total,
        "age_s": first.age_s,
        "profile": first.profile,
        "without": tuple(lacking) if wanted.is_per_role else (),
    }
    place = first.scope if first.scope in _EDGES else "engine"
    if not is_part:
        return CoverageLine(wanted.code, wanted.level, Found.FOUND, place, params, wanted.used_by)
    return CoverageLine(
        wanted.code, wanted.level, Found.PART, place, params, wanted.used_by,
        f"{wanted.code}.part" if wanted.is_per_role else "workers_missing", "upgrade",
    )  # fmt: skip


def _fix(code: str) -> str:
    return "scrape_edge" if code == "requests" else "upgrade"


def _counted(
    code: str, level: Level, have: int, total: int, used_by: tuple[str, ...], fix: str
) -> CoverageLine:
    params = {"have": have, "total": total}
    if have >= total and total:
        return CoverageLine(code, level, Found.FOUND, "engine", params, used_by)
    found = Found.PART if have else Found.MISSING
    text = {"role_label": fixes.ROLE_LABEL, "dcgm_exporter": fixes.DCGM_FIELDS}.get(fix, "")
    return CoverageLine(code, level, found, "engine", params, used_by, f"{code}.missing", fix, text)


def bucket_coverage(
    ladders: Mapping[str, Sequence[float]], objectives: Mapping[str, float]
) -> list[CoverageLine]:
    """Each objective against the ladder of its place: on a bound, between two, or beyond all."""
    lines = []
    for code in ("ttft", "tpot"):
        bounds, wanted = sorted(ladders.get(code, ())), objectives.get(code)
        if not bounds or wanted is None:
            continue
        params = {"signal": code, "objective_s": wanted, "largest_s": bounds[-1]}
        if is_on_bound(wanted, bounds):
            lines.append(
                CoverageLine("buckets", Level.SEE, Found.FOUND, "", params, ("objectives",))
            )
            continue
        is_beyond = wanted > bounds[-1]
        params["nearest_s"] = nearest(wanted, bounds)
        lines.append(
            CoverageLine(
                "buckets", Level.SEE, Found.CONFLICT if is_beyond else Found.PART, "", params,
                ("objectives",), "buckets.beyond" if is_beyond else "buckets.between",
                "choose_bound",
            )
        )  # fmt: skip
    return lines


def is_on_bound(threshold_s: float, bounds: Sequence[float]) -> bool:
    """True if attainment of the threshold is exact on this ladder."""
    return any(abs(bound - threshold_s) <= 1e-9 * max(1.0, bound) for bound in bounds)


def nearest(threshold_s: float, bounds: Sequence[float]) -> float:
    """The bound nearest to a threshold, the smaller one of two equally near."""
    return min(bounds, key=lambda bound: (round(abs(bound - threshold_s), 9), bound))
