"""The deployment of the pictures; its figures add up (`design/ui.md` §14)."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from typing import Any

from apps.common.measurement import Place
from apps.common.units import Unit
from apps.overview.domain import types as t
from apps.overview.domain.types import Status, Text

from .base import NOW, SAMPLE, SINCE, R, S, m, usd_h, usd_m, wave


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
                       Text("compare.usual",
                            {"usual": m(0.46, R), "basis": "same_hour_4_weeks"})),
            t.Evidence("kv_transfer", Status.OK, m(0.041, S),
                       Text("compare.usual",
                            {"usual": m(0.039, S), "basis": "same_hour_4_weeks"})),
            t.Evidence("input_length", Status.WARN, m(6200.0, Unit.TOKENS),
                       Text("compare.usual",
                            {"usual": m(4500.0, Unit.TOKENS), "basis": "same_hour_4_weeks"})),
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
                    Text("stage.input", {"tokens": 6200})),
            t.Stage(t.Phase.KV_TRANSFER, m(0.041, S), 0.04, 0.039, False,
                    Text("stage.transferring", {"running": 3})),
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
        t.Figure("ttft_attainment", m(0.61, R), Status.CRIT, 0.95,
                 Text("figure.objective", {"threshold": m(0.95, R)})),
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
            t.Guardrail("min_workers", True),
            t.Guardrail("step_limit", True),
            t.Guardrail("cooldown", True),
            t.Guardrail("gpu_budget", True, Text("check.gpus_same")),
            t.Guardrail("data_fresh", True, Text("guard.age", {"age_s": 8.0})),
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
                          Text("alt.misses_ttft", {"predicted": m(2.1, S, place=Place.MODEL),
                                                   "ttft_objective": 1.2})),
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
                 None, "fulcrum", "/recommendations/R-2187/"),
        t.Change(NOW - timedelta(minutes=6), Status.CRIT,
                 Text("change.command_partial", {"command": "C-0910"}), None, "alice",
                 "/commands/C-0910/"),
        t.Change(SINCE, Status.CRIT,
                 Text("change.cause", {"cause": "prefill_saturated",
                                       "cause_phrase": "prefill_saturated"}), None, ""),
        t.Change(NOW - timedelta(hours=9), Status.OK,
                 Text("change.command_verified",
                      {"command": "C-0912", "changes": {"decode": (5, 6)}}),
                 None, "alice", "/commands/C-0912/"),
        t.Change(NOW - timedelta(hours=10), Status.INFO,
                 Text("change.command_started",
                      {"command": "C-0912", "changes": {"decode": (5, 6)}}),
                 None, "alice", "/commands/C-0912/"),
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
        kill_switch_on=False, etag="e1",
    )  # fmt: skip
    return replace(page, **changes)
