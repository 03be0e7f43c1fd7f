"""The escaping builder, names and addresses as they are stored, and the number of queries."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.engines import loader
from apps.telemetry.collectors import matrix, promql
from apps.telemetry.collectors.intervals import scrape_interval
from apps.telemetry.collectors.naming import Piece, resolve
from apps.telemetry.collectors.prometheus import Labels, Request, read, up_state
from apps.telemetry.collectors.promql import Matcher, Selector
from apps.telemetry.collectors.ranges import Span
from apps.telemetry.domain.addresses import canonical

END = 1_800_000_000.0


@given(st.text())
def test_no_value_leaves_its_quotes(value):
    quoted = promql.text(value)
    inner = re.fullmatch(r'"((?:[^"\\\n]|\\.)*)"', quoted, re.DOTALL)
    assert inner is not None
    back = re.sub(
        r"\\(.)", lambda m: {"n": "\n"}.get(m.group(1), m.group(1)), inner.group(1), flags=re.DOTALL
    )
    assert back == value


@given(st.lists(st.text(st.characters(codec="utf-8"), max_size=8), min_size=1, max_size=4))
def test_alternatives_match_exactly_their_values(values):
    pattern = re.compile(promql.any_of(values))
    for value in values:
        assert pattern.fullmatch(value)
    assert not pattern.fullmatch("something that was not asked for")


def test_injection_stays_a_value():
    selector = Selector(("up",), (Matcher("pool", "=", "x'} or vector(1) #\""),))
    assert str(selector) == '{__name__="up",pool="x\'} or vector(1) #\\""}'


@pytest.mark.parametrize("name", ["a-b", "", "x'} or vector(1) #", "1a", "a b"])
def test_impossible_label_names_are_refused(name):
    with pytest.raises(ValueError, match="label"):
        promql.label(name)


class Fake:
    """A Prometheus that holds the same series for each of its instances."""

    def __init__(self, instances: int) -> None:
        self.hosts = [f"10.0.{n // 250}.{n % 250}:8000" for n in range(instances)]
        self.asked: list[str] = []

    def ranges(self, selector: str, range_s: float, at: float):
        self.asked.append(selector)
        times = [at - 3 - 15 * n for n in range(5, -1, -1)]
        rows = [
            {"metric": {"instance": host, "job": "llm"}, "values": [[t, "1"] for t in times]}
            for host in self.hosts
        ]
        return matrix.parse(json.dumps({"data": {"result": rows}}).encode())["data"]["result"]


NAMES = frozenset(
    {
        "vllm:num_requests_running",
        "vllm:generation_tokens_total",
        "vllm:prompt_tokens_total",
        "vllm:inter_token_latency_seconds_bucket",
    }
)


def run(instances: int) -> Fake:
    fake = Fake(instances)
    vllm = loader.load("vllm")
    requests = [Request(host, f"http://{host}", vllm) for host in fake.hosts]
    up = up_state(fake, Labels(), requests, end=END, max_age_s=30)
    span = Span(END - 60, END, 15, 30)
    samples = read(fake, Labels(), requests, up, stored=NAMES, span=span)
    assert len(samples.collectors["vllm"].copies) == instances
    return fake


def test_the_number_of_queries_does_not_grow_with_workers():
    # up, three plain metrics, buckets and sum of one histogram
    assert len(run(1).asked) == len(run(600).asked) == 6


def test_a_large_fleet_is_not_spelled_out_in_every_query():
    small, large = run(2), run(600)
    assert all("10\\\\.0\\\\.0\\\\.1:8000" in query for query in small.asked)
    assert max(map(len, large.asked)) < 200


def test_jobs_matchers_and_labels_are_configurable():
    labels = Labels.from_parameters(
        {
            "instance_label": "pod_ip",
            "job_label": "scrape_job",
            "jobs": ["a.b", "c"],
            "matchers": {"cluster": ["east"]},
        }
    )
    fake = Fake(1)
    request = Request("k", "http://10.0.0.1:80", loader.load("vllm"))
    up_state(fake, labels, [request], end=END, max_age_s=10)
    (query,) = fake.asked
    assert "pod_ip=~" in query
    assert 'scrape_job=~"a\\\\.b|c"' in query
    assert 'cluster=~"east"' in query


@pytest.mark.parametrize(
    "bad",
    [
        {"matchers": ["x"]},
        {"instance_label": "a-b"},
        {"scrape_interval_s": 0},
        {"replica_labels": ["a b"]},
        {"matchers": {"x-y": ["a"]}},
    ],
)
def test_impossible_parameters_are_refused(bad):
    with pytest.raises(ValueError, match=r"."):
        Labels.from_parameters(bad)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("http://h:80/metrics", "h"),
        ("https://h/", "https://H:443"),
        ("HTTP://Node-1.:8000", "node-1:8000"),
        ("http://[2001:DB8::1]:9000/metrics", "[2001:db8:0:0:0:0:0:1]:9000"),
        ("2001:db8::1", "[2001:DB8::1]:80"),
    ],
)
def test_spellings_of_one_address(left, right):
    assert canonical(left) == canonical(right)


@pytest.mark.parametrize(
    ("left", "right"), [("h:80", "h:81"), ("https://h", "http://h"), ("localhost", "127.0.0.1")]
)
def test_addresses_that_nothing_proves_equal(left, right):
    assert canonical(left) != canonical(right)


def test_hosts_are_one_only_if_declared():
    assert canonical("localhost:1", {"localhost": "127.0.0.1"}) == "127.0.0.1:1"


def test_rewritten_names_are_found_and_prefixes_only_where_nothing_else_is():
    profile = loader.load("vllm")
    stored = frozenset({"vllm_generation_tokens_total", "acme_ai_vllm:prompt_tokens_total"})
    found = resolve(profile, stored)
    assert {use.metric for use in found.plain["vllm_generation_tokens_total"]} == {
        "vllm:generation_tokens_total"
    }
    assert "acme_ai_vllm:prompt_tokens_total" in found.plain
    both = resolve(profile, stored | {"vllm:prompt_tokens_total"})
    assert "acme_ai_vllm:prompt_tokens_total" not in both.plain


def test_a_recording_rule_is_not_taken_for_the_metric():
    found = resolve(loader.load("vllm"), frozenset({"job:vllm:prompt_tokens_total"}))
    assert not found.plain


def test_a_histogram_without_buckets_is_native_not_missing():
    found = resolve(loader.load("vllm"), frozenset({"vllm:inter_token_latency_seconds"}))
    assert found.native == ("vllm:inter_token_latency_seconds",)
    classic = resolve(loader.load("vllm"), NAMES)
    assert classic.native == ()
    uses = classic.histograms["vllm:inter_token_latency_seconds_bucket"]
    assert {use.piece for use in uses} == {Piece.BUCKET}


@pytest.mark.parametrize(
    ("text", "jobs", "seconds"),
    [
        ("global: {scrape_interval: 15s}", (), 15),
        ("global: {scrape_interval: 1m30s}", (), 90),
        ("scrape_configs: [{job_name: a}, {job_name: b, scrape_interval: 5m}]", ("a",), 60),
        ("scrape_configs: [{job_name: a}, {job_name: b, scrape_interval: 5m}]", (), 300),
        ("global: {scrape_interval: 500ms}", (), 0.5),
        ("", (), None),
        ("[", (), None),
        ("global: {scrape_interval: soon}", (), None),
    ],
)
def test_the_scrape_interval_is_read_from_the_configuration(text, jobs, seconds):
    assert scrape_interval(text, jobs) == seconds
