"""How good a prediction was (DESIGN law 9, research on planning §4)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from apps.common.measurement import Measurement, State

#: Figures whose range is symmetric in the logarithm; shares are so in the logit.
LOGARITHMIC = frozenset({"ttft_p95", "tpot_p95", "cost_per_million"})


@dataclass(frozen=True, slots=True)
class Score:
    """By figure: |truth - middle| / half-width, whether the truth lay inside, relative error."""

    scores: dict[str, float]
    inside: dict[str, bool]
    relative_error: dict[str, float]


def score(predicted: Mapping[str, Measurement], measured: Mapping[str, Measurement]) -> Score:
    """Compare figure by figure; those without a value on either side are left out."""
    scores: dict[str, float] = {}
    inside: dict[str, bool] = {}
    errors: dict[str, float] = {}
    for code, forecast in predicted.items():
        truth = measured.get(code)
        if truth is None or truth.state is not State.OK or forecast.value is None:
            continue
        value = float(truth.number())
        low = float(forecast.lower) if forecast.lower is not None else forecast.number()
        high = float(forecast.upper) if forecast.upper is not None else math.inf
        inside[code] = low <= value <= high
        if forecast.number() > 0:
            errors[code] = abs(value - forecast.number()) / forecast.number()
        half, distance = _distance(code, value, forecast.number(), low, high)
        if half > 0:
            scores[code] = distance / half
    return Score(scores, inside, errors)


def _distance(
    code: str, value: float, middle: float, low: float, high: float
) -> tuple[float, float]:
    """(half-width on the side of the truth, distance) in the figure's own scale."""
    scale = _log if code in LOGARITHMIC else _logit
    if math.isinf(high):
        return 0.0, 0.0
    if value >= middle:
        return scale(high) - scale(middle), scale(value) - scale(middle)
    return scale(middle) - scale(low), scale(middle) - scale(value)


def _log(x: float) -> float:
    return math.log(max(x, 1e-9))


def _logit(x: float) -> float:
    kept = min(1.0 - 1e-4, max(1e-4, x))
    return math.log(kept / (1.0 - kept))
