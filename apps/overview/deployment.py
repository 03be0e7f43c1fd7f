"""The deployment page's read model: status, diagnosis, path, figures, pools, cost, changes."""

from __future__ import annotations

import hashlib
from datetime import datetime
from decimal import Decimal
from typing import Any

from apps.accounts.domain.authorize import Permission, Viewer
from apps.common.measurement import Measurement, State
from apps.common.units import Unit
from apps.fleet import selectors as fleet

from . import changes as change_lines
from . import cost, coverage, diagnosis, inventory, path, pools, recommendation, series, sources
from .domain.types import (
    Banner,
    DeploymentPage,
    DiagnosisView,
    Figure,
    Status,
    Sync,
    Text,
)
from .loaded import Loaded

SPARK_POINTS = 40


def page(viewer: Viewer, slug: str, now: datetime) -> DeploymentPage:
    """Everything of the page, from stored rows only. Raises NotVisible."""
    return build(Loaded(viewer, fleet.deployment_by_slug(viewer, slug), now))


def build(loaded: Loaded) -> DeploymentPage:
    """The page of a loaded deployment."""
    deployment, topology, now = loaded.deployment, loaded.topology, loaded.now
    view = diagnosis_of(loaded)
    units = [topology.gpus_of(role, pool.wanted) for role, pool in topology.pools.items()]
    gpus = None if None in units else sum((u for u in units if u is not None), Decimal(0))
    accelerators = sorted({p.accelerator for p in topology.pools.values() if p.accelerator})
    engines = sorted({f"{p.engine} {p.engine_version}".strip() for p in topology.pools.values()})
    status, status_text = _status(loaded, view.status, view.cause)
    found = loaded.recommendation
    looked = coverage.look(loaded)
    required = [item for item in looked.signals if item.state in ("found", "missing")]
    return DeploymentPage(
        id=str(deployment.pk),
        slug=deployment.slug,
        name=deployment.name,
        model=deployment.served_model,
        engine=", ".join(engines),
        cluster=deployment.cluster.slug,
        environment=deployment.environment,
        mode=topology.mode,
        gpus=gpus,
        accelerator=", ".join(accelerators),
        revision=topology.revision,
        status=status,
        status_text=status_text,
        sync=_sync(loaded),
        as_of=loaded.as_of,
        age_s=loaded.age_s,
        interval_s=loaded.defaults.collect_interval_s,
        is_stale=loaded.is_stale,
        banners=(*_banners(loaded), *coverage.banners(loaded, looked.report)),
        diagnosis=view,
        path=path.view(loaded),
        figures=key_figures(loaded),
        recommendation=recommendation.view(loaded, found) if found else None,
        no_recommendation=recommendation.none_text(loaded, now),
        pools=pools.views(loaded),
        cost=cost.view(loaded),
        changes=change_lines.timeline(loaded),
        sources=sources.lines(loaded),
        signals_found=sum(1 for item in required if item.state == "found"),
        signals_required=len(required),
        coverage_level=int(looked.report.level),
        may_propose=loaded.viewer.can(Permission.PROPOSE, loaded.scope),
        may_approve=loaded.viewer.can(Permission.APPROVE, loaded.scope),
        may_kill=loaded.viewer.can(Permission.KILL_ON, loaded.scope),
        kill_switch_on=loaded.kill_switch is not None,
        etag=etag_of(loaded),
    )


def diagnosis_of(loaded: Loaded) -> DiagnosisView:
    """The diagnosis as it stands for this viewer and time."""
    return diagnosis.view(
        loaded.diagnosis,
        loaded.figures,
        loaded.usual,
        loaded.thresholds.get("ttft"),
        loaded.thresholds.get("tpot"),
        loaded.now,
        loaded.defaults.collect_interval_s,
        loaded.aged,
    )


def build_status(loaded: Loaded) -> tuple[Status, str]:
    """Worst status and cause, for a row of the fleet."""
    diagnosed, cause = diagnosis.status_of(
        loaded.diagnosis, loaded.now, loaded.defaults.collect_interval_s
    )
    status, _ = _status(loaded, diagnosed, cause)
    return status, cause


def etag_of(loaded: Loaded) -> str:
    """Changes whenever anything on the page changes."""
    parts = [
        loaded.as_of,
        loaded.is_stale,
        loaded.evaluation.at if loaded.evaluation else None,
        loaded.recommendation.refreshed_at if loaded.recommendation else None,
        loaded.recommendation.blocked if loaded.recommendation else None,
        loaded.active_command.state if loaded.active_command else None,
        loaded.topology.revision,
        loaded.kill_switch,
        sorted((w.url, w.role, w.serving) for w in loaded.topology.workers),
        [s.state for s in loaded.sources],
    ]
    if loaded.is_stale:
        # Ages are words on an old page: they go on counting.
        parts.append(int(loaded.now.timestamp() // 5))
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:20]


def _status(loaded: Loaded, status: Status, cause: str) -> tuple[Status, Text]:
    if loaded.active_command is not None and loaded.active_command.state in ("RUNNING", "SOAK"):
        return Status.INFO, Text("status.applying", {"command": loaded.active_command.number})
    if loaded.as_of is None:
        return Status.UNKNOWN, Text("status.no_data")
    if loaded.is_stale:
        return Status.UNKNOWN, Text("status.stale", {"age_s": loaded.age_s})
    if loaded.brief.arrivals_per_s.state is State.NO_TRAFFIC:
        return Status.INFO, Text("status.no_traffic")
    late = [signal for signal in ("ttft", "tpot") if _breached(loaded, signal)]
    if late:
        return Status.CRIT, Text(f"status.paging_{late[0]}")
    if status in (Status.CRIT, Status.WARN):
        code = "status.paging" if status is Status.CRIT else "status.warning"
        return status, Text(code, {"cause": cause})
    if status is Status.UNKNOWN:
        return Status.UNKNOWN, Text("status.no_data")
    return Status.OK, Text("status.ok")


def _breached(loaded: Loaded, signal: str) -> bool:
    figure = loaded.brief.ttft_p95 if signal == "ttft" else loaded.brief.tpot_p95
    threshold = loaded.thresholds.get(signal)
    value = figure.value
    return threshold is not None and value is not None and float(value) > threshold


def _sync(loaded: Loaded) -> Sync:
    topology = loaded.topology
    wanted = {role: pool.wanted for role, pool in topology.pools.items()}
    serving = {role: topology.serving_count(role) for role in topology.pools}
    backend = loaded.backend
    if loaded.active_command is not None and loaded.active_command.state != "PROPOSED":
        kind = "applying"
    elif backend is None or backend.last_ok_at is None:
        kind = "unknown"
    else:
        age_s = (loaded.now - backend.last_ok_at).total_seconds()
        if age_s > 4 * backend.observe_interval_s:
            kind = "unknown"
        else:
            kind = "in_sync" if wanted == serving else "out_of_sync"
    return Sync(
        kind=kind,
        revision=topology.revision,
        command=loaded.active_command.number if loaded.active_command else "",
        wanted=wanted,
        serving=serving,
    )


def _banners(loaded: Loaded) -> list[Banner]:
    banners = [*sources.banners(loaded), *inventory.banners(loaded)]
    if loaded.kill_switch:
        banners.append(Banner(Status.CRIT, Text("banner.kill_switch")))
    backend = loaded.backend
    if backend is not None and backend.last_error and backend.last_error_at:
        since = backend.last_ok_at or backend.last_error_at
        if (loaded.now - since).total_seconds() > 3 * backend.observe_interval_s:
            banners.append(
                Banner(Status.WARN, Text("banner.backend_unreachable", {"since": since}))
            )
    change = loaded.change
    if change.foreign_change_at and (
        change.last_change_at is None or change.foreign_change_at > change.last_change_at
    ):
        what = change.foreign_change or {}
        banners.append(
            Banner(
                Status.WARN,
                Text(
                    "banner.foreign_change",
                    {"at": change.foreign_change_at, "who": what.get("who")},
                ),
            )
        )
    if loaded.topology.mode == "observe":
        banners.append(Banner(Status.INFO, Text("banner.observe")))
    elif loaded.topology.mode == "recommend":
        banners.append(Banner(Status.INFO, Text("banner.recommend")))
    return banners


def key_figures(loaded: Loaded) -> tuple[Figure, ...]:
    """The six figures, each with its place, objective and sparkline."""
    figures, evaluation = loaded.figures, loaded.evaluation
    points = series.sparks(loaded, SPARK_POINTS)
    costs = evaluation.costs if evaluation else {}
    good = evaluation.goodput if evaluation else {}
    share = loaded.evaluated(good.get("share"), Unit.RATIO)
    rate = loaded.evaluated(good.get("rate"), Unit.REQUESTS_PER_SECOND)
    per_million = loaded.evaluated(costs.get("good_per_million"), Unit.USD_PER_MILLION_TOKENS)
    all_tokens = loaded.evaluated(costs.get("completed_per_million"), Unit.USD_PER_MILLION_TOKENS)
    return (
        _latency("ttft_p95", figures.ttft.p95, loaded.thresholds.get("ttft"), points["ttft"]),
        _latency("tpot_p95", figures.tpot.p95, loaded.thresholds.get("tpot"), points["tpot"]),
        Figure(
            "goodput",
            rate,
            _share_status(share, min(loaded.shares.values(), default=0.95)),
            None,
            _goodput_detail(share, figures.arrivals_per_s),
            points["good"],
        ),
        Figure(
            "output_rate",
            figures.output_tokens_per_s,
            None,
            None,
            Text("figure.input_rate", {"rate": figures.input_tokens_per_s}),
            points["output"],
        ),
        Figure(
            "cost_per_million_good",
            per_million,
            None,
            None,
            Text("figure.all_tokens", {"per_million": all_tokens})
            if all_tokens.value is not None
            else Text("figure.all_tokens"),
            points["cost"],
        ),
        _attained(loaded),
    )


def _latency(
    code: str, figure: Measurement, objective: float | None, points: tuple[float | None, ...]
) -> Figure:
    key = f"{code.removesuffix('_p95')}_objective"
    detail = (
        Text("figure.no_objective")
        if objective is None
        else Text(f"figure.objective_{code.removesuffix('_p95')}", {key: objective})
    )
    status = None
    if figure.state in (State.STALE, State.SOURCE_DOWN, State.NO_DATA):
        status = Status.UNKNOWN
    elif objective is not None and figure.value is not None:
        status = Status.CRIT if figure.number() > objective else Status.OK
    return Figure(code, figure, status, objective, detail, points)


def _share_status(share: Measurement, target: float) -> Status | None:
    if share.value is None:
        return None
    if share.state in (State.STALE, State.SOURCE_DOWN):
        return Status.UNKNOWN
    upper = float(share.upper if share.upper is not None else share.number())
    if upper < target:
        return Status.CRIT
    return Status.OK if share.number() >= target else Status.WARN


def _goodput_detail(share: Measurement, demand: Measurement) -> Text:
    if share.value is None:
        return Text("figure.share_of_demand", {"demand": demand})
    if share.lower is not None and share.upper is not None and share.upper != share.lower:
        first = Measurement(float(share.lower), Unit.RATIO, State.OK)
        second = Measurement(float(share.upper), Unit.RATIO, State.OK)
        return Text(
            "figure.share_range_of_demand", {"first": first, "second": second, "demand": demand}
        )
    return Text("figure.share_of_demand", {"share": share.number(), "demand": demand})


def _attained(loaded: Loaded) -> Figure:
    """TTFT attainment over the diagnosis window against its target share."""
    stored: dict[str, Any] = (loaded.evaluation.attainment if loaded.evaluation else {}) or {}
    share = loaded.evaluated((stored.get("ttft") or {}).get("share"), Unit.RATIO)
    target = loaded.shares.get("ttft")
    status = None
    if share.value is not None and target is not None:
        status = Status.OK if share.number() >= target else Status.CRIT
        if share.state in (State.STALE, State.SOURCE_DOWN):
            status = Status.UNKNOWN
    detail = None
    if target is not None:
        goal = Measurement(target, Unit.RATIO, State.OK)
        detail = Text("figure.objective", {"threshold": goal})
    return Figure("ttft_attainment", share, status, target, detail, ())
