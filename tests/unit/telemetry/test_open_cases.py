"""Real reports of metrics that mislead, as input of ours: the exposition text that was reported,
through profiles, windows and figures, up to what the figures may drive. One test a case; cases that
need a fleet over time are in the integration tier of telemetry and of planning."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from datetime import timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from apps.common.measurement import Measurement, Place, State
from apps.console.presenters.shown import show
from apps.console.reader import Reader
from apps.diagnosis.domain.busy import Capacity, busy_shares
from apps.diagnosis.domain.causes import Cause
from apps.diagnosis.domain.rules import diagnose
from apps.diagnosis.domain.symptoms import Symptoms, breached
from apps.engines import loader, readings
from apps.engines.codec import window_from_json, window_to_json
from apps.engines.combine import merge_windows
from apps.engines.window import GaugeValue, HistogramIncrease, Signal, Window
from apps.fleet.domain.defaults import PRODUCTION
from apps.fleet.domain.topology import Topology
from apps.planning.domain.data import data_state
from apps.slo.domain.attainment import ABOVE_LADDER, attainment
from apps.telemetry.domain import credibility, cross_checks, observed
from apps.telemetry.domain.build import figures_from_windows
from apps.telemetry.domain.figures import DeploymentFigures, Usual
from apps.telemetry.domain.windows import TargetHistory, windows_of_tick

from .test_build import NOW, topology

SPAN = timedelta(seconds=300)
READER = Reader(ZoneInfo("UTC"), NOW)
ONE_EACH = topology("prefill", "decode", engine="vllm")
#: Addresses of `topology`: the prefill worker is "p", the decode worker "a".
P, D = "p", "a"
#: The inter-token ladder of vLLM before it was widened (vllm-project/vllm#15167).
ITL_TO_2_5 = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5)
ITL_TO_80 = (*ITL_TO_2_5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0)


def line(name: str, value: float | str, **labels: str) -> str:
    pairs = {"engine": "0", "model_name": "m", **labels}
    text = ",".join(f'{key}="{item}"' for key, item in pairs.items())
    return f"{name}{{{text}}} {value}\n"


def buckets(
    name: str, bounds: Sequence[float], counts: Sequence[float], total: float, **labels: str
) -> str:
    """A cumulative histogram from counts per bucket, the last beyond the ladder."""
    text, below = "", 0.0
    for bound, count in zip((*map(str, bounds), "+Inf"), counts, strict=True):
        below += count
        text += line(f"{name}_bucket", below, **labels, le=bound)
    return text + line(f"{name}_sum", total, **labels) + line(f"{name}_count", below, **labels)


def last(bounds: Sequence[float], inside: float, beyond: float, at: int = 0) -> list[float]:
    counts = [0.0] * (len(bounds) + 1)
    counts[at], counts[-1] = inside, beyond
    return counts


@dataclass(frozen=True)
class Target:
    """One target and its exposition at the window's start and end."""

    owner: str
    scope: str  # a role, "router" or "frontend"
    profile: str
    before: str
    after: str


def windows(*targets: Target) -> dict[str, Window]:
    start = NOW - SPAN
    histories = []
    for target in targets:
        profile = loader.load(target.profile)
        is_edge = target.scope in ("router", "frontend")
        texts = ((start, target.before), (NOW, target.after))
        histories.append(
            TargetHistory(
                owner=target.owner,
                scope=target.scope if is_edge else "engine",
                profile=profile,
                readings=[(at, readings.read(text, profile)) for at, text in texts],
                role_now=target.scope,
            )
        )
    found = windows_of_tick(histories, start=start, end=NOW, expected={}, source="test")
    # As they come back from storage.
    return {
        w.scope: window_from_json(
            json.loads(json.dumps(window_to_json(w), allow_nan=False)),
            scope=w.scope,
            start=w.start,
            end=w.end,
        )
        for w in found
    }


def figures_of(found: Mapping[str, Window], where: Topology = ONE_EACH) -> DeploymentFigures:
    pools = {scope: w for scope, w in found.items() if scope not in ("router", "frontend")}
    made = figures_from_windows(
        found.get("router"), pools, where, NOW, PRODUCTION, frontend=found.get("frontend")
    )
    assert_no_nan(made)
    return made


def assert_no_nan(value: Any) -> None:
    """NaN and infinity never leave the room."""
    if isinstance(value, Measurement):
        for number in (value.value, value.lower, value.upper):
            assert number is None or math.isfinite(number)
    elif is_dataclass(value):
        for item in fields(value):
            assert_no_nan(getattr(value, item.name))
    elif isinstance(value, tuple):
        for part in value:
            assert_no_nan(part)


def decode_vllm(
    requests: float = 0,
    *,
    prompt: float = 0,
    output: float = 0,
    itl: str = "",
    kv: str = "vllm:kv_cache_usage_perc",
    extra: str = "",
) -> str:
    return (
        line("vllm:num_requests_running", 3)
        + line("vllm:num_requests_waiting", 0)
        + (line(kv, 0.4) if kv else "")
        + line("vllm:prompt_tokens_total", prompt)
        + line("vllm:generation_tokens_total", output)
        + line("vllm:request_success_total", requests, finished_reason="stop")
        + itl
        + extra
    )


def frontend(
    requests: float,
    *,
    ttft: tuple[float, float],
    e2e: tuple[float, float] | None = None,
    prompt: float = 1000,
) -> str:
    """A Dynamo frontend: mean TTFT and duration as (bound of the ladder that holds it, mean)."""
    bounds = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)

    def hist(name: str, spec: tuple[float, float]) -> str:
        counts = [0.0] * (len(bounds) + 1)
        counts[bounds.index(spec[0])] = requests
        return buckets(f"dynamo_frontend_{name}", bounds, counts, requests * spec[1], model="m")

    labels = {"model": "m", "endpoint": "chat_completions", "request_type": "stream"}
    text = (
        line("dynamo_frontend_requests_started_total", requests, **labels)
        + line(
            "dynamo_frontend_requests_total", requests, **labels, status="success", error_type=""
        )
        + hist("time_to_first_token_seconds", ttft)
        + line("dynamo_frontend_output_tokens_total", requests * 100, model="m")
        + line("dynamo_frontend_input_sequence_tokens_sum", requests * prompt, model="m")
    )
    return text + (hist("request_duration_seconds", e2e) if e2e else "")


# --- case 1


def test_zero_by_zero_of_an_idle_fleet_is_no_traffic() -> None:
    """ai-dynamo/dynamo#3131: increase(sum) / increase(count) with both 0 is NaN. Not an error: the
    counter is there and stands, so the idle rule may act."""
    edge = frontend(500, ttft=(0.5, 0.4), e2e=(5.0, 3.0))
    steady = decode_vllm(
        500, prompt=9e5, output=5e4, itl=buckets(
            "vllm:inter_token_latency_seconds", ITL_TO_80, last(ITL_TO_80, 5e4, 0), 500.0)
    )  # fmt: skip
    prefill = line("vllm:prompt_tokens_total", 9e5) + line("vllm:num_requests_waiting", 0)
    prefill += line("vllm:request_success_total", 500, finished_reason="length")
    found = figures_of(
        windows(
            Target("f", "frontend", "dynamo_frontend", edge, edge),
            Target(P, "prefill", "vllm", prefill, prefill),
            # The exporter itself averages, and writes what 0 by 0 gives.
            Target(D, "decode", "vllm", steady, steady + line("vllm:num_requests_running", "NaN")),
        )
    )
    idle = (found.arrivals_per_s, found.ttft.mean, found.ttft.p95, found.tpot.mean, found.tpot.p95,
            found.mean_input_tokens, found.mean_output_tokens)  # fmt: skip
    assert {figure.state for figure in idle} == {State.NO_TRAFFIC}
    assert {figure.value for figure in idle} == {None}
    data = data_state(found, NOW, 15)
    assert data.stale == () and data.may_reduce
    assert show(found.ttft.p95, "ttft_p95", READER).text == "no traffic"


# --- case 9


def itl_fleet(bounds: Sequence[float], inside: float, beyond: float) -> dict[str, Window]:
    name = "vllm:inter_token_latency_seconds"
    none = buckets(name, bounds, [0.0] * (len(bounds) + 1), 0.0)
    some = buckets(name, bounds, last(bounds, inside, beyond), 0.02 * inside + 30 * beyond)
    return windows(
        Target(
            D, "decode", "vllm",
            decode_vllm(10, output=100, itl=none),
            decode_vllm(510, output=100 + inside, itl=some),
        )
    )  # fmt: skip


def test_a_tail_above_the_ladder_is_at_least_its_end() -> None:
    """ai-dynamo/dynamo#14839, vllm-project/vllm#15167: a tenth of the gaps lasts 30 s, the ladder
    ends at 2.5 s, so the quantile of the server says 2.5 s. Shown as "at least"; evidence of a
    breach, never of attainment, and a reason to grow only."""
    found = figures_of(itl_fleet(ITL_TO_2_5, 900, 100))
    p95 = found.tpot.p95
    assert (p95.state, p95.value, p95.lower, p95.upper) == (State.CLAMPED, 2.5, 2.5, None)
    assert show(p95, "tpot_p95", READER).text.startswith("≥")
    assert breached(found.tpot, 1.0), "at the ladder's end it counts as over"

    beyond = attainment(found.tpot, 5.0, min_requests=200, observed_at=NOW)
    assert beyond.warning == ABOVE_LADDER
    assert (beyond.share.value, beyond.share.lower, beyond.share.upper) == (0.9, 0.9, 1.0)
    assert not breached(found.tpot, 5.0), "neither proven nor missed"

    data = data_state(found, NOW, 15)
    assert "tpot_p95" in data.incomplete
    assert not data.may_reduce and "decode" not in data.donors


def test_edges_that_change_end_the_history_of_a_percentile() -> None:
    """The same report: after the update the ladder ends at 80 s, and one line through both would
    show an invented jump. Windows of two ladders never merge; the newer alone is read."""
    old = itl_fleet(ITL_TO_2_5, 900, 100)["decode"]
    new = itl_fleet(ITL_TO_80, 900, 100)["decode"]
    shifted = Window(
        old.scope, old.start - SPAN, old.end - SPAN, old.values, old.expected, old.reported
    )
    both = merge_windows((shifted, new)).values[Signal.ITL]
    assert isinstance(both, HistogramIncrease)
    assert (both.bounds, both.count) == (ITL_TO_80, 1000)


# --- case 10


@pytest.mark.parametrize("prompt", [200.0, 20_000.0])
def test_cached_tokens_of_decode_are_not_read(prompt: float) -> None:
    """vllm-project/vllm#43370, #47136: on a cold, unique prompt a decode worker reports prompt - 1
    cached tokens: the KV that came over the wire. The hit rate is what prefill says: 0."""

    def engine(requests: float, cached: float, *, wire: bool) -> str:
        sources = {"local_cache_hit": 0.0 if wire else cached, "external_kv_transfer": cached}
        return (
            decode_vllm(requests, prompt=requests * prompt, output=requests * 100)
            + line("vllm:prompt_tokens_cached_total", cached)
            + line("vllm:prefix_cache_queries_total", requests * prompt)
            + line("vllm:prefix_cache_hits_total", sources["local_cache_hit"])
            + "".join(
                line("vllm:prompt_tokens_by_source_total", value, source=source)
                for source, value in sources.items()
            )
        )

    hit = 400 * (prompt - 1)
    found = figures_of(
        windows(
            Target(P, "prefill", "vllm", engine(0, 0, wire=True), engine(400, 0, wire=True)),
            Target(D, "decode", "vllm", engine(0, 0, wire=False), engine(400, hit, wire=False)),
        )
    )
    assert found.input_tokens_per_s.number() == pytest.approx(400 * prompt / 300)
    assert (found.cached_tokens_per_s.value, found.cached_tokens_per_s.state) == (0, State.OK)
    assert found.uncached_input_tokens_per_s.value == found.input_tokens_per_s.value


# --- case 11


def one_and_one(*, edge: bool) -> DeploymentFigures:
    """1P1D of vLLM: prefill takes 1.0 s, decode says 0.05 s, users wait 1.9 s."""
    bounds = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)

    def leg(requests: float, seconds: float, at: int) -> str:
        counts = [0.0] * (len(bounds) + 1)
        counts[at] = requests
        return "".join(
            buckets(name, bounds, counts, requests * seconds)
            for name in (
                "vllm:time_to_first_token_seconds",
                "vllm:request_prefill_time_seconds",
                "vllm:e2e_request_latency_seconds",
            )
        )

    def queue(requests: float) -> str:
        counts = [requests, *[0.0] * len(bounds)]
        return buckets("vllm:request_queue_time_seconds", bounds, counts, requests * 0.05)

    def engine(requests: float, seconds: float, at: int) -> str:
        extra = leg(requests, seconds, at) + queue(requests)
        return decode_vllm(requests, prompt=requests * 1000, output=requests * 100, extra=extra)

    targets = [
        Target(P, "prefill", "vllm", engine(0, 0, 3), engine(400, 1.0, 3)),
        Target(D, "decode", "vllm", engine(0, 0, 0), engine(400, 0.05, 0)),
    ]
    if edge:
        before, after = (frontend(n, ttft=(2.5, 1.9), e2e=(5.0, 4.0)) for n in (0, 400))
        targets.append(Target("f", "frontend", "dynamo_frontend", before, after))
    return figures_of(windows(*targets))


def test_ttft_is_the_frontends_and_pools_are_not_added() -> None:
    """vllm-project/vllm#21037, #22454: per-pool TTFT is low, the user's is double. It is the
    frontend's figure; the parts stand beside it and are not summed over pools."""
    found = one_and_one(edge=True)
    assert found.ttft.mean.place is found.ttft.p95.place is Place.FRONTEND
    assert found.ttft.mean.number() == pytest.approx(1.9)
    assert found.ttft.p95.sample_count == 400, "each request once"
    assert found.prefill is not None and found.decode is not None
    assert found.prefill.stage_time_mean.number() == pytest.approx(1.0)
    assert found.prefill.queue_time_mean.number() == pytest.approx(0.05)
    # What decode calls prefill time is one step, and is not read as work of a prefill phase.
    assert found.decode.stage_time_mean.state is not State.OK
    parts = Symptoms(
        figures=found,
        usual=Usual("since_start"),
        busy=busy_shares(found, Capacity(None, "model only", None, "model only")),
        ttft_objective_s=2.5,
        tpot_objective_s=None,
    )
    rest = parts.kv_transfer
    assert (rest.method, rest.number()) == ("derived", pytest.approx(1.9 - 0.05 - 1.0))


def test_without_a_frontend_nobody_knows_what_users_wait() -> None:
    """Neither leg stands in: a decode worker of vLLM starts its clock after prefill."""
    found = one_and_one(edge=False)
    assert (found.ttft.p95.state, found.ttft.p95.value) == (State.NO_DATA, None)
    assert "ttft_p95" in data_state(found, NOW, 15).stale


# --- case 12


def test_a_first_token_after_the_last_is_not_believed() -> None:
    """inference-sim/inference-sim#930: TTFT that ends with prefill leaves out transfer and the
    first decode step; the opposite fault, TTFT above the whole request, cannot be true. Means are
    compared over the same requests; the figure keeps its value and drives nothing."""
    before, after = (frontend(n, ttft=(5.0, 4.5), e2e=(2.5, 2.0)) for n in (0, 400))
    found = windows(
        Target("f", "frontend", "dynamo_frontend", before, after),
        Target(P, "prefill", "vllm", decode_vllm(), decode_vllm(400, prompt=4e5)),
        Target(D, "decode", "vllm", decode_vllm(), decode_vllm(400, output=4e4)),
    )
    impossible = credibility.instant(found)
    assert [(f.code, f.scope) for f in impossible] == [("ttft_above_e2e", "frontend")]
    made = credibility.apply(figures_of(found), impossible)
    assert (made.ttft.p95.state, made.ttft.mean.number()) == (State.CONFLICT, 4.5)
    assert "ttft_p95" in data_state(made, NOW, 15).stale
    assert not breached(made.ttft, 1.0)


def test_ttft_holds_what_comes_after_prefill() -> None:
    """The same report: between the end of prefill and the first token lie transfer and one decode
    step, and TTFT stays at most the whole request."""
    found = one_and_one(edge=True)
    assert found.prefill is not None
    legs = found.prefill.queue_time_mean.number() + found.prefill.stage_time_mean.number()
    assert found.ttft.mean.number() > legs
    before, after = (frontend(n, ttft=(2.5, 1.9), e2e=(5.0, 4.0)) for n in (0, 400))
    edge = windows(Target("f", "frontend", "dynamo_frontend", before, after))
    assert credibility.instant(edge) == ()


# --- case 13


def queues(requests: float, *, running: float, waiting: float) -> str:
    """SGLang prefill: 1 request/s waits 8 s each, so that 8 wait at any time."""
    rank = {"engine_type": "prefill", "tp_rank": "0", "pp_rank": "0", "moe_ep_rank": "0"}
    bounds = (0.1, 1.0, 10.0)
    return (
        line("sglang:num_running_reqs", running, **rank)
        + line("sglang:num_queue_reqs", waiting, **rank)
        + line("sglang:token_usage", 0.3 + requests * 1e-5, **rank)
        + line("sglang:prefill_effective_tokens_total", requests * 1000, mode="input", **rank)
        + buckets("sglang:queue_time_seconds", bounds, (0, 0, requests, 0), 8.0 * requests, **rank)
    )


@pytest.mark.parametrize(("waiting", "code"), [(0, "zero_under_load"), (8, None)])
def test_a_queue_that_is_always_empty_under_load_is_not_credible(
    waiting: float, code: str | None
) -> None:
    """sgl-project/sglang#8627, #7317: the queue gauges read 0 under load. Requests' own waiting
    times say how many must have waited (Little's law)."""
    chain = []
    for index in range(5):
        texts = (
            queues(300 * n, running=1, waiting=waiting) if n else queues(0, running=1, waiting=0)
            for n in (index, index + 1)
        )
        window = windows(Target(P, "prefill", "sglang", *texts))["prefill"]
        shift = SPAN * (4 - index)
        chain.append(
            Window(
                window.scope, window.start - shift, window.end - shift, window.values,
                window.expected, window.reported,
            )
        )  # fmt: skip
    impossible = cross_checks.over_time({"prefill": chain})
    assert [f.code for f in impossible if f.signal is Signal.WAITING] == ([code] if code else [])
    where = topology("prefill", "decode")
    made = credibility.apply(figures_of({"prefill": chain[-1]}, where), impossible)
    assert made.prefill is not None
    data = data_state(made, NOW, 15)
    if code is None:
        assert (made.prefill.waiting.state, made.prefill.waiting.value) == (State.OK, 8)
        assert "prefill_waiting" not in data.stale
        return
    assert (made.prefill.waiting.state, made.prefill.waiting.value) == (State.CONFLICT, 0)
    assert "prefill_waiting" in data.stale and not data.may_grow
    note = show(made.prefill.waiting, "waiting", READER).note
    assert note, "the page says that the figure contradicts another"


# --- case 16


@pytest.mark.parametrize("number", ["NaN", "+Inf", "-Inf", "1e308", "-9223372036854775808"])
@pytest.mark.parametrize(
    "metric",
    [
        "vllm:num_requests_running",
        "vllm:num_requests_waiting",
        "vllm:kv_cache_usage_perc",
        "vllm:generation_tokens_total",
    ],
)
def test_what_is_no_number_is_refused_before_any_arithmetic(metric: str, number: str) -> None:
    """kedacore/keda#7475: NaN cast to an integer became -9223372036854776 replicas. Here such a
    sample is no answer: the figure is missing, its neighbours stand, nothing is cast."""
    others = decode_vllm(400, prompt=4e5, output=4e4)
    bad = "".join(
        text if not text.startswith(f"{metric}{{") else line(metric, number)
        for text in others.splitlines(keepends=True)
    )
    assert bad != others
    found = figures_of(windows(Target(D, "decode", "vllm", decode_vllm(), bad)))
    assert found.decode is not None
    figure = {
        "vllm:num_requests_running": found.decode.running,
        "vllm:num_requests_waiting": found.decode.waiting,
        "vllm:kv_cache_usage_perc": found.decode.kv_used,
        "vllm:generation_tokens_total": found.output_tokens_per_s,
    }[metric]
    if metric == "vllm:generation_tokens_total":
        assert not figure.value, "nothing is counted"
    else:
        assert (figure.state, figure.value) == (State.NO_DATA, None)
    assert found.completions_per_s.number() == pytest.approx(400 / 300)
    if metric == "vllm:kv_cache_usage_perc":
        assert "kv_used" in data_state(found, NOW, 15).stale
    # The largest that is left can be summed over workers and still be a number.
    assert math.isfinite(2 * 9.0e18)


# --- case 17


@pytest.mark.parametrize(
    ("kv", "itl"),
    [
        ("vllm:gpu_cache_usage_perc", "vllm:time_per_output_token_seconds"),
        ("vllm:kv_cache_usage_perc", "vllm:inter_token_latency_seconds"),
        ("vllm_kv_cache_usage_perc", "vllm_request_time_per_output_token_seconds"),
    ],
    ids=["before 0.12", "0.12", "through a collector that rewrites colons"],
)
def test_a_renamed_metric_is_the_same_signal(kv: str, itl: str) -> None:
    """vllm-project/production-stack#989: gpu_cache_usage_perc and time_per_output_token were
    renamed, and dashboards went empty. Each release's name resolves to the same signal."""
    none = buckets(itl, ITL_TO_80, [0.0] * (len(ITL_TO_80) + 1), 0.0)
    some = buckets(itl, ITL_TO_80, last(ITL_TO_80, 1000, 0, at=1), 20.0)
    found = figures_of(
        windows(
            Target(
                D, "decode", "vllm",
                decode_vllm(itl=none, kv=kv),
                decode_vllm(500, output=1000, itl=some, kv=kv),
            )
        )
    )  # fmt: skip
    assert found.decode is not None
    assert (found.decode.kv_used.value, found.decode.kv_used.state) == (0.4, State.OK)
    assert (found.tpot.p95.state, found.tpot.p95.upper) == (State.OK, 0.025)
    assert kv.replace("vllm_", "vllm:") in found.decode.kv_used.trace.query


def test_a_name_that_nobody_knows_is_missing_and_hinted_at() -> None:
    """The same report, for the next rename: missing is not 0, holds the planner, and the setup
    page names what the target exports instead."""
    text = decode_vllm(500, output=1000, kv="vllm:kv_cache_used_ratio")
    found = figures_of(windows(Target(D, "decode", "vllm", decode_vllm(kv=""), text)))
    assert found.decode is not None
    assert (found.decode.kv_used.value, found.decode.kv_used.state) == (None, State.NO_DATA)
    assert {"kv_used", "tpot_p95"} <= set(data_state(found, NOW, 15).stale)
    hint = observed.from_text(text, loader.load("vllm"), "decode").near
    assert hint["kv_used"] == "vllm:kv_cache_used_ratio"
    seen = Symptoms(
        figures=found,
        usual=Usual("since_start"),
        busy=busy_shares(found, Capacity(None, "model only", None, "model only")),
        ttft_objective_s=2.5,
        tpot_objective_s=0.025,
    )
    assert diagnose(seen).cause is Cause.NOT_ENOUGH_SIGNAL


# --- case 15


def test_series_of_workers_that_are_gone_count_nowhere() -> None:
    """llm-d/llm-d-autoscaling#380 (fixed by #385): a router goes on exporting series of deleted
    pods, and each loop added a replica. What is not in the living inventory is not read."""
    gone = ("http://10.0.0.7:30000", "http://10.0.0.8:30000")
    text = "".join(
        f'smg_pd_admission_window{{worker="{url}"}} 48\n'
        f'smg_worker_requests_active{{worker="{url}"}} 9\n'
        f'smg_worker_health{{worker="{url}"}} 1\n'
        for url in (D, *gone)
    )
    where = topology("prefill", "decode")
    found = windows(Target("r", "router", "smg", text, text))
    known = found["router"].values[Signal.MAX_RUNNING]
    assert isinstance(known, GaugeValue) and set(gone) <= set(known.by_worker)
    made = figures_of(found, where)
    assert made.decode is not None
    assert made.decode.max_running.value == 48, "the living one alone"
    assert [worker.url for worker in made.decode.workers] == [D]
    assert not data_state(made, NOW, 15).may_grow, "and nothing follows from a router alone"
