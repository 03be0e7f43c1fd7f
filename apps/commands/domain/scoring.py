"""Predictions against what happened (DESIGN law 9)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from statistics import median
from typing import Any, Final

from apps.common.measurement import Measurement

#: What a finished command shows as predicted and measured.
KEYS: Final = ("ttft_p95", "tpot_p95", "goodput", "cost_per_million")


@dataclass(frozen=True, slots=True)
class Score:
    """`inside`: the measured value lies in the predicted 90 % range (None without one).
    `relative_error` is |measured - predicted| / |predicted|."""

    key: str
    inside: bool | None
    relative_error: float | None


@dataclass(frozen=True, slots=True)
class Accuracy:
    """Over many scored figures: how many, how many inside their range, the median error."""

    count: int
    inside: int
    median_error: float | None


@dataclass(frozen=True, slots=True)
class Sample:
    """One window on the way. Seconds and shares; None where it was not measured."""

    at: datetime
    ttft_p95: float | None = None
    tpot_p95: float | None = None
    goodput: float | None = None
    error_share: float | None = None

    def to_json(self) -> dict[str, Any]:
        return {
            "at": self.at.isoformat(),
            "ttft_p95": self.ttft_p95,
            "tpot_p95": self.tpot_p95,
            "goodput": self.goodput,
            "error_share": self.error_share,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Sample:
        return cls(
            at=datetime.fromisoformat(data["at"]),
            ttft_p95=data.get("ttft_p95"),
            tpot_p95=data.get("tpot_p95"),
            goodput=data.get("goodput"),
            error_share=data.get("error_share"),
        )


def score(key: str, predicted: Measurement, measured: Measurement) -> Score | None:
    """None when either side has no value, for then nothing can be scored."""
    if not predicted.is_known or not measured.is_known:
        return None
    value = measured.number()
    inside = is_inside(predicted, measured)
    wanted = predicted.number()
    error = abs(value - wanted) / abs(wanted) if wanted else None
    return Score(key, inside, error)


def is_inside(predicted: Measurement, measured: Measurement) -> bool | None:
    """True if the measured value may lie in the predicted range: a figure read from a histogram is
    known only to its bucket, so the two ranges must meet. None without a range or a value."""
    if predicted.lower is None or predicted.upper is None or not measured.is_known:
        return None
    value = measured.number()
    low = float(measured.lower) if measured.lower is not None else value
    high = float(measured.upper) if measured.upper is not None else value
    return min(low, value) <= float(predicted.upper) and float(predicted.lower) <= max(high, value)


def scores(
    predicted: Mapping[str, Measurement], measured: Mapping[str, Measurement]
) -> tuple[Score, ...]:
    """All figures that can be scored."""
    found = (
        score(key, predicted[key], measured[key])
        for key in KEYS
        if key in predicted and key in measured
    )
    return tuple(one for one in found if one is not None)


def accuracy(found: Sequence[Score]) -> Accuracy:
    """Figures without a range count only for the error."""
    ranged = [one.inside for one in found if one.inside is not None]
    errors = [one.relative_error for one in found if one.relative_error is not None]
    return Accuracy(len(ranged), sum(ranged), median(errors) if errors else None)


def worst(samples: Sequence[Sample]) -> dict[str, dict[str, Any]]:
    """The worst window of each figure: highest latencies and error share, lowest goodput."""
    found: dict[str, dict[str, Any]] = {}
    for key, pick in (
        ("ttft_p95", max),
        ("tpot_p95", max),
        ("error_share", max),
        ("goodput", min),
    ):
        known = [(getattr(s, key), s.at) for s in samples if getattr(s, key) is not None]
        if known:
            value, at = pick(known, key=lambda pair: pair[0])
            found[key] = {"value": value, "at": at.isoformat()}
    return found


def recovery_s(
    samples: Sequence[Sample],
    started_at: datetime,
    predicted: Mapping[str, Measurement],
    objectives: Mapping[str, float] | None = None,
) -> float | None:
    """Seconds from the start until every later window holds the objectives (`ttft_p95`, `tpot_p95`
    in seconds); where there is none, the predicted limits: latencies at or under the upper end,
    goodput at or over the lower. None if it is not (yet) so, or if there is nothing to hold; 0 if
    it was never outside."""
    limits = dict(objectives or {}) or {
        key: float(bound)
        for key, bound in (
            ("ttft_p95", _upper(predicted.get("ttft_p95"))),
            ("tpot_p95", _upper(predicted.get("tpot_p95"))),
            ("goodput", _lower(predicted.get("goodput"))),
        )
        if bound is not None
    }
    judged = [s for s in samples if any(getattr(s, key) is not None for key in limits)]
    if not limits or not judged:
        return None
    outside = [s for s in judged if not _inside(s, limits)]
    if not outside:
        return 0.0
    later = [s for s in judged if s.at > outside[-1].at]
    return (later[0].at - started_at).total_seconds() if later else None


def _inside(sample: Sample, limits: Mapping[str, float]) -> bool:
    for key, limit in limits.items():
        value = getattr(sample, key)
        if value is None:
            continue
        if (value < limit) if key == "goodput" else (value > limit):
            return False
    return True


def _upper(prediction: Measurement | None) -> float | None:
    if prediction is None or not prediction.is_known:
        return None
    return float(prediction.upper if prediction.upper is not None else prediction.number())


def _lower(prediction: Measurement | None) -> float | None:
    if prediction is None or not prediction.is_known:
        return None
    return float(prediction.lower if prediction.lower is not None else prediction.number())
