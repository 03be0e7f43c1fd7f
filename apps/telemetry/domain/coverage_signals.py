"""Coverage of signals and of objectives' thresholds by bucket bounds. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from apps.engines.histogram import nearest_bounds
from apps.engines.window import HistogramIncrease, Signal

from . import coverage_fixes as fixes
from .coverage import CoverageLine, Found, Level
from .coverage_facts import (
    EDGES,
    ENDING,
    PROMPT,
    CoverageFacts,
    SignalCoverage,
    entry_of,
    place_of,
    profile_of,
    roles,
    workers_of,
)
from .coverage_fixes import Fix


@dataclass(frozen=True, slots=True)
class _Wanted:
    """A line over signals: any of `signals` at the first of `scopes` answers it.

    `roles`: looked for in each of these pools instead (found, part or missing over them).
    """

    code: str
    level: Level
    signals: tuple[Signal, ...]
    scopes: tuple[str, ...] = ()
    roles: tuple[str, ...] = ()
    used_by: tuple[str, ...] = ()


_WANTED: Final = (
    _Wanted("ttft", Level.SEE, (Signal.TTFT,), (*EDGES, *ENDING),
            used_by=("diagnosis", "objectives", "planner")),
    _Wanted("tpot", Level.SEE, (Signal.TPOT, Signal.ITL), ("frontend", *ENDING, "router"),
            used_by=("diagnosis", "objectives", "planner")),
    _Wanted("requests", Level.SEE, (Signal.REQUESTS_ARRIVED,), EDGES,
            used_by=("diagnosis", "planner")),
    _Wanted("completions", Level.SEE, (Signal.REQUESTS_COMPLETED,), (*EDGES, *ENDING),
            used_by=("objectives", "cost")),
    _Wanted("input_tokens", Level.SEE, (Signal.INPUT_TOKENS,), ("frontend", *PROMPT),
            used_by=("cost", "planner")),
    _Wanted("output_tokens", Level.SEE, (Signal.OUTPUT_TOKENS,), ("frontend", *ENDING),
            used_by=("cost", "planner")),
    _Wanted("waiting", Level.EXPLAIN, (Signal.WAITING,), roles=("prefill", *ENDING),
            used_by=("diagnosis", "planner")),
    _Wanted("running", Level.EXPLAIN, (Signal.RUNNING,), roles=("prefill", *ENDING),
            used_by=("diagnosis", "planner")),
    _Wanted("kv_used", Level.EXPLAIN, (Signal.KV_USED,), roles=("prefill", *ENDING),
            used_by=("diagnosis", "planner")),
    _Wanted("queue_time", Level.EXPLAIN, (Signal.QUEUE_TIME,), roles=PROMPT,
            used_by=("diagnosis", "path")),
    _Wanted("kv_transfer", Level.HARDWARE, (Signal.KV_TRANSFER_TIME,), ("prefill", "decode",
            "router"), used_by=("diagnosis", "path")),
)  # fmt: skip


def line_of(signal: str) -> str:
    """The code of the line that a signal belongs to; empty if none rests on it."""
    for wanted in _WANTED:
        if signal in wanted.signals:
            return wanted.code
    return ""


def signal_lines(facts: CoverageFacts) -> Iterable[CoverageLine]:
    """One line per quantity that figures, diagnosis and path rest on."""
    has_split = {"prefill", "decode"} <= roles(facts)
    for wanted in _WANTED:
        if wanted.code == "kv_transfer" and not has_split:
            continue
        if wanted.roles:
            yield _per_role(facts, wanted)
        else:
            yield _at_first(facts, wanted)


def _at_first(facts: CoverageFacts, wanted: _Wanted) -> CoverageLine:
    """Found at the first place that exports it; the place is named."""
    for scope in wanted.scopes:
        for signal in wanted.signals:
            entry = entry_of(facts, scope, signal)
            if entry is not None and entry.state == "found":
                return _found(facts, wanted, scope, signal, entry.name)
    known = [
        entry
        for scope in wanted.scopes
        for signal in wanted.signals
        if (entry := entry_of(facts, scope, signal)) is not None
    ]
    missing = [entry for entry in known if entry.state == "missing"]
    return _lacking(facts, wanted, missing, known)


def _per_role(facts: CoverageFacts, wanted: _Wanted) -> CoverageLine:
    """Found in each pool, in part of them, or in none."""
    mine = [role for role in wanted.roles if role in roles(facts)]
    signal = wanted.signals[0]
    entries = {role: entry_of(facts, role, signal) for role in mine}
    have = [role for role, entry in entries.items() if entry and entry.state == "found"]
    lack = [entry for entry in entries.values() if entry and entry.state == "missing"]
    if mine and len(have) == len(mine):
        line = _found(facts, wanted, have[0], signal, "")
        return _replaced(line, params={**line.params, "roles": tuple(have)})
    without = tuple(role for role in mine if role not in have)
    if have:
        fix = _fix(facts, lack[0]) if lack else Fix("")
        return CoverageLine(
            wanted.code, wanted.level, Found.PART, "engine",
            {"roles": tuple(have), "without": without}, wanted.used_by,
            f"{wanted.code}.part", fix.code, fix.text,
        )  # fmt: skip
    known = [entry for entry in entries.values() if entry]
    return _lacking(facts, wanted, lack, known)


def _found(
    facts: CoverageFacts, wanted: _Wanted, scope: str, signal: Signal, name: str
) -> CoverageLine:
    window = facts.windows.get(scope)
    params: dict[str, Any] = {"scope": scope, "name": name}
    if window is None:
        return CoverageLine(
            wanted.code, wanted.level, Found.FOUND, place_of(scope), params, wanted.used_by
        )
    params["age_s"] = (facts.now - window.end).total_seconds()
    gave = workers_of(window, signal) if scope not in EDGES else set(window.reported)
    have, expected = len(gave & set(window.expected)), len(window.expected)
    params |= {"have": have, "expected": expected}
    if scope not in EDGES and have < expected:
        fix = fixes.scrape(profile_of(facts, scope), facts.topology.slug, facts.interval_s)
        return CoverageLine(
            wanted.code, wanted.level, Found.PART, place_of(scope), params, wanted.used_by,
            "workers_missing", fix.code, fix.text,
        )  # fmt: skip
    return CoverageLine(
        wanted.code, wanted.level, Found.FOUND, place_of(scope), params, wanted.used_by
    )


def _lacking(
    facts: CoverageFacts,
    wanted: _Wanted,
    missing: Sequence[SignalCoverage],
    known: Sequence[SignalCoverage],
) -> CoverageLine:
    """Missing where a profile can read it (or nothing is connected), else unavailable."""
    if missing:
        fix = _fix(facts, missing[0])
        found, place = Found.MISSING, place_of(missing[0].scope)
        params: dict[str, Any] = {"scope": missing[0].scope, "profile": missing[0].profile}
        near = _near(facts, missing[0])
        if near:
            params["near"] = near
    elif known:
        found, place, fix = Found.UNAVAILABLE, "", Fix("")
        params = {"profile": known[0].profile, "reason": known[0].reason}
    else:
        found, place, params = Found.MISSING, "", {}
        scopes = wanted.roles or wanted.scopes
        profile = next((p for s in scopes if (p := profile_of(facts, s))), "")
        fix = fixes.scrape(profile, facts.topology.slug, facts.interval_s)
    return CoverageLine(
        wanted.code, wanted.level, found, place, params, wanted.used_by,
        f"{wanted.code}.missing", fix.code, fix.text,
    )  # fmt: skip


def _fix(facts: CoverageFacts, entry: SignalCoverage) -> Fix:
    mine = [target for target in facts.targets if target.scope == entry.scope]
    return fixes.missing_signal(
        entry.profile,
        near=_near(facts, entry),
        is_up=any(target.is_up for target in mine),
        name=facts.topology.slug,
        interval_s=facts.interval_s,
    )


def _near(facts: CoverageFacts, entry: SignalCoverage) -> str:
    for target in facts.targets:
        if target.scope == entry.scope and entry.signal in target.observed.near:
            return target.observed.near[entry.signal]
    return ""


def _replaced(line: CoverageLine, params: Mapping[str, Any]) -> CoverageLine:
    return CoverageLine(
        line.code, line.level, line.found, line.place, params, line.used_by, line.effect,
        line.fix, line.fix_text,
    )  # fmt: skip


def bucket_lines(facts: CoverageFacts) -> Iterable[CoverageLine]:
    """Each objective's threshold against the ladder of the place that it is measured at."""
    for code, wanted in (("ttft", _WANTED[0]), ("tpot", _WANTED[1])):
        threshold = facts.thresholds.get(code)
        found = _ladder(facts, wanted)
        if threshold is None or found is None:
            continue
        scope, signal, bounds = found
        lower, upper = nearest_bounds(bounds, threshold)
        params = {
            "signal": code, "objective_s": threshold, "largest_s": bounds[-1], "below_s": lower,
            "above_s": upper,
        }  # fmt: skip
        if lower == upper:
            yield CoverageLine("buckets", Level.SEE, Found.FOUND, place_of(scope), params,
                               ("objectives",))  # fmt: skip
            continue
        fix = fixes.buckets(profile_of(facts, scope), signal, threshold, bounds)
        beyond = upper is None
        yield CoverageLine(
            "buckets", Level.SEE, Found.CONFLICT if beyond else Found.PART, place_of(scope), params,
            ("objectives",), "buckets.beyond" if beyond else "buckets.between", fix.code, fix.text,
        )  # fmt: skip


def _ladder(facts: CoverageFacts, wanted: _Wanted) -> tuple[str, Signal, tuple[float, ...]] | None:
    for scope in wanted.scopes:
        window = facts.windows.get(scope)
        for signal in wanted.signals:
            value = window.values.get(signal) if window else None
            if isinstance(value, HistogramIncrease) and value.bounds:
                return scope, signal, value.bounds
    return None
