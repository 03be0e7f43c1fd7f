"""The running product when its sources fail and its fleet breaks: what is old says so, what is
broken is named, nothing acts on figures that it does not have (DESIGN laws 1 and 8).

Two fleets run side by side, each with a scenario of its own in a thread, so that the waits overlap;
every test takes the outcome of one scenario.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import requests

from tests.support.product import (
    Fleet,
    Found,
    Product,
    fleet,
    once_more_after_a_stall,
    product,
    stalls_explain,
    wait_until,
)
from tests.support.prometheus import Prometheus
from tools.services import find, free_port

pytestmark = pytest.mark.live

CHAT, SEARCH = "chat-pd", "search-pd"
INTERVAL_S = 5.0
#: After two intervals without a sample a figure is old (DESIGN §4a).
OLD_AFTER_S = 2 * INTERVAL_S + 1.0
#: A cause stands when two windows in a row name it.
VOTES_S = 2 * INTERVAL_S
OLD = {"stale", "no_data", "source_down"}
PAGES = ("/fleet/", f"/deployments/{CHAT}/")
FLIP = {"prefill": 3, "decode": 3}

# --- reading ---------------------------------------------------------------------------------


def figures_in(value: Any, path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Every Measurement of an answer, with its way: `figures[ttft_p95].measurement`."""
    if isinstance(value, dict):
        if {"value", "unit", "state"} <= value.keys():
            yield path, value
            return
        for key, item in value.items():
            yield from figures_in(item, f"{path}.{key}" if path else key)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            name = index
            if isinstance(item, dict):
                name = item.get("code") or item.get("role") or item.get("name") or index
            yield from figures_in(item, f"{path}[{name}]")


def shown(one: Product, slug: str = CHAT) -> dict[str, dict[str, Any]]:
    """Every figure that the deployment's API shows."""
    found: dict[str, dict[str, Any]] = {}
    for part in ("summary", "path", "diagnosis"):
        answer = one.get(f"/api/v1/deployments/{slug}/{part}/")
        found |= {f"{part}.{way}": figure for way, figure in figures_in(answer)}
    return found


def declared(way: str, figure: dict[str, Any]) -> bool:
    """Inventory and prices, and the bare numbers inside a figure's own sentence."""
    bare = (".params.threshold", ".params.first", ".params.second", ".params.usual")
    return figure["place"] == "declared" or way.endswith(bare)


def from_the_router(way: str, figure: dict[str, Any]) -> bool:
    """What the router alone gives: TTFT and its attainment, arrivals."""
    ways = ("[ttft_p95].measurement", "[ttft_attainment].measurement", "path.total", ".demand")
    return figure["place"] == "router" and way.endswith(ways)


def from_an_exporter(way: str, figure: dict[str, Any]) -> bool:
    """GPUs and hosts have exporters of their own, which go on when an engine is silent."""
    return ".hardware[" in way and figure["place"] == "exporter"


def not_marked(one: Product, *kept: Callable[[str, dict[str, Any]], bool]) -> dict[str, Any]:
    """Figures that are shown as if they were of now, without those that `kept` explains."""
    return {
        way: (figure["state"], figure["value"], figure["observed_at"])
        for way, figure in shown(one).items()
        if figure["state"] not in OLD and not any(reason(way, figure) for reason in kept)
    }


def diagnosis(one: Product, slug: str = CHAT) -> dict[str, Any]:
    found: dict[str, Any] = one.get(f"/api/v1/deployments/{slug}/diagnosis/")
    return found


def cause(one: Product, slug: str = CHAT) -> str:
    return str(diagnosis(one, slug)["cause"])


def refused(one: Product, **body: Any) -> dict[str, Any]:
    """A proposal that must not pass: its problem, and no row was written."""
    before = one.rows("SELECT count(*) FROM commands_command")
    answer = one.request("POST", "/api/v1/commands/", json=body)
    assert 400 <= answer.status_code < 500, (body, answer.status_code, answer.text[:500])
    assert one.rows("SELECT count(*) FROM commands_command") == before
    problem: dict[str, Any] = answer.json()
    assert problem["detail"], problem
    return problem


def pages_answer(one: Product, session: requests.Session) -> None:
    for page in PAGES:
        answer = session.get(f"{one.url}{page}", timeout=20)
        assert answer.status_code == 200, (page, answer.status_code)
        assert "</html>" in answer.text


def since(moment: float) -> float:
    return time.monotonic() - moment


def sleep_until(moment: float) -> None:
    time.sleep(max(0.0, moment - time.monotonic()))


def twice_if_stalled(running: Fleet, body: Callable[[], Found], mend: Callable[[], None]) -> Found:
    """Once more, on the mended fleet, if something in `body` came late in a stall."""

    def attempt() -> Found:
        with stalls_explain(running):
            return body()

    return once_more_after_a_stall(attempt, mend)


# --- the stacks --------------------------------------------------------------------------------


def metric_addresses(running: Fleet) -> list[str]:
    """What a Prometheus scrapes: every router and engine of the fleet."""
    urls = [item["router"]["metrics_url"] for item in running.state["deployments"]]
    urls += [w["metrics_url"] for d in running.state["deployments"] for w in d["workers"]]
    assert all(urlsplit(url).path == "/metrics" for url in urls)
    return [urlsplit(url).netloc for url in urls]


@pytest.fixture(scope="module")
def outcomes() -> Iterator[dict[str, Future[Any]]]:
    """Both fleets and their three products, and the scenarios under way."""
    with ExitStack() as stack, ThreadPoolExecutor(8) as pool:
        steady = stack.enter_context(fleet("--scenario", "steady", seed=5))
        story = stack.enter_context(fleet("--scenario", "story", "--shift-after", "5", seed=5))
        one = stack.enter_context(product(steady))
        two = stack.enter_context(product(story))
        found = {
            "lost": pool.submit(lost_replica, one, steady),
            "slow": pool.submit(slow_worker_then_link, one, steady),
            "silent": pool.submit(silent_engines, two, story),
        }
        found["unreachable"] = pool.submit(unreachable_router, one, steady, found["lost"])
        if find("prometheus"):
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="fulcrum-prom-")))
            prometheus = Prometheus(metric_addresses(steady), INTERVAL_S, folder)
            stack.callback(prometheus.stop)
            prometheus.start()
            three = stack.enter_context(product(steady, "--prometheus", prometheus.url))
            found["prometheus"] = pool.submit(dead_prometheus, three, steady, prometheus)
        yield found
        for future in found.values():
            future.cancel()
            future.exception()


def outcome(outcomes: dict[str, Future[Any]], name: str) -> Any:
    if name not in outcomes:
        pytest.fail("prometheus is not installed")
    found = outcomes[name].result(timeout=400)
    print(name, found, flush=True)
    return found


# --- (a) the engines' metrics vanish ------------------------------------------------------------


def silent_engines(one: Product, running: Fleet) -> dict[str, float]:
    """Runs until the engines are silent for a while; returns the measured seconds."""
    session = one.signed_in()

    def mend() -> None:
        for worker in running.deployment()["workers"]:
            running.fault(worker["name"], "normal")
        wait_until(one.open_recommendation, 90, "an open recommendation on fresh figures")

    def body() -> dict[str, float]:
        began = time.monotonic()
        number = wait_until(one.open_recommendation, 150, "an open recommendation")["number"]
        times = {"recommended_s": since(began)}
        assert {"diagnosis", "path", "summary"} == {w.split(".")[0] for w in shown(one)}
        for worker in running.deployment()["workers"]:
            running.fault(worker["name"], "no_metrics")
        silent = time.monotonic()

        sleep_until(silent + OLD_AFTER_S)
        left = not_marked(one, declared, from_the_router, from_an_exporter)
        # The router still answers: what it gives is of now, and says so.
        kept = {w: f for w, f in shown(one).items() if from_the_router(w, f)}
        assert {f["state"] for f in kept.values()} <= {"ok", "clamped", "too_few"}, kept
        problem = refused(one, deployment=CHAT, targets=FLIP, expected_revision=1)
        assert problem["code"] == "stale_data", problem
        problem = refused(one, recommendation=number)
        assert problem["code"] in ("guardrail", "stale_data"), problem
        assert "data_fresh" in str(problem), problem
        pages_answer(one, session)
        assert not left, f"shown as if they were of now after {OLD_AFTER_S:.0f} s: {left}"

        limit = silent + OLD_AFTER_S + VOTES_S - time.monotonic()
        wait_until(lambda: cause(one) == "not_enough_signal", limit, "not_enough_signal")
        times["not_enough_signal_s"] = since(silent)
        said = diagnosis(one)
        assert said["status"] == "unknown" and said["evidence"], said
        pages_answer(one, session)

        # The first rates after the silence are over the time that was seen, not over a window of
        # which most was not.
        for worker in running.deployment()["workers"]:
            running.fault(worker["name"], "normal")
        mended = time.monotonic()
        wait_until(lambda: output_rate(one)["state"] == "ok", 30, "an output rate")
        times["fresh_again_s"] = since(mended)
        while since(mended) < 25:
            figure, true = output_rate(one), true_output_rate(running, 20)
            assert figure["state"] != "ok" or figure["value"] > 0.5 * true, (figure, true)
            time.sleep(2)
        return times

    return twice_if_stalled(running, body, mend)


def output_rate(one: Product) -> dict[str, Any]:
    return shown(one)["summary.figures[output_rate].measurement"]


def true_output_rate(running: Fleet, span_s: float) -> float:
    """Tokens per second of the answers that ended in the last seconds, as the clients saw them."""
    rows = running.truth(time.time() - span_s)["requests"]
    return sum(row["tokens_out"] for row in rows if row["deployment"] == CHAT) / span_s


def test_silent_engines_make_figures_old_and_stop_changes(outcomes):
    outcome(outcomes, "silent")


# --- (b) a real Prometheus as the source --------------------------------------------------------


def dead_prometheus(one: Product, running: Fleet, prometheus: Prometheus) -> dict[str, float]:
    session = one.signed_in()

    def fresh() -> bool:
        return cause(one) != "not_enough_signal" and not [
            way
            for way, figure in shown(one).items()
            if way.startswith("summary.figures") and figure["state"] in OLD
        ]

    def mend() -> None:
        prometheus.stop()
        prometheus.start()

    def body() -> dict[str, float]:
        began = time.monotonic()
        wait_until(fresh, 90, "figures from the Prometheus")
        times = {"first_figures_s": since(began)}
        ttft = shown(one)["summary.figures[ttft_p95].measurement"]
        assert "127.0.0.1" in ttft["trace"]["source"] or "prom" in ttft["trace"]["source"], ttft
        prometheus.stop()
        stopped = time.monotonic()

        sleep_until(stopped + OLD_AFTER_S)
        left = not_marked(one, declared)
        problem = refused(one, deployment=CHAT, targets=FLIP, expected_revision=1)
        assert problem["code"] == "stale_data", problem
        assert cause(one) == "not_enough_signal"
        rows = one.get("/api/v1/sources/")["results"]
        source = next(row for row in rows if row["deployment"] == CHAT)
        assert source["state"] == "down" and source["last_error"], source
        pages_answer(one, session)
        assert not left, f"shown as if they were of now after {OLD_AFTER_S:.0f} s: {left}"

        prometheus.start()
        again = time.monotonic()
        wait_until(fresh, 90, "fresh figures after the Prometheus came back")
        times["fresh_again_s"] = since(again)
        pages_answer(one, session)
        return times

    return twice_if_stalled(running, body, mend)


def test_a_dead_prometheus_is_seen_and_its_return_too(outcomes):
    outcome(outcomes, "prometheus")


# --- (c) what breaks is named -------------------------------------------------------------------


def warmed_up(one: Product, slug: str) -> None:
    """A whole diagnosis window has passed and nothing is wrong."""

    def well() -> bool:
        return cause(one, slug) in ("balanced", "idle_decode", "idle_prefill")

    wait_until(well, 90, f"a healthy {slug}", every_s=1)


def named(one: Product, slug: str, wanted: str, limit_s: float) -> tuple[float, dict[str, Any]]:
    """Seconds until the diagnosis is `wanted`, and the diagnosis."""
    began = time.monotonic()
    seen: list[str] = []

    def look() -> Any:
        found = diagnosis(one, slug)
        if not seen or seen[-1] != found["cause"]:
            seen.append(found["cause"])
        return found if found["cause"] == wanted else None

    try:
        found = wait_until(look, limit_s, f"{wanted} on {slug}", every_s=0.5)
    except AssertionError as error:
        error.add_note(f"seen: {seen}")
        raise
    return since(began), found


def lost_replica(one: Product, running: Fleet) -> dict[str, float]:
    """On the second deployment, so that it can run beside the slow worker of the first."""
    worker = running.deployment(SEARCH)["workers"][-1]["name"]

    def mend() -> None:
        running.fault(worker, "normal", slug=SEARCH)

    def body() -> dict[str, float]:
        warmed_up(one, SEARCH)
        running.fault(worker, "dead_worker", slug=SEARCH)
        try:
            seconds, found = named(one, SEARCH, "replica_lost", 40)
        finally:
            mend()
        params = found["sentence"]["params"]
        assert (params["missing"], params["ready"], params["wanted"]) == (1, 1, 2), params
        assert params["role"] == "decode"
        assert found["status"] in ("warn", "crit")
        return {"replica_lost_s": seconds}

    return twice_if_stalled(running, body, mend)


MOVE_ROUTER = """
from django.conf import settings
from apps.accounts.domain.authorize import SYSTEM
from apps.common.clock import utcnow
from apps.fleet import selectors, services

settings.FULCRUM_LOOPBACK_PORTS = frozenset([{port}])
deployment = selectors.deployment_by_slug(SYSTEM, "{slug}")
services.connect_backend(
    actor=SYSTEM, now=utcnow(), deployment=deployment, adapter=deployment.backend.adapter,
    address="http://127.0.0.1:{port}", parameters=deployment.backend.parameters,
    observe_interval_s=5,
)
"""


def unreachable_router(one: Product, running: Fleet, before: Future[Any]) -> dict[str, float]:
    """The second deployment's router moves to an address where nobody answers."""
    before.exception()
    session = one.signed_in()
    workers = (
        "SELECT w.url, w.role, w.serving FROM fleet_worker w JOIN fleet_deployment d"
        " ON d.id = w.deployment_id WHERE d.slug = ? AND w.ended_at IS NULL ORDER BY w.url"
    )

    def all_serve() -> bool:
        rows = one.rows(workers, SEARCH)
        return len(rows) == 4 and {serving for _, _, serving in rows} == {"serving"}

    wait_until(all_serve, 60, "all workers of search-pd")
    known = one.rows(workers, SEARCH)
    moved = one.manage("shell", "-v", "0", "-c", MOVE_ROUTER.format(port=free_port(), slug=SEARCH))
    assert moved.returncode == 0, moved.stderr[-1500:]
    began = time.monotonic()

    def is_noticed() -> bool:
        rows = one.rows(
            "SELECT b.last_error FROM fleet_backend b JOIN fleet_deployment d"
            " ON d.id = b.deployment_id WHERE d.slug = ?",
            SEARCH,
        )
        return bool(rows[0][0])

    wait_until(is_noticed, 20, "the unreachable router to be noticed")
    noticed = since(began)
    time.sleep(2 * INTERVAL_S)
    # Unreachable is not gone (DESIGN law 11): nobody left, nobody is planned away.
    assert one.rows(workers, SEARCH) == known
    answer = one.request(
        "POST", "/api/v1/commands/",
        json={"deployment": SEARCH, "targets": {"prefill": 2, "decode": 1}, "expected_revision": 1},
    )  # fmt: skip
    assert (answer.status_code, answer.json()["code"]) == (503, "backend_unreachable"), answer.text
    assert one.rows("SELECT count(*) FROM commands_command") == [(0,)]
    for page in ("/fleet/", f"/deployments/{SEARCH}/"):
        assert session.get(f"{one.url}{page}", timeout=20).status_code == 200
    return {"noticed_s": noticed}


def test_an_unreachable_router_is_not_an_empty_one(outcomes):
    outcome(outcomes, "unreachable")


def slow_worker_then_link(one: Product, running: Fleet) -> dict[str, float]:
    links = [w["name"] for w in running.deployment()["workers"] if w["role"] == "prefill"]

    def mend() -> None:
        for name in links:
            running.fault(name, "normal")

    def slow_worker() -> float:
        warmed_up(one, CHAT)
        running.fault("p-1", "slow_worker")
        try:
            seconds, found = named(one, CHAT, "bad_worker", 60)
        finally:
            mend()
        assert found["worker"] == found["sentence"]["params"]["worker"] == "p-1", found
        return seconds

    def slow_link() -> float:
        warmed_up(one, CHAT)
        for name in links:
            running.fault(name, "slow_link")
        try:
            seconds, found = named(one, CHAT, "kv_transfer_slow", 60)
        finally:
            mend()
        evidence = {item["code"]: item["measurement"] for item in found["evidence"]}
        assert evidence["kv_transfer"]["value"] > 0.1, evidence
        return seconds

    return {
        "bad_worker_s": twice_if_stalled(running, slow_worker, mend),
        "kv_transfer_slow_s": twice_if_stalled(running, slow_link, mend),
    }


def test_a_lost_replica_is_counted(outcomes):
    outcome(outcomes, "lost")


def test_a_slow_worker_and_a_slow_link_are_named(outcomes):
    outcome(outcomes, "slow")
