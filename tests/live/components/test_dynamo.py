"""A real Dynamo: its frontend and its mocker workers, driven by a client and read by both
collectors. Every count is compared with what the client sent and received."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pytest
import requests

from apps.common.measurement import Place, State
from apps.engines import loader
from apps.engines.evaluate import evaluate
from apps.engines.exposition import parse
from apps.engines.readings import read
from apps.engines.scraped import ScrapedReader
from apps.engines.window import Signal
from apps.telemetry.domain.figures import DeploymentFigures
from apps.telemetry.domain.identity import join_ids
from tests.contract.engines.data import signals
from tests.support.components import client
from tests.support.components.client import Answer, Ask, Totals
from tests.support.components.dynamo import MODEL, Dynamo, dynamo
from tests.support.components.observed import (
    DIRECT,
    KINDS,
    Observer,
    Reporter,
    Subject,
    Windows,
    agrees,
    observer,
    total,
)

pytestmark = [pytest.mark.live, pytest.mark.django_db]

#: Recordings of the same programs: what the profiles' evidence marked `live` rests on.
RECORDED = {
    "frontend": ("dynamo_frontend", "dynamo-1.6.1-frontend-loaded.prom"),
    "prefill": ("dynamo_component", "dynamo-1.6.1-prefill-worker-loaded.prom"),
    "decode": ("dynamo_component", "dynamo-1.6.1-decode-worker-loaded.prom"),
}
ROLES = ("prefill", "decode")
#: Streams and whole answers, of different lengths.
ASKS = [
    Ask(words=20 + 5 * number, output=8 + 3 * number, stream=number % 3 != 0)
    for number in range(24)
]

#: Counters of the frontend that are looked up raw.
RAW = (
    "requests_started_total", "requests_total", "input_sequence_tokens_sum", "output_tokens_total",
)  # fmt: skip


@dataclass
class Run:
    """What was seen: under plain traffic, while one decode worker of two was killed under
    streams, and with no decode worker left."""

    totals: Totals
    windows: Windows
    figures: dict[str, DeploymentFigures]
    stored: dict[str, float | None]
    registered: dict[str, str]
    texts: dict[str, str]
    roles: dict[str, str]
    left: Answer
    streams: list[Answer]
    broken: Windows
    broken_figures: dict[str, DeploymentFigures]
    refused: list[Answer]
    failures: tuple[float, float]
    late: Windows


@pytest.fixture(scope="module")
def run(module_db, tmp_path_factory) -> Run:
    folder = tmp_path_factory.mktemp("dynamo")
    with dynamo(folder, prefill=1, decode=2) as fleet, module_db():
        subject = Subject(
            "dynamo",
            "dynamo",
            tuple(Reporter(w.name, w.role, w.url, w.metrics_url) for w in fleet.workers),
            {"frontend_metrics_url": fleet.metrics_url, "frontend_profile": "dynamo_frontend"},
        )
        with observer([subject], tmp_path_factory.mktemp("prometheus")) as watch:
            return _observe(fleet, watch)


def _observe(fleet: Dynamo, watch: Observer) -> Run:
    watch.begin()
    answers = client.send(fleet.url, MODEL, ASKS)
    windows = watch.end()["dynamo"]
    figures = {kind: watch.figures("dynamo", kind) for kind in KINDS}
    stored = {name: watch.stored(f"dynamo_frontend_{name}", fleet.url) for name in RAW}
    texts = {worker.name: _text(worker.metrics_url) for worker in fleet.workers}
    texts["frontend"] = _text(fleet.metrics_url)
    registered = fleet.registered()

    left = client.one(fleet.url, MODEL, Ask(words=20, output=400, leave_after=2_000))
    first, second = fleet.of("decode")
    streams = _killed_while_streaming(fleet, first.process.kill)
    broken = watch.end({first.metrics_url})["dynamo"]
    broken_figures = {kind: watch.figures("dynamo", kind) for kind in KINDS}

    before = watch.stored("dynamo_frontend_failures_total", fleet.url) or 0.0
    second.process.kill()
    refused = client.send(fleet.url, MODEL, [Ask(words=20, output=4)] * 3, at_once=1)
    late = watch.end({first.metrics_url, second.metrics_url}, window_s=1.0)["dynamo"]
    after = watch.stored("dynamo_frontend_failures_total", fleet.url) or 0.0
    return Run(
        Totals.of(answers), windows, figures, stored, registered, texts,
        {worker.name: worker.role for worker in fleet.workers},
        left, streams, broken, broken_figures, refused, (before, after), late,
    )  # fmt: skip


def _text(url: str) -> str:
    return requests.get(url, timeout=5).text


def _killed_while_streaming(fleet: Dynamo, kill: Callable[[], None]) -> list[Answer]:
    """Six streams on two decode workers; when all of them flow, one worker dies."""
    flowing = threading.Barrier(7, timeout=20)

    def stream(number: int) -> Answer:
        begun = threading.Event()

        def on_bytes(count: int) -> None:
            if count > 1_000 and not begun.is_set():
                begun.set()
                flowing.wait()

        return client.one(fleet.url, MODEL, Ask(words=20 + number, output=500), on_bytes)

    with ThreadPoolExecutor(6) as pool:
        streams = [pool.submit(stream, number) for number in range(6)]
        flowing.wait()
        kill()
        return [stream.result() for stream in streams]


# --- plain traffic --------------------------------------------------------------------------------


def test_every_request_was_answered_as_asked(run):
    assert run.totals.sent == run.totals.ok == len(ASKS)
    assert run.totals.output_tokens == sum(ask.output for ask in ASKS)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("scope", RECORDED)
def test_every_signal_with_live_evidence_resolves_and_no_other(run, kind, scope):
    profile, file = RECORDED[scope]
    assert set(run.windows[kind][scope].values) == set(signals(profile, scope, "live", file))


@pytest.mark.parametrize("kind", KINDS)
def test_frontend_totals_are_the_clients(run, kind):
    window, totals = run.windows[kind]["frontend"], run.totals
    for signal, expected in {
        Signal.REQUESTS_ARRIVED: totals.sent,
        Signal.REQUESTS_COMPLETED: totals.ok,
        Signal.REQUESTS_FAILED: 0,
        Signal.INPUT_TOKENS: totals.prompt_tokens,
        Signal.OUTPUT_TOKENS: totals.output_tokens,
        Signal.TTFT: totals.ok,
        Signal.E2E: totals.ok,
        # One gap less than tokens per request.
        Signal.ITL: totals.output_tokens - totals.ok,
    }.items():
        assert agrees(kind, window, signal, expected), (signal, total(window, signal), expected)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("role", ROLES)
def test_each_pool_finished_one_leg_of_every_request(run, kind, role):
    window = run.windows[kind][role]
    assert agrees(kind, window, Signal.REQUESTS_COMPLETED, run.totals.ok)
    assert set(window.reported) == set(window.expected)
    assert len(window.reported) == list(run.roles.values()).count(role)


def test_the_prometheus_holds_exactly_the_clients_totals(run):
    assert run.stored == {
        "requests_started_total": run.totals.sent,
        "requests_total": run.totals.ok,
        "input_sequence_tokens_sum": run.totals.prompt_tokens,
        "output_tokens_total": run.totals.output_tokens,
    }


@pytest.mark.parametrize("kind", KINDS)
def test_prefill_mockers_export_no_engine_series_and_that_is_no_zero(run, kind):
    assert "vllm:" not in run.texts["prefill-0"]
    assert "vllm:" in run.texts["decode-0"] and "vllm:" in run.texts["decode-1"]
    unknown = {Signal.KV_USED, Signal.PREEMPTIONS, Signal.TPOT, Signal.ITL, Signal.INPUT_TOKENS}
    assert not unknown & set(run.windows[kind]["prefill"].values)
    figure = run.figures[kind].prefill.kv_used
    assert (figure.value, figure.state) == (None, State.NO_DATA)
    assert run.figures[kind].decode.kv_used.state is State.OK


@pytest.mark.parametrize("kind", KINDS)
def test_the_users_latencies_are_the_frontends(run, kind):
    figures = run.figures[kind]
    assert figures.ttft.mean.place is Place.FRONTEND
    assert figures.ttft.mean.state is State.OK
    assert 0 < figures.ttft.mean.number() < client.PATIENCE_S


# --- roles and identity ---------------------------------------------------------------------------


def test_each_process_names_its_role(run):
    for name, role in run.roles.items():
        values = {
            labels["dynamo_component"]
            for labels in _labels(run.texts[name])
            if "dynamo_component" in labels
        }
        assert values == {"prefill" if role == "prefill" else "backend"}
        allowed = loader.load("dynamo_component").allowed_roles(role)
        assert allowed is not None and values <= set(allowed)


@pytest.mark.parametrize(("name", "wrong"), [("prefill-0", "decode"), ("decode-0", "prefill")])
def test_read_in_the_wrong_role_a_workers_own_requests_do_not_count(run, name, wrong):
    profile = loader.load("dynamo_component")
    reading = read(run.texts[name], profile)
    before = type(reading)({}, {}, reading.siblings)
    found = evaluate(profile, wrong, ScrapedReader(profile, wrong, [before, reading]))
    finished = found.get(Signal.REQUESTS_COMPLETED)
    assert finished is None or sum((finished.parts or {}).values()) == 0
    right = evaluate(
        profile, run.roles[name], ScrapedReader(profile, run.roles[name], [before, reading])
    )
    assert sum(right[Signal.REQUESTS_COMPLETED].parts.values()) > 0


def test_hexadecimal_worker_ids_join_the_frontends_decimal_ones(run):
    own = {
        labels["worker_id"]: role
        for name, role in run.roles.items()
        for labels in _labels(run.texts[name])
        if "worker_id" in labels
    }
    assert len(own) == len(run.roles)
    at_frontend = {
        labels["worker_id"]: labels["worker_type"]
        for labels in _labels(run.texts["frontend"], "dynamo_frontend_worker_active_prefill_tokens")
    }
    joined = join_ids(own, at_frontend)
    assert {at_frontend[joined[worker]] for worker in own if own[worker] == "decode"} == {"decode"}
    assert {worker: at_frontend[there] for worker, there in joined.items()} == own
    listed = join_ids(own, run.registered)
    assert {run.registered[there] for there in listed.values()} == {"prefill", "backend"}
    assert set(listed) == set(own)


def _labels(text: str, name: str = "") -> list[dict[str, str]]:
    return [dict(series.labels) for series in parse(text).series if name in ("", series.name)]


# --- failures -------------------------------------------------------------------------------------


def test_streams_of_a_killed_worker_were_cut_and_the_others_not(run):
    assert run.left.outcome == "left"
    assert {answer.outcome for answer in run.streams} == {"ok", "cut"}
    assert all(answer.output_tokens == 500 for answer in run.streams if answer.outcome == "ok")


@pytest.mark.parametrize("kind", KINDS)
def test_cut_streams_are_failures_and_who_left_is_not(run, kind):
    window = run.broken[kind]["frontend"]
    whole = sum(answer.outcome == "ok" for answer in run.streams)
    cut = len(run.streams) - whole
    for signal, expected in {
        Signal.REQUESTS_ARRIVED: len(run.streams) + 1,
        Signal.REQUESTS_COMPLETED: whole,
        Signal.REQUESTS_FAILED: cut,
        Signal.REQUESTS_ABORTED: 1,
    }.items():
        assert agrees(kind, window, signal, expected), (signal, total(window, signal), expected)


@pytest.mark.parametrize("kind", KINDS)
def test_a_dead_worker_makes_its_pool_partial(run, kind):
    window = run.broken[kind]["decode"]
    assert (len(window.expected), len(window.reported)) == (2, 1)
    assert run.broken_figures[kind].decode.running.state is State.PARTIAL
    assert run.broken_figures[kind].ttft.mean.state is State.OK


def test_without_a_decode_worker_refusals_are_counted_as_the_frontend_counts_them(run):
    """The frontend refuses most of these before it counts them as started: then they are in
    `failures_total` and in no request counter. What it did start has failed."""
    assert {(answer.outcome, answer.status) for answer in run.refused} == {("refused", 503)}
    before, after = run.failures
    assert after - before == len(run.refused)
    window = run.late[DIRECT]["frontend"]
    assert total(window, Signal.REQUESTS_COMPLETED) == 0
    started = total(window, Signal.REQUESTS_ARRIVED)
    failed = total(window, Signal.REQUESTS_FAILED)
    assert started is not None and started <= len(run.refused)
    assert failed in (started, len(run.refused))
    assert all("decode" not in run.late[kind] for kind in KINDS)
