"""Coverage of roles, targets, findings, hardware and commands. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from apps.engines.window import GaugeValue, Signal, Window, hardware_scope
from apps.fleet.domain.topology import WorkerFacts

from . import coverage_fixes as fixes
from .coverage import CoverageLine, Found, Level
from .coverage_facts import EDGES, CoverageFacts, name_of, place_of, profile_of, roles, workers_of
from .coverage_fixes import Fix
from .identity import duplicates
from .roles import RoleSource


def role_lines(facts: CoverageFacts) -> Iterable[CoverageLine]:
    """The health of the mapping between workers, roles, targets and windows."""
    workers = facts.topology.workers
    known = [w for w in workers if w.role and w.role_source != RoleSource.UNKNOWN]
    sources = sorted({worker.role_source for worker in known})
    params: dict[str, Any] = {
        "have": len(known), "expected": len(workers), "sources": tuple(sources)
    }  # fmt: skip
    yield _counted("roles", len(known), len(workers), params, Fix("role_label", fixes.ROLE_LABEL))
    serving = [w for w in workers if w.serving not in ("absent", "unhealthy")]
    up = {target.worker for target in facts.targets if target.is_up and target.worker}
    with_metrics = [worker for worker in serving if worker.url in up]
    profile = next((p.engine for p in facts.topology.pools.values() if p.engine), "")
    yield _counted(
        "workers", len(with_metrics), len(serving),
        {"have": len(with_metrics), "expected": len(serving),
         "names": tuple(w.name for w in serving if w.url not in up)},
        fixes.scrape(profile, facts.topology.slug, facts.interval_s),
    )  # fmt: skip
    yield from _orphans(facts, workers)
    for role in sorted({worker.role for worker in serving if worker.role}):
        if role not in facts.windows:
            yield CoverageLine(
                "pool_metrics", Level.EXPLAIN, Found.MISSING, "engine", {"role": role},
                ("diagnosis", "planner"), "pool_metrics.missing", "scrape",
                fixes.scrape(profile_of(facts, role), facts.topology.slug, facts.interval_s).text,
            )  # fmt: skip
    twice = duplicates(worker.url for worker in serving)
    if twice:
        yield CoverageLine(
            "duplicates", Level.EXPLAIN, Found.CONFLICT, "router",
            {"addresses": tuple(name for names in twice.values() for name in names)},
            ("diagnosis", "cost"), "duplicates.conflict", "one_address",
        )  # fmt: skip


def _counted(
    code: str, have: int, expected: int, params: Mapping[str, Any], fix: Fix
) -> CoverageLine:
    if expected and have == expected:
        return CoverageLine(code, Level.EXPLAIN, Found.FOUND, "engine", params, ("diagnosis",))
    found = Found.PART if have else Found.MISSING
    return CoverageLine(
        code, Level.EXPLAIN, found, "engine", params, ("diagnosis", "planner"),
        f"{code}.missing", fix.code, fix.text,
    )  # fmt: skip


def _orphans(facts: CoverageFacts, workers: Sequence[WorkerFacts]) -> Iterable[CoverageLine]:
    urls = {worker.url for worker in workers}
    lost = [t for t in facts.targets if t.scope not in EDGES and t.worker not in urls]
    if lost:
        yield CoverageLine(
            "orphans", Level.EXPLAIN, Found.PART, "engine", {"count": len(lost)}, ("diagnosis",),
            "orphans.part", "register_worker",
        )  # fmt: skip


#: Findings about what users see belong to the first level.
_SEEN: Final = (Signal.TTFT, Signal.TPOT, Signal.REQUESTS_COMPLETED, Signal.INPUT_TOKENS)


#: What to look at, by finding; any other figure: `check_metric`, any other role: `check_role`.
_CHECKS: Final = {
    "decode_prefills": "check_transfer",
    "down_while_serving": "check_endpoint",
    "looks_like_percent": "check_unit",
    "stale_kv_served": "check_lease",
}
#: Effects of findings that void no figure; any other: `finding.told`.
_TOLD: Final = {"stale_kv_served": "finding.stale_kv"}


def finding_lines(facts: CoverageFacts) -> Iterable[CoverageLine]:
    """Figures that cannot be true, and roles that something contradicts."""
    for finding in facts.findings:
        level = Level.SEE if finding.signal in _SEEN else Level.EXPLAIN
        if finding.signal.is_hardware:
            level = Level.HARDWARE
        yield CoverageLine(
            f"finding.{finding.code}", level, Found.CONFLICT if finding.voids else Found.PART,
            place_of(finding.scope),
            {**finding.params, "signal": finding.signal.value, "scope": finding.scope,
             "worker": name_of(facts, finding.worker)},
            (), "finding.voids" if finding.voids else _TOLD.get(finding.code, "finding.told"),
            _CHECKS.get(finding.code, "check_metric"),
        )  # fmt: skip
    for item in facts.role_findings:
        yield CoverageLine(
            f"finding.{item.code}", Level.EXPLAIN, Found.CONFLICT, "engine",
            {**item.params, "since": item.since, "worker": name_of(facts, item.worker)},
            ("diagnosis",), f"role.{item.code}", _CHECKS.get(item.code, "check_role"),
        )  # fmt: skip


_FIELDS: Final = (Signal.DEVICE_TENSOR_ACTIVE, Signal.DEVICE_DRAM_ACTIVE)


def device_lines(facts: CoverageFacts) -> Iterable[CoverageLine]:
    """GPUs joined to workers, the profiling fields, and hosts."""
    present = [role for role in sorted(roles(facts)) if facts.topology.workers_of(role)]
    joined, expected, fields = 0.0, 0.0, dict.fromkeys(_FIELDS, 0)
    hosts, workers = 0, 0
    for role in present:
        mine = facts.topology.workers_of(role)
        pool = facts.topology.pools.get(role)
        unit = float(pool.devices_per_worker) if pool and pool.devices_per_worker else 1.0
        urls = {worker.url for worker in mine}
        device = facts.windows.get(hardware_scope(role, "device"))
        host = facts.windows.get(hardware_scope(role, "host"))
        expected += unit * len(mine)
        workers += len(mine)
        joined += unit * len(urls & _seen_in(device))
        hosts += len(urls & _seen_in(host))
        for signal in _FIELDS:
            fields[signal] += len(urls & (workers_of(device, signal) if device else set()))
    params = {"have": joined, "expected": expected}
    used = ("path", "cost")
    if expected and joined >= expected:
        yield CoverageLine("devices", Level.HARDWARE, Found.FOUND, "exporter", params, used)
    else:
        yield CoverageLine(
            "devices", Level.HARDWARE, Found.PART if joined else Found.MISSING, "exporter", params,
            used, "devices.missing", "dcgm_exporter", fixes.DCGM_FIELDS,
        )  # fmt: skip
    if joined and any(count < workers for count in fields.values()):
        lacking = tuple(signal.value for signal, count in fields.items() if count < workers)
        yield CoverageLine(
            "device_fields", Level.HARDWARE, Found.PART, "exporter", {"signals": lacking}, used,
            "device_fields.part", "dcgm_fields", fixes.DCGM_FIELDS,
        )  # fmt: skip
    params = {"have": float(hosts), "expected": float(workers)}
    if workers and hosts == workers:
        yield CoverageLine("hosts", Level.HARDWARE, Found.FOUND, "exporter", params, ("path",))
    else:
        yield CoverageLine(
            "hosts", Level.HARDWARE, Found.PART if hosts else Found.MISSING, "exporter", params,
            ("path",), "hosts.missing", "node_exporter", fixes.NODE_EXPORTER,
        )  # fmt: skip


def _seen_in(window: Window | None) -> set[str]:
    if window is None:
        return set()
    return {
        worker
        for value in window.values.values()
        for worker in (value.by_worker if isinstance(value, GaugeValue) else ())
    }


def command_line(facts: CoverageFacts) -> CoverageLine:
    """Whether the deployment can be commanded."""
    backend = facts.backend
    if backend is None or backend.adapter in ("", "noop"):
        return CoverageLine("commands", Level.ACT, Found.MISSING, "router", {}, ("commands",),
                            "commands.missing", "connect_backend")  # fmt: skip
    params = {"adapter": backend.adapter, "dry_run": backend.dry_run}
    if not backend.can_write:
        return CoverageLine("commands", Level.ACT, Found.MISSING, "router", params,
                            ("commands",), "commands.read_only", "write_credential")  # fmt: skip
    if not backend.is_fresh:
        return CoverageLine(
            "commands", Level.ACT, Found.MISSING, "router", {**params, "error": backend.error},
            ("commands",), "commands.unreachable", "backend_address",
        )  # fmt: skip
    return CoverageLine("commands", Level.ACT, Found.FOUND, "router", params, ("commands",))
