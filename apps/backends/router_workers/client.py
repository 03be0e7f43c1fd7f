"""HTTP of the router and of the engines: requests, answers and their reading. No decisions."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, cast

from apps.common.fetch import FetchError, FetchResult

from ..errors import BadConnection, from_fetch_error, from_status, safe_text
from ..protocol import Applied, Connection

#: A worker id that no worker has. Deleting it asks the router whether we may delete at all:
#: 404 with an admin key, 403 with a reading one, 401 with a wrong one (recorded, smg 1.13.0).
NOBODY: Final = "00000000-0000-0000-0000-000000000000"

#: Counts of requests that hold an engine, in `/server_info` internal_states.
_STATE_COUNTS: Final = (
    "num_running_reqs",
    "num_queued_reqs",
    "num_queue_reqs",
    "num_waiting_reqs",
    "num_transferring_reqs",
)
#: The same as gauges, where `/server_info` has none.
_GAUGES: Final = (
    "sglang:num_running_reqs",
    "sglang:num_queue_reqs",
    "sglang:num_prefill_bootstrap_queue_reqs",
    "sglang:num_prefill_inflight_queue_reqs",
    "sglang:num_decode_prealloc_queue_reqs",
    "sglang:num_decode_transfer_queue_reqs",
    "vllm:num_requests_running",
    "vllm:num_requests_waiting",
)
_SAMPLE: Final = re.compile(
    r"^([a-zA-Z_:][\w:]*)(?:\{((?:[^}\"]|\"(?:[^\"\\]|\\.)*\")*)\})?\s+(\S+)"
)
_LABEL: Final = re.compile(r'([a-zA-Z_]\w*)="((?:[^"\\]|\\.)*)"')


@dataclass(frozen=True, slots=True)
class EngineFacts:
    """What an engine says of itself. None means it did not say; `in_flight` is a sum of requests
    running, queued and transferring."""

    role: str | None
    in_flight: int | None
    instance_id: str | None
    version: str | None
    bootstrap_port: int | None
    can_switch: bool | None
    status: str | None = None


class Unreadable(Exception):
    """A read brought no usable answer. `kind` is a stable word, the message is safe to show."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class RouterClient:
    """Calls one router and its engines through the checked fetcher of the connection."""

    def __init__(self, connection: Connection) -> None:
        if connection.fetch is None:
            raise BadConnection("the connection has no fetcher")
        if not connection.address:
            raise BadConnection("the router's address is missing")
        self._connection = connection
        self._base = connection.address.rstrip("/")
        self._secrets = (connection.credential, connection.engine_credential)

    # --- reads ---------------------------------------------------------------------------------

    def workers(self) -> list[Mapping[str, Any]]:
        """`GET /workers`. Raises Unreadable."""
        body = self._read_json(self._base + "/workers", self._connection.credential)
        rows = body.get("workers") if isinstance(body, dict) else None
        if not isinstance(rows, list) or not all(_is_worker(row) for row in rows):
            raise Unreadable("unexpected_answer", "the router's list of workers is not readable")
        return rows

    def engine(self, url: str) -> EngineFacts:
        """`GET /server_info` of an engine (and `/metrics` where it gives no counts)."""
        try:
            body = self._read_json(url.rstrip("/") + "/server_info", "")
        except Unreadable as error:
            if error.kind != "http_404":
                raise
            body = {}
        facts = _engine_facts(body if isinstance(body, dict) else {})
        if facts.in_flight is not None:
            return facts
        return EngineFacts(
            role=facts.role,
            in_flight=_in_flight_gauges(self.samples(url.rstrip("/") + "/metrics")),
            instance_id=facts.instance_id,
            version=facts.version,
            bootstrap_port=facts.bootstrap_port,
            can_switch=facts.can_switch,
            status=facts.status,
        )

    def router_samples(self) -> list[tuple[str, Mapping[str, str], float]]:
        """The router's own metrics; raises Unreadable."""
        address = self._connection.metrics_address
        if not address:
            raise Unreadable("no_metrics_address", "the router's metrics address is missing")
        scheme, rest = address.split("://", 1) if "://" in address else ("http", address)
        path = rest if "/" in rest.rstrip("/") else rest.rstrip("/") + "/metrics"
        return self.samples(f"{scheme}://{path}")

    def samples(self, url: str) -> list[tuple[str, Mapping[str, str], float]]:
        """Samples (name, labels, value) of an exposition; raises Unreadable."""
        return list(parse_samples(self._read(url, "").text()))

    def may_write(self) -> Applied:
        """Ask whether the credential may delete, by deleting an id that nobody has."""
        return self._send("DELETE", f"{self._base}/workers/{NOBODY}", None)

    # --- writes --------------------------------------------------------------------------------

    def set_drain_time(self, router_id: str, seconds: int) -> Applied:
        body = {"health": {"drain_settle_secs": seconds}}
        return self._send("PATCH", f"{self._base}/workers/{router_id}", body)

    def remove(self, router_id: str) -> Applied:
        return self._send("DELETE", f"{self._base}/workers/{router_id}", None)

    def add(
        self, url: str, role: str, bootstrap_port: int | None, labels: Mapping[str, str]
    ) -> Applied:
        body: dict[str, Any] = {"url": url, "worker_type": role, "labels": dict(labels)}
        if bootstrap_port is not None:
            body["bootstrap_port"] = bootstrap_port
        return self._send("POST", f"{self._base}/workers", body)

    def switch_role(self, url: str, role: str, total_s: float) -> Applied:
        return self._send(
            "POST",
            url.rstrip("/") + "/pd_role_switch",
            {"new_role": role},
            credential=self._connection.engine_credential,
            total_s=total_s,
        )

    # --- plumbing ------------------------------------------------------------------------------

    def _send(
        self,
        method: str,
        url: str,
        body: Any,
        *,
        credential: str | None = None,
        total_s: float = 10.0,
    ) -> Applied:
        sent = f"{method} {url}" + ("" if body is None else f" {json.dumps(body, sort_keys=True)}")
        request = safe_text(sent, self._secrets)
        secret = self._connection.credential if credential is None else credential
        try:
            answer = self._fetch(url, method, secret, body, total_s)
        except FetchError as error:
            return from_fetch_error(error, request)
        text = safe_text(f"{answer.status} {answer.text()}", self._secrets)
        return from_status(
            answer.status,
            request=request,
            answer=text,
            headers=answer.headers,
            reference=_worker_id(answer),
        )

    def _read_json(self, url: str, credential: str) -> Any:
        try:
            return self._read(url, credential).json()
        except ValueError as error:
            raise Unreadable("unexpected_answer", "the answer is not JSON") from error

    def _read(self, url: str, credential: str) -> FetchResult:
        try:
            answer = self._fetch(url, "GET", credential, None, 10.0)
        except FetchError as error:
            raise Unreadable(error.kind, str(error)) from error
        if answer.status != 200:
            text = safe_text(answer.text(), self._secrets)
            raise Unreadable(f"http_{answer.status}", f"{answer.status} {text}"[:200])
        return answer

    def _fetch(
        self, url: str, method: str, credential: str, body: Any, total_s: float
    ) -> FetchResult:
        headers = {"Accept": "application/json"}
        if credential:
            headers["Authorization"] = f"Bearer {credential}"
        call = self._connection.fetch
        assert call is not None  # checked when built
        answer = call(url, method=method, headers=headers, json_body=body, total_s=total_s)
        return cast(FetchResult, answer)


def parse_samples(text: str) -> list[tuple[str, Mapping[str, str], float]]:
    """Finite samples of a Prometheus exposition; comments and broken lines are skipped."""
    found: list[tuple[str, Mapping[str, str], float]] = []
    for line in text.splitlines():
        match = _SAMPLE.match(line)
        if match is None:
            continue
        try:
            value = float(match.group(3))
        except ValueError:
            continue
        if value == value and abs(value) != float("inf"):
            labels = {
                key: raw.replace('\\"', '"').replace("\\\\", "\\")
                for key, raw in _LABEL.findall(match.group(2) or "")
            }
            found.append((match.group(1), labels, value))
    return found


def _is_worker(row: Any) -> bool:
    return isinstance(row, dict) and all(
        isinstance(row.get(key), str) for key in ("id", "url", "worker_type")
    )


def _engine_facts(body: Mapping[str, Any]) -> EngineFacts:
    states = body.get("internal_states")
    state = states[0] if isinstance(states, list) and states and isinstance(states[0], dict) else {}
    # The launch argument at the top stays as it was started; the live role is inside.
    role = state.get("disaggregation_mode") or body.get("disaggregation_mode")
    # Without the transferring ones the count would be too low: the gauges have all queues then.
    whole = [
        one
        for one in (states if isinstance(states, list) else [])
        if isinstance(one, dict) and "num_transferring_reqs" in one
    ]
    counts = [one[key] for one in whole for key in _STATE_COUNTS if isinstance(one.get(key), int)]
    port = body.get("disaggregation_bootstrap_port")
    return EngineFacts(
        role=role if isinstance(role, str) else None,
        in_flight=sum(counts) if counts else None,
        instance_id=_text(state.get("instance_id") or body.get("instance_id")),
        version=_text(body.get("version")),
        bootstrap_port=port if isinstance(port, int) else None,
        can_switch=_flag(body.get("enable_pd_role_switch")),
        status=_text(state.get("status")),
    )


def _in_flight_gauges(samples: list[tuple[str, Mapping[str, str], float]]) -> int | None:
    values = [value for name, _, value in samples if name in _GAUGES]
    return round(sum(values)) if values else None


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def _flag(value: Any) -> bool | None:
    return value if isinstance(value, bool) else None


def _worker_id(answer: FetchResult) -> str:
    try:
        body = answer.json()
    except ValueError:
        return ""
    found = body.get("worker_id") if isinstance(body, dict) else None
    return found if isinstance(found, str) else ""
