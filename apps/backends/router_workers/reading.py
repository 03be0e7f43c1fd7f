"""Read-backs of the steps: what proves that each one worked (DESIGN law 7)."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from ..protocol import BASELINE, Progress, StepKind, StepSpec, Verified
from .client import EngineFacts, RouterClient, Unreadable

_ROUTER_COUNTER: Final = "smg_worker_requests_total"
#: Engine counters that rise only by work of the role: name -> label that must match, if any.
_ROLE_COUNTERS: Final[Mapping[str, tuple[tuple[str, str, str], ...]]] = {
    "prefill": (("sglang:realtime_tokens_total", "mode", "prefill_compute"),),
    "decode": (("sglang:realtime_tokens_total", "mode", "decode"),),
}
_STILL_ROUTED_S: Final = 15.0


class Reader:
    """Reads the control interface and the data plane for one step at a time."""

    def __init__(self, client: RouterClient) -> None:
        self._client = client

    def listed(self, url: str) -> Mapping[str, Any] | None:
        """The router's entry for an address; raises Unreadable."""
        return next((row for row in self._client.workers() if row["url"] == url), None)

    def verify(self, step: StepSpec, *, since: datetime, now: datetime) -> Verified:
        """How far a step is; never raises for what the network does."""
        waited_s = (now - since).total_seconds()
        try:
            row = self.listed(step.worker.url)
            if step.kind is StepKind.SET_DRAIN_TIME:
                return self._drain_time(row)
            if step.kind is StepKind.REMOVE_WORKER:
                return self._removed(row, waited_s)
            if step.kind is StepKind.WAIT_IDLE:
                return self._idle(step, row, waited_s)
            if step.kind is StepKind.SWITCH_ROLE:
                return self._switched(step, row)
            if step.kind is StepKind.ADD_WORKER:
                return self._added(step, row)
            if step.kind is StepKind.WAIT_SERVING:
                return self._serving(step, row)
            return self._data_plane(step, row, waited_s)
        except Unreadable as error:
            return Verified(Progress.UNREADABLE, reason=error.kind, control=str(error))

    def _drain_time(self, row: Mapping[str, Any] | None) -> Verified:
        # smg shows the value only for workers added with it, so the answer is all there is; the
        # next step's own read-back shows whether the entry leaves in time.
        return Verified(Progress.CONVERGED, reason="not_shown_by_router", control=_entry(row))

    def _removed(self, row: Mapping[str, Any] | None, waited_s: float) -> Verified:
        if row is None:
            return Verified(Progress.CONVERGED, control=_entry(row))
        if row.get("status") != "draining" and waited_s > _STILL_ROUTED_S:
            return Verified(Progress.STALLED, reason="still_routed", control=_entry(row))
        return Verified(Progress.PROGRESSING, reason="draining", control=_entry(row))

    def _idle(self, step: StepSpec, row: Mapping[str, Any] | None, waited_s: float) -> Verified:
        if row is not None and row.get("status") != "draining":
            return Verified(Progress.SUPERSEDED, reason="came_back", control=_entry(row))
        facts = self._client.engine(step.worker.url)
        detail = {} if facts.in_flight is None else {"in_flight": str(facts.in_flight)}
        control, data = _entry(row), _engine(facts)
        if facts.in_flight is None:
            return Verified(Progress.UNREADABLE, "in_flight_unknown", control, data)
        if facts.in_flight > 0:
            return Verified(Progress.PROGRESSING, "requests_in_flight", control, data, detail)
        lease_s = float(step.expected.get("lease_s", "0"))
        if row is not None or waited_s < lease_s:
            return Verified(Progress.PROGRESSING, "kv_lease", control, data, detail)
        return Verified(Progress.CONVERGED, "", control, data, detail)

    def _switched(self, step: StepSpec, row: Mapping[str, Any] | None) -> Verified:
        facts = self._client.engine(step.worker.url)
        control, data = _entry(row), _engine(facts)
        if facts.role == step.target_role:
            if facts.status is not None and facts.status not in ("ready", "running"):
                return Verified(Progress.PROGRESSING, "engine_loading", control, data)
            return Verified(Progress.CONVERGED, "", control, data)
        if facts.role == step.expected["from_role"]:
            return Verified(Progress.PROGRESSING, "old_role", control, data)
        if facts.role is None:
            return Verified(Progress.UNREADABLE, "role_unknown", control, data)
        return Verified(Progress.SUPERSEDED, "role_changed", control, data)

    def _added(self, step: StepSpec, row: Mapping[str, Any] | None) -> Verified:
        if row is None:
            # An address that the router cannot reach is accepted and never listed.
            return Verified(Progress.PROGRESSING, "not_listed_yet", _entry(row))
        if row.get("status") == "draining":
            return Verified(Progress.PROGRESSING, "still_draining", _entry(row))
        if row["worker_type"] != step.target_role:
            return Verified(Progress.SUPERSEDED, "role_changed", _entry(row))
        return Verified(Progress.CONVERGED, "", _entry(row))

    def _serving(self, step: StepSpec, row: Mapping[str, Any] | None) -> Verified:
        if row is None:
            return Verified(Progress.SUPERSEDED, "left_again", _entry(row))
        if row["worker_type"] != step.target_role:
            return Verified(Progress.SUPERSEDED, "role_changed", _entry(row))
        facts = self._client.engine(step.worker.url)
        control, data = _entry(row), _engine(facts)
        if row.get("status") == "ready" and row.get("is_healthy"):
            if facts.role is not None and facts.role != step.target_role:
                return Verified(Progress.SUPERSEDED, "engine_role", control, data)
            return Verified(Progress.CONVERGED, "", control, data)
        if row.get("status") == "failed":
            return Verified(Progress.STALLED, "worker_failed", control, data)
        return Verified(Progress.PROGRESSING, "not_ready_yet", control, data)

    def _data_plane(
        self, step: StepSpec, row: Mapping[str, Any] | None, waited_s: float
    ) -> Verified:
        seen = self._serving(step, row)
        if seen.progress in (Progress.SUPERSEDED, Progress.STALLED):
            return seen
        facts = self._client.engine(step.worker.url)
        now = self._counters(step)
        before = {
            key.removeprefix(BASELINE): float(value)
            for key, value in step.expected.items()
            if key.startswith(BASELINE)
        }
        if not before:
            detail = {BASELINE + key: f"{value:.0f}" for key, value in now.items()}
            return Verified(
                Progress.PROGRESSING, "first_reading", seen.control, _engine(facts), detail
            )
        routed = _rose(before, now, "worker")
        worked = _rose(before, now, "engine") if "engine" in now else True
        control = f"{_ROUTER_COUNTER} {now['worker']:.0f} (was {before.get('worker', 0):.0f})"
        data = _engine(facts) + (
            f"; tokens in the role {now['engine']:.0f} (was {before.get('engine', 0):.0f})"
            if "engine" in now
            else ""
        )
        if facts.role != step.target_role:
            return Verified(Progress.PROGRESSING, "engine_role", control, data)
        if routed and worked:
            return Verified(Progress.CONVERGED, "", control, data)
        quiet = not _rose(before, now, "total")
        if quiet and waited_s >= float(step.expected.get("quiet_s", "45")):
            # Nobody sends requests: the worker is not passed over, it has nothing to serve.
            return Verified(Progress.CONVERGED, "no_traffic", control, data)
        return Verified(Progress.PROGRESSING, "first_request", control, data)

    def _counters(self, step: StepSpec) -> dict[str, float]:
        """Requests the router sent to this worker and to all, tokens the engine did in the role."""
        sent = [
            (labels.get("worker"), value)
            for name, labels, value in self._client.router_samples()
            if name == _ROUTER_COUNTER
        ]
        found = {
            "worker": sum(value for worker, value in sent if worker == step.worker.url),
            "total": sum(value for _, value in sent),
        }
        wanted = _ROLE_COUNTERS.get(step.target_role, ())
        done = [
            value
            for name, labels, value in self._client.samples(
                step.worker.url.rstrip("/") + "/metrics"
            )
            if any(name == n and labels.get(key) == want for n, key, want in wanted)
        ]
        if done:
            found["engine"] = sum(done)
        return found


def _rose(before: Mapping[str, float], now: Mapping[str, float], key: str) -> bool:
    """True if a counter rose; one that restarted rose if it is above 0 again."""
    was, value = before.get(key, 0.0), now.get(key, 0.0)
    return value > was or (value < was and value > 0)


def _entry(row: Mapping[str, Any] | None) -> str:
    if row is None:
        return "not listed by the router"
    return f"router: {row['worker_type']}, {row.get('status', 'listed')}"


def _engine(facts: EngineFacts) -> str:
    in_flight = "unknown" if facts.in_flight is None else str(facts.in_flight)
    return f"engine: {facts.role or 'role unknown'}, {in_flight} in flight"
