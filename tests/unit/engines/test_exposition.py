"""The text format as exporters really write it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.engines import loader
from apps.engines.exposition import parse, spellings
from apps.engines.readings import NotAnExposition, from_json, read, to_json


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
        ("x +Inf", {}, float("inf")),
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


@given(st.dictionaries(st.from_regex(r"\A[a-z]{1,5}\Z"), st.text(min_size=1), max_size=3))
def test_any_label_value_survives(labels):
    def escape(value: str) -> str:
        return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")

    body = ",".join(f'{k}="{escape(v)}"' for k, v in labels.items())
    assert dict(one(f"x{{{body}}} 1").labels) == labels


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


def test_a_re_export_does_not_count_twice():
    profile = loader.load("vllm")
    text = 'vllm:num_requests_running{engine="0"} 3\nvllm_num_requests_running{engine="0"} 3'
    assert list(read(text, profile).values["vllm:num_requests_running"].values()) == [3]


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
