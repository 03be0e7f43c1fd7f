"""The fleet page: what needs me?"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Final
from uuid import UUID

from apps.accounts.domain.authorize import Viewer
from apps.common.measurement import Measurement, Place, State
from apps.common.units import Unit
from apps.fleet import selectors as fleet

from . import batch, pools, sources
from . import deployment as one
from .domain.types import Banner, Figure, FleetPage, FleetRow, SourceLine, Status, Text
from .loaded import Loaded

#: Most rows of the table.
MOST: Final = 200
ORDER: Final = (
    Status.CRIT, Status.WARN, Status.UNKNOWN, Status.INFO, Status.OK, Status.PAUSED,
)  # fmt: skip


def page(viewer: Viewer, now: datetime, params: Mapping[str, str]) -> FleetPage:
    """All visible deployments, needs first; totals are over what the viewer may see."""
    visible = batch.deployments(viewer, MOST + 1)
    found = batch.load(viewer, visible[:MOST], now)
    clusters = batch.clusters(viewer, now)
    statuses = {item.deployment.pk: one.build_status(item) for item in found}
    rows = [row(item, *statuses[item.deployment.pk]) for item in found]
    rows.sort(key=lambda r: (ORDER.index(r.status), r.name))
    shown = [r for r in rows if _matches(r, params)]
    if params.get("sort") == "cost":
        shown.sort(key=lambda r: -float(r.cost_per_million_good.value or 0))
    ages = [item.as_of for item in found if item.as_of is not None]
    as_of = min(ages) if ages else None
    lines = tuple(line for item in found for line in sources.lines(item))
    is_whole = fleet.sees_everything(viewer) and len(visible) <= MOST
    total = len(found) if is_whole else fleet.deployment_count()
    banners: list[Banner] = []
    if total > len(found):
        banners.append(
            Banner(Status.INFO, Text("banner.scope", {"visible": len(found), "total": total}))
        )
    return FleetPage(
        rows=tuple(shown),
        shown=len(shown),
        visible=len(rows),
        clusters=len(clusters),
        strip=_strip(found, rows, clusters),
        cards=tuple(r for r in rows if r.status in (Status.CRIT, Status.WARN))[:3],
        sources=_distinct(lines),
        banners=tuple(banners),
        as_of=as_of,
        age_s=None if as_of is None else (now - as_of).total_seconds(),
        etag=_etag(found, params),
    )


def _matches(row: FleetRow, params: Mapping[str, str]) -> bool:
    if params.get("status") and row.status.value != params["status"]:
        return False
    return not params.get("cluster") or row.cluster == params["cluster"]


def row(loaded: Loaded, status: Status, cause: str) -> FleetRow:
    """One deployment as a row of the table."""
    deployment, figures = loaded.deployment, loaded.brief
    evaluation = loaded.evaluation
    limited, detail = _limited(loaded, cause)
    step, link = _next(loaded)
    goodput = evaluation.goodput if evaluation else {}
    costs = evaluation.costs if evaluation else {}
    units = loaded.gpus
    total = None if None in units.values() else sum((u for u in units.values() if u), Decimal(0))
    return FleetRow(
        slug=deployment.slug,
        name=deployment.name,
        model=deployment.served_model,
        cluster=deployment.cluster.slug,
        status=status,
        limited_by=limited,
        limited_detail=detail,
        ttft_p95=figures.ttft_p95,
        ttft_objective=loaded.thresholds.get("ttft"),
        tpot_p95=figures.tpot_p95,
        tpot_objective=loaded.thresholds.get("tpot"),
        prefill_gpus=units.get("prefill"),
        decode_gpus=units.get("decode"),
        total_gpus=total,
        prefill_busy=pools.busy_of(loaded, "prefill"),
        decode_busy=pools.busy_of(loaded, "decode"),
        good_share=loaded.evaluated(goodput.get("share"), Unit.RATIO),
        cost_per_million_good=loaded.evaluated(
            costs.get("good_per_million"), Unit.USD_PER_MILLION_TOKENS
        ),
        next_step=step,
        next_link=link,
        is_stale=loaded.is_stale,
    )


def _limited(loaded: Loaded, cause: str) -> tuple[Text, Text | None]:
    if loaded.is_stale:
        params = {} if loaded.age_s is None else {"age_s": loaded.age_s}
        return Text("limited.stale"), Text("detail.last_sample", params)
    if loaded.brief.arrivals_per_s.state is State.NO_TRAFFIC:
        return Text("limited.no_traffic"), Text("detail.no_traffic")
    limited = Text("limited.cause", {"cause": cause})
    record = loaded.diagnosis
    params = dict(record.params) if record else {}
    match cause:
        case "balanced":
            return limited, Text("detail.balanced")
        case "prefill_saturated" if params.get("queue_share") is not None:
            return limited, Text("detail.queue_share", {"share": float(params["queue_share"])})
        case "decode_saturated" if loaded.brief.tpot_p95.value is not None:
            return limited, Text("detail.tpot", {"tpot": loaded.brief.tpot_p95.number()})
        case "kv_cache_full" if params.get("used") is not None:
            return limited, Text("detail.kv_used", {"kv_used": float(params["used"])})
        case "kv_transfer_slow" if params.get("transfer_s") is not None:
            return limited, Text("detail.transfer", {"mean": float(params["transfer_s"])})
        case "bad_worker" if record is not None and record.worker:
            return limited, Text("detail.worker", {"worker": record.worker})
        case "replica_lost" if params.get("down") is not None:
            missing = {"missing": int(params["down"]), "wanted": int(params["wanted"])}
            return limited, Text("detail.missing", missing)
    return limited, None


def _next(loaded: Loaded) -> tuple[Text | None, str]:
    command = loaded.active_command
    if command is not None:
        code = "step.next_approve" if command.state == "PROPOSED" else "step.next_command"
        return Text(code, {"command": command.number}), f"/commands/{command.number}/"
    if loaded.is_source_down:
        return Text("step.next_source"), f"/deployments/{loaded.deployment.slug}/"
    found = loaded.recommendation
    if found is not None:
        link = f"/recommendations/{found.number}/"
        return Text("step.next_review", {"recommendation": found.number}), link
    return None, ""


def _strip(
    found: Sequence[Loaded],
    rows: Sequence[FleetRow],
    clusters: Mapping[UUID, Decimal | None],
) -> tuple[Figure, ...]:
    waiting = sum(item.proposed for item in found)
    crit = sum(1 for r in rows if r.status is Status.CRIT)
    warn = sum(1 for r in rows if r.status is Status.WARN)
    open_now = [item.recommendation for item in found if item.recommendation is not None]
    return (
        Figure("paging", _count(crit), Status.CRIT if crit else None, None, None),
        Figure("warnings", _count(warn), Status.WARN if warn else None, None, None),
        Figure(
            "waiting_approval",
            _count(waiting + len(open_now)),
            None,
            None,
            Text("figure.waiting_for", {"names": [r.number for r in open_now]})
            if open_now
            else Text("figure.none"),
        ),
        _good(found),
        _spend(found),
        _gpus(found, clusters),
    )


def _count(value: int) -> Measurement:
    return Measurement(value, Unit.COUNT, State.OK, place=Place.DECLARED, method="count")


def _good(found: Sequence[Loaded]) -> Figure:
    """Good share over all visible deployments, weighted by their completed requests."""
    parts = []
    for item in found:
        stored = item.evaluation.goodput if item.evaluation else {}
        share = item.evaluated(stored.get("share"), Unit.RATIO)
        rate = item.brief.completions_per_s
        if share.value is not None and share.state is State.OK and rate.value:
            parts.append((share.number(), rate.number()))
    total = sum(rate for _, rate in parts)
    if not total:
        return Figure("good_tokens", Measurement(None, Unit.RATIO, State.NO_DATA), None, None, None)
    value = sum(share * rate for share, rate in parts) / total
    return Figure(
        "good_tokens",
        Measurement(value, Unit.RATIO, State.OK, place=Place.ROUTER, method="marginals"),
        None,
        None,
        Text("figure.requests_per_s", {"rate": _rate(total)}),
    )


def _rate(value: float) -> Measurement:
    return Measurement(value, Unit.REQUESTS_PER_SECOND, State.OK, place=Place.ROUTER)


def _spend(found: Sequence[Loaded]) -> Figure:
    amounts = []
    for item in found:
        stored = item.evaluation.costs if item.evaluation else {}
        amounts.append(item.evaluated(stored.get("total_per_hour"), Unit.USD_PER_HOUR))
    known = [Decimal(str(a.value)) for a in amounts if a.value is not None]
    if not known:
        missing = Measurement(None, Unit.USD_PER_HOUR, State.NO_DATA)
        return Figure("spend", missing, None, None, Text("figure.none"))
    state = State.OK if len(known) == len(amounts) else State.PARTIAL
    total = Measurement(sum(known, Decimal(0)), Unit.USD_PER_HOUR, state, place=Place.DECLARED)
    return Figure("spend", total, None, None, None)


def _gpus(found: Sequence[Loaded], clusters: Mapping[UUID, Decimal | None]) -> Figure:
    used, theirs = Decimal(0), {item.deployment.cluster_id for item in found}
    for item in found:
        used += sum((gpus for gpus in item.gpus.values() if gpus), Decimal(0))
    owned = [clusters.get(cluster) for cluster in theirs]
    total = None if None in owned else sum((o for o in owned if o is not None), Decimal(0))
    figure = Measurement(used, Unit.GPUS, State.OK, place=Place.DECLARED, method="wanted")
    detail = None if total is None else Text("figure.of_total", {"total": total})
    return Figure("gpus", figure, None, None, detail)


def _distinct(lines: Sequence[SourceLine]) -> tuple[SourceLine, ...]:
    seen: dict[tuple[str, str], SourceLine] = {}
    for line in lines:
        seen.setdefault((line.kind, line.name), line)
    return tuple(seen.values())


def _etag(found: Sequence[Loaded], params: Mapping[str, str]) -> str:
    """Changes whenever anything on the page changes."""
    parts = [
        (
            item.as_of,
            item.is_stale and int(item.now.timestamp() // 5),
            item.evaluation.at if item.evaluation else None,
            item.recommendation.refreshed_at if item.recommendation else None,
            item.active_command.state if item.active_command else None,
            item.proposed,
            item.deployment.revision,
            [source.state for source in item.sources],
        )
        for item in found
    ]
    return hashlib.sha256(repr((parts, sorted(params.items()))).encode()).hexdigest()[:20]
