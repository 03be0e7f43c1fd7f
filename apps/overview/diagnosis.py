"""A stored diagnosis as the pages show it: codes and figures, no words."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any, Final

from apps.common.measurement import Measurement, Place, State
from apps.diagnosis import selectors as diagnosis
from apps.diagnosis.domain.causes import Evidence as StoredEvidence
from apps.diagnosis.models import DiagnosisRecord
from apps.telemetry.domain.figures import DeploymentFigures, Usual

from .domain.types import DiagnosisView, Evidence, Status, Text
from .labels import SEVERITY

#: Evidence code of the rules -> figure name of the pages.
FIGURE_OF: Final[Mapping[str, str]] = {
    "kv_transfer_time": "kv_transfer",
    "kv_transfer_share": "kv_transfer_share",
    "mean_input_tokens": "input_length",
    "mean_output_tokens": "output_length",
    "serving": "ready_workers",
    "prefill_reporting": "prefill_reporting",
    "decode_reporting": "decode_reporting",
    "prefill_waiting": "waiting_prefill",
    "decode_waiting": "waiting_decode",
    "arrivals": "demand",
    "seconds_per_token": "worker_time",
    "worker_waiting": "worker_waiting",
    "worker_load": "worker_load",
    "router_wait": "router_queue",
    "host_cpu_busy": "cpu_busy",
    "host_pressure": "cpu_pressure",
}
MAX_TILES: Final = 5
#: A figure and when it was taken if it does not say itself -> the figure at its age.
Aged = Callable[[Measurement, datetime | None], Measurement]


def view(
    record: DiagnosisRecord | None,
    figures: DeploymentFigures,
    usual: Usual,
    ttft_objective_s: float | None,
    tpot_objective_s: float | None,
    now: datetime,
    interval_s: float,
    aged: Aged,
) -> DiagnosisView:
    """The diagnosis as it stands, or "not enough signal" when it is missing or too old.

    Evidence is kept while newer windows are outvoted; its figures then are old and `aged` says so.
    """
    if record is None or is_too_old(record, now, interval_s):
        return _no_signal(record, figures, now)
    params = _params(record, figures, ttft_objective_s, tpot_objective_s, now)
    cause = str(record.cause)
    sentence = f"sentence.{cause}"
    if cause == "balanced" and record.sentence == "no_load":
        sentence = "sentence.balanced_no_traffic"
    if cause == "not_enough_signal" and record.sentence == "unexplained_breach":
        sentence = "sentence.unexplained_breach"
    has_advice_to_avoid = cause not in ("balanced",)
    return DiagnosisView(
        cause=cause,
        status=SEVERITY.get(record.severity, Status.UNKNOWN),
        sentence=Text(sentence, params),
        since=record.since,
        for_s=(now - record.since).total_seconds(),
        evidence=tuple(
            replace(tile, measurement=aged(tile.measurement, record.window_end))
            for tile in (
                _queue_wait(item, figures, usual)
                or _tile(item, usual, ttft_objective_s, tpot_objective_s)
                for item in diagnosis.evidence(record)[:MAX_TILES]
            )
        ),
        wont_help=Text(f"wont_help.{cause}") if has_advice_to_avoid else None,
        worker=record.worker,
    )


def is_too_old(record: DiagnosisRecord, now: datetime, interval_s: float) -> bool:
    """True for a diagnosis that says nothing about now."""
    end = record.window_end
    late = end is None or (now - end).total_seconds() >= 2 * interval_s
    return late and record.cause != "not_enough_signal"


def status_of(
    record: DiagnosisRecord | None, now: datetime, interval_s: float
) -> tuple[Status, str]:
    """Status and cause alone, as `view` gives them."""
    if record is None or is_too_old(record, now, interval_s):
        return Status.UNKNOWN, "not_enough_signal"
    return SEVERITY.get(record.severity, Status.UNKNOWN), str(record.cause)


def _queue_wait(item: StoredEvidence, figures: DeploymentFigures, usual: Usual) -> Evidence | None:
    """The queue's share of TTFT as the wait itself, with the share beside it."""
    wait = figures.prefill.queue_time_mean if figures.prefill else None
    if item.code != "queue_share" or wait is None or wait.value is None:
        return None
    params: dict[str, Any] = {"share": item.measurement.value, "usual_s": usual.queue_time_s}
    given = {name: value for name, value in params.items() if value is not None}
    comparison = Text("compare.share_of_ttft", given) if "share" in given else None
    return Evidence("queue_wait", SEVERITY[item.status.value], wait, comparison)


def _no_signal(
    record: DiagnosisRecord | None, figures: DeploymentFigures, now: datetime
) -> DiagnosisView:
    sample_at = figures.at
    params: dict[str, Any] = {}
    if sample_at is not None:
        params = {"sample_at": sample_at, "age_s": (now - sample_at).total_seconds()}
    evidence = (
        Evidence("ttft_p95", Status.UNKNOWN, figures.ttft.p95, _old(figures.ttft.p95, now)),
        Evidence("tpot_p95", Status.UNKNOWN, figures.tpot.p95, _old(figures.tpot.p95, now)),
        Evidence("demand", Status.UNKNOWN, figures.arrivals_per_s, None),
    )
    since = None if record is None else record.window_end
    return DiagnosisView(
        cause="not_enough_signal",
        status=Status.UNKNOWN,
        sentence=Text("sentence.not_enough_signal", params),
        since=since,
        for_s=None if since is None else (now - since).total_seconds(),
        evidence=evidence,
        wont_help=Text("wont_help.not_enough_signal"),
    )


def _old(figure: Measurement, now: datetime) -> Text | None:
    if figure.observed_at is None:
        return None
    age_s = (now - figure.observed_at).total_seconds()
    return Text("compare.old", {"sample_at": figure.observed_at, "age_s": age_s})


def _params(
    record: DiagnosisRecord,
    figures: DeploymentFigures,
    ttft_objective_s: float | None,
    tpot_objective_s: float | None,
    now: datetime,
) -> dict[str, Any]:
    stored = dict(record.params)
    busy = record.busy or {}
    params: dict[str, Any] = {
        "since": record.since,
        "for_s": (now - record.since).total_seconds(),
        "prefill_busy": _busy(busy, "prefill"),
        "decode_busy": _busy(busy, "decode"),
        "ttft_objective": ttft_objective_s,
        "tpot_objective": tpot_objective_s,
        "headroom": stored.get("headroom"),
        "kv_used": stored.get("used"),
        "mean": stored.get("transfer_s", stored.get("wait_s")),
        "times": stored.get("ratio"),
        "worker": stored.get("worker") or record.worker or None,
        "role": record.role or stored.get("role"),
    }
    if figures.ttft.p95.value is not None:
        params["ttft"] = figures.ttft.p95.number()
    if figures.tpot.p95.value is not None:
        params["tpot"] = figures.tpot.p95.number()
    if record.cause == "replica_lost":
        wanted, down = int(stored.get("wanted", 0)), int(stored.get("down", 0))
        params |= {"wanted": wanted, "ready": wanted - down, "missing": down}
    if record.cause == "not_enough_signal" and stored.get("missing"):
        params["figures"] = [str(name) for name in stored["missing"]]
    if record.cause == "prefill_saturated" and not _is_over(figures.ttft.p95, ttft_objective_s):
        # The queue leads the histogram: the words then rest on busy share, not on a breach.
        params.pop("ttft", None)
    if record.cause == "decode_saturated" and not _is_over(figures.tpot.p95, tpot_objective_s):
        params.pop("tpot", None)
    return {name: value for name, value in params.items() if value is not None}


def _is_over(figure: Measurement, objective: float | None) -> bool:
    return figure.value is not None and objective is not None and figure.number() > objective


def _busy(busy: Mapping[str, Any], role: str) -> float | None:
    stored = busy.get(role)
    if not isinstance(stored, Mapping):
        return None
    value = stored.get("value")
    return None if value is None else float(value)


def _tile(
    item: StoredEvidence,
    usual: Usual,
    ttft_objective_s: float | None,
    tpot_objective_s: float | None,
) -> Evidence:
    code = FIGURE_OF.get(item.code, item.code)
    return Evidence(
        code=code,
        status=SEVERITY[item.status.value],
        measurement=item.measurement,
        comparison=_comparison(item, usual, ttft_objective_s, tpot_objective_s),
    )


def _comparison(
    item: StoredEvidence,
    usual: Usual,
    ttft_objective_s: float | None,
    tpot_objective_s: float | None,
) -> Text | None:
    value = item.params.get("value")
    same = _like(item.measurement, value)
    match item.comparison:
        case "usual" if same is not None:
            return Text("compare.usual", {"usual": same, "basis": usual.basis})
        case "no_usual":
            return Text("compare.no_usual")
        case "limit" if value is not None:
            over = item.measurement.value is not None and item.measurement.number() > value
            return Text("compare.over_limit" if over else "compare.under_limit", {"limit": value})
        case "objective" if item.code.startswith("ttft"):
            return Text("compare.ttft_objective", {"ttft_objective": ttft_objective_s or value})
        case "objective" if item.code.startswith("tpot"):
            return Text("compare.tpot_objective", {"tpot_objective": tpot_objective_s or value})
        case "peers" if same is not None:
            return Text("compare.peers", {"usual": same})
        case "wanted" if value is not None:
            ready = int(item.measurement.value or 0)
            return Text("compare.ready_of", {"ready": ready, "wanted": int(value)})
        case "of_workers" if value is not None:
            have = int(item.measurement.value or 0)
            return Text("compare.found_of", {"have": have, "needed": int(value)})
        case "required":
            return Text("compare.missing")
        case "pool" | "pool_mean" | "completions" if same is not None:
            return Text("compare.of_total", {"value": same})
    return None


def _like(figure: Measurement, value: Any) -> Measurement | None:
    """Another value of the same unit, for comparisons."""
    if value is None:
        return None
    plain = Measurement(float(value), figure.unit, State.OK, place=Place.MODEL)
    return replace(plain, place=figure.place)
