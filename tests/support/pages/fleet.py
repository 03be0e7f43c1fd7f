"""The fleet of the pictures."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from typing import Any

from apps.common.measurement import State, missing
from apps.common.units import Unit
from apps.overview.domain import types as t
from apps.overview.domain.types import Status, Text

from .base import NOW, SAMPLE, R, S, m, usd_h, usd_m
from .deployment import sources


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
            next_link="/recommendations/R-2187/", budget_left=m(0.61, R)),
        row("doc-rag-prod", model="deepseek-v3", cluster="cn-north-2", status=Status.CRIT,
            cause="kv_transfer_slow",
            limited_by=Text("limited.cause", {"cause": "kv_transfer_slow"}),
            limited_detail=Text("detail.transfer", {"mean": 0.96}), ttft_p95=m(2.10, S),
            ttft_objective=2.0, tpot_p95=m(0.031, S), tpot_objective=0.045,
            prefill_gpus=Decimal(24), decode_gpus=Decimal(24), prefill_busy=m(0.63, R),
            decode_busy=m(0.58, R), good_share=m(0.93, R), cost_per_million_good=usd_m("0.81"),
            budget_left=m(0.12, R)),
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
            limited_detail=None, ttft_p95=m(0.44, S), ttft_objective=5.0,
            tpot_p95=m(0.022, S), tpot_objective=0.06,
            prefill_gpus=Decimal(8), decode_gpus=Decimal(8), prefill_busy=m(0.24, R),
            decode_busy=m(0.71, R), good_share=m(1.0, R), cost_per_million_good=usd_m("0.29"),
            next_step=Text("step.next_review", {"recommendation": "R-2179"}),
            next_link="/recommendations/R-2179/", budget_left=m(0.99, R)),
        row("vision-beta", model="qwen3-vl", cluster="eu-1", status=Status.UNKNOWN, is_stale=True,
            cause="not_enough_signal", limited_by=Text("limited.stale"),
            limited_detail=Text("detail.last_sample", {"age_s": 540.0}),
            ttft_p95=m(0.61, S, State.STALE, at=old), tpot_p95=m(0.020, S, State.STALE, at=old),
            prefill_gpus=Decimal(4), decode_gpus=Decimal(4), next_step=Text("step.next_source"),
            next_link="/deployments/vision-beta/"),
        row("legacy-chat", model="llama-3.3-70b", cluster="eu-1", status=Status.INFO,
            limited_by=Text("limited.cause", {"cause": "not_enough_signal"}), limited_detail=None,
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
            t.Figure("paging", m(2.0, count), Status.CRIT, None, None),
            t.Figure("warnings", m(2.0, count), Status.WARN, None, None),
            t.Figure("waiting_approval", m(1.0, count), None, None,
                     Text("figure.waiting_for", {"names": ["R-2187"]})),
            t.Figure("good_tokens", m(0.93, R), None, None,
                     Text("figure.requests_per_s",
                          {"rate": m(58.0, Unit.REQUESTS_PER_SECOND)})),
            t.Figure("spend", usd_h("1214.00"), None, None, None),
            t.Figure("gpus", m(412.0, Unit.GPUS), None, None,
                     Text("figure.of_total", {"total": 448})),
        ),
        cards=(rows[0], rows[1], rows[5]),
        sources=sources(),
        banners=(),
        as_of=SAMPLE,
        age_s=6,
        etag="f1",
    )  # fmt: skip
    return replace(page, **changes)
