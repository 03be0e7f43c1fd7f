"""Strict replay of answers that a real smg 1.13.0 gave: the adapter may ask for nothing else."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from apps.backends import registry
from apps.backends.protocol import Adapter, Connection, Outcome, StepKind, StepSpec, WorkerRef
from apps.common.fetch import FetchError, FetchResult

AT = datetime(2026, 11, 30, 3, 20, tzinfo=UTC)
RECORDED = Path(__file__).parents[2] / "data" / "backends" / "smg-1.13.0.jsonl"
ROUTER = "http://router.test"
ENGINE = "http://127.0.0.1:19005"


def recorded(source: str) -> FetchResult:
    """The recorded answer with that source."""
    for line in RECORDED.read_text().splitlines():
        row = json.loads(line)
        if row["source"] == source:
            answer = row["response"]
            body = json.dumps(answer["json"]) if "json" in answer else answer["text"]
            return FetchResult(answer["status"], body.encode(), {}, 0.001)
    raise AssertionError(f"nothing recorded as {source}")


class Replay:
    """Answers each (method, path) once per entry and in order; everything else fails the test."""

    def __init__(self, answers: Mapping[tuple[str, str], list[FetchResult | FetchError]]) -> None:
        self.answers = {key: list(found) for key, found in answers.items()}
        self.sent: list[tuple[str, str, Any]] = []

    def __call__(
        self,
        url: str,
        *,
        method: str,
        headers: Mapping[str, str],
        json_body: Any,
        total_s: float,
    ) -> FetchResult:
        path = url.removeprefix(ROUTER)
        self.sent.append((method, path, json_body))
        left = self.answers.get((method, path))
        assert left, f"unexpected request {method} {path}"
        answer = left.pop(0)
        if isinstance(answer, FetchError):
            raise answer
        return answer

    def writes(self) -> list[tuple[str, str, Any]]:
        return [one for one in self.sent if one[0] != "GET"]


def adapter(replay: Replay) -> Adapter:
    connection = Connection(
        address=ROUTER, credential="admin-secret", engine_credential="engine-secret", fetch=replay
    )
    return registry.build("router_workers", connection)


def step(kind: StepKind, url: str = ENGINE, role: str = "decode", to: str = "decode") -> StepSpec:
    return StepSpec(
        index=0,
        kind=kind,
        worker=WorkerRef(url, "d-5", role, 20005),
        target_role=to,
        deadline_s=60,
        gpus_during=Decimal(5),
        serving_during={},
        expected={"from_role": role},
    )


WORKERS = ("GET", "/workers")
LIST = "smg-1.13.0-pd.jsonl:8"
ENGINE_INFO = FetchResult(
    200, b'{"internal_states":[{"disaggregation_mode":"decode","num_transferring_reqs":0}]}', {}, 0
)
ADD = ("POST", "/workers")


def member() -> tuple[str, str, str]:
    """Id, address and type of a decode worker in the recorded list."""
    rows = recorded(LIST).json()["workers"]
    row = next(one for one in rows if one["worker_type"] == "decode")
    return row["id"], row["url"], row["worker_type"]


def test_the_recorded_list_is_read_as_it_is() -> None:
    replay = Replay({WORKERS: [recorded(LIST)]})
    rows = recorded(LIST).json()["workers"]
    for row in rows:
        replay.answers[("GET", row["url"] + "/server_info")] = [
            FetchError("the connection was refused", sent=False, kind="connect")
        ]
    snapshot = adapter(replay).observe(AT)
    assert snapshot.complete
    assert {(w.url, w.role, w.status) for w in snapshot.workers} == {
        (row["url"], row["worker_type"], row["status"]) for row in rows
    }
    assert all(w.in_flight is None and w.engine_role is None for w in snapshot.workers)
    assert len(snapshot.problems) == len(rows)
    prefill = next(w for w in snapshot.workers if w.role == "prefill")
    assert prefill.bootstrap_port == 20000 + int(prefill.url[-1])
    assert prefill.labels["runtime_type"] == "sglang"


def test_add_is_accepted_with_an_id_and_our_label() -> None:
    replay = Replay(
        {
            WORKERS: [recorded(LIST)],
            ("GET", ENGINE + "/server_info"): [ENGINE_INFO],
            ADD: [recorded("smg-1.13.0-pd.jsonl:15")],
        }
    )
    done = adapter(replay).apply(step(StepKind.ADD_WORKER), key="C-7.3", epoch=2)
    assert done.outcome is Outcome.ACCEPTED
    assert done.reference == "01a22a75-bb66-70be-a395-0d689f8176cd"
    assert replay.writes() == [
        (
            "POST",
            "/workers",
            {"url": ENGINE, "worker_type": "decode", "labels": {"fulcrum_command": "C-7.3"}},
        )
    ]


@pytest.mark.parametrize(
    ("source", "outcome", "reason"),
    [
        ("smg-1.13.0-pd.jsonl:18", Outcome.CONFLICT, "http_409"),
        ("smg-1.13.0-pd.jsonl:23", Outcome.UNSUPPORTED, "http_400"),
        ("smg-1.13.0-auth.jsonl:40", Outcome.DENIED, "http_401"),
        ("smg-1.13.0-auth.jsonl:24", Outcome.DENIED, "http_403"),
    ],
)
def test_refusals_of_a_write(source: str, outcome: Outcome, reason: str) -> None:
    replay = Replay(
        {
            WORKERS: [recorded(LIST)],
            ("GET", ENGINE + "/server_info"): [ENGINE_INFO],
            ADD: [recorded(source)],
        }
    )
    done = adapter(replay).apply(step(StepKind.ADD_WORKER), key="C-7.3", epoch=2)
    assert (done.outcome, done.reason) == (outcome, reason)
    assert done.answer.startswith(reason.removeprefix("http_"))
    assert "secret" not in done.answer + done.request
    assert len(replay.writes()) == 1, "no retry and no other write surface"


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (FetchError("no answer in time", sent=True, kind="timeout"), Outcome.UNKNOWN),
        (FetchError("the connection broke", sent=True, kind="connect"), Outcome.UNKNOWN),
        (FetchError("refused", sent=False, kind="connect"), Outcome.RETRYABLE),
        (FetchError("no such name", sent=False, kind="dns"), Outcome.RETRYABLE),
        (FetchError("outside the networks", sent=False, kind="denied"), Outcome.DENIED),
    ],
)
def test_broken_calls(error: FetchError, outcome: Outcome) -> None:
    router_id, url, _ = member()
    replay = Replay({WORKERS: [recorded(LIST)], ("DELETE", f"/workers/{router_id}"): [error]})
    done = adapter(replay).apply(step(StepKind.REMOVE_WORKER, url), key="k", epoch=1)
    assert done.outcome is outcome
    assert len(replay.writes()) == 1


def test_unreadable_router_sends_nothing() -> None:
    replay = Replay({WORKERS: [FetchError("refused", sent=False, kind="connect")]})
    done = adapter(replay).apply(step(StepKind.REMOVE_WORKER), key="k", epoch=1)
    assert (done.outcome, replay.writes()) == (Outcome.RETRYABLE, [])
    replay = Replay({WORKERS: [recorded("smg-1.13.0-auth.jsonl:35")]})
    done = adapter(replay).apply(step(StepKind.REMOVE_WORKER), key="k", epoch=1)
    assert (done.outcome, done.reason, replay.writes()) == (Outcome.DENIED, "http_401", [])


def test_remove_is_by_the_present_id_and_never_twice() -> None:
    router_id, url, _ = member()
    replay = Replay(
        {
            WORKERS: [recorded(LIST)],
            ("DELETE", f"/workers/{router_id}"): [recorded("smg-1.13.0-pd.jsonl:26")],
        }
    )
    done = adapter(replay).apply(step(StepKind.REMOVE_WORKER, url), key="k", epoch=1)
    assert done.outcome is Outcome.ACCEPTED

    draining = recorded("smg-1.13.0-pd.jsonl:27").json()
    assert draining["status"] == "draining"
    body = json.dumps({"workers": [draining]}).encode()
    replay = Replay({WORKERS: [FetchResult(200, body, {}, 0)]})
    done = adapter(replay).apply(step(StepKind.REMOVE_WORKER), key="k", epoch=1)
    assert (done.outcome, replay.writes()) == (Outcome.NOOP, [])


def test_a_404_of_a_worker_that_left_meanwhile_is_what_was_wanted() -> None:
    router_id, url, _ = member()
    gone = FetchResult(200, b'{"workers": []}', {}, 0)
    replay = Replay(
        {
            WORKERS: [recorded(LIST), gone],
            ("DELETE", f"/workers/{router_id}"): [recorded("smg-1.13.0-pd.jsonl:29")],
        }
    )
    done = adapter(replay).apply(step(StepKind.REMOVE_WORKER, url), key="k", epoch=1)
    assert done.outcome is Outcome.NOOP
    replay = Replay(
        {
            WORKERS: [recorded(LIST), recorded(LIST)],
            ("DELETE", f"/workers/{router_id}"): [recorded("smg-1.13.0-pd.jsonl:29")],
        }
    )
    done = adapter(replay).apply(step(StepKind.REMOVE_WORKER, url), key="k", epoch=1)
    assert (done.outcome, done.reason) == (Outcome.UNSUPPORTED, "http_404")


def test_the_drain_time_is_a_patch_of_health() -> None:
    router_id, url, _ = member()
    replay = Replay(
        {
            WORKERS: [recorded(LIST)],
            ("PATCH", f"/workers/{router_id}"): [recorded("smg-1.13.0-pd-drain.jsonl:5")],
        }
    )
    done = adapter(replay).apply(step(StepKind.SET_DRAIN_TIME, url), key="k", epoch=1)
    assert done.outcome is Outcome.ACCEPTED
    assert replay.writes()[0][2] == {"health": {"drain_settle_secs": 1}}


@pytest.mark.parametrize(
    ("status", "headers", "outcome", "after"),
    [
        (503, {"Retry-After": "7"}, Outcome.RETRYABLE, 7.0),
        (429, {}, Outcome.RETRYABLE, 5.0),
        (502, {}, Outcome.UNKNOWN, None),
        (504, {}, Outcome.UNKNOWN, None),
        (500, {}, Outcome.UNKNOWN, None),
        (422, {}, Outcome.UNSUPPORTED, None),
        (412, {}, Outcome.DENIED, None),
    ],
)
def test_the_rest_of_the_table(
    status: int, headers: dict[str, str], outcome: Outcome, after: float | None
) -> None:
    router_id, url, _ = member()
    replay = Replay(
        {
            WORKERS: [recorded(LIST)],
            ("DELETE", f"/workers/{router_id}"): [FetchResult(status, b"busy", headers, 0)],
        }
    )
    done = adapter(replay).apply(step(StepKind.REMOVE_WORKER, url), key="k", epoch=1)
    assert (done.outcome, done.retry_after_s) == (outcome, after)


def test_a_worker_whose_type_somebody_changed_is_a_conflict() -> None:
    _, url, _ = member()
    replay = Replay({WORKERS: [recorded(LIST)]})
    removed = step(StepKind.REMOVE_WORKER, url, role="prefill")
    done = adapter(replay).apply(removed, key="k", epoch=1)
    assert (done.outcome, done.answer, replay.writes()) == (Outcome.CONFLICT, "decode", [])


def test_secrets_in_an_answer_are_blotted_out() -> None:
    router_id, url, _ = member()
    echo = FetchResult(403, b"bad key admin-secret", {}, 0)
    replay = Replay({WORKERS: [recorded(LIST)], ("DELETE", f"/workers/{router_id}"): [echo]})
    done = adapter(replay).apply(step(StepKind.REMOVE_WORKER, url), key="k", epoch=1)
    assert "admin-secret" not in done.answer
