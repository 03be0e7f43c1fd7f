"""The demo deployment, old data, and what a person who may only read sees."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from decimal import Decimal

from apps.common.measurement import Measurement, Place, State, missing
from apps.common.units import Unit
from apps.overview.domain import types as t
from apps.overview.domain.types import Status, Text

from .base import NOW, R, S, m, usd_h, usd_m, wave
from .deployment import deployment, pools, recommendation


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
                           Text("compare.no_usual")),
                t.Evidence("kv_transfer", Status.OK, m(0.062, S, place=Place.ENGINE),
                           Text("compare.usual",
                                {"usual": m(0.043, S), "basis": "since_start"})),
                t.Evidence("input_length", Status.WARN,
                           m(2850.0, Unit.TOKENS, place=Place.ENGINE),
                           Text("compare.usual", {"usual": m(1150.0, Unit.TOKENS),
                                                  "basis": "since_start"})),
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
            t.Figure("ttft_attainment", missing(R, State.NO_DATA), None, 0.95,
                     Text("figure.objective", {"threshold": m(0.95, R)})),
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
        may_propose=False, may_approve=False, may_kill=False,
        recommendation=replace(page.recommendation, may_propose=False, may_approve=False,
                               may_dismiss=False, why_not=why),
    )  # fmt: skip
