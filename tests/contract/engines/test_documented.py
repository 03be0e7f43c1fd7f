"""Profiles of which no recording exists: their rules, on lines written here from their sources."""

from __future__ import annotations

import pytest

from apps.engines import loader
from apps.engines.evaluate import evaluate
from apps.engines.readings import read
from apps.engines.scraped import ScrapedReader
from apps.engines.window import Signal


def signals(name: str, role: str, before: str, after: str):
    profile = loader.load(name)
    readings = [read(text, profile) for text in (before, after)]
    return evaluate(profile, role, ScrapedReader(profile, role, readings))


def value(found, signal: Signal) -> float:
    return sum(found[signal].parts.values())


def test_llm_d_leaves_out_what_clients_did_wrong():
    before = 'inference_pool_ready_pods{name="p"} 2'
    error = "inference_objective_request_error_total"
    after = f"""{before}
inference_objective_request_total{{model_name="m",priority="0"}} 40
{error}{{model_name="m",error_code="BadRequest"}} 5
{error}{{model_name="m",error_code="ServiceUnavailable"}} 2
{error}{{model_name="m",error_code="InferencePoolResourceExhausted"}} 3
inference_objective_output_tokens_bucket{{model_name="m",le="128"}} 9
inference_objective_output_tokens_bucket{{model_name="m",le="+Inf"}} 10
inference_objective_output_tokens_sum{{model_name="m"}} 900
inference_pool_average_kv_cache_utilization{{name="p"}} 0.7
"""
    found = signals("llm-d", "router", before, after)
    assert value(found, Signal.REQUESTS_ARRIVED) == 40
    assert value(found, Signal.REQUESTS_FAILED) == 5
    assert value(found, Signal.REQUESTS_REJECTED) == 3
    assert value(found, Signal.OUTPUT_TOKENS) == 900
    assert found[Signal.OUTPUT_LENGTH].histogram.count == 10
    # An average over both roles, and a predictor that is off: no figure, and no zero.
    assert not {Signal.KV_USED, Signal.TTFT, Signal.TPOT} & set(found)


def test_aibrix_counts_by_text_range_are_no_histogram():
    before = "gateway_in_flight_requests 0"
    after = """gateway_in_flight_requests 4
gateway_request_total{model="m"} 30
gateway_request_model_success_total{model="m"} 28
gateway_request_model_fail_total{model="m"} 2
gateway_request_success_total 28
gateway_ttft_bucket_total{bucket="100-200ms"} 12
"""
    found = signals("aibrix", "router", before, after)
    assert value(found, Signal.REQUESTS_COMPLETED) == 28
    assert value(found, Signal.REQUESTS_FAILED) == 2
    assert value(found, Signal.RUNNING) == 4
    assert Signal.TTFT not in found


def test_nixl_times_are_microseconds_and_each_side_reads_its_own_bytes():
    def text(n: int) -> str:
        lines = [f'agent_xfer_time_us_bucket{{le="{b}"}} {n * c}'
                 for b, c in (("1000", 1), ("10000", 3), ("+Inf", 4))]  # fmt: skip
        return "\n".join(
            [
                *lines,
                f"agent_xfer_time_us_sum {n * 20_000}",
                f"agent_tx_bytes_total {n * 700}",
                f"agent_rx_bytes_total {n * 900}",
                f'agent_errors_total{{status="AGENT_ERR_BACKEND"}} {n}',
            ]
        )

    for role, sent in (("prefill", 700), ("decode", 900)):
        found = signals("nixl", role, text(1), text(2))
        time = found[Signal.KV_TRANSFER_TIME].histogram
        assert time.bounds == (0.001, 0.01)
        assert time.counts == (1, 2, 1)
        assert time.mean == pytest.approx(0.005)
        assert value(found, Signal.KV_TRANSFER_BYTES) == sent
        assert value(found, Signal.TRANSFER_FAILURES) == 1


def test_mooncake_counters_carry_no_total():
    def text(n: int) -> str:
        return f"""mooncake_transfer_read_bytes{{client_mode="real"}} {n * 4096}
mooncake_transfer_write_bytes{{client_mode="real"}} {n * 1024}
mooncake_transfer_batch_get_latency_bucket{{le="200.000000"}} {n}
mooncake_transfer_batch_get_latency_bucket{{le="+Inf"}} {n * 2}
mooncake_transfer_batch_get_latency_sum {n * 700}
"""

    found = signals("mooncake", "decode", text(1), text(3))
    assert value(found, Signal.KV_TRANSFER_BYTES) == 8192
    assert found[Signal.KV_TRANSFER_TIME].histogram.bounds == (0.0002,)
    assert found[Signal.KV_TRANSFER_TIME].histogram.total == pytest.approx(1400e-6)
    prefill = signals("mooncake", "prefill", text(1), text(3))
    assert value(prefill, Signal.KV_TRANSFER_BYTES) == 2048
    assert Signal.KV_TRANSFER_TIME not in prefill


@pytest.mark.parametrize("release", ["0.8", "0.10", "0.12"])
def test_vllm_names_of_old_releases_still_answer(release):
    names = {
        "0.8": ("vllm:gpu_cache_usage_perc", "vllm:gpu_prefix_cache_hits_total",
                "vllm:time_per_output_token_seconds"),
        "0.10": ("vllm:kv_cache_usage_perc", "vllm:prefix_cache_hits_total",
                 "vllm:inter_token_latency_seconds"),
        "0.12": ("vllm:kv_cache_usage_perc", "vllm:prefix_cache_hits_total",
                 "vllm:request_time_per_output_token_seconds"),
    }  # fmt: skip
    usage, hits, tpot = names[release]

    def text(n: int) -> str:
        return f"""{usage} 0.4
{hits} {n * 100}
{tpot}_bucket{{le="0.05"}} {n}
{tpot}_bucket{{le="+Inf"}} {n}
{tpot}_sum {n * 0.02}
"""

    found = signals("vllm", "mixed", text(1), text(2))
    assert value(found, Signal.KV_USED) == 0.4
    assert value(found, Signal.CACHED_TOKENS) == 100
    assert found[Signal.TPOT].names == tpot
    assert release in loader.load("vllm").range


def test_tensorrt_names_without_a_prefix_answer_last():
    def text(n: int) -> str:
        return f"""trtllm_num_requests_running 1
request_success_total{{finish_reason="stop"}} {n}
time_to_first_token_seconds_bucket{{le="1.0"}} {n}
time_to_first_token_seconds_bucket{{le="+Inf"}} {n}
time_to_first_token_seconds_sum {n}
"""

    found = signals("trtllm", "mixed", text(1), text(5))
    assert value(found, Signal.REQUESTS_COMPLETED) == 4
    assert found[Signal.TTFT].histogram.count == 4


def test_a_context_only_server_has_no_tpot_to_show():
    found = signals("trtllm", "prefill", "trtllm_num_requests_running 1",
                    "trtllm_num_requests_running 1")  # fmt: skip
    assert Signal.TPOT not in found
