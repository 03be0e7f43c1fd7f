"""Several engines and ranks behind one address, duplicates, churn: what adds and what repeats."""

from __future__ import annotations

import pytest

from apps.engines import loader
from apps.engines.deltas import increase
from apps.engines.evaluate import evaluate
from apps.engines.readings import read
from apps.engines.scraped import ScrapedReader
from apps.engines.window import Signal

VLLM, SGLANG = loader.load("vllm"), loader.load("sglang")


def signals(profile, role, *texts):
    return evaluate(profile, role, ScrapedReader(profile, role, [read(t, profile) for t in texts]))


def total(found, signal):
    return sum(found[signal].parts.values())


def test_engines_of_one_pod_add_counts_and_average_usage():
    lines = [f'vllm:num_requests_running{{engine="{i}"}} {i + 1}' for i in range(4)]
    lines += [f'vllm:kv_cache_usage_perc{{engine="{i}"}} {i / 10}' for i in range(4)]
    lines += [f'vllm:cache_config_info{{engine="{i}",kv_cache_size_tokens="1000"}} 1'
              for i in range(4)]  # fmt: skip
    found = signals(VLLM, "mixed", "\n".join(lines))
    assert total(found, Signal.RUNNING) == 1 + 2 + 3 + 4
    assert total(found, Signal.KV_USED) == pytest.approx(0.15)
    assert total(found, Signal.KV_CAPACITY_TOKENS) == 4000


def test_ranks_repeat_and_data_parallel_ranks_add_up():
    """tp_rank rows repeat one scheduler; dp_rank rows are schedulers of their own; rows per
    priority stand beside their total."""
    lines = []
    for dp in (0, 1):
        for tp in (0, 1, 2, 3):
            labels = f'engine_type="decode",dp_rank="{dp}",tp_rank="{tp}"'
            lines.append(f'sglang:num_running_reqs{{{labels},priority=""}} {10 + dp}')
            lines.append(f'sglang:num_running_reqs{{{labels},priority="5"}} 4')
            lines.append(f"sglang:token_usage{{{labels}}} {0.2 + dp * 0.4}")
    found = signals(SGLANG, "decode", "\n".join(lines))
    assert total(found, Signal.RUNNING) == 10 + 11
    assert total(found, Signal.KV_USED) == pytest.approx(0.4)


def test_a_gauge_that_carries_a_process_counts_once_after_a_restart():
    lines = [f'sglang:num_running_reqs{{engine_type="decode",pid="{p}"}} {v}'
             for p, v in (("100", 6), ("200", 6))]  # fmt: skip
    assert total(signals(SGLANG, "decode", "\n".join(lines)), Signal.RUNNING) == 6


def test_roles_of_old_sglang_releases_are_not_believed():
    """Up to 0.5.6 every worker says `unified`, so that value fits each role."""
    for role in ("prefill", "decode", "mixed"):
        found = signals(SGLANG, role, 'sglang:num_running_reqs{engine_type="unified"} 3')
        assert total(found, Signal.RUNNING) == 3
    for role, other in (("prefill", "decode"), ("decode", "prefill")):
        text = f'sglang:num_running_reqs{{engine_type="{other}"}} 3'
        assert Signal.RUNNING not in signals(SGLANG, role, text)


def test_a_last_value_of_old_releases_is_no_histogram():
    """kv_transfer_* were gauges up to 0.5.9: the last transfer, of which there is no quantile."""
    gauge = 'sglang:kv_transfer_latency_ms{engine_type="prefill"} 80\nsglang:num_running_reqs 1'
    before = "sglang:num_running_reqs 1"
    found = signals(SGLANG, "prefill", before, gauge)
    assert found[Signal.KV_TRANSFER_TIME].histogram.count == 0
    assert "not yet created" in found[Signal.KV_TRANSFER_TIME].names
    stage = "sglang:per_stage_req_latency_seconds"
    labels = 'engine_type="prefill",stage="prefill_transfer_kv_cache"'
    text = f'{gauge}\n{stage}_bucket{{{labels},le="0.1"}} 3\n{stage}_bucket{{{labels},le="+Inf"}} 3'
    text += f"\n{stage}_sum{{{labels}}} 0.2"
    found = signals(SGLANG, "prefill", before, text)
    assert found[Signal.KV_TRANSFER_TIME].histogram.count == 3


def test_totals_stay_monotone_over_resets_and_churn():
    """A counter's total over any prefix of its samples never falls, whatever happens to it."""
    samples = [5, 9, 2, None, 4, 4, 0, 7, None, None, 1, 30]
    totals = [increase(samples[:n]) for n in range(2, len(samples) + 1)]
    assert totals == sorted(totals)
    # 9-5, restart 2, 4-2, 0 (restart at zero), 7, restart 1, 30-1
    assert totals[-1] == 4 + 2 + 2 + 0 + 7 + 1 + 29


def test_series_that_come_and_go_never_lower_a_targets_total():
    def text(*pods):
        return "\n".join(f'vllm:generation_tokens_total{{engine="{e}"}} {v}' for e, v in pods)

    states = [text(("0", 10)), text(("0", 15), ("1", 3)), text(("1", 8)), text(("0", 2), ("1", 9))]
    seen = [
        total(signals(VLLM, "decode", *states[: n + 1]), Signal.OUTPUT_TOKENS)
        for n in range(1, len(states))
    ]
    assert seen == [5 + 3, 5 + 3 + 5, 5 + 3 + 5 + 1 + 2]


def test_dynamo_reads_the_engine_behind_it_once():
    component = loader.load("dynamo_component")
    labels = 'dynamo_component="backend",dynamo_endpoint="generate"'
    text = "\n".join(
        [
            f"sglang:num_running_reqs{{{labels}}} 5",
            f"dynamo_component_inflight_requests{{{labels}}} 9",
            f"sglang:num_queue_reqs{{{labels}}} 2",
            f"sglang:num_decode_prealloc_queue_reqs{{{labels}}} 1",
            f"sglang:token_usage{{{labels}}} 0.3",
            f"dynamo_component_gpu_cache_usage_percent{{{labels}}} 0.5",
        ]
    )
    found = signals(component, "decode", text)
    assert total(found, Signal.RUNNING) == 5
    assert total(found, Signal.WAITING) == 2 + 1
    assert total(found, Signal.KV_USED) == 0.3
    trtllm = signals(component, "mixed", 'trtllm_num_requests_running{model_name="m"} 7')
    assert total(trtllm, Signal.RUNNING) == 7
