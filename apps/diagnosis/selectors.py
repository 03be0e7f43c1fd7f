"""Reads of diagnoses and calibrations. Callers have checked that the viewer sees the deployment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from apps.fleet.models import Deployment
from apps.simulation.service_time import CALIBRATED, Fit

from .domain.causes import Evidence
from .models import Calibration, DiagnosisRecord


@dataclass(frozen=True, slots=True)
class CalibrationFacts:
    """A stored calibration as data; see `models.Calibration`."""

    phase: str
    coefficients: tuple[float, float, float]
    fitted_at: datetime
    last_sample_at: datetime | None
    error: float | None
    covered: tuple[float, float] | None
    samples: int
    basis: str
    prior_source: str

    @property
    def is_calibrated(self) -> bool:
        return self.basis == CALIBRATED

    def as_fit(self) -> Fit:
        return Fit(self.coefficients, self.error, self.samples, 0, self.covered)


def latest(deployment: Deployment) -> DiagnosisRecord | None:
    """The newest diagnosis, None before the first evaluation."""
    return DiagnosisRecord.objects.filter(deployment=deployment).first()


def history(deployment: Deployment, start: datetime, end: datetime) -> list[DiagnosisRecord]:
    """Diagnoses in `[start, end)`, oldest first."""
    rows = DiagnosisRecord.objects.filter(deployment=deployment, at__gte=start, at__lt=end)
    return list(rows.order_by("at"))


def by_id(record_id: UUID) -> DiagnosisRecord | None:
    """One diagnosis."""
    return DiagnosisRecord.objects.filter(pk=record_id).first()


def evidence(record: DiagnosisRecord) -> tuple[Evidence, ...]:
    """The evidence of a stored diagnosis."""
    return tuple(Evidence.from_json(row) for row in record.evidence)


def calibrations(deployment: Deployment) -> Mapping[str, CalibrationFacts]:
    """The calibrations of a deployment by phase."""
    return {
        row.phase: calibration_facts(row)
        for row in Calibration.objects.filter(deployment=deployment)
    }


def calibration_facts(row: Calibration) -> CalibrationFacts:
    """A stored calibration as data."""
    first, second, third = row.coefficients
    return CalibrationFacts(
        phase=row.phase,
        coefficients=(float(first), float(second), float(third)),
        fitted_at=row.fitted_at,
        last_sample_at=row.last_sample_at,
        error=row.error,
        covered=(row.covered[0], row.covered[1]) if row.covered else None,
        samples=len(row.samples),
        basis=row.basis,
        prior_source=row.prior_source,
    )
