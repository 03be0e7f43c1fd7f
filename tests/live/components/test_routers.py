"""The real routers in PD mode before stand-in engines, driven by a client and read by both
collectors. Every count is compared with what the client sent and received."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass

import pytest

from apps.engines.window import GaugeValue, Signal
from apps.simulation.demo.engine import DEAD_WORKER
from tests.contract.engines.data import signals
from tests.support.components import client
from tests.support.components.client import Answer, Ask, Totals
from tests.support.components.engines import engines
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
from tests.support.components.routers import (
    ENGINES,
    SGLANG_ROUTER,
    SMG,
    VLLM_ROUTER,
    Router,
    build,
    routers,
)

pytestmark = [pytest.mark.live, pytest.mark.django_db]

NAMES = (SGLANG_ROUTER, VLLM_ROUTER, SMG)
ASKS = [
    Ask(words=20 + 5 * number, output=8 + 3 * number, stream=number % 3 != 0)
    for number in range(18)
]


#: Recordings of the same programs: what the profiles' evidence marked `live` rests on.
RECORDED = {
    SGLANG_ROUTER: ("sglang_router", "sglang-router-0.3.2-pd.prom"),
    VLLM_ROUTER: ("vllm_router", "vllm-router-0.1.17-pd.prom"),
    SMG: ("smg", "smg-1.13.0-pd.prom"),
}
#: In the recording the engines told smg how many requests they run at once; these keep quiet.
UNSAID = {SMG: {Signal.MAX_RUNNING}}
LEFT, CUT, REFUSED = 1, 2, 2


@dataclass(frozen=True)
class Seen:
    """What happened to one router, and what the collectors made of it: under plain traffic, then
    while its decode engines died under streams and were missing after."""

    engine_urls: set[str]
    totals: Totals
    windows: Windows
    broken: list[Answer]
    after: Windows


@pytest.fixture(scope="module")
def seen(module_db, tmp_path_factory) -> Mapping[str, Seen]:
    folder = tmp_path_factory.mktemp("routers")
    with ExitStack() as stack:
        found = [build(name, stack.enter_context(engines(ENGINES[name])), folder) for name in NAMES]
        stack.enter_context(routers(found))
        stack.enter_context(module_db())
        watch = stack.enter_context(
            observer([_subject(router) for router in found], tmp_path_factory.mktemp("prometheus"))
        )
        return _observe(found, watch)


def _subject(router: Router) -> Subject:
    return Subject(
        router.name,
        router.engines.kind,
        tuple(
            Reporter(plan.name, role, plan.url, f"{plan.url}/metrics")
            for role in ("prefill", "decode")
            for plan in router.engines.of(role)
        ),
        {"metrics_url": router.metrics_url, "metrics_profile": router.name},
    )


def _observe(found: Sequence[Router], watch: Observer) -> Mapping[str, Seen]:
    watch.begin()
    with ThreadPoolExecutor(len(found)) as pool:
        answers = list(
            pool.map(lambda router: client.send(router.url, router.engines.model, ASKS), found)
        )
    windows = watch.end()
    broken = [_break(router) for router in found]
    dead = {f"{plan.url}/metrics" for router in found for plan in router.engines.of("decode")}
    after = watch.end(dead)
    return {
        router.name: Seen(
            {engine.plan.url for engine in router.engines.engines},
            Totals.of(plain),
            windows[router.name],
            bad,
            after[router.name],
        )
        for router, plain, bad in zip(found, answers, broken, strict=True)
    }


def _break(router: Router) -> list[Answer]:
    """One client leaves, two streams lose their decode engines, two requests find none."""
    model = router.engines.model
    flowing = threading.Barrier(CUT + 1, timeout=20)

    def stream(number: int) -> Answer:
        begun = threading.Event()

        def on_bytes(count: int) -> None:
            if count > 800 and not begun.is_set():
                begun.set()
                flowing.wait()

        return client.one(router.url, model, Ask(words=20 + number, output=900), on_bytes)

    answers = [client.one(router.url, model, Ask(words=20, output=400, leave_after=800))]
    with ThreadPoolExecutor(CUT) as pool:
        streams = [pool.submit(stream, number) for number in range(CUT)]
        flowing.wait()
        router.engines.fault(DEAD_WORKER, "decode")
        answers += [stream.result() for stream in streams]
    return answers + client.send(router.url, model, [Ask(words=20, output=4)] * REFUSED, at_once=1)


# --- plain traffic --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_every_request_was_answered_as_asked(seen, name):
    totals = seen[name].totals
    assert totals.sent == totals.ok == len(ASKS)
    assert totals.output_tokens == sum(ask.output for ask in ASKS)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", NAMES)
def test_every_signal_with_live_evidence_resolves_and_no_other(seen, name, kind):
    profile, file = RECORDED[name]
    recorded = set(signals(profile, "router", "live", file))
    assert set(seen[name].windows[kind]["router"].values) == recorded - UNSAID.get(name, set())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", NAMES)
def test_router_totals_are_the_clients(seen, name, kind):
    window, totals = seen[name].windows[kind]["router"], seen[name].totals
    wanted = {
        Signal.REQUESTS_ARRIVED: totals.sent,
        Signal.REQUESTS_COMPLETED: totals.ok,
        Signal.REQUESTS_FAILED: 0,
    }
    if name == SMG:
        wanted[Signal.TTFT] = totals.ok
    if name == VLLM_ROUTER:
        wanted[Signal.E2E] = totals.ok
    for signal, expected in wanted.items():
        assert agrees(kind, window, signal, expected), (signal, total(window, signal), expected)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", NAMES)
def test_pools_behind_the_router_count_each_phase_once(seen, name, kind):
    windows, totals = seen[name].windows[kind], seen[name].totals
    for role, signal, expected in (
        ("prefill", Signal.REQUESTS_COMPLETED, totals.ok),
        ("prefill", Signal.INPUT_TOKENS, totals.prompt_tokens),
        ("decode", Signal.REQUESTS_COMPLETED, totals.ok),
        ("decode", Signal.OUTPUT_TOKENS, totals.output_tokens),
    ):
        found = total(windows[role], signal)
        assert agrees(kind, windows[role], signal, expected), (role, signal, found, expected)
        assert len(windows[role].reported) == 2
    assert Signal.OUTPUT_TOKENS not in windows["prefill"].values
    assert Signal.INPUT_TOKENS not in windows["decode"].values


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", NAMES)
def test_what_a_router_says_of_its_workers_carries_the_inventorys_addresses(seen, name, kind):
    health = seen[name].windows[kind]["router"].values[Signal.WORKER_HEALTH]
    assert isinstance(health, GaugeValue)
    assert dict(health.by_worker) == dict.fromkeys(seen[name].engine_urls, 1.0)


# --- failures -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_the_client_saw_what_was_broken(seen, name):
    outcomes = [answer.outcome for answer in seen[name].broken]
    assert outcomes == ["left"] * LEFT + ["cut"] * CUT + ["refused"] * REFUSED
    status = 500 if name == VLLM_ROUTER else 502
    assert {answer.status for answer in seen[name].broken[-REFUSED:]} == {status}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", NAMES)
def test_whatever_became_of_it_each_request_arrived_once(seen, name, kind):
    window = seen[name].after[kind]["router"]
    assert agrees(kind, window, Signal.REQUESTS_ARRIVED, LEFT + CUT + REFUSED)
    assert "decode" not in seen[name].after[kind]


#: What each router counts of what the client saw: failed, completed, aborted (None: no telling).
#: Only smg notices a cut stream and a client that left: for the others both have been good since
#: their head went out.
COUNTED = {
    SMG: (CUT + REFUSED, 0, LEFT),
    VLLM_ROUTER: (REFUSED, LEFT + CUT, None),
    SGLANG_ROUTER: (REFUSED, LEFT + CUT, None),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", COUNTED)
def test_failures_are_those_that_the_router_counts(seen, name, kind):
    window = seen[name].after[kind]["router"]
    failed, completed, aborted = COUNTED[name]
    assert agrees(kind, window, Signal.REQUESTS_FAILED, failed)
    found = total(window, Signal.REQUESTS_COMPLETED)
    # Through a Prometheus what is counted is stretched to the window's edges, and the new error
    # series that are taken off it are not.
    assert found is not None
    assert found == completed if kind == DIRECT else completed <= found < completed + 0.5 * CUT + 1
    if aborted is None:
        assert Signal.REQUESTS_ABORTED not in window.values
    else:
        assert agrees(kind, window, Signal.REQUESTS_ABORTED, aborted)
