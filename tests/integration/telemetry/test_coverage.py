"""Coverage and credibility on real metric servers, through both kinds of source, and in the API."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from apps.accounts.domain.authorize import SYSTEM
from apps.common.clock import utcnow
from apps.common.measurement import State
from apps.engines.codec import window_from_json, window_to_json
from apps.engines.window import CounterIncrease, GaugeValue, HistogramIncrease, Signal, Window
from apps.fleet.models import Backend
from apps.fleet.services import connect_backend
from apps.overview import coverage as read_model
from apps.overview import selectors as overview
from apps.telemetry import coverage, selectors, services
from apps.telemetry.domain.coverage import Found, Level
from apps.telemetry.models import Source, StoredFinding, StoredWindow, Target
from tests.support.product import wait_until
from tests.support.prometheus import Prometheus

pytestmark = pytest.mark.django_db


def lines(fleet, thresholds=None):
    found = coverage.report(fleet.deployment, fleet.at, thresholds)
    return found.level, {line.code: line for line in found.lines}


def serve_and_collect(fleet) -> None:
    fleet.collect()
    for _ in range(4):
        fleet.serve()
    fleet.collect()


def test_a_fleet_without_hardware_exporters_reaches_level_two(metric_fleet) -> None:
    fleet = metric_fleet
    serve_and_collect(fleet)
    level, found = lines(fleet, {"ttft": 1.0, "tpot": 0.025})
    assert level is Level.EXPLAIN
    assert found["ttft"].place == "router"
    assert found["tpot"].place == "engine"
    assert found["roles"].params["have"] == 4
    assert found["workers"].found is Found.FOUND
    assert found["devices"].found is Found.MISSING
    assert found["commands"].effect == "commands.missing"
    assert found["buckets"].found is Found.FOUND


def test_histograms_that_are_read_less_often_are_still_found(metric_fleet) -> None:
    """A large fleet reads counters and gauges at every tick, histograms each minute."""
    fleet = metric_fleet
    serve_and_collect(fleet)
    for row in StoredWindow.objects.filter(end=fleet.at):
        window = window_from_json(row.payload, scope=row.scope, start=row.start, end=row.end)
        bare = {s: v for s, v in window.values.items() if not isinstance(v, HistogramIncrease)}
        row.payload = window_to_json(replace(window, values=bare))
        row.start, row.end = row.end, row.end + timedelta(seconds=5)
        row.pk = None
        row.save()
    fleet.at += timedelta(seconds=5)
    level, found = lines(fleet, {"ttft": 1.0})
    assert level is Level.EXPLAIN
    assert found["ttft"].found is Found.FOUND
    assert found["buckets"].found is Found.FOUND


def test_a_silent_worker_and_a_renamed_family_are_told(metric_fleet) -> None:
    fleet = metric_fleet
    serve_and_collect(fleet)
    fleet.servers["d1"].stop()
    for name in ("d0", "p0", "p1"):
        engine = fleet.engine(name)
        engine.values = {
            (key.replace("num_running_reqs", "number_running_reqs"), labels): value
            for (key, labels), value in engine.values.items()
        }
    fleet.collect(60)
    services.observe_targets(deployment=fleet.deployment, now=fleet.at)
    _, found = lines(fleet)
    assert (found["workers"].found, found["workers"].params["names"]) == (Found.PART, ("d1",))
    assert found["running"].found is Found.MISSING
    assert (found["running"].fix, found["running"].fix_text) == (
        "renamed", "sglang:number_running_reqs",
    )  # fmt: skip


def test_a_percent_instead_of_a_share_is_not_credible_at_once(metric_fleet) -> None:
    """M22, for windows however they came: no check has run yet; the window itself shows it."""
    fleet = metric_fleet
    serve_and_collect(fleet)
    row = StoredWindow.objects.filter(scope="decode").latest("end")
    window = window_from_json(row.payload, scope="decode", start=row.start, end=row.end)
    shown = GaugeValue(88.0, {fleet.url("d0"): 87.0, fleet.url("d1"): 1.0})
    row.payload = window_to_json(replace(window, values={**window.values, Signal.KV_USED: shown}))
    row.save()
    figures = selectors.figures(fleet.deployment, fleet.at)
    assert figures.decode.kv_used.state is State.CONFLICT
    assert figures.prefill.kv_used.state is State.OK
    level, found = lines(fleet)
    assert found["finding.looks_like_percent"].params["worker"] == "d0"
    assert level is Level.EXPLAIN, "a figure that is there and wrong is no missing one"


def store(fleet, minutes: float, waiting: float, queue_s: float) -> None:
    url = fleet.url("d0")
    for index in range(5):
        end = fleet.at + timedelta(minutes=minutes) - timedelta(seconds=30 * (4 - index))
        values = {
            Signal.WAITING: GaugeValue(waiting, {url: waiting}),
            Signal.QUEUE_TIME: HistogramIncrease((1.0,), (9, 0), queue_s, 9, {url: queue_s},
                                                 {url: 9}),
        }  # fmt: skip
        window = Window("decode", end - timedelta(seconds=30), end, values, (url,), (url,))
        StoredWindow.objects.update_or_create(
            deployment=fleet.deployment, scope="decode", end=end,
            defaults={"start": window.start, "payload": window_to_json(window)},
        )  # fmt: skip


def test_a_queue_that_always_reads_zero_is_doubted_and_believed_again(metric_fleet) -> None:
    """Open case 13: 150 s of waiting in half a minute are 5 requests, and the gauge says 0."""
    fleet = metric_fleet
    serve_and_collect(fleet)
    store(fleet, 1, waiting=0, queue_s=150)
    at = fleet.at + timedelta(minutes=1)
    assert selectors.figures(fleet.deployment, at).decode.waiting.state is not State.CONFLICT
    services.check_deployment(deployment_id=fleet.deployment.pk, now=at)
    doubted = selectors.figures(fleet.deployment, at).decode.waiting
    assert doubted.state is State.CONFLICT
    finding = StoredFinding.objects.get(code="zero_under_load")
    assert (finding.scope, finding.signal, finding.since) == ("decode", "waiting", at)

    store(fleet, 5, waiting=4, queue_s=150)
    later = fleet.at + timedelta(minutes=5)
    services.check_deployment(deployment_id=fleet.deployment.pk, now=later)
    finding.refresh_from_db()
    assert finding.ended_at == later
    assert selectors.figures(fleet.deployment, later).decode.waiting.state is State.OK
    again = selectors.figures_over(fleet.deployment, at, 150).decode.waiting
    assert again.state is State.CONFLICT, "history keeps what was known then"


def test_a_finding_that_no_check_repeats_loses_its_force(metric_fleet) -> None:
    fleet = metric_fleet
    serve_and_collect(fleet)
    store(fleet, 0, waiting=0, queue_s=150)
    services.check_deployment(deployment_id=fleet.deployment.pk, now=fleet.at)
    store(fleet, 20, waiting=0, queue_s=0)
    later = fleet.at + timedelta(minutes=20)
    assert selectors.figures(fleet.deployment, later).decode.waiting.state is State.OK


def test_metrics_that_are_down_while_the_router_serves_are_told(metric_fleet) -> None:
    """vLLM #49983: the figures are partial, the worker is not lost."""
    fleet = metric_fleet
    serve_and_collect(fleet)
    fleet.servers["d1"].stop()
    fleet.collect()
    services.check_deployment(deployment_id=fleet.deployment.pk, now=fleet.at)
    finding = StoredFinding.objects.get(code="down_while_serving")
    assert (finding.worker, finding.voids) == (fleet.url("d1"), False)
    assert selectors.figures(fleet.deployment, fleet.at).decode.running.state is State.PARTIAL


def test_the_read_model_has_words_for_every_line(metric_fleet) -> None:
    from apps.console import wording
    from tests.unit.console.samples import SHANGHAI

    fleet = metric_fleet
    serve_and_collect(fleet)
    shown = overview.coverage_of(SYSTEM, "chat", fleet.at)
    assert (shown.level, shown.levels) == (2, 4)
    for line in shown.lines:
        for text in (line.title, line.detail, line.effect, line.fix):
            assert text is None or wording.say(text, SHANGHAI).strip()
    rows = read_model.signal_rows(SYSTEM, fleet.deployment, fleet.at)
    by_key = {(row["scope"], row["signal"]): row for row in rows}
    assert by_key["decode", "tpot"]["effect"] == ""
    assert by_key["decode", "tpot"]["level"] == 2


def test_level_four_needs_a_backend_that_answers(metric_fleet) -> None:
    fleet = metric_fleet
    serve_and_collect(fleet)
    Backend.objects.filter(deployment=fleet.deployment).update(
        adapter="router_workers", address=fleet.url("router"), last_ok_at=fleet.at,
        parameters={"kind": "smg", "metrics_url": fleet.servers["router"].metrics_url},
    )  # fmt: skip
    fleet.deployment.refresh_from_db()
    _, found = lines(fleet)
    assert (found["commands"].effect, found["commands"].fix) == (
        "commands.read_only", "write_credential",
    )  # fmt: skip
    connect_backend(
        actor=SYSTEM, now=fleet.at, deployment=fleet.deployment, adapter="router_workers",
        address=fleet.url("router"), parameters=fleet.deployment.backend.parameters,
        credential="a-key",
    )  # fmt: skip
    fleet.deployment.refresh_from_db()
    _, found = lines(fleet)
    assert found["commands"].found is Found.FOUND
    fleet.at += timedelta(minutes=10)
    _, found = lines(fleet)
    assert found["commands"].effect == "commands.unreachable"


def test_the_page_shows_the_level_and_what_lasts(metric_fleet) -> None:
    fleet = metric_fleet
    serve_and_collect(fleet)
    page = overview.deployment_page(SYSTEM, "chat", fleet.at)
    assert page.coverage_level == 2
    StoredFinding.objects.create(
        deployment=fleet.deployment, kind="role", code="decode_prefills", severity="warning",
        worker=fleet.url("d0"), params={"computed_share": 0.05},
        since=fleet.at - timedelta(minutes=11), seen_at=fleet.at,
    )  # fmt: skip
    page = overview.deployment_page(SYSTEM, "chat", fleet.at)
    (banner,) = [item for item in page.banners if item.text.code == "found.decode_prefills"]
    assert (banner.text.params["worker"], banner.text.params["share"]) == ("d0", 0.05)


def test_answers_that_may_be_wrong_are_a_banner(metric_fleet) -> None:
    """From the stored windows through the check to the page."""
    fleet = metric_fleet
    serve_and_collect(fleet)
    row = StoredWindow.objects.filter(scope="prefill").latest("end")
    window = window_from_json(row.payload, scope="prefill", start=row.start, end=row.end)
    late = CounterIncrease(3, {fleet.url("p0"): 3, fleet.url("p1"): 0})
    row.payload = window_to_json(
        replace(window, values={**window.values, Signal.STALE_KV_SERVED: late})
    )
    row.save()
    services.check_deployment(deployment_id=fleet.deployment.pk, now=fleet.at)
    _, found = lines(fleet)
    line = found["finding.stale_kv_served"]
    assert (line.params["worker"], line.effect, line.fix) == (
        "p0", "finding.stale_kv", "check_lease",
    )  # fmt: skip
    page = overview.deployment_page(SYSTEM, "chat", fleet.at)
    (banner,) = [item for item in page.banners if item.text.code == "found.stale_kv_served"]
    assert (banner.status.value, banner.text.params["count"]) == ("crit", 3)


def test_a_real_prometheus_tells_pod_labels_and_names(
    metric_fleet, settings, tmp_path: Path
) -> None:
    """Labels that relabelling puts on a target name the role that nothing else names."""
    fleet = metric_fleet
    hosts = {name: server.url.removeprefix("http://") for name, server in fleet.servers.items()}
    server = Prometheus(list(hosts.values()), 1, tmp_path)
    config = (
        "global: {scrape_interval: 1s, scrape_timeout: 900ms}\n"
        "scrape_configs:\n"
        "  - job_name: fleet\n"
        "    static_configs:\n"
        + "".join(
            f"      - {{targets: ['{host}'], labels: {{llm_d_ai_role: '{role}'}}}}\n"
            for name, host in hosts.items()
            for role in [{"p": "prefill", "d": "decode"}.get(name[0], "router")]
        )
    )
    (tmp_path / "prometheus.yml").write_text(config, encoding="utf-8")
    settings.FULCRUM_LOOPBACK_PORTS = settings.FULCRUM_LOOPBACK_PORTS | {server.port}
    services.sync_targets(fleet.deployment)
    server.start()
    try:
        Source.objects.filter(deployment=fleet.deployment).update(kind="prometheus", url=server.url)

        def seen() -> bool:
            services.observe_targets(deployment=fleet.deployment, now=utcnow())
            return not Target.objects.filter(observed_at__isnull=True).exists()

        wait_until(seen, 20, "five targets that the Prometheus scrapes")
        target = Target.objects.get(url=fleet.servers["p0"].metrics_url)
        assert target.observed["pod_labels"] == {"llm_d_ai_role": "prefill"}
        assert target.observed["metric_labels"] == {"engine_type": ["prefill"]}
        assert target.observed["names"] > 3
        worker = fleet.workers["p0"]
        type(worker).objects.filter(pk=worker.pk).update(role="decode", role_source="unknown")
        services.check_deployment(deployment_id=fleet.deployment.pk, now=utcnow())
        worker.refresh_from_db()
        assert (worker.role, worker.role_source) == ("prefill", "pod_label")
    finally:
        server.stop()
