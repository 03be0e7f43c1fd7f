"""The written samples, served to a real Prometheus: what the direct reader resolves of a text also
resolves through PromQL, with its names with colons, its forms of `le`, its counters and gauges."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

import pytest
from django.test import override_settings

from apps.engines import loader
from apps.engines.evaluate import SignalPart, evaluate
from apps.engines.readings import read
from apps.engines.scraped import ScrapedReader
from apps.engines.window import Kind, Signal
from apps.fleet import connect
from apps.telemetry.collectors import prometheus as collector
from apps.telemetry.collectors.client import Prometheus as Client
from apps.telemetry.collectors.ranges import Span
from tests.contract.engines.data import SAMPLES, text
from tests.support.components.process import until
from tests.support.components.static import serving
from tests.support.prometheus import Prometheus

pytestmark = pytest.mark.live

SCRAPE_S = 0.5
#: Each sample with the profile and the roles that read it. Device and host profiles are read by a
#: collector of their own.
READ_AS = [
    ("dynamo-component.prom", "dynamo_component", ("prefill", "decode")),
    ("dynamo-frontend.prom", "dynamo_frontend", ("frontend",)),
    ("sglang-prefill.prom", "sglang", ("prefill",)),
    ("sglang-decode.prom", "sglang", ("decode",)),
    ("smg.prom", "smg", ("router",)),
    ("trtllm.prom", "trtllm", ("prefill", "decode", "mixed")),
    ("vllm-prefill.prom", "vllm", ("prefill",)),
    ("vllm-decode.prom", "vllm", ("decode",)),
    ("vllm-mixed.prom", "vllm", ("mixed",)),
    ("vllm-router.prom", "vllm_router", ("router",)),
]
CASES = [(name, profile, role) for name, profile, roles in READ_AS for role in roles]
HARDWARE = {"dcgm.prom", "node-exporter.prom"}


@dataclass(frozen=True)
class Asked:
    """Instances that are up, series names per instance, and the signals by sample and role."""

    up: set[str]
    instances: Mapping[str, str]
    names: Mapping[str, set[str]]
    parts: Mapping[tuple[str, str], Mapping[Signal, SignalPart]]


@pytest.fixture(scope="module")
def asked(tmp_path_factory) -> Asked:
    with serving({name: text("samples", name) for name in SAMPLES}) as urls:
        instances = {name: urlsplit(url).netloc for name, url in urls.items()}
        server = Prometheus(
            sorted(instances.values()), SCRAPE_S, tmp_path_factory.mktemp("prometheus")
        )
        with override_settings(FULCRUM_LOOPBACK_PORTS=frozenset({server.port})):
            try:
                server.start()
                return _ask(server, instances)
            finally:
                server.stop()


def _ask(server: Prometheus, instances: Mapping[str, str]) -> Asked:
    client = Client(server.url, policy=connect.fetch_policy(), deadline_s=60)
    begun = time.time()

    def scraped_thrice() -> bool:
        rows = client.query("count_over_time(up[1m])", time.time())
        return len(rows) == len(instances) and all(row.value >= 4 for row in rows)

    until(scraped_thrice, 40, "each sample is scraped four times")
    now = time.time()
    labels = collector.Labels(jobs=("fleet",))
    requests = [
        collector.Request(f"{name} {role}", instances[name], loader.load(profile))
        for name, profile, role in CASES
    ]
    start = max(begun, now - 1.5)
    up_state = collector.up_state(client, labels, requests, end=now, max_age_s=10)
    stored = client.names(start - 10, now)
    parts: dict[tuple[str, str], Mapping[Signal, SignalPart]] = {}
    # One at a time: a target has one role, and the samples are read in several.
    for request, (name, profile, role) in zip(requests, CASES, strict=True):
        span = Span(start, now, SCRAPE_S, 10)
        found = collector.read(client, labels, [request], up_state, stored=stored, span=span)
        readings = found.collectors[profile].readings(request.key, span)
        loaded = loader.load(profile)
        reader = ScrapedReader(loaded, role, [reading for _, reading in readings])
        parts[name, role] = evaluate(loaded, role, reader)
    rows = client.query('group by (instance, __name__) ({instance!=""})', now)
    names: dict[str, set[str]] = {}
    for row in rows:
        names.setdefault(row.labels["instance"], set()).add(row.labels["__name__"])
    up = {row.labels["instance"] for row in client.query("up == 1", now)}
    return Asked(up, instances, names, parts)


def direct(name: str, profile: str, role: str) -> Mapping[Signal, SignalPart]:
    """What the direct reader makes of two equal scrapes."""
    loaded = loader.load(profile)
    reading = read(text("samples", name), loaded)
    return evaluate(loaded, role, ScrapedReader(loaded, role, [reading, reading]))


def test_every_sample_is_read_here_or_is_hardware():
    assert {name for name, _, _ in READ_AS} | HARDWARE == set(SAMPLES)
    assert len(SAMPLES) == 12


def test_every_target_is_up(asked):
    assert asked.up == set(asked.instances.values())
    assert len(asked.up) == 12


@pytest.mark.parametrize("name", SAMPLES)
def test_the_prometheus_keeps_every_name_of_a_sample(asked, name):
    wanted = {
        line.split("{")[0].split(" ")[0]
        for line in text("samples", name).splitlines()
        if line and not line.startswith("#")
    }
    assert wanted - asked.names[asked.instances[name]] == set()


@pytest.mark.parametrize(("name", "profile", "role"), CASES)
def test_what_resolves_from_the_text_resolves_through_promql(asked, name, profile, role):
    mine, theirs = direct(name, profile, role), asked.parts[name, role]
    assert mine
    assert set(theirs) == set(mine)
    for signal, part in mine.items():
        other = theirs[signal]
        assert (other.kind, other.names) == (part.kind, part.names), signal
        if part.kind is Kind.GAUGE:
            assert dict(other.parts) == pytest.approx(dict(part.parts)), signal
        elif part.kind is Kind.COUNTER:
            assert set(other.parts) == set(part.parts), signal
            # Nothing moves: neither what stands still nor the first look is an increase.
            assert not any(other.parts.values()), signal
        else:
            assert other.histogram.bounds == part.histogram.bounds, signal
            assert other.histogram.count == 0, signal
