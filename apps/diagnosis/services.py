"""Writes of diagnoses and calibrations, by Fulcrum's own evaluation (no person acts here)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction

from apps.fleet.models import Deployment
from apps.simulation.service_time import TimeSample, fit
from apps.telemetry.domain.figures import DeploymentFigures, Usual

from .domain.busy import BusyShares, imbalance
from .domain.calibration import retain
from .domain.causes import Cause
from .domain.hold import decide, keep_since
from .domain.rules import diagnose
from .domain.symptoms import Symptoms
from .models import Calibration, DiagnosisRecord
from .selectors import CalibrationFacts, calibration_facts

RETENTION = timedelta(days=14)


@transaction.atomic
def record_diagnosis(
    *,
    now: datetime,
    deployment: Deployment,
    figures: DeploymentFigures,
    usual: Usual,
    busy: BusyShares,
    ttft_objective_s: float | None,
    tpot_objective_s: float | None,
    prefill_seconds: float | None,
    expected_seconds_per_token: float | None,
    needed: int,
    of: int,
    replica_grace_s: float,
    idle_hold_s: float,
    imbalance_ratio: float,
    imbalance_smaller_below: float,
    has_open_command: bool,
) -> DiagnosisRecord:
    """Diagnose and store. Running twice for the same `now` rewrites the same row.

    A cause stands when `needed` of the last `of` windows name it; `since` is kept while it stands.
    Windows are told apart by their end: an evaluation without new data does not vote again.
    """
    before = list(
        DiagnosisRecord.objects.filter(deployment=deployment, at__lt=now).order_by("-at")[: 4 * of]
    )
    last = before[0] if before else None
    memory = _memory(last, figures, busy, imbalance_ratio, imbalance_smaller_below, now)
    finding = diagnose(
        Symptoms(
            figures=figures,
            usual=usual,
            busy=busy,
            ttft_objective_s=ttft_objective_s,
            tpot_objective_s=tpot_objective_s,
            expected_seconds_per_token=expected_seconds_per_token,
            prefill_seconds=prefill_seconds,
            short_for_s=_ages(memory, "short:", now),
            replica_grace_s=replica_grace_s,
            idle_for_s=_ages(memory, "idle:", now),
            idle_hold_s=idle_hold_s,
            has_open_command=has_open_command,
        )
    )
    votes = [finding.cause.value, *_votes(before, figures.at)]
    cause = decide(votes, last.cause if last else None, needed=needed, of=of)
    stands = cause == finding.cause.value
    # While the newest window is outvoted, the page keeps the evidence of the cause that stands.
    shown = {
        "severity": finding.severity.value,
        "sentence": finding.sentence,
        "params": dict(finding.params),
        "evidence": [row.to_json() for row in finding.evidence],
        "wont_help": finding.wont_help,
        "worker": finding.worker,
        "role": finding.role,
    }
    if not stands and last is not None:
        shown = {name: getattr(last, name) for name in shown}
    record, _ = DiagnosisRecord.objects.update_or_create(
        deployment=deployment,
        at=now,
        defaults={
            "window_end": figures.at,
            "raw_cause": finding.cause.value,
            "cause": cause,
            "since": last.since if last and last.cause == cause else now,
            "busy": busy.to_json(),
            "memory": {name: at.isoformat() for name, at in memory.items()},
            **shown,
        },
    )
    return record


def update_calibration(
    *,
    now: datetime,
    deployment: Deployment,
    phase: str,
    prior: Sequence[float],
    prior_source: str,
    sample: TimeSample | None,
    window_end: datetime | None,
) -> CalibrationFacts:
    """Add one window to a phase's samples and fit again; the same window is not added twice.

    A changed prior source (another accelerator, another model) starts a new calibration, because
    what was learnt belongs to the old one (DESIGN §2, time).
    """
    with transaction.atomic():
        row, created = Calibration.objects.select_for_update().get_or_create(
            deployment=deployment,
            phase=phase,
            defaults={
                "coefficients": list(prior),
                "prior": list(prior),
                "prior_source": prior_source,
                "fitted_at": now,
                "basis": "model only",
            },
        )
        changed_prior = not created and row.prior_source != prior_source
        if changed_prior:
            row.samples, row.prior, row.prior_source = [], list(prior), prior_source
            row.last_sample_at = None
        is_new = sample is not None and (
            window_end is None or row.last_sample_at is None or window_end > row.last_sample_at
        )
        if not (is_new or changed_prior):
            return calibration_facts(row)
        if sample is not None and is_new:
            row.samples = retain([*row.samples, [*sample.features, sample.seconds]])
            row.last_sample_at = window_end or now
        found = fit(row.prior, [_sample(values) for values in row.samples])
        row.coefficients, row.error = list(found.coefficients), found.error
        row.covered = list(found.covered) if found.covered else None
        row.basis, row.fitted_at = found.basis, now
        row.save()
        return calibration_facts(row)


def prune(*, now: datetime, deployment: Deployment) -> int:
    """Forget diagnoses older than two weeks; returns how many."""
    old = DiagnosisRecord.objects.filter(deployment=deployment, at__lt=now - RETENTION)
    return int(old.delete()[0])


def _votes(before: Sequence[DiagnosisRecord], window_end: datetime | None) -> list[str]:
    """Raw causes of earlier windows, newest first, one per window. Silence brings no window, so
    that each evaluation in it counts: else an outage would keep the last cause for ever."""
    seen: set[Any] = {window_end} if window_end else set()
    votes = []
    for record in before:
        is_silence = record.raw_cause == Cause.NOT_ENOUGH_SIGNAL.value
        if record.window_end is not None and record.window_end in seen and not is_silence:
            continue
        seen.add(record.window_end)
        votes.append(record.raw_cause)
    return votes


def _memory(
    last: DiagnosisRecord | None,
    figures: DeploymentFigures,
    busy: BusyShares,
    ratio: float,
    smaller_below: float,
    now: datetime,
) -> dict[str, datetime]:
    stored = last.memory if last else {}
    before = {name: datetime.fromisoformat(at) for name, at in stored.items()}
    idler = imbalance(busy, ratio=ratio, smaller_below=smaller_below)
    holds = {f"idle:{role}": role == idler for role in ("prefill", "decode")}
    for phase in (figures.prefill, figures.decode):
        if phase is not None:
            holds[f"short:{phase.role}"] = phase.workers_serving < phase.workers_wanted
    return keep_since(before, holds, now)


def _ages(memory: Mapping[str, datetime], prefix: str, now: datetime) -> dict[str, float]:
    return {
        name.removeprefix(prefix): (now - at).total_seconds()
        for name, at in memory.items()
        if name.startswith(prefix)
    }


def _sample(values: Sequence[float]) -> TimeSample:
    one, first, second, seconds = values
    return TimeSample((one, first, second), seconds)
