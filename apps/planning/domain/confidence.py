"""How far a prediction may be believed (research on peers §3.3): the weakest of four scores."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from apps.simulation.service_time import MODEL_ONLY

HIGH, MEDIUM, LOW = "high", "medium", "low"
HIGH_FROM, MEDIUM_FROM = 0.75, 0.45
ENOUGH_SAMPLES = 12
#: Fewer past changes than this say nothing about the next one (the card says "model only").
ENOUGH_OUTCOMES = 5


@dataclass(frozen=True, slots=True)
class PhaseBasis:
    """What the model of one phase rests on. `covered` is the range of load (tokens or batch) that
    was observed, `at` the load at which the prediction uses the model."""

    phase: str
    samples: int
    error: float | None
    covered: tuple[float, float] | None
    at: float
    basis: str


@dataclass(frozen=True, slots=True)
class Confidence:
    """`label` low, medium or high; `weakest` is the code of the score that decided."""

    label: str
    score: float
    weakest: str
    scores: Mapping[str, float]

    def to_json(self) -> dict[str, Any]:
        return {
            "label": self.label,
            "score": self.score,
            "weakest": self.weakest,
            "scores": dict(self.scores),
        }


def confidence(phases: tuple[PhaseBasis, ...], *, fresh: bool, flow_rebuilt: bool) -> Confidence:
    """min(samples, range, 1 - 2 x error, freshness); one level down if arrivals were rebuilt."""
    scores: dict[str, float] = {"freshness": 1.0 if fresh else 0.0}
    for basis in phases:
        if basis.basis == MODEL_ONLY or basis.error is None:
            scores[f"{basis.phase}_calibration"] = 0.0
            continue
        scores[f"{basis.phase}_samples"] = min(1.0, basis.samples / ENOUGH_SAMPLES)
        scores[f"{basis.phase}_range"] = _range_score(basis.covered, basis.at)
        scores[f"{basis.phase}_error"] = max(0.0, 1.0 - 2.0 * basis.error)
    weakest = min(scores, key=lambda name: (scores[name], name))
    score = scores[weakest]
    levels = [LOW, MEDIUM, HIGH]
    level = 2 if score >= HIGH_FROM else 1 if score >= MEDIUM_FROM else 0
    if flow_rebuilt:
        level = max(0, level - 1)
    return Confidence(levels[level], score, weakest, scores)


def _range_score(covered: tuple[float, float] | None, at: float) -> float:
    """1 inside the observed range, falling with the distance in octaves outside it."""
    if covered is None or covered[0] <= 0 or at <= 0:
        return 0.0
    low, high = covered
    if low <= at <= high:
        return 1.0
    ratio = at / high if at > high else low / at
    return max(0.0, 1.0 - 0.5 * (ratio - 1.0))
