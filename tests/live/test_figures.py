"""The figures of the running product against what the clients of its fleet saw.

Counters must be equal to the last token, through a role flip too. Percentiles must lie in the
bucket that holds the clients' own percentile (DESIGN laws 3 and 4).
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import pytest

from apps.engines import loader
from tests.support.product import STALL_S, Fleet, Product, fleet, product, quantile, wait_until

pytestmark = pytest.mark.live

CHAT, SEARCH = "chat-pd", "search-pd"
SLUGS = (CHAT, SEARCH)
INTERVAL_S = 5.0
TRAFFIC_S, AFTER_FLIP_S = 40.0, 15.0
#: A collect reads the targets one after the other, up to this long after its tick.
COLLECT_S = 1.0

#: Run inside the product's own process environment: its figures over any window of its rows.
SCRIPT = """
import json
from apps.fleet.models import Deployment
from apps.telemetry import selectors
from apps.telemetry.models import StoredWindow

def plain(figure):
    return figure.to_json()

def pool(figures):
    names = (
        "forward_seconds_per_s", "queue_time_mean", "stage_time_mean", "kv_transfer_mean",
        "kv_capacity_tokens", "waiting", "running", "kv_used",
    )
    return {name: plain(getattr(figures, name)) for name in names}

answer = {}
for deployment in Deployment.objects.all():
    rows = StoredWindow.objects.filter(deployment=deployment, scope="router")
    ends = sorted(set(rows.values_list("end", flat=True)))
    whole = selectors.figures_over(deployment, ends[-1], (ends[-1] - ends[0]).total_seconds() + 1)
    counts = {
        name: getattr(whole, name).number() * whole.span_s
        for name in (
            "arrivals_per_s", "completions_per_s", "input_tokens_per_s", "output_tokens_per_s"
        )
    }
    loaded = [end for end in ends if end.timestamp() <= LOADED_UNTIL][-1]
    busy = selectors.figures_over(deployment, loaded, (loaded - ends[0]).total_seconds() + 1)
    windows = []
    for end in ends[1:]:
        for span in (30, 60):
            found = selectors.figures_over(deployment, end, span)
            windows.append({
                "start": end.timestamp() - found.span_s, "end": end.timestamp(), "span": span,
                **{f"{what}_{q}": plain(getattr(getattr(found, what), q))
                   for what in ("ttft", "tpot") for q in ("p50", "p95")},
            })
    answer[deployment.slug] = {
        "counts": counts, "span_s": whole.span_s, "first": ends[0].timestamp(),
        "last": ends[-1].timestamp(), "windows": windows,
        "prefill": pool(busy.prefill), "decode": pool(busy.decode),
    }
print("ANSWER" + json.dumps(answer))
"""


@dataclass
class Run:
    """One run of load over the product: what it stored and what the clients saw."""

    truth: dict[str, Any] = field(default_factory=dict)
    figures: dict[str, Any] = field(default_factory=dict)
    samples: dict[str, dict[str, float]] = field(default_factory=dict)
    live: list[dict[str, Any]] = field(default_factory=list)
    roles: dict[str, str] = field(default_factory=dict)
    moved: str = ""
    worst_stall_s: float = 0.0

    def requests(self, slug: str) -> list[dict[str, Any]]:
        return [row for row in self.truth["requests"] if row["deployment"] == slug and row["ok"]]


@pytest.fixture(scope="module")
def runs() -> list[Run]:
    """One run, and a second one if the machine stood still in the first."""
    found = [_run()]
    if found[0].worst_stall_s > STALL_S:
        found.append(_run())
    return found


@pytest.fixture(scope="module")
def run(runs) -> Run:
    """For what a stall may spoil (percentiles, rates): the last run."""
    return runs[-1]


def _run() -> Run:
    """Load, a role flip in the middle, silence, two more scrapes."""
    arguments = ("--scenario", "steady", "--no-load")
    with fleet(*arguments, seed=8) as running, product(running) as one:
        return _record(one, running)


def _record(one: Product, running: Fleet) -> Run:
    found = Run()

    def ticks() -> int:
        (count,) = one.rows("SELECT count(DISTINCT at) FROM telemetry_sample")[0]
        return int(count)

    # From the first scrape on nothing is missed, so the load starts after it.
    wait_until(lambda: ticks() >= 2 * len(SLUGS), 40, "the first scrapes")
    running.post("/start_load")
    _watch(one, running, found, TRAFFIC_S)
    _flip(one, running, found)
    _watch(one, running, found, AFTER_FLIP_S)
    loaded_until = time.time()
    running.post("/stop_load")

    def is_quiet() -> bool:
        totals = running.truth(time.time())["totals"]
        return all(item["in_flight"] == 0 for item in totals.values())

    wait_until(is_quiet, 60, "the last answer")
    seen = ticks()
    wait_until(lambda: ticks() >= seen + 2 * len(SLUGS), 30, "two more scrapes")
    found.truth = running.truth()
    found.worst_stall_s = running.worst_stall_s()
    found.samples = {slug: _summed_samples(one, slug) for slug in SLUGS}
    script = f"LOADED_UNTIL = {loaded_until}\n{SCRIPT}"
    answer = one.manage("shell", "-v", "0", "-c", script)
    line = next((x for x in answer.stdout.splitlines() if x.startswith("ANSWER")), None)
    assert line is not None, answer.stderr[-2000:]
    found.figures = json.loads(line.removeprefix("ANSWER"))
    return found


def _watch(one: Product, running: Fleet, found: Run, seconds: float) -> None:
    """Every few seconds, the counts so far and the key figures as the API shows them."""
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        for slug in SLUGS:
            page = one.get(f"/api/v1/deployments/{slug}/summary/")
            figures = {f["code"]: f["measurement"] for f in page["figures"]}
            found.live.append({"slug": slug, "at": time.time(), "figures": figures})
        time.sleep(max(0.0, min(INTERVAL_S, ends - time.monotonic())))


def _flip(one: Product, running: Fleet, found: Run) -> None:
    one.approved({"prefill": 3, "decode": 3}, CHAT)

    def has_moved() -> bool:
        (state,) = one.rows("SELECT state FROM commands_command")[0]
        assert state in ("APPROVED", "PREFLIGHT", "RUNNING", "SOAK", "SUCCEEDED"), state
        return state in ("SOAK", "SUCCEEDED")

    wait_until(has_moved, 90, "the role flip")
    found.roles = running.router_workers()
    ((found.moved,),) = one.rows("SELECT DISTINCT worker_url FROM commands_step")


# --- the raw samples, summed by hand -------------------------------------------------------------


def _summed_samples(one: Product, slug: str) -> dict[str, float]:
    """Requests and tokens from the stored samples alone: increases per series of each target.

    The role of a series is its own label where it has one. A series that appears on a target that
    had answered before starts at 0, because the load began after the first scrape.
    """
    rows = one.rows(
        "SELECT t.scope, t.profile, t.url, w.role, s.payload FROM telemetry_sample s"
        " JOIN telemetry_target t ON t.id = s.target_id"
        " JOIN fleet_deployment d ON d.id = t.deployment_id"
        " LEFT JOIN fleet_worker w ON w.id = t.worker_id"
        " WHERE d.slug = ? ORDER BY t.id, s.at",
        slug,
    )
    last: dict[tuple[str, ...], float] = {}
    answered: set[str] = set()
    sums = dict.fromkeys(("arrived", "completed", "tokens_in", "tokens_out"), 0.0)
    for scope, profile, url, role, payload in rows:
        for name, labels, value in _series(payload):
            kind = _kind(scope, profile, name, labels, role)
            if kind is None:
                continue
            key = (url, name, *sorted(f"{k}={v}" for k, v in labels.items()))
            before = last.get(key)
            if before is not None:
                sums[kind] += value - before if value >= before else value
            elif url in answered:
                sums[kind] += value
            last[key] = value
        answered.add(url)
    return sums


def _series(payload: str) -> Iterator[tuple[str, dict[str, str], float]]:
    for name, rows in json.loads(payload)["v"].items():
        for labels, value in rows:
            yield name, labels, float(value)


def _kind(
    scope: str, profile: str, name: str, labels: dict[str, str], role: str | None
) -> str | None:
    assert profile in loader.names()
    if scope == "router":
        if name == "smg_router_requests_total":
            return "arrived"
        is_answer = name == "smg_http_responses_total" and labels.get("status_code") == "200"
        return "completed" if is_answer and "completions" in labels.get("path", "") else None
    role = labels.get("engine_type", role)
    if role == "prefill" and name.endswith(":prompt_tokens_total"):
        return "tokens_in"
    if role == "decode" and name.endswith(":generation_tokens_total"):
        return "tokens_out"
    return None


# --- counters -----------------------------------------------------------------------------------


# Counts are exact in every run, whether the machine stood still or not.


@pytest.mark.parametrize("slug", SLUGS)
def test_raw_counters_equal_the_clients_totals(runs, slug):
    for run in runs:
        totals = run.truth["totals"][slug]
        assert totals["failed"] == 0 and totals["ok"] == totals["sent"] > 100
        assert run.samples[slug] == {
            "arrived": totals["sent"],
            "completed": totals["ok"],
            "tokens_in": totals["tokens_in"],
            "tokens_out": totals["tokens_out"],
        }


@pytest.mark.parametrize("slug", SLUGS)
def test_figures_over_the_run_equal_the_clients_totals(runs, slug):
    """The product's own windows, tiled over the whole run with the flip in it."""
    for run in runs:
        totals, counts = run.truth["totals"][slug], run.figures[slug]["counts"]
        assert {name: round(value, 3) for name, value in counts.items()} == {
            "arrivals_per_s": totals["sent"],
            "completions_per_s": totals["ok"],
            "input_tokens_per_s": totals["tokens_in"],
            "output_tokens_per_s": totals["tokens_out"],
        }


def test_a_worker_was_flipped_in_the_run(runs):
    for run in runs:
        assert run.roles[run.moved] == "prefill"
        assert sorted(run.roles.values()) == ["decode"] * 3 + ["prefill"] * 3


@pytest.mark.parametrize("slug", SLUGS)
def test_pools_under_load_have_their_figures(run, slug):
    """What both engine kinds must give of a pool, at the last scrape before the load stopped."""
    prefill, decode = run.figures[slug]["prefill"], run.figures[slug]["decode"]
    assert prefill["forward_seconds_per_s"]["value"]
    assert prefill["queue_time_mean"]["value"] is not None
    assert prefill["stage_time_mean"]["value"] > 0
    moved = [pool["kv_transfer_mean"]["value"] for pool in (prefill, decode)]
    assert any(value is not None and value > 0 for value in moved), moved
    assert decode["kv_capacity_tokens"]["value"] > 0
    gauges = {
        "waiting": prefill["waiting"], "running": decode["running"], "kv_used": decode["kv_used"],
    }  # fmt: skip
    assert {name: figure["state"] for name, figure in gauges.items()} == dict.fromkeys(gauges, "ok")


@pytest.mark.parametrize("slug", SLUGS)
def test_output_rate_during_traffic_is_within_one_scrape(run, slug):
    """The rate that the API showed, against tokens of requests that ended in the same window: no
    further off than one scrape at either end (vLLM counts a token when it is made, the clients
    know it when the answer ends)."""
    rows = run.requests(slug)
    checked = 0
    for look in run.live:
        figure = look["figures"]["output_rate"]
        if look["slug"] != slug or figure["state"] != "ok" or not figure["value"]:
            continue
        end = datetime.fromisoformat(figure["observed_at"]).timestamp()
        span = _span_of(figure)
        shown = figure["value"] * span
        low = _tokens(rows, end - span + INTERVAL_S, end - INTERVAL_S)
        high = _tokens(rows, end - span - INTERVAL_S, end + INTERVAL_S)
        assert low <= shown + 1 and shown <= high + 1, (figure, low, high)
        checked += 1
    assert checked >= 5


def _span_of(figure: dict[str, Any]) -> float:
    """The window's seconds from the query that the figure names."""
    text = figure["trace"]["query"]
    return float(text.split("[", 1)[1].split("s]", 1)[0])


def _tokens(rows: Sequence[dict[str, Any]], start: float, end: float) -> int:
    return sum(row["tokens_out"] for row in rows if start < row["end"] <= end)


# --- percentiles --------------------------------------------------------------------------------


@pytest.mark.parametrize("what", ["ttft", "tpot"])
@pytest.mark.parametrize("slug", SLUGS)
def test_percentiles_lie_in_the_bucket_of_the_clients(run, slug, what):
    place = {"ttft": "router", "tpot": "engine"}[what]
    rows = run.requests(slug)
    inside = beside = 0
    for window in run.figures[slug]["windows"]:
        for name, q in (("p50", 0.5), ("p95", 0.95)):
            figure = window[f"{what}_{name}"]
            if figure["state"] != "ok":
                continue
            assert figure["place"] == place
            assert figure["trace"]["query"].startswith("histogram_quantile(")
            low, high = _bounds_of_truth(rows, what, q, window["start"], window["end"])
            lower, upper = figure["lower"], figure["upper"]
            if lower - 0.003 <= high and low <= upper + 0.003:
                inside += 1
                continue
            width = upper - lower
            assert lower - 1.5 * width <= high and low <= upper + 1.5 * width, (
                name, window["start"], window["end"], figure, (low, high),
            )  # fmt: skip
            beside += 1
    # The value moves fast in some windows; then the neighbouring bucket is as good.
    assert inside >= 10 and beside <= 0.1 * inside, (inside, beside)
    print(f"{slug} {what}: {inside} windows in the bucket, {beside} in the next one")


def _bounds_of_truth(
    rows: Sequence[dict[str, Any]], what: str, q: float, start: float, end: float
) -> tuple[float, float]:
    """The clients' quantile of the window. A scrape happens up to a second after its tick, so the
    window's edges are not sharper than that: smallest and largest over its possible edges."""
    found = []
    for first in (0.0, COLLECT_S / 2, COLLECT_S):
        for last in (0.0, COLLECT_S / 2, COLLECT_S):
            values = [
                row[what]
                for row in rows
                if row[what] is not None and start + first < _moment(row, what) <= end + last
            ]
            if values:
                found.append(quantile(values, q))
    assert found
    return min(found), max(found)


def _moment(row: dict[str, Any], what: str) -> float:
    """When the histogram saw it: TTFT at the first token, TPOT at the end of the answer."""
    return float(row["start"] + row["ttft"] if what == "ttft" else row["end"])


@pytest.mark.parametrize("slug", SLUGS)
def test_the_api_names_place_and_bounds_of_each_latency(run, slug):
    shown = [look["figures"] for look in run.live if look["slug"] == slug]
    known = [f for f in shown if f["ttft_p95"]["state"] == "ok"]
    assert len(known) >= 3
    for figures in known:
        for code, place in (("ttft_p95", "router"), ("tpot_p95", "engine")):
            figure = figures[code]
            assert figure["place"] == place
            if figure["state"] == "ok":
                assert figure["lower"] <= figure["value"] <= figure["upper"]
                assert figure["sample_count"] >= 100
