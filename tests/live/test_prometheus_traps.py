"""The traps of Prometheus semantics, each against a real server with a made past.

All histories lie in one server, each under addresses of its own. Expected figures are written from
the samples, by hand.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pytest

from apps.accounts.domain.authorize import SYSTEM
from apps.common.fetch import FetchPolicy
from apps.common.measurement import Drive, State
from apps.engines import loader
from apps.engines.window import CounterIncrease, GaugeValue, HistogramIncrease, Signal, Window
from apps.fleet import services as fleet
from apps.fleet.models import Accelerator, Deployment, Worker
from apps.telemetry import selectors, services
from apps.telemetry.collectors import client, prometheus
from apps.telemetry.collectors.client import Prometheus
from apps.telemetry.collectors.pooled import PoolAnswers
from apps.telemetry.collectors.prometheus import Labels, Request
from apps.telemetry.collectors.ranges import Span
from apps.telemetry.collectors.rules import rules_yaml
from apps.telemetry.domain.windows import TargetHistory, windows_of_tick
from apps.telemetry.models import StoredWindow
from apps.telemetry.services import through_prometheus
from benchmarks.prometheus_history import SPAN_STARTS, serving
from tools.services import find

pytestmark = pytest.mark.live

SCRAPE = 15.0
#: Scrapes 0..9; the windows of the tests end just after the last one.
COUNT = 10
LAST = SPAN_STARTS + (COUNT - 1) * SCRAPE
END = LAST + 2
START = END - 60


@dataclass
class Past:
    """Series by their text, each with its value at scrape 0, 1, ... (None: not scraped)."""

    lines: list[tuple[str, float, str]] = field(default_factory=list)

    def add(self, series: str, values: Sequence[object], shift: float = 0.0) -> None:
        for number, value in enumerate(values):
            if value is not None:
                at = SPAN_STARTS + number * SCRAPE + shift
                self.lines.append((series, at, str(value)))

    def up(self, instance: str, values: Sequence[object] = (1,) * COUNT, labels: str = "") -> None:
        self.add(f'up{{instance="{instance}",job="llm"{labels}}}', values)

    def histogram(self, name: str, labels: str, steps: Mapping[str, int]) -> None:
        """Cumulative buckets that grow by `steps` (of each bound) per scrape."""
        for bound, step in steps.items():
            values = [step * number for number in range(COUNT)]
            self.add(f'{name}_bucket{{{labels},le="{bound}"}}', values)
        largest = steps["+Inf"]
        self.add(f"{name}_sum{{{labels}}}", [0.5 * largest * number for number in range(COUNT)])
        self.add(f"{name}_count{{{labels}}}", [largest * number for number in range(COUNT)])

    def text(self) -> str:
        # A block's reader wants each series' samples in order; nothing else.
        return "".join(f"{s} {v} {at:.3f}\n" for s, at, v in self.lines) + "# EOF\n"


GROW = [100 * number for number in range(COUNT)]


def history() -> Past:
    past = Past()

    def engine(instance: str, name: str, values: Sequence[object], labels: str = "") -> None:
        base = f'instance="{instance}",job="llm",model_name="m",engine="0"'
        past.add(f"vllm:{name}{{{base}{labels}}}", values)

    def plain(instance: str, extra: str = "") -> None:
        past.up(instance, labels=extra)
        engine(instance, "num_requests_running", [3] * COUNT, extra)
        engine(instance, "generation_tokens_total", GROW, extra)

    plain("steady:1")
    past.up("reset:1")
    engine("reset:1", "generation_tokens_total", [0, 0, 0, 0, 0, 100, 130, 10, 40, 45])
    past.up("born:1")
    engine("born:1", "num_requests_running", [1] * COUNT)
    engine("born:1", "request_success_total", [None] * 8 + [7, 9], ',finished_reason="error"')
    past.up("new:1", [None] * 7 + [1, 1, 1])
    engine("new:1", "generation_tokens_total", [None] * 7 + [5000, 5010, 5030])
    past.up("gone:1", [1] * 7)
    engine("gone:1", "num_requests_running", [9] * 7)
    past.up("down:1", [1] * 7 + [0, 0, 0])
    engine("down:1", "num_requests_running", [9] * 7)
    past.up("bad:1")
    engine("bad:1", "num_requests_running", [1] * COUNT)
    engine("bad:1", "num_requests_waiting", ["NaN"] * COUNT)
    engine("bad:1", "kv_cache_usage_perc", ["1e308"] * COUNT)
    engine("bad:1", "generation_tokens_total", [*GROW[:-1], "+Inf"])
    past.up("http://Twice:80")
    past.add('vllm:generation_tokens_total{instance="http://Twice:80",job="llm",engine="0"}', GROW)
    past.add('vllm:generation_tokens_total{instance="twice",job="llm",engine="0"}', GROW)
    for replica in ("a", "b"):
        plain("pair:1", f',prometheus_replica="{replica}"')
        extra = f',prometheus_replica="{replica}"'
        past.up("torn:1", labels=extra)
        factor = 1 if replica == "a" else 2
        engine("torn:1", "generation_tokens_total", [5000 * factor + v for v in GROW], extra)
    past.up("rewritten:1")
    past.add('vllm_generation_tokens_total{instance="rewritten:1",job="llm"}', GROW)
    past.up("texts:1")
    engine("texts:1", "num_requests_running", [1] * COUNT)
    name, labels = "vllm:inter_token_latency_seconds", 'instance="texts:1",job="llm"'
    past.histogram(name, labels, {"0.5": 10, "1": 30, "2.0": 40, "+Inf": 40})
    for instance, steps in (
        ("ladder:1", {"0.3": 1, "0.5": 2, "+Inf": 4}),
        ("ladder:2", {"0.3": 1, "0.5": 2, "+Inf": 4}),
        ("ladder:3", {"0.4": 9, "+Inf": 9}),
    ):
        past.up(instance)
        engine(instance, "num_requests_running", [1] * COUNT)
        past.histogram(name, f'instance="{instance}",job="llm"', steps)
    for pool, ladders in (("same", ("1", "1")), ("mixed", ("1", "2"))):
        for number, bound in enumerate(ladders):
            instance = f"{pool}-{number}:1"
            labels = f'instance="{instance}",job="llm",namespace="{pool}",role="decode"'
            past.add(f"up{{{labels}}}", [1] * COUNT)
            past.add(f"vllm:num_requests_running{{{labels}}}", [1] * COUNT)
            steps = {"0.5": 2 + number, bound: 5, "+Inf": 6}
            past.histogram("vllm:inter_token_latency_seconds", labels, steps)
    past.up("router:1")
    for worker, health in (("http://w0", 1), ("http://w1", -1)):
        past.add(
            f'smg_worker_health{{instance="router:1",job="llm",worker="{worker}"}}',
            [health] * COUNT,
        )
    past.up("clash:1", labels=',engine_type="target"')
    past.add(
        'sglang:generation_tokens_total{instance="clash:1",job="llm",engine_type="target",'
        'exported_engine_type="prefill"}',
        GROW,
    )
    past.up("shared:1")
    for namespace, factor in (("a", 1), ("b", 3)):
        past.add(
            'dynamo_frontend_output_tokens_total{instance="shared:1",job="llm",model="org/m",'
            f'dynamo_namespace="{namespace}"}}',
            [factor * value for value in GROW],
        )
    return past


@dataclass(frozen=True)
class Server:
    url: str
    port: int


@pytest.fixture(scope="module")
def server(tmp_path_factory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("traps")
    promtool = find("promtool")
    assert promtool, "prometheus and promtool are needed"
    (folder / "past.om").write_text(history().text(), encoding="utf-8")
    subprocess.run(
        [promtool, "tsdb", "create-blocks-from", "openmetrics", str(folder / "past.om"),
         str(folder / "data")], check=True, capture_output=True,
    )  # fmt: skip
    with serving(folder) as (url, _):
        yield Server(url, int(url.rsplit(":", 1)[1]))


@dataclass(frozen=True)
class Seen:
    window: Window | None
    samples: prometheus.Samples
    up: prometheus.UpState


def look(
    server: Server,
    *addresses: str,
    profile: str = "vllm",
    role: str = "decode",
    match: Mapping[str, str] | None = None,
    parameters: Mapping[str, object] | None = None,
    start: float = START,
    end: float = END,
) -> Seen:
    """The window of some addresses as one pool."""
    policy = FetchPolicy(loopback_ports=frozenset({server.port}), max_bytes=client.MAX_BYTES)
    source = Prometheus(server.url, policy=policy, deadline_s=20)
    labels = Labels.from_parameters({"jobs": ["llm"], **(parameters or {})})
    found = loader.load(profile)
    requests = [Request(a, f"http://{a}", found, match or {}) for a in addresses]
    span = Span(start, end, SCRAPE, 30)
    up = prometheus.up_state(source, labels, requests, end=end, max_age_s=30)
    stored = source.names(start - 60, end)
    samples = prometheus.read(source, labels, requests, up, stored=stored, span=span)
    collector = samples.collectors[profile]
    scope = "engine" if found.scope == "engine" else found.scope
    windows = windows_of_tick(
        [
            TargetHistory(a, scope, found, collector.readings(a, span), role_now=role)
            for a in addresses
        ],
        start=datetime.fromtimestamp(start, UTC),
        end=datetime.fromtimestamp(end, UTC),
        expected={role: addresses},
        source="traps",
        phase_s=SCRAPE,
    )
    return Seen(windows[0] if windows else None, samples, up)


def counter(seen: Seen, signal: Signal) -> float:
    assert seen.window is not None
    value = seen.window.values[signal]
    assert isinstance(value, CounterIncrease)
    return value.increase


def gauge(seen: Seen, signal: Signal) -> GaugeValue:
    assert seen.window is not None
    value = seen.window.values[signal]
    assert isinstance(value, GaugeValue)
    return value


def test_an_increase_is_not_extrapolated(server):
    # `increase` answers 400 x 60/60 only if samples happen to lie on the edges.
    assert counter(look(server, "steady:1"), Signal.OUTPUT_TOKENS) == 400


def test_windows_tile(server):
    whole = counter(look(server, "steady:1", start=END - 90), Signal.OUTPUT_TOKENS)
    middle = END - 37
    left = look(server, "steady:1", start=END - 90, end=middle)
    right = look(server, "steady:1", start=middle)
    assert counter(left, Signal.OUTPUT_TOKENS) + counter(right, Signal.OUTPUT_TOKENS) == whole


def test_a_reset_counts_what_came_before_and_after_it(server):
    # In the window (scrapes 5..9): 100 -> 130 -> restart 10 -> 40 -> 45.
    assert counter(look(server, "reset:1"), Signal.OUTPUT_TOKENS) == 30 + 10 + 30 + 5


def test_a_series_that_is_born_counts_whole_but_a_new_target_does_not(server):
    assert counter(look(server, "born:1"), Signal.REQUESTS_FAILED) == 9
    new = look(server, "new:1")
    assert counter(new, Signal.OUTPUT_TOKENS) == 30
    assert new.window is not None
    assert new.window.seconds == 30  # two scrapes were seen, not sixty seconds


def test_an_old_sample_is_no_gauge(server):
    # The server itself still answers 9 for five minutes.
    seen = look(server, "gone:1", "steady:1")
    assert seen.window is not None
    assert dict(gauge(seen, Signal.RUNNING).by_worker) == {"steady:1": 3}
    assert seen.window.reported == ("steady:1",)
    assert look(server, "gone:1").window is None


def test_a_target_that_is_down_is_known_to_be(server):
    seen = look(server, "down:1", "steady:1")
    assert seen.up.good == {"steady:1"}
    assert seen.up.known == {"down:1", "steady:1"}


def test_no_number_that_is_none_gets_in(server):
    seen = look(server, "bad:1")
    assert seen.window is not None
    assert Signal.WAITING not in seen.window.values
    assert Signal.KV_USED not in seen.window.values
    assert counter(seen, Signal.OUTPUT_TOKENS) == 300  # until the infinite one
    assert seen.samples.defects > 10


def test_two_spellings_of_an_address_count_once(server):
    assert counter(look(server, "twice"), Signal.OUTPUT_TOKENS) == 400


def test_copies_of_an_ha_pair_count_once(server):
    seen = look(server, "pair:1")
    assert seen.up.replicas == ("prometheus_replica",)
    assert counter(seen, Signal.OUTPUT_TOKENS) == 400
    assert gauge(seen, Signal.RUNNING).total == 3
    assert not seen.samples.conflicts


def test_copies_that_disagree_are_a_conflict(server):
    seen = look(server, "torn:1", "pair:1")
    assert seen.samples.conflicts == {"torn:1"}


def test_rewritten_names_answer(server):
    seen = look(server, "rewritten:1")
    assert counter(seen, Signal.OUTPUT_TOKENS) == 400
    assert seen.window is not None
    assert seen.window.names[Signal.OUTPUT_TOKENS] == "vllm:generation_tokens_total"


def test_texts_of_bounds_are_numbers(server):
    seen = look(server, "texts:1")
    assert seen.window is not None
    value = seen.window.values[Signal.ITL]
    assert isinstance(value, HistogramIncrease)
    assert value.bounds == (0.5, 1.0, 2.0)
    assert value.counts == (40, 80, 40, 0)
    assert value.count == 160
    assert value.total == 80


def test_ladders_never_mix(server):
    seen = look(server, "ladder:1", "ladder:2", "ladder:3")
    assert seen.window is not None
    value = seen.window.values[Signal.ITL]
    assert isinstance(value, HistogramIncrease)
    # One ladder only, and who has another one is not counted as heard.
    assert value.bounds in ((0.3, 0.5), (0.4,))
    lone = value.bounds == (0.4,)
    assert set(value.count_by_worker) == ({"ladder:3"} if lone else {"ladder:1", "ladder:2"})
    assert value.count == (36 if lone else 32)


def test_a_worker_that_was_removed_has_no_health(server):
    seen = look(server, "router:1", profile="smg", role="router")
    assert set(gauge(seen, Signal.WORKER_HEALTH).by_worker) == {"http://w0"}


def test_the_exporters_own_label_wins_over_the_targets(server):
    # The series says prefill: it may not count in decode, whatever the target's label says.
    seen = look(server, "clash:1", profile="sglang", role="decode")
    assert seen.window is None or Signal.OUTPUT_TOKENS not in seen.window.values


@pytest.mark.parametrize(("namespace", "tokens"), [("a", 400), ("b", 1200)])
def test_one_model_in_two_namespaces_stays_two(server, namespace, tokens):
    match = {"model": "Org/M", "dynamo_namespace": namespace}
    seen = look(server, "shared:1", profile="dynamo_frontend", role="frontend", match=match)
    assert counter(seen, Signal.OUTPUT_TOKENS) == tokens


# ---- with the database: windows, gaps, late samples ----------------------------------------------


@pytest.fixture
def source(db, settings, server, monkeypatch):
    """One deployment with two decode workers."""
    settings.FULCRUM_LOOPBACK_PORTS = frozenset({server.port})
    monkeypatch.setattr("celery.current_app.send_task", lambda *a, **k: None)
    Accelerator.objects.create(slug="h200-sxm", vendor="nvidia", name="H200")
    early = datetime.fromtimestamp(SPAN_STARTS - 3600, UTC)
    cluster = fleet.register_cluster(
        actor=SYSTEM, now=early, slug="lab", name="Lab", uid="lab", mode_cap="observe"
    )
    deployment = fleet.register_deployment(
        actor=SYSTEM, now=early, cluster=cluster, slug="chat", name="chat", served_model="m",
        environment="production", preset="production",
    )  # fmt: skip
    fleet.declare_pool(
        actor=SYSTEM, now=early, deployment=deployment, role="decode", accelerator="h200-sxm",
        devices_per_worker=Decimal(1), engine="vllm", engine_version="0.32", wanted=1, facts={},
    )  # fmt: skip
    for name in ("steady", "born"):
        fleet.declare_worker(
            now=early, deployment=deployment, name=name, url=f"http://{name}:1", role="decode",
            metrics_url=f"http://{name}:1/metrics", bootstrap_port=None,
        )  # fmt: skip
    Worker.objects.update(serving="serving")
    return services.create_source(
        actor=SYSTEM, now=early, cluster=cluster, kind="prometheus", url=server.url,
        interval_s=15, parameters={"jobs": ["llm"]},
    )  # fmt: skip


def collect(source, at: float):
    now = datetime.fromtimestamp(at, UTC)
    type(source).objects.filter(pk=source.pk).update(last_ok_at=None)
    result = services.collect_source(source_id=source.pk, now=now, owner="test")
    assert result is not None
    assert result.error == ""
    return result


def test_a_window_shorter_than_four_scrapes_is_widened_and_says_so(source):
    source.parameters = {"jobs": ["llm"], "scrape_interval_s": 30}
    source.save()
    collect(source, END)
    row = StoredWindow.objects.get()
    assert (row.end - row.start).total_seconds() == 120
    assert "window widened to 120 s: scraped every 30 s" in row.payload["s"]


def test_the_interval_is_read_from_the_server(source):
    collect(source, END)  # its configuration says 15 s
    row = StoredWindow.objects.get()
    assert (row.end - row.start).total_seconds() == 60
    assert "widened" not in row.payload["s"]


def payloads() -> dict[tuple[datetime, datetime], dict[str, object]]:
    return {(row.start, row.end): row.payload for row in StoredWindow.objects.all()}


def test_a_gap_is_filled_once_oldest_first(source):
    collect(source, END - 75)
    collect(source, END + 12)  # three and a half ticks later: 27 s lie in no window
    before = payloads()
    now = datetime.fromtimestamp(END + 20, UTC)
    first = services.backfill_source(source_id=source.pk, now=now)
    assert (first.filled, first.windows, first.left) == (1, 1, 0)
    after = payloads()
    ((start, end),) = after.keys() - before.keys()
    assert start == datetime.fromtimestamp(END - 75, UTC)
    assert end == datetime.fromtimestamp(END - 48, UTC)
    assert {key: after[key] for key in before} == before
    again = services.backfill_source(source_id=source.pk, now=now)
    assert again.filled == 0
    assert payloads() == after


def test_a_long_gap_takes_several_bounded_runs(source):
    collect(source, SPAN_STARTS + 30)
    row = StoredWindow.objects.get()
    row.pk = None
    row.start, row.end = row.start + timedelta(hours=1), row.end + timedelta(hours=1)
    row.save()
    now = datetime.fromtimestamp(END + 3600, UTC)
    run = services.backfill_source(source_id=source.pk, now=now, limit=2)
    assert run.filled == 2
    assert run.left > 10
    starts = sorted(start for start, _ in payloads())
    assert starts[1] == datetime.fromtimestamp(SPAN_STARTS + 30, UTC)  # the oldest first
    assert starts[2] - starts[1] == timedelta(seconds=60)


def test_a_late_sample_corrects_its_window_once(source):
    collect(source, END)
    row = StoredWindow.objects.get()
    whole = row.payload
    assert row.reported_count == 2
    # As it was before the samples of one worker had arrived.
    row.payload = {**whole, "r": ["http://steady:1"]}
    row.reported_count = 1
    row.save()
    # Windows of hardware have reporters of their own, which say nothing of late engines.
    StoredWindow.objects.create(
        deployment=row.deployment, scope="decode/device", start=row.start, end=row.end,
        payload=whole, expected_count=4, reported_count=3,
    )  # fmt: skip
    now = datetime.fromtimestamp(END + 90, UTC)
    assert services.backfill_source(source_id=source.pk, now=now).corrected == 1
    row.refresh_from_db()
    assert row.reported_count == 2
    assert row.payload["v"] == whole["v"]
    row.reported_count = 1
    row.save()
    assert services.backfill_source(source_id=source.pk, now=now).corrected == 0


def test_copies_that_disagree_drive_nothing(source):
    """M14 from the server to the figure: `hold`, and the source says why."""
    Worker.objects.filter(name="born").update(
        url="http://torn:1", metrics_url="http://torn:1/metrics"
    )
    collect(source, END)
    found = selectors.figures(Deployment.objects.get(), datetime.fromtimestamp(END, UTC))
    assert found.decode is not None
    assert found.decode.tokens_per_s.state is State.CONFLICT
    assert not any(found.decode.tokens_per_s.may_drive(drive) for drive in Drive)
    source.refresh_from_db()
    assert "copies of 1 targets disagree by more than 20 %" in source.last_error


def test_an_engine_listed_under_two_spellings_is_one(source):
    fleet.declare_worker(
        now=datetime.fromtimestamp(SPAN_STARTS, UTC), deployment=_deployment(source),
        name="alias", url="http://STEADY:1", role="decode",
        metrics_url="HTTP://STEADY:1/metrics", bootstrap_port=None,
    )  # fmt: skip
    Worker.objects.update(serving="serving")
    collect(source, END)
    row = StoredWindow.objects.get()
    assert (row.expected_count, row.reported_count) == (2, 2)


def _deployment(source):
    return source.cluster.deployments.get()


@pytest.mark.parametrize("pool", ["same", "mixed"])
def test_a_pool_as_a_whole_is_what_its_workers_are(source, pool, monkeypatch):
    by_pool: list[set[Signal]] = []
    real = PoolAnswers.histograms

    def seen(self, profile, role, pools):
        found = real(self, profile, role, pools)
        by_pool.append(set(found))
        return found

    monkeypatch.setattr(PoolAnswers, "histograms", seen)
    monkeypatch.setattr(through_prometheus, "SINGLE_TARGETS", 0)
    for number, worker in enumerate(Worker.objects.order_by("pk")):
        url = f"http://{pool}-{number}:1"
        Worker.objects.filter(pk=worker.pk).update(url=url, metrics_url=f"{url}/metrics")
    collect(source, END)
    single = StoredWindow.objects.get().payload
    source.parameters = {"jobs": ["llm"], "pool_labels": ["namespace", "role"]}
    source.save()
    result = collect(source, END)
    whole = StoredWindow.objects.get().payload
    assert whole["v"] == single["v"]
    assert "itl" in whole["v"]
    assert result.requests < 40
    # Mixed ladders are left to be read worker by worker.
    assert by_pool == ([{Signal.ITL, Signal.TPOT}] if pool == "same" else [])


def test_rules_of_the_file_are_those_of_the_profiles(tmp_path):
    text = rules_yaml()
    shipped = Path(__file__).parents[2] / "deploy/prometheus/rules/fulcrum.yml"
    assert shipped.read_text(encoding="utf-8") == text, "run manage.py prometheus_rules"
    promtool = find("promtool")
    assert promtool
    done = subprocess.run([promtool, "check", "rules", str(shipped)], capture_output=True)
    assert done.returncode == 0, done.stderr.decode()
