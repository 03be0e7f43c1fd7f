"""Sample read models: the scenario of the pictures (it adds up) and the demo deployment.

Figures are those of `design/ui.md` §14; times are UTC, "now" is 03:08 on 30 November in Shanghai.
"""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

from apps.common.measurement import Measurement, Place, State, Trace, missing
from apps.common.units import Unit
from apps.fleet.selectors import NotVisible
from apps.overview.domain import types as t
from apps.overview.domain.types import Status, Text

NOW = datetime(2026, 11, 29, 19, 8, 6, tzinfo=UTC)
SINCE = datetime(2026, 11, 29, 18, 5, tzinfo=UTC)
SAMPLE = NOW - timedelta(seconds=6)


def m(
    value: float | Decimal | None,
    unit: Unit,
    state: State = State.OK,
    *,
    low: float | Decimal | None = None,
    high: float | Decimal | None = None,
    place: Place = Place.FRONTEND,
    method: str = "",
    at: datetime = SAMPLE,
    count: int | None = None,
    coverage: tuple[int, int] | None = None,
    query: str = "",
) -> Measurement:
    return Measurement(
        value, unit, state, at, place, method, low, high, coverage, count,
        Trace("Prometheus cn-east-1", query),
    )  # fmt: skip


def usd_h(text: str) -> Measurement:
    return m(Decimal(text), Unit.USD_PER_HOUR, place=Place.DECLARED)


def usd_m(text: str | None, **more: Any) -> Measurement:
    if text is None:
        return missing(Unit.USD_PER_MILLION_TOKENS)
    return m(Decimal(text), Unit.USD_PER_MILLION_TOKENS, **more)


def wave(base: float, late: float, n: int = 46, rise: int = 27) -> tuple[float, ...]:
    """A quiet line that rises to `late` after `rise` points."""
    points = []
    for i in range(n):
        grown = 1 / (1 + math.exp(-(i - rise - 3) / 1.3))
        noise = 0.012 * math.sin(i * 1.7) + 0.008 * math.sin(i * 0.7)
        points.append(round((base + (late - base) * grown) * (1 + noise), 4))
    return tuple(points)


S, R = Unit.SECONDS, Unit.RATIO


def diagnosis() -> t.DiagnosisView:
    return t.DiagnosisView(
        cause="prefill_saturated",
        status=Status.CRIT,
        sentence=Text(
            "sentence.prefill_saturated",
            {"ttft": 1.84, "ttft_objective": 1.2, "since": SINCE, "for_s": 3780.0},
        ),
        since=SINCE,
        for_s=3780,
        evidence=(
            t.Evidence(
                "queue_wait", Status.CRIT,
                m(0.590, S, query="increase(vllm:request_queue_time_seconds_sum[5m])"),
                Text("compare.share_of_ttft", {"share": 0.58, "usual_s": 0.062}),
            ),
            t.Evidence("prefill_busy", Status.CRIT, m(0.94, R, place=Place.ENGINE),
                       Text("compare.over_limit", {"limit": 0.85, "for_s": 3660.0})),
            t.Evidence("decode_busy", Status.OK, m(0.47, R, place=Place.ENGINE),
                       Text("compare.no_preemption", {"kv_used": 0.46})),
            t.Evidence("kv_transfer", Status.OK, m(0.041, S),
                       Text("compare.kv_normal", {"links_used": 0.22})),
            t.Evidence("input_tokens", Status.WARN, m(0.38, R),
                       Text("compare.vs_basis", {"basis": "same_hour_4_weeks"})),
        ),
        wont_help=Text("wont_help.prefill_saturated"),
    )  # fmt: skip


def path() -> t.PathView:
    return t.PathView(
        total=m(1.020, S),
        usual_total_s=0.475,
        requests=42480,
        span_s=3600,
        stages=(
            t.Stage(t.Phase.QUEUE, m(0.590, S), 0.58, 0.062, True,
                    Text("stage.waiting", {"waiting": 38})),
            t.Stage(t.Phase.PREFILL, m(0.352, S), 0.34, 0.338, False,
                    Text("stage.input_cached", {"tokens": 6200, "cached": 0.58})),
            t.Stage(t.Phase.KV_TRANSFER, m(0.041, S), 0.04, 0.039, False,
                    Text("stage.transfer", {"size": m(1.1e9, Unit.BYTES),
                                            "speed": m(27e9, Unit.BYTES_PER_SECOND)})),
            t.Stage(t.Phase.DECODE, m(0.037, S), 0.04, 0.036, False, None,
                    Text("stream.tokens", {"tokens": 900, "tpot": 0.024})),
        ),
    )  # fmt: skip


def figures() -> tuple[t.Figure, ...]:
    return (
        t.Figure("ttft_p95", m(1.84, S, count=3540, query="histogram_quantile(0.95, …)"),
                 Status.CRIT, 1.2,
                 Text("figure.objective_ttft", {"ttft_objective": 1.2}), wave(0.86, 1.84)),
        t.Figure("tpot_p95", m(0.024, S, count=3540), Status.OK, 0.040,
                 Text("figure.objective_tpot", {"tpot_objective": 0.040}), wave(0.0235, 0.024)),
        t.Figure("goodput", m(8.4, Unit.REQUESTS_PER_SECOND, method="requests"), Status.WARN, None,
                 Text("figure.share_of_demand",
                      {"share": 0.71, "demand": m(11.8, Unit.REQUESTS_PER_SECOND)}),
                 wave(8.6, 8.4)),
        t.Figure("output_rate", m(10600, Unit.TOKENS_PER_SECOND), None, None,
                 Text("figure.input_rate", {"rate": m(73200, Unit.TOKENS_PER_SECOND)}),
                 wave(7700, 10600)),
        t.Figure("cost_per_million_good", usd_m("0.94", method="requests"), Status.WARN, None,
                 Text("figure.all_tokens", {"per_million": Decimal("0.67")}), wave(0.71, 0.94)),
        t.Figure("ttft_budget", m(0.61, R), Status.CRIT, None,
                 Text("figure.budget", {"burn": 14.5, "left_s": 30 * 3600})),
    )  # fmt: skip


def predicted() -> tuple[t.PredictedRow, ...]:
    rate = Unit.REQUESTS_PER_SECOND
    return (
        t.PredictedRow("ttft_p95", m(1.84, S), m(0.78, S, low=0.66, high=0.96, place=Place.MODEL),
                       1.2, True),
        t.PredictedRow("tpot_p95", m(0.024, S), m(0.027, S, low=0.025, high=0.031), 0.04, True),
        t.PredictedRow("goodput", m(8.4, rate), m(11.4, rate, low=11.0, high=11.7), None, None),
        t.PredictedRow("cost_per_million", usd_m("0.94"),
                       usd_m("0.69", low=Decimal("0.67"), high=Decimal("0.72")), None, None),
        t.PredictedRow("spend_per_hour", usd_h("200.80"),
                       m(Decimal("200.80"), Unit.USD_PER_HOUR, low=Decimal("200.80"),
                         high=Decimal("200.80")), None, None),
    )  # fmt: skip


def recommendation(**changes: Any) -> t.RecommendationView:
    view = t.RecommendationView(
        id="r1",
        number="R-2187",
        state="open",
        created_at=NOW - timedelta(minutes=2),
        age_s=120,
        valid_s=780,
        title=Text("rec.rebalance",
                   {"count": 1, "from_role": "decode", "total": 2, "to_role": "prefill"}),
        reason=Text("reason.prefill_saturated", {"prefill_busy": 0.94, "decode_busy": 0.47}),
        diff=(
            t.DiffLine("-", "prefill", 4, Decimal(16)),
            t.DiffLine("+", "prefill", 6, Decimal(24)),
            t.DiffLine("-", "decode", 6, Decimal(48)),
            t.DiffLine("+", "decode", 5, Decimal(40)),
        ),
        revision_from=41,
        predicted=predicted(),
        confidence="high",
        similar_changes=14,
        median_error=0.09,
        guardrails=(
            t.Guardrail("survives_loss", True),
            t.Guardrail("max_step", True),
            t.Guardrail("cooldown", True),
            t.Guardrail("gpu_inventory", True),
            t.Guardrail("fresh_data", True),
        ),
        notes=(
            Text("note.drains_first",
                 {"worker": "d-5", "running": 42, "about_s": 95.0, "role": "prefill",
                  "ready_s": 240.0}),
            Text("note.auto_rollback", {"soak_s": 600.0}),
        ),
        blocked=None,
        approvals_needed=1,
        may_propose=True,
        may_approve=True,
        may_dismiss=True,
        why_not=None,
        alternatives=(
            t.Alternative(Text("rec.scale_up", {"count": 2, "role": "prefill"}),
                          {"prefill": 6, "decode": 6}, (),
                          Text("alt.dearer", {"extra": Decimal("20.80")})),
            t.Alternative(Text("rec.do_nothing"), {}, (),
                          Text("alt.budget_gone", {"left_s": 30 * 3600})),
        ),
        terms={},
    )  # fmt: skip
    return replace(view, **changes)


def cells(prefix: str, fills: list[float], gpus: int, **states: str) -> tuple[t.WorkerCell, ...]:
    made = []
    for i, fill in enumerate(fills):
        name = f"{prefix}-{i}"
        made.append(
            t.WorkerCell(name, f"http://{name}:8000", Decimal(gpus), m(fill, R),
                         states.get(name.replace("-", "_"), "serving"),
                         m(float(i * 3), Unit.COUNT), m(float(40 + i), Unit.COUNT))
        )  # fmt: skip
    return tuple(made)


def pools() -> tuple[t.PoolView, ...]:
    tok = Unit.TOKENS_PER_SECOND
    prefill = t.PoolView(
        role="prefill", status=Status.CRIT, headline=Text("pool.saturated"), ready=4, wanted=4,
        parallelism="TP4", gpus=Decimal(16), accelerator="H200", cost_per_hour=usd_h("41.60"),
        role_source="reported",
        meters=(
            t.Meter("busy", m(0.94, R), usual=0.62, limit=0.85, status=Status.CRIT),
            t.Meter("batch_tokens", m(0.98, R), usual=0.71),
            t.Meter("prefix_hits", m(0.58, R), usual=0.61),
            t.Meter("power", m(0.89, R), usual=0.70),
        ),
        cells=cells("p", [0.96, 0.94, 0.94, 0.935], 4),
        facts=(
            t.Figure("waiting", m(38.0, Unit.COUNT), Status.CRIT, None, None),
            t.Figure("input_rate", m(73200, tok), None, None, None),
            t.Figure("uncached_rate", m(30700, tok), None, None, None),
            t.Figure("cost_per_million_input", usd_m("0.158"), None, None, None),
        ),
    )  # fmt: skip
    decode = t.PoolView(
        role="decode", status=Status.OK, headline=Text("pool.room", {"count": 1}), ready=6,
        wanted=6, parallelism="DEP8", gpus=Decimal(48), accelerator="H200",
        cost_per_hour=usd_h("124.80"), role_source="reported",
        meters=(
            t.Meter("busy", m(0.47, R), usual=0.46, limit=0.85),
            t.Meter("kv_used", m(0.46, R), usual=0.44, limit=0.90),
            t.Meter("batch_slots", m(0.42, R), usual=0.41),
            t.Meter("power", m(0.51, R), usual=0.50),
        ),
        cells=cells("d", [0.48, 0.47, 0.47, 0.46, 0.45, 0.46], 8),
        facts=(
            t.Figure("running", m(255.0, Unit.COUNT), None, None, None),
            t.Figure("output_rate", m(10600, tok), None, None, None),
            t.Figure("preemptions", m(0.0, Unit.COUNT), None, None, None),
            t.Figure("cost_per_million_output", usd_m("3.27"), None, None, None),
        ),
    )  # fmt: skip
    return prefill, decode


def cost() -> t.CostView:
    rows = (
        ("prefill_gpus", "41.60", 0.21, "0.195"),
        ("decode_gpus", "124.80", 0.62, "0.584"),
        ("cpu_memory", "9.60", 0.05, "0.045"),
        ("network_storage", "6.40", 0.03, "0.030"),
        ("software_operations", "8.00", 0.04, "0.037"),
        ("redundancy_failures", "10.40", 0.05, "0.049"),
    )
    return t.CostView(
        total_per_hour=usd_h("200.80"),
        lines=tuple(t.CostLine(c, usd_h(h), s, usd_m(p)) for c, h, s, p in rows),
        unit_costs=(
            t.Figure("cost_per_million_completed", usd_m("0.67"), None, None, None),
            t.Figure("cost_per_million_good", usd_m("0.94"), None, None, None),
        ),
        idle_share=m(0.12, R),
        price_book="list v7",
        missing_prices=(),
    )


def history() -> tuple[t.Change, ...]:
    return (
        t.Change(NOW - timedelta(minutes=2), Status.INFO,
                 Text("change.recommended", {"recommendation": "R-2187",
                      "changes": {"prefill": (4, 6), "decode": (6, 5)}}),
                 Text("log.waits_for_approval"), "fulcrum", "/recommendations/R-2187/"),
        t.Change(NOW - timedelta(minutes=6), Status.CRIT, Text("change.page", {"burn": 14.5}),
                 Text("log.acknowledged", {"who": "bob", "at": NOW - timedelta(minutes=3)}),
                 "fulcrum"),
        t.Change(SINCE, Status.WARN, Text("change.traffic", {"change": 0.38}), None, "fulcrum"),
        t.Change(NOW - timedelta(days=1, hours=9), Status.OK,
                 Text("change.command_applied",
                      {"command": "C-0912", "changes": {"decode": (5, 6)}}),
                 Text("log.verified", {"after_s": 600.0, "figure": "tpot_p95",
                      "first": m(0.031, S), "second": m(0.024, S), "predicted": m(0.025, S)}),
                 "alice", "/commands/C-0912/"),
        t.Change(NOW - timedelta(days=2, hours=3), Status.OK,
                 Text("change.revision", {"revision": 40}), None, "charlie"),
    )  # fmt: skip


def sources() -> tuple[t.SourceLine, ...]:
    return (
        t.SourceLine("Prometheus cn-east-1", "prometheus", Status.OK, "ok", SAMPLE, 6),
        t.SourceLine("Dynamo API", "backend", Status.OK, "ok", NOW - timedelta(seconds=11), 11),
        t.SourceLine("DCGM", "exporter", Status.OK, "ok", NOW - timedelta(seconds=9), 9),
    )


def deployment(**changes: Any) -> t.DeploymentPage:
    page = t.DeploymentPage(
        id="d1", slug="assist-chat-prod", name="assist-chat-prod", model="qwen3-235b",
        engine="vLLM on Dynamo", cluster="cn-east-1", environment="production", mode="approve",
        gpus=Decimal(64), accelerator="H200", revision=41, status=Status.CRIT,
        status_text=Text("status.paging_ttft"), sync=t.Sync("in_sync", 41), as_of=SAMPLE, age_s=6,
        interval_s=15, is_stale=False, banners=(), diagnosis=diagnosis(), path=path(),
        figures=figures(), recommendation=recommendation(),
        no_recommendation=Text("none.balanced", {"prefill_busy": 0.61, "decode_busy": 0.64}),
        pools=pools(), cost=cost(), changes=history(), sources=sources(), signals_found=6,
        signals_required=6, may_propose=True, may_approve=True, may_kill=True,
        kill_switch_on=False, role_line=Text("role_line.operate_approve"), etag="e1",
    )  # fmt: skip
    return replace(page, **changes)


def demo() -> t.DeploymentPage:
    """The demo fleet: 2P+4D SGLang workers behind smg, prefill saturated, TTFT P95 8.4 of 2.5 s."""
    sample = NOW - timedelta(seconds=3)
    since = NOW - timedelta(seconds=105)
    one = Decimal(1)
    return deployment(
        slug="chat-pd", name="chat-pd", model="demo-70b", engine="sglang", cluster="demo",
        environment="demo", gpus=Decimal(6), accelerator="H200", revision=3, as_of=sample, age_s=3,
        interval_s=5, sync=t.Sync("in_sync", 3), etag="demo",
        diagnosis=t.DiagnosisView(
            "prefill_saturated", Status.CRIT,
            Text("sentence.prefill_saturated",
                 {"ttft": 8.4, "ttft_objective": 2.5, "since": since, "for_s": 105.0}),
            since, 105,
            (
                t.Evidence("queue_wait", Status.CRIT, m(5.9, S, place=Place.ENGINE),
                           Text("compare.share_of_ttft", {"share": 0.89, "usual_s": 0.041})),
                t.Evidence("prefill_busy", Status.CRIT, m(1.0, R, place=Place.ENGINE),
                           Text("compare.over_limit", {"limit": 0.85, "for_s": 90.0})),
                t.Evidence("decode_busy", Status.OK, m(0.41, R, place=Place.ENGINE),
                           Text("compare.no_preemption", {"kv_used": 0.22})),
                t.Evidence("kv_transfer", Status.OK, m(0.062, S, place=Place.ENGINE),
                           Text("compare.kv_normal", {})),
                t.Evidence("input_length", Status.WARN, m(1.48, R, place=Place.ENGINE),
                           Text("compare.vs_basis", {"basis": "since_start"})),
            ),
            Text("wont_help.prefill_saturated"),
        ),
        path=t.PathView(
            m(6.62, S, place=Place.ROUTER), 0.31, 214, 30,
            (
                t.Stage(t.Phase.QUEUE, m(5.9, S), 0.89, 0.041, True,
                        Text("stage.waiting", {"waiting": 46})),
                t.Stage(t.Phase.PREFILL, m(0.64, S), 0.10, 0.21, False,
                        Text("stage.input", {"tokens": 2850})),
                t.Stage(t.Phase.KV_TRANSFER, m(0.062, S), 0.009, 0.043, False, None),
                t.Stage(t.Phase.DECODE, m(0.018, S), 0.003, 0.016, False, None,
                        Text("stream.tokens", {"tokens": 200, "tpot": 0.0171})),
            ),
        ),
        figures=(
            t.Figure("ttft_p95", m(8.4, S, place=Place.ROUTER, count=214), Status.CRIT, 2.5,
                     Text("figure.objective_ttft", {"ttft_objective": 2.5}), wave(0.52, 8.4)),
            t.Figure("tpot_p95", m(0.0194, S, place=Place.ENGINE), Status.OK, 0.025,
                     Text("figure.objective_tpot", {"tpot_objective": 0.025}), wave(0.016, 0.0194)),
            t.Figure("goodput", m(2.1, Unit.REQUESTS_PER_SECOND, method="marginals", low=2.1,
                                  high=2.4), Status.CRIT, None,
                     Text("figure.share_range_of_demand",
                          {"first": m(0.29, R), "second": m(0.33, R),
                           "demand": m(7.4, Unit.REQUESTS_PER_SECOND)}), wave(5.5, 2.1)),
            t.Figure("output_rate", m(1480, Unit.TOKENS_PER_SECOND), None, None,
                     Text("figure.input_rate", {"rate": m(21100, Unit.TOKENS_PER_SECOND)}),
                     wave(1100, 1480)),
            t.Figure("cost_per_million_good",
                     usd_m("8.11", method="marginals", low=Decimal("7.10"), high=Decimal("8.11")),
                     Status.WARN, None,
                     Text("figure.all_tokens", {"per_million": Decimal("2.36")}), wave(2.4, 8.1)),
            t.Figure("ttft_budget", missing(R, State.NO_DATA), None, None,
                     Text("figure.budget_short")),
        ),
        recommendation=recommendation(
            number="R-0004", age_s=12, valid_s=288, revision_from=3, approvals_needed=0,
            title=Text("rec.role_flip", {"count": 1, "from_role": "decode", "to_role": "prefill"}),
            diff=(
                t.DiffLine("-", "prefill", 2, Decimal(2)),
                t.DiffLine("+", "prefill", 3, Decimal(3)),
                t.DiffLine("-", "decode", 4, Decimal(4)),
                t.DiffLine("+", "decode", 3, Decimal(3)),
            ),
            predicted=(
                t.PredictedRow("ttft_p95", m(8.4, S), m(1.31, S, low=0.9, high=2.1), 2.5, True),
                t.PredictedRow("tpot_p95", m(0.0194, S), m(0.0207, S, low=0.0188, high=0.0232),
                               0.025, True),
                t.PredictedRow("goodput", m(2.1, Unit.REQUESTS_PER_SECOND),
                               m(7.3, Unit.REQUESTS_PER_SECOND, low=6.9, high=7.4), None, None),
                t.PredictedRow("spend_per_hour", usd_h("12.60"),
                               m(Decimal("12.60"), Unit.USD_PER_HOUR, low=Decimal("12.60"),
                                 high=Decimal("12.60")), None, None),
            ),
            similar_changes=2, median_error=0.14, confidence="low",
            notes=(
                Text("note.flip", {"worker": "decode-3", "about_s": 6.0}),
                Text("note.backlog", {"waiting": 46, "about_s": 60.0}),
                Text("note.auto_rollback", {"soak_s": 60.0}),
            ),
        ),
        pools=(
            replace(pools()[0], ready=2, wanted=2, parallelism="TP1", gpus=Decimal(2),
                    cost_per_hour=usd_h("4.20"), role_source="declared",
                    meters=(t.Meter("busy", m(1.0, R), usual=0.35, limit=0.85),
                            t.Meter("kv_used", m(0.62, R)),
                            t.Meter("prefix_hits", missing(R))),
                    cells=tuple(
                        t.WorkerCell(f"prefill-{i}", "", one, m(v, R), "serving",
                                     m(23.0, Unit.COUNT), m(4.0, Unit.COUNT))
                        for i, v in enumerate((1.0, 0.99)))),
            replace(pools()[1], ready=3, wanted=4, parallelism="TP1", gpus=Decimal(4),
                    cost_per_hour=usd_h("8.40"),
                    cells=tuple(
                        t.WorkerCell(f"decode-{i}", "", one,
                                     m(v, R) if v else missing(R), s,
                                     m(0.0, Unit.COUNT), m(20.0, Unit.COUNT))
                        for i, (v, s) in enumerate(
                            ((0.42, "serving"), (0.40, "serving"), (0.41, "draining"),
                             (0.0, "unhealthy"))))),
        ),
    )  # fmt: skip


def stale() -> t.DeploymentPage:
    """Prometheus stopped four minutes ago: everything looks old, apply is off."""
    at = NOW - timedelta(minutes=4)

    def old(found: Measurement) -> Measurement:
        return replace(found, state=State.STALE, observed_at=at)

    page = deployment()
    return replace(
        page,
        is_stale=True,
        as_of=at,
        age_s=240,
        etag="stale",
        status=Status.UNKNOWN,
        status_text=Text("status.stale", {"age_s": 240.0}),
        banners=(
            t.Banner(Status.WARN, Text("banner.source_stale", {
                "source": "Prometheus cn-east-1", "age_s": 240.0, "sample_at": at})),
        ),
        diagnosis=replace(
            page.diagnosis, cause="not_enough_signal", status=Status.UNKNOWN,
            sentence=Text("sentence.not_enough_signal", {"sample_at": at, "age_s": 240.0}),
            evidence=tuple(replace(e, measurement=old(e.measurement))
                           for e in page.diagnosis.evidence),
            wont_help=Text("wont_help.not_enough_signal"),
        ),
        figures=tuple(replace(f, measurement=old(f.measurement)) for f in page.figures),
        path=replace(page.path, total=old(page.path.total),
                     stages=tuple(replace(s, mean=old(s.mean), is_hot=False)
                                  for s in page.path.stages)),
        recommendation=recommendation(blocked=Text("blocked.stale", {"age_s": 240.0})),
        pools=tuple(replace(p, status=Status.UNKNOWN, headline=Text("pool.stale"),
                            meters=tuple(replace(x, measurement=old(x.measurement))
                                         for x in p.meters)) for p in page.pools),
    )  # fmt: skip


def for_viewer(page: t.DeploymentPage) -> t.DeploymentPage:
    """The same page for a person who may only read."""
    why = Text("why_not.permission", {"permission": "propose"})
    assert page.recommendation is not None
    return replace(
        page,
        may_propose=False, may_approve=False, may_kill=False, role_line=Text("role_line.read"),
        recommendation=replace(page.recommendation, may_propose=False, may_approve=False,
                               may_dismiss=False, why_not=why),
    )  # fmt: skip


def row(slug: str, **given: Any) -> t.FleetRow:
    base: dict[str, Any] = {
        "name": slug, "model": "qwen3-30b", "cluster": "cn-east-1", "status": Status.OK,
        "limited_by": Text("limited.cause", {"cause": "balanced"}),
        "limited_detail": Text("detail.balanced"), "ttft_p95": m(0.31, S), "ttft_objective": 1.0,
        "tpot_p95": m(0.014, S), "tpot_objective": 0.030, "prefill_gpus": Decimal(4),
        "decode_gpus": Decimal(8), "total_gpus": Decimal(12), "prefill_busy": m(0.61, R),
        "decode_busy": m(0.64, R), "good_share": m(0.99, R), "cost_per_million_good": usd_m("0.12"),
        "next_step": None, "next_link": "", "is_stale": False, "budget_left": m(0.91, R),
        "cause": "balanced",
    }  # fmt: skip
    return t.FleetRow(slug=slug, **{**base, **given})


def fleet_rows() -> tuple[t.FleetRow, ...]:
    old = NOW - timedelta(minutes=9)
    return (
        row("assist-chat-prod", model="qwen3-235b", status=Status.CRIT, cause="prefill_saturated",
            limited_by=Text("limited.cause", {"cause": "prefill_saturated"}),
            limited_detail=Text("detail.queue_share", {"share": 0.58}), ttft_p95=m(1.84, S),
            ttft_objective=1.2, tpot_p95=m(0.024, S), tpot_objective=0.04,
            prefill_gpus=Decimal(16), decode_gpus=Decimal(48), prefill_busy=m(0.94, R),
            decode_busy=m(0.47, R), good_share=m(0.71, R), cost_per_million_good=usd_m("0.94"),
            next_step=Text("step.next_review", {"recommendation": "R-2187"}),
            next_link="/recommendations/R-2187/", budget_left=m(0.61, R),
            card=Text("card.ttft_fix_free",
                      {"ttft": 1.84, "ttft_objective": 1.2, "for_s": 3780.0})),
        row("doc-rag-prod", model="deepseek-v3", cluster="cn-north-2", status=Status.CRIT,
            cause="kv_transfer_slow",
            limited_by=Text("limited.cause", {"cause": "kv_transfer_slow"}),
            limited_detail=Text("detail.links", {"links_used": 0.96}), ttft_p95=m(2.10, S),
            ttft_objective=2.0, tpot_p95=m(0.031, S), tpot_objective=0.045,
            prefill_gpus=Decimal(24), decode_gpus=Decimal(24), prefill_busy=m(0.63, R),
            decode_busy=m(0.58, R), good_share=m(0.93, R), cost_per_million_good=usd_m("0.81"),
            next_step=Text("step.next_open"), next_link="/deployments/doc-rag-prod/",
            budget_left=m(0.12, R),
            card=Text("card.wont_scale", {"since": NOW - timedelta(minutes=20)})),
        row("code-assist", model="qwen3-coder", status=Status.WARN, cause="decode_saturated",
            limited_by=Text("limited.cause", {"cause": "decode_saturated"}),
            limited_detail=Text("detail.kv_used", {"kv_used": 0.91}), ttft_p95=m(0.88, S),
            ttft_objective=1.5, tpot_p95=m(0.044, S), tpot_objective=0.045,
            prefill_gpus=Decimal(8), decode_gpus=Decimal(24), prefill_busy=m(0.48, R),
            decode_busy=m(0.93, R), good_share=m(0.97, R), cost_per_million_good=usd_m("1.12"),
            next_step=Text("step.next_command", {"command": "C-0913"}),
            next_link="/commands/C-0913/", budget_left=m(0.48, R)),
        row("chat-mini"),
        row("search-assist", model="glm-4.6", cluster="cn-north-2", ttft_p95=m(0.52, S),
            tpot_p95=m(0.019, S), tpot_objective=0.035, prefill_gpus=Decimal(8),
            decode_gpus=Decimal(16), prefill_busy=m(0.57, R), decode_busy=m(0.66, R),
            cost_per_million_good=usd_m("0.38"), budget_left=m(0.84, R)),
        row("translate-batch", cluster="eu-1", status=Status.WARN, cause="idle_prefill",
            limited_by=Text("limited.cause", {"cause": "idle_prefill"}),
            limited_detail=Text("detail.busy", {"busy": 0.24, "for_s": 6 * 3600.0}),
            ttft_p95=m(0.44, S), ttft_objective=5.0, tpot_p95=m(0.022, S), tpot_objective=0.06,
            prefill_gpus=Decimal(8), decode_gpus=Decimal(8), prefill_busy=m(0.24, R),
            decode_busy=m(0.71, R), good_share=m(1.0, R), cost_per_million_good=usd_m("0.29"),
            next_step=Text("step.next_review", {"recommendation": "R-2179"}),
            next_link="/recommendations/R-2179/", budget_left=m(0.99, R),
            card=Text("card.idle", {"busy": 0.24, "for_s": 6 * 3600.0, "gpus": Decimal(4),
                                    "saved": Decimal("10.40")})),
        row("vision-beta", model="qwen3-vl", cluster="eu-1", status=Status.UNKNOWN, is_stale=True,
            cause="not_enough_signal", limited_by=Text("limited.stale"),
            limited_detail=Text("detail.last_sample", {"age_s": 540.0}),
            ttft_p95=m(0.61, S, State.STALE, at=old), tpot_p95=m(0.020, S, State.STALE, at=old),
            prefill_gpus=Decimal(4), decode_gpus=Decimal(4), next_step=Text("step.next_source"),
            next_link="/deployments/vision-beta/"),
        row("legacy-chat", model="llama-3.3-70b", cluster="eu-1", status=Status.INFO,
            limited_by=Text("limited.single_pool"), limited_detail=Text("detail.not_split"),
            ttft_p95=missing(S, State.TOO_FEW), prefill_gpus=None, decode_gpus=None,
            total_gpus=Decimal(8), prefill_busy=missing(R), decode_busy=m(0.70, R),
            cost_per_million_good=usd_m("0.55"), budget_left=None),
    )  # fmt: skip


def fleet(**changes: Any) -> t.FleetPage:
    rows = fleet_rows()
    count = Unit.COUNT
    page = t.FleetPage(
        rows=rows,
        shown=8,
        visible=8,
        clusters=3,
        strip=(
            t.Figure("paging", m(2.0, count), Status.CRIT, None,
                     Text("figure.oldest", {"oldest_s": 3780.0})),
            t.Figure("warnings", m(2.0, count), Status.WARN, None,
                     Text("figure.in_progress", {"count": 1})),
            t.Figure("waiting_approval", m(1.0, count), None, None,
                     Text("figure.waiting_for", {"recommendation": "R-2187", "left_s": 780.0})),
            t.Figure("good_tokens", m(0.93, R), Status.WARN, None,
                     Text("figure.of_rate", {"rate": m(412000, Unit.TOKENS_PER_SECOND)})),
            t.Figure("spend", usd_h("1214.00"), None, None,
                     Text("figure.per_hour_change", {"change": 0.02})),
            t.Figure("gpus", m(412.0, Unit.GPUS), None, None,
                     Text("figure.gpus", {"total": 448, "spare": 20, "draining": 16})),
        ),
        cards=(rows[0], rows[1], rows[5]),
        sources=sources(),
        banners=(),
        as_of=SAMPLE,
        age_s=6,
        role_line=Text("role_line.operate_approve"),
        etag="f1",
    )  # fmt: skip
    return replace(page, **changes)


def steps(state: str = "PLANNED") -> tuple[t.PlannedStep, ...]:
    started = NOW - timedelta(minutes=10)
    done = state == "DONE"

    def step(index: int, kind: str, worker: str, text: Text, expected: float) -> t.PlannedStep:
        return t.PlannedStep(
            index, kind, worker, state, text, expected,
            started + timedelta(minutes=index) if done else None,
            started + timedelta(minutes=index, seconds=expected - 3) if done else None,
            request="PATCH /scale {\"replicas\": 5}" if done else "",
            answer="200 OK" if done else "",
        )  # fmt: skip

    return (
        step(0, "drain", "d-5", Text("step.drain", {"worker": "d-5"}), 95),
        step(1, "start", "p-4", Text("step.start", {"worker": "p-4", "role": "prefill"}), 230),
        step(2, "start", "p-5", Text("step.start", {"worker": "p-5", "role": "prefill"}), 230),
        step(3, "verify", "", Text("step.verify"), 30),
    )


def review(**changes: Any) -> t.ReviewPage:
    page = t.ReviewPage(
        deployment=deployment(),
        recommendation=recommendation(),
        checks=(
            t.Check("revision", True, Text("check.revision", {"revision": 41})),
            t.Check("fresh_data", True, Text("check.age", {"age_s": 8.0})),
            t.Check("survives_loss", True),
            t.Check("gpu_inventory", True, Text("check.gpus_same")),
            t.Check("cooldown", True, Text("check.last_change", {"at": NOW - timedelta(days=1)})),
            t.Check("freeze", True),
            t.Check("kill_switch", True),
            t.Check("dry_run", True),
        ),
        steps=steps(),
        lowest_capacity={"prefill": 4, "decode": 5},
        rollback=Text("rollback.auto", {"soak_s": 600.0, "targets": {"prefill": 4, "decode": 6}}),
        expected_revision=41,
        plan_hash="9f2c7d51ab3e48a0b1c2",
        may_apply=True,
        one_person_may=False,
        why_not=None,
    )
    return replace(page, **changes)


def compared() -> tuple[t.PredictedRow, ...]:
    found = predicted()
    measured = (m(0.81, S), m(0.028, S), m(11.3, Unit.REQUESTS_PER_SECOND), usd_m("0.70"),
                usd_h("200.80"))  # fmt: skip
    return tuple(
        replace(item, measured=value, inside_range=True)
        for item, value in zip(found, measured, strict=True)
    )


def command(**changes: Any) -> t.CommandView:
    view = t.CommandView(
        id="c1", number="C-0914", deployment_slug="assist-chat-prod",
        deployment_name="assist-chat-prod", kind="rebalance",
        title=Text("command.change", {"changes": {"prefill": (4, 6), "decode": (6, 5)}}),
        state="SOAK", status=Status.INFO,
        state_text=Text("state.SOAK", {"elapsed_s": 240.0, "soak_s": 600.0}),
        diff=recommendation().diff, proposed_by=("alice",),
        proposed_at=NOW - timedelta(minutes=12), started_at=NOW - timedelta(minutes=10),
        finished_at=None, duration_s=600, deadline_at=NOW + timedelta(minutes=50),
        soak_elapsed_s=240, soak_s=600, plan_hash="9f2c7d51ab3e48a0b1c2", expected_revision=41,
        approvals_needed=1,
        approvals=(t.ApprovalLine("bob", NOW - timedelta(minutes=11), "approve", "go"),),
        steps=steps("DONE"), compared=compared(),
        worst=(
            t.Figure("worst_ttft_p95", m(2.31, S), None, 1.2, None),
            t.Figure("worst_tpot_p95", m(0.031, S), None, 0.04, None),
            t.Figure("worst_error_share", m(0.0, R), None, None, None),
        ),
        recovered_after_s=318, true_now={"prefill": 6, "decode": 5},
        next_action=Text("next.soak", {"until": NOW + timedelta(minutes=6)}), error=None,
        log=(
            t.Change(NOW - timedelta(minutes=12), Status.INFO,
                     Text("change.command_proposed", {"command": "C-0914"}), None, "alice"),
            t.Change(NOW - timedelta(minutes=11), Status.OK,
                     Text("change.command_approved", {"command": "C-0914"}),
                     Text("log.reason", {"reason_text": "go"}), "bob"),
        ),
        rollback_of="", rolled_back_by="", may_approve=False, may_reject=False, may_cancel=True,
        may_roll_back=True, why_not=None, recommendation_number="R-2187", is_live=True, etag="c1",
    )  # fmt: skip
    return replace(view, **changes)


def waiting_command(**changes: Any) -> t.CommandView:
    return command(
        number="C-0915", state="PROPOSED", status=Status.WARN,
        state_text=Text("state.PROPOSED", {"approvals": 1, "until": NOW + timedelta(minutes=14)}),
        started_at=None, duration_s=None, soak_elapsed_s=None, approvals=(), steps=steps(),
        compared=predicted(), worst=(), recovered_after_s=None,
        next_action=Text("next.approve"), true_now={"prefill": 4, "decode": 6}, may_approve=True,
        may_reject=True, may_roll_back=False, etag="c2", **changes,
    )  # fmt: skip


def failed_command() -> t.CommandView:
    good = steps("DONE")
    broken = replace(good[1], state="FAILED", error="worker did not become ready in 300 s",
                     ended_at=NOW)  # fmt: skip
    return command(
        number="C-0910", state="PARTIAL", status=Status.CRIT, is_live=False,
        state_text=Text("state.PARTIAL", {"true_now": {"prefill": 5, "decode": 6}}),
        error=Text("error.step_failed", {"step": 2, "error": "p-5 did not become ready in 300 s"}),
        next_action=Text("next.person"), true_now={"prefill": 5, "decode": 6},
        steps=(good[0], broken, *steps()[2:]), compared=predicted(), worst=(),
        recovered_after_s=None, soak_s=None, soak_elapsed_s=None, etag="c3",
    )  # fmt: skip


def command_list() -> t.CommandList:
    done = command(
        number="C-0912", state="SUCCEEDED", status=Status.OK, is_live=False,
        state_text=Text("state.SUCCEEDED", {"after_s": 840.0}),
        title=Text("command.change", {"changes": {"decode": (5, 6)}}),
        started_at=NOW - timedelta(days=1, hours=9), kind="scale", soak_s=None,
    )  # fmt: skip
    return t.CommandList(
        rows=(waiting_command(), command(), done, failed_command()),
        visible=4,
        predictions=17,
        inside_range=15,
        median_error=0.09,
        role_line=Text("role_line.operate_approve"),
    )


def series(n: int = 181) -> dict[str, Any]:
    """The answer of the series address for the same incident (columns, `null` marks a gap)."""

    def line(base: float, late: float) -> list[float | None]:
        return [*wave(base, late, n, rise=117)]

    p50 = line(0.45, 0.95)
    p50[40:44] = [None] * 4
    return {
        "as_of": "2026-11-29T19:08:00Z", "t0": "2026-11-29T16:08:00Z", "step": 60, "n": n,
        "panels": {
            "ttft": {"unit": "s", "objective": 1.2, "place": "frontend", "p50": p50,
                     "p95": line(0.86, 1.84), "p99": line(1.12, 2.62), "complete": [[0, n - 1]]},
            "tpot": {"unit": "s", "objective": 0.04, "place": "frontend",
                     "p50": line(0.018, 0.018), "p95": line(0.0235, 0.024),
                     "p99": line(0.0285, 0.029), "complete": [[0, n - 1]]},
            "busy": {"unit": "ratio", "objective": None, "limit": 0.85, "place": "engine",
                     "prefill": line(0.62, 0.94), "decode": line(0.46, 0.47)},
            "flow": {"unit": "req/s", "objective": None, "place": "frontend",
                     "demand": line(8.7, 11.8), "good": line(8.6, 8.4)},
        },
        "events": [{"t": "2026-11-29T17:10:00Z", "kind": "command", "id": "C-0913",
                    "label": "decode 6 → 6"}],
        "coverage": 2,
    }  # fmt: skip


class Selectors(SimpleNamespace):
    """Stands in for `apps.overview.selectors`; `calls` records what was asked."""

    def __init__(self, **pages: Any) -> None:
        super().__init__(calls=[], pages=pages)

    def _note(self, name: str, *asked: Any) -> None:
        self.calls.append((name, *asked))

    def fleet_page(self, viewer: Any, now: Any, params: Any) -> t.FleetPage:
        self._note("fleet_page", viewer, dict(params))
        return self.pages.get("fleet", fleet())

    def deployment_page(self, viewer: Any, slug: str, now: Any, params: Any) -> t.DeploymentPage:
        self._note("deployment_page", viewer, slug, dict(params))
        known = {
            "assist-chat-prod": deployment(),
            "chat-pd": demo(),
            "stale-prod": replace(stale(), slug="stale-prod"),
            **self.pages.get("deployments", {}),
        }
        if slug not in known:
            raise NotVisible(slug)
        return known[slug]

    def review_page(self, viewer: Any, number: str, now: Any) -> t.ReviewPage:
        self._note("review_page", viewer, number)
        if number != "R-2187":
            raise NotVisible(number)
        return self.pages.get("review", review())

    def command_page(self, viewer: Any, number: str, now: Any) -> t.CommandView:
        self._note("command_page", viewer, number)
        known = {item.number: item for item in command_list().rows}
        known |= self.pages.get("commands", {})
        if number not in known:
            raise NotVisible(number)
        return known[number]

    def command_list(self, viewer: Any, now: Any, params: Any) -> t.CommandList:
        self._note("command_list", viewer, dict(params))
        return self.pages.get("command_list", command_list())

    def nav_counts(self, viewer: Any, now: Any) -> dict[str, int]:
        return {"deployments": 8, "commands": 1}

    def collector_age_s(self, now: Any) -> float:
        return 4.0
