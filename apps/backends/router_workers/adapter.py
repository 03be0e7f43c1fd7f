"""Adapter for routers with a membership API: smg 1.13.0 in PD mode, with SGLang-like engines.

Every write looks first and is judged by what it sees: already new -> NOOP, still old -> send,
anything else -> CONFLICT. So each step may be called again after a crash at any point.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime
from decimal import Decimal
from typing import Any, Final

from ..errors import BadConnection
from ..protocol import (
    ABSENT,
    Applied,
    Capabilities,
    Connection,
    Outcome,
    Preflight,
    Snapshot,
    StepKind,
    StepSpec,
    Verified,
    WorkerRef,
    WorkerView,
)
from .client import EngineFacts, RouterClient, Unreadable
from .plan import PREFILL, Options, plan_change
from .reading import Reader

_READERS: Final = 8
_SWITCH_CALL_S: Final = 20.0
_OFF: Final = ("", "0", "off", "no", "false")
_WAITS: Final = (StepKind.WAIT_IDLE, StepKind.WAIT_SERVING, StepKind.VERIFY_DATA_PLANE)


class RouterWorkersAdapter:
    """`connection.parameters` (all optional, as text): `idle_workers` (JSON list of
    `{"url", "name", "role", "bootstrap_port"}`), `role_flip` (empty, `0` or `off` forbids it),
    `drain_settle_s`, `kv_lease_s`, `drain_deadline_s`, `serve_deadline_s`, `quiet_s`."""

    name = "router_workers"

    def __init__(self, connection: Connection) -> None:
        self._client = RouterClient(connection)
        self._reader = Reader(self._client)
        self._connection = connection
        self._idle = _idle_workers(connection.parameters.get("idle_workers", ""))
        self._options = _options(connection.parameters)

    def capabilities(self) -> Capabilities:
        return Capabilities(
            can_write=bool(self._connection.credential),
            cas=False,
            dry_run=False,
            drain=True,
            role_flip=self._options.role_flip,
            choose_victim=True,
            add=True,
            remove=True,
        )

    # --- observe -------------------------------------------------------------------------------

    def observe(self, now: datetime, known: Sequence[WorkerRef] = ()) -> Snapshot:
        """The router's list, each engine's own word, and the known workers that are not listed.

        Incomplete (and then empty) when the router cannot be read; a silent engine only leaves
        its own role and load unknown.
        """
        try:
            rows = self._client.workers()
        except Unreadable as error:
            return Snapshot(
                observed_at=now,
                workers=(),
                complete=False,
                fence="",
                problems=(f"router {error.kind}: {error}",),
            )
        refs = {ref.url: ref for ref in (*self._idle, *known)}
        listed = {str(row["url"]): row for row in rows}
        urls = [*listed, *(url for url in refs if url not in listed)]
        engines, problems = self._engines(urls)
        views = [_view(url, listed.get(url), refs.get(url), engines.get(url)) for url in urls]
        return Snapshot(
            observed_at=now,
            workers=tuple(view for view in views if view.role),
            complete=True,
            fence=_fence(rows),
            version=str(rows[0].get("runtime_type", "")) if rows else "",
            problems=tuple(problems),
        )

    def _engines(self, urls: Sequence[str]) -> tuple[dict[str, EngineFacts], list[str]]:
        facts: dict[str, EngineFacts] = {}
        problems: list[str] = []
        with ThreadPoolExecutor(max_workers=_READERS) as pool:
            for url, answer in zip(urls, pool.map(self._try_engine, urls), strict=True):
                if isinstance(answer, EngineFacts):
                    facts[url] = answer
                else:
                    problems.append(f"engine {url} {answer.kind}: {answer}")
        return facts, problems

    def _try_engine(self, url: str) -> EngineFacts | Unreadable:
        try:
            return self._client.engine(url)
        except Unreadable as error:
            return error

    # --- plan ----------------------------------------------------------------------------------

    def plan(
        self, snapshot: Snapshot, targets: Mapping[str, int], gpus_per_worker: Mapping[str, Decimal]
    ) -> tuple[StepSpec, ...]:
        """Pure; raises PlanRefused."""
        return plan_change(snapshot, targets, gpus_per_worker, self._options)

    def rollback_plan(
        self, snapshot: Snapshot, before: Mapping[str, int], gpus_per_worker: Mapping[str, Decimal]
    ) -> tuple[StepSpec, ...]:
        """From whatever is true now back to `before`; raises PlanRefused."""
        return plan_change(snapshot, before, gpus_per_worker, self._options)

    def preflight(self, steps: Sequence[StepSpec], snapshot: Snapshot) -> Preflight:
        """Asks without changing anything: may we delete, do the engines know the role switch."""
        if not snapshot.complete:
            return Preflight(denials=("router_unreachable",))
        denials: list[str] = []
        allowed = self._client.may_write()
        if allowed.outcome is Outcome.DENIED:
            denials.append("router_denied")
        elif allowed.reason not in ("http_404", "") and allowed.outcome is not Outcome.ACCEPTED:
            denials.append("router_unreachable")
        for url in {step.worker.url for step in steps if step.kind is StepKind.SWITCH_ROLE}:
            answer = self._try_engine(url)
            if isinstance(answer, Unreadable):
                denials.append(f"engine_unreachable:{url}")
            elif answer.can_switch is False or answer.role is None:
                denials.append(f"role_switch_unsupported:{url}")
        if any(step.kind is StepKind.SWITCH_ROLE for step in steps):
            if not self._options.role_flip:
                denials.append("role_flip_off")
            if not self._connection.engine_credential:
                denials.append("engine_credential_missing")
        return Preflight(denials=tuple(sorted(denials)))

    # --- apply ---------------------------------------------------------------------------------

    def apply(self, step: StepSpec, *, key: str, epoch: int) -> Applied:
        """At most one external mutation. `key` marks an added worker as ours."""
        if step.kind in _WAITS:
            return Applied(Outcome.NOOP, reason="nothing_to_send")
        try:
            row = self._reader.listed(step.worker.url)
            if step.kind is StepKind.SET_DRAIN_TIME:
                return self._set_drain_time(step, row)
            if step.kind is StepKind.REMOVE_WORKER:
                return self._remove(step, row)
            if step.kind is StepKind.SWITCH_ROLE:
                return self._switch(step, row)
            return self._add(step, row, key)
        except Unreadable as error:
            denied = error.kind in ("http_401", "http_403", "denied", "url")
            return Applied(
                Outcome.DENIED if denied else Outcome.RETRYABLE,
                reason=error.kind,
                retry_after_s=None if denied else 5.0,
                answer=str(error),
            )

    def _set_drain_time(self, step: StepSpec, row: Mapping[str, Any] | None) -> Applied:
        if row is None or row.get("status") == "draining":
            return Applied(Outcome.NOOP, reason="left_already")
        return self._client.set_drain_time(str(row["id"]), int(step.expected.get("seconds", "1")))

    def _remove(self, step: StepSpec, row: Mapping[str, Any] | None) -> Applied:
        if row is None or row.get("status") == "draining":
            # A second DELETE while it drains would cut the drain short.
            return Applied(Outcome.NOOP, reason="left_already")
        if row["worker_type"] != step.expected["from_role"]:
            return Applied(Outcome.CONFLICT, reason="role_changed", answer=str(row["worker_type"]))
        done = self._client.remove(str(row["id"]))
        if done.reason == "http_404" and self._reader.listed(step.worker.url) is None:
            return replace(done, outcome=Outcome.NOOP, reason="left_already")
        return done

    def _switch(self, step: StepSpec, row: Mapping[str, Any] | None) -> Applied:
        if row is not None and row.get("status") != "draining":
            if row["worker_type"] == step.target_role:
                return Applied(Outcome.NOOP, reason="serves_already")
            return Applied(Outcome.CONFLICT, reason="came_back", answer=str(row["worker_type"]))
        facts = self._client.engine(step.worker.url)
        if facts.role == step.target_role:
            return Applied(Outcome.NOOP, reason="role_already")
        if facts.role != step.expected["from_role"]:
            return Applied(Outcome.CONFLICT, reason="role_changed", answer=str(facts.role))
        return self._client.switch_role(step.worker.url, step.target_role, _SWITCH_CALL_S)

    def _add(self, step: StepSpec, row: Mapping[str, Any] | None, key: str) -> Applied:
        if row is not None:
            if row.get("status") == "draining":
                return Applied(Outcome.RETRYABLE, reason="still_draining", retry_after_s=1.0)
            if row["worker_type"] == step.target_role:
                return Applied(Outcome.NOOP, reference=str(row["id"]), reason="listed_already")
            return Applied(Outcome.CONFLICT, reason="role_changed", answer=str(row["worker_type"]))
        facts = self._client.engine(step.worker.url)
        if facts.role is not None and facts.role != step.target_role:
            return Applied(Outcome.CONFLICT, reason="engine_role", answer=facts.role)
        if facts.status is not None and facts.status not in ("ready", "running"):
            return Applied(Outcome.RETRYABLE, reason="engine_loading", retry_after_s=1.0)
        port = step.worker.bootstrap_port if step.target_role == PREFILL else None
        return self._client.add(step.worker.url, step.target_role, port, {"fulcrum_command": key})

    def verify(self, step: StepSpec, *, since: datetime, now: datetime) -> Verified:
        """Two independent readings: the router's list, and the engine or the router's counters."""
        return self._reader.verify(step, since=since, now=now)


def _view(
    url: str, row: Mapping[str, Any] | None, ref: WorkerRef | None, engine: EngineFacts | None
) -> WorkerView:
    port = row.get("bootstrap_port") if row else None
    if not isinstance(port, int):
        port = ref.bootstrap_port if ref else None
    if port is None and engine is not None:
        port = engine.bootstrap_port
    engine_role = engine.role if engine else None
    known_role = ref.role if ref else ""
    labels = dict(row.get("labels") or {}) if row else {}
    runtime = row.get("runtime_type") if row else None
    if isinstance(runtime, str):
        labels["runtime_type"] = runtime
    return WorkerView(
        url=url,
        router_id=str(row["id"]) if row else "",
        role=str(row["worker_type"]) if row else (engine_role or known_role),
        status=str(row.get("status") or _status(row)) if row else ABSENT,
        is_healthy=bool(row.get("is_healthy")) if row else False,
        engine_role=engine_role,
        in_flight=engine.in_flight if engine else None,
        engine_version=engine.version if engine else None,
        instance_id=engine.instance_id if engine else None,
        load=row.get("load") if row and isinstance(row.get("load"), int) else None,
        labels=labels,
        name=ref.name if ref else "",
        bootstrap_port=port,
    )


def _status(row: Mapping[str, Any]) -> str:
    return "ready" if row.get("is_healthy") else "not_ready"


def _fence(rows: Sequence[Mapping[str, Any]]) -> str:
    """Hash of who is a member in which role; ids change with each POST and are left out."""
    members = sorted(
        (str(row["url"]), str(row["worker_type"]), row.get("status") == "draining") for row in rows
    )
    return hashlib.sha256(json.dumps(members).encode()).hexdigest()[:16]


def _idle_workers(raw: str) -> tuple[WorkerRef, ...]:
    if not raw:
        return ()
    try:
        return tuple(
            WorkerRef(
                url=str(one["url"]),
                name=str(one.get("name", "")),
                role=str(one.get("role", "")),
                bootstrap_port=int(one["bootstrap_port"]) if one.get("bootstrap_port") else None,
            )
            for one in json.loads(raw)
        )
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise BadConnection("idle_workers is not a JSON list of workers") from error


def _options(parameters: Mapping[str, str]) -> Options:
    def number(name: str, usual: float) -> float:
        try:
            return float(parameters.get(name) or usual)
        except ValueError as error:
            raise BadConnection(f"{name} is not a number") from error

    usual = Options()
    return Options(
        drain_settle_s=round(number("drain_settle_s", usual.drain_settle_s)),
        kv_lease_s=number("kv_lease_s", 0.0) if parameters.get("kv_lease_s") else None,
        drain_deadline_s=number("drain_deadline_s", usual.drain_deadline_s),
        switch_deadline_s=number("switch_deadline_s", usual.switch_deadline_s),
        serve_deadline_s=number("serve_deadline_s", usual.serve_deadline_s),
        data_deadline_s=number("data_deadline_s", usual.data_deadline_s),
        quiet_s=number("quiet_s", usual.quiet_s),
        role_flip=parameters.get("role_flip", "on").lower() not in _OFF,
    )
