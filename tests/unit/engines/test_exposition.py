"""The text format as exporters really write it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.engines import loader
from apps.engines.exposition import parse, spellings
from apps.engines.readings import NotAnExposition, OverLimit, from_json, read, to_json
from apps.engines.schema import Profile

VLLM = loader.load("vllm")


def one(text: str):
    (series,) = parse(text).series
    return series


@pytest.mark.parametrize(
    ("line", "labels", "value"),
    [
        ("x 1", {}, 1),
        ("x{} 1.5e3", {}, 1500),
        ('x{a="1",b="2"} 7 1700000000000', {"a": "1", "b": "2"}, 7),
        ('x{a="1",} 7', {"a": "1"}, 7),
        ('x { a = "1" } 7', {}, None),
        ('x{a="q\\"uo}te, \\\\ and\\nline"} 2', {"a": 'q"uo}te, \\ and\nline'}, 2),
        ('x{a=""} 3', {}, 3),
        ('x{le="+Inf"} 4 # {trace_id="abc"} 0.5', {"le": "+Inf"}, 4),
        ('  x{a="1"}   5  ', {"a": "1"}, 5),
    ],
)
def test_lines(line, labels, value):
    found = parse(line)
    if value is None:
        assert (found.series, found.malformed) == ((), 1)
        return
    (series,) = found.series
    assert (dict(series.labels), series.value) == (labels, value)


@pytest.mark.parametrize(
    "line", ["<html>", "x", "x{a=1} 2", 'x{a="1" 2', "x notanumber", '{"json": true}', "x{"]
)
def test_broken_lines_are_counted_and_do_not_stop_the_rest(line):
    found = parse(f"{line}\nok 1")
    assert [s.name for s in found.series] == ["ok"]
    assert found.malformed == 1


def test_nan_is_no_answer_and_the_last_duplicate_counts():
    assert parse("x NaN\ny 1").series[0].name == "y"
    assert one("x 1\nx 2").value == 2
    assert parse("x 1\nx NaN").series == ()


@given(st.text())
def test_no_text_breaks_the_parser(text):
    parse(text)


@given(
    st.dictionaries(
        st.from_regex(r"\A[a-z]{1,5}\Z"),
        st.text(min_size=1).filter(lambda text: "\0" not in text),
        max_size=3,
    )
)
def test_any_label_value_survives(labels):
    def escape(value: str) -> str:
        return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")

    body = ",".join(f'{k}="{escape(v)}"' for k, v in labels.items())
    assert dict(one(f"x{{{body}}} 1").labels) == labels


@pytest.mark.parametrize("number", ["+Inf", "-Inf", "1e308", "-1e300", "9223372036854775792"])
def test_impossible_numbers_are_refused_and_counted(number):
    found = parse(f"x {number}\ny 1")
    assert [s.name for s in found.series] == ["y"]
    assert (found.refused, found.malformed) == (1, 0)
    reading = read(f"vllm:num_requests_running {number}\nvllm:num_requests_waiting 2", VLLM)
    assert "vllm:num_requests_running" not in reading.values
    assert reading.defects == {"refused": 1}
    assert from_json(to_json(reading)) == reading


def test_a_refused_number_hides_the_earlier_one_of_its_series():
    assert parse("x 1\nx +Inf").series == ()
    assert [s.value for s in parse("x +Inf\nx 3").series] == [3]


@pytest.mark.parametrize("part", ["_sum NaN", "_sum +Inf", '_bucket{le="1"} NaN'])
def test_a_histogram_with_a_number_missing_is_left_out_whole(part):
    """A sum of 0 would make a mean of 0, and a missing bucket a wrong quantile."""
    base = "vllm:request_queue_time_seconds"
    lines = [f'{base}_bucket{{le="1"}} 3', f'{base}_bucket{{le="+Inf"}} 4', f"{base}_sum 9"]
    assert base in read("\n".join(lines), VLLM).buckets
    found = read("\n".join([*lines, base + part]), VLLM)
    assert base not in found.buckets
    assert found.defects["broken"] == 1


def test_label_text_is_cut_and_kept_apart():
    long = "<b>" + "x" * 65_536
    found = parse(f'x{{a="{long}1"}} 1\nx{{a="{long}2"}} 2\nx{{a="n\0ul"}} 3').series
    texts = [dict(series.labels)["a"] for series in found]
    assert len(set(texts)) == 3
    assert all(len(text) < 1100 and "\0" not in text for text in texts)
    assert texts[0].startswith("<b>xxx")


def test_too_many_series_are_an_error_of_their_own():
    text = "\n".join(f'vllm:num_requests_running{{pod="{i}"}} 1' for i in range(60_000))
    with pytest.raises(OverLimit, match="over_limit"):
        read(text, VLLM)
    other = "\n".join(f'unrelated{{pod="{i}"}} 1' for i in range(60_000))
    assert read(f"{other}\nvllm:num_requests_running 4", VLLM).values


def test_open_metrics_and_quoted_names():
    text = """# TYPE vllm:num_preemptions counter
# UNIT x seconds
vllm:num_preemptions_total 5 1700000000.123 # {trace_id="a b"} 1 1700000000.1
vllm:num_preemptions_created 1700000000.0
{"vllm:num_requests_running", engine="0"} 3
{"vllm:num_requests_waiting"} 2
# EOF
"""
    found = read(text, VLLM)
    assert found.values["vllm:num_preemptions_total"] == {(): 5}
    assert found.values["vllm:num_requests_running"] == {(("engine", "0"),): 3}
    assert found.values["vllm:num_requests_waiting"] == {(): 2}
    assert found.defects == {}


def test_types_are_not_believed():
    """A histogram called _total, a gauge with an `le`, a summary: only buckets make a histogram."""
    text = """# TYPE vllm:iteration_tokens_total histogram
vllm:iteration_tokens_total_bucket{le="1.0"} 2
vllm:iteration_tokens_total_bucket{le="+Inf"} 2
vllm:iteration_tokens_total_sum 9
smg_http_inflight_request_age_count{gt="0",le="30"} 4
smg_http_inflight_request_age_count{gt="30",le="+Inf"} 1
vllm_router_pd_request_duration_seconds{quantile="0.5"} 2.0
vllm_router_pd_request_duration_seconds_sum 108.2
vllm_router_pd_request_duration_seconds_count 46
"""
    raw = loader.load("vllm_router").model_dump(mode="json")
    rows = raw["signals"]["e2e"]["rows"]
    for name in ("vllm:iteration_tokens_total", "smg_http_inflight_request_age"):
        rows[0]["terms"][0]["any_of"].append(
            {"name": name, "evidence": "documented", "source": "this test"}
        )
    found = read(text, Profile.model_validate(raw))
    assert set(found.buckets) == {"vllm:iteration_tokens_total"}
    # As a counter, the count of a summary is one like any other.
    assert found.values["vllm_router_pd_request_duration_seconds_count"] == {(): 46}
    assert "vllm:iteration_tokens_total" not in found.values


def test_spellings_of_pipelines():
    assert spellings("vllm:prompt_tokens_total", is_counter=True)[:2] == (
        "vllm:prompt_tokens_total",
        "vllm:prompt_tokens",
    )
    assert "vllm_prompt_tokens_total_total" in spellings(
        "vllm:prompt_tokens_total", is_counter=True
    )
    assert "kserve_vllm:num_requests_running" in spellings("vllm:num_requests_running")
    assert spellings("plain_gauge") == ("plain_gauge",)
    assert spellings("x_sum", is_counter=True) == ("x_sum",)
    assert "vllm_kv_cache_usage_perc_ratio" in spellings("vllm:kv_cache_usage_perc")
    assert "sglang_kv_transfer_latency_ms_milliseconds" in spellings(
        "sglang:kv_transfer_latency_ms"
    )


def test_a_re_export_does_not_count_twice():
    profile = loader.load("vllm")
    text = 'vllm:num_requests_running{engine="0"} 3\nvllm_num_requests_running{engine="0"} 3'
    assert list(read(text, profile).values["vllm:num_requests_running"].values()) == [3]


def test_a_re_export_with_other_labels_does_not_count_twice():
    text = 'vllm:num_requests_running{engine="0"} 3\nvllm_num_requests_running{exported="x"} 3'
    assert list(read(text, VLLM).values["vllm:num_requests_running"].values()) == [3]


def test_underscored_names_are_read():
    profile = loader.load("vllm")
    text = 'vllm_request_queue_time_seconds_bucket{le="1"} 3\n'
    text += (
        'vllm_request_queue_time_seconds_bucket{le="+Inf"} 4\nvllm_request_queue_time_seconds_sum 9'
    )
    (state,) = read(text, profile).buckets["vllm:request_queue_time_seconds"].values()
    assert (state.bounds, state.cumulative, state.total) == ((1.0,), (3, 4), 9)


def test_a_histogram_without_its_infinite_bucket_is_not_one():
    profile = loader.load("smg")
    assert read('smg_pd_ttft_seconds_bucket{le="1"} 3', profile).buckets == {}


@pytest.mark.parametrize("text", ["", "<html>404</html>", '{"a": 1}'])
def test_an_error_page_is_not_an_exposition(text):
    with pytest.raises(NotAnExposition):
        read(text, loader.load("smg"))


def test_other_metrics_only_are_an_empty_reading():
    found = read("node_load1 0.3", loader.load("smg"))
    assert (found.values, found.buckets, found.siblings) == ({}, {}, frozenset())


def test_other_models_of_a_frontend_are_left_out():
    profile = loader.load("dynamo_frontend")
    text = "\n".join(f'dynamo_frontend_active_requests{{model="{m}"}} 1' for m in ("qwen", "llama"))
    found = read(text, profile, {"model": "Qwen"})
    assert list(found.values["dynamo_frontend_active_requests"]) == [(("model", "qwen"),)]


def test_a_reading_survives_storage():
    profile = loader.load("smg")
    text = """
smg_pd_ttft_seconds_bucket{model="a",le="1"} 3
smg_pd_ttft_seconds_bucket{model="a",le="+Inf"} 4
smg_pd_ttft_seconds_sum{model="a"} 2.5
smg_router_requests_total{x="1"} 5
smg_tokio_workers 2
"""
    reading = read(text, profile)
    assert from_json(to_json(reading)) == reading
    assert reading.siblings == {"smg_tokio_workers"}
