"""The escaping builder, and the number of queries."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.engines import loader
from apps.engines.window import Signal
from apps.telemetry.collectors import promql
from apps.telemetry.collectors.client import Row
from apps.telemetry.collectors.prometheus import Instance, Labels, collect, up_instances
from apps.telemetry.collectors.promql import Matcher, Selector

END = datetime(2026, 1, 1, tzinfo=UTC)


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


def test_rate_comes_before_sum_and_ranks_before_workers():
    series = Selector(("c_total",), ())
    query = promql.per(
        promql.grown(series, Selector(("up",)), "instance", 30),
        ("instance",),
        collapse=("tp_rank",),
    )
    assert query == (
        "sum by (instance) (max without(tp_rank) ("
        '((({__name__="c_total"} unless {__name__="c_total"} offset 30000ms)'
        ' and on(instance) ({__name__="up"} offset 30000ms == 1))'
        ' or increase({__name__="c_total"}[30000ms]))))'
    )


class Fake:
    """A Prometheus that knows some names and answers 1 for everything."""

    name = "fake"
    is_partial = False

    def __init__(self, names: list[str], instances: list[str]) -> None:
        self.names, self.instances = names, instances
        self.queries: list[str] = []

    def query(self, expression: str, at: float) -> list[Row]:
        self.queries.append(expression)
        if expression.startswith("group by"):
            return [
                Row({"instance": i, "__name__": n}, 1) for i in self.instances for n in self.names
            ]
        if "le)" in expression:
            return [
                Row({"instance": i, "le": le}, float(value))
                for i in self.instances
                for le, value in (("1", 3), ("1.0", 1), ("2.5", 5), ("+Inf", 6))
            ]
        return [Row({"instance": i, "worker": "w"}, 7) for i in self.instances]


def run(instances: int, roles: tuple[str, ...] = ("decode",)):
    names = [
        "vllm:num_requests_running",
        "vllm:generation_tokens_total",
        "vllm:prompt_tokens_total",
        "vllm:inter_token_latency_seconds_bucket",
    ]
    hosts = [f"10.0.0.{n}:8000" for n in range(instances)]
    fake = Fake(names, hosts)
    wanted = [
        Instance(host, f"http://{host}", roles[n % len(roles)], loader.load("vllm"))
        for n, host in enumerate(hosts)
    ]
    parts = collect(
        fake, Labels(), wanted, start=END - timedelta(seconds=30), end=END, max_age_s=10
    )
    return fake, parts


def test_the_number_of_queries_does_not_grow_with_workers_or_pools():
    small, _ = run(1)
    large, _ = run(60, ("prefill", "decode", "mixed"))
    assert len(small.queries) == len(large.queries) == 1 + 1 + 2 + 2


def test_answers_go_to_their_worker_and_role():
    _, parts = run(2, ("prefill", "decode"))
    (prefill, decode) = parts
    assert (prefill[0], prefill[1].url) == ("prefill", "http://10.0.0.0:8000")
    assert Signal.OUTPUT_TOKENS not in prefill[1].signals
    assert prefill[1].signals[Signal.INPUT_TOKENS].parts == {"": 7}
    assert decode[1].signals[Signal.OUTPUT_TOKENS].parts == {"": 7}
    tpot = decode[1].signals[Signal.TPOT]
    assert tpot.names == "vllm:inter_token_latency_seconds"
    assert tpot.histogram.bounds == (1.0, 2.5)
    assert tpot.histogram.counts == (4, 1, 1)  # "1" and "1.0" are one bound


def test_jobs_and_labels_are_configurable():
    fake = Fake([], [])
    labels = Labels.from_parameters(
        {"instance_label": "pod_ip", "job_label": "scrape_job", "jobs": ["a.b", "c"]}
    )
    up_instances(fake, labels, ["10.0.0.1:80"], at=END, max_age_s=10)
    (query,) = fake.queries
    assert 'pod_ip=~"10\\\\.0\\\\.0\\\\.1:80"' in query
    assert 'scrape_job=~"a\\\\.b|c"' in query
    assert "timestamp" in query
