"""What an objective is, as data. Times in seconds, shares as ratios."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from uuid import UUID


class ObjectiveSignal(StrEnum):
    """The latencies that may carry an objective."""

    TTFT = "ttft"
    TPOT = "tpot"


@dataclass(frozen=True, slots=True)
class ObjectiveFacts:
    """`quantile` of requests stays at or below `threshold_s`; `target_share` of them must.

    In the usual case the two are the same number (P95 <= 2.5 s is 95 % within 2.5 s).
    """

    id: UUID
    signal: ObjectiveSignal
    quantile: float
    threshold_s: float
    target_share: float
    since: datetime


Objectives = Mapping[ObjectiveSignal, ObjectiveFacts]


class InvalidObjective(ValueError):
    """The numbers do not make an objective; the message names the field."""


def validate(*, quantile: float, threshold_s: float, target_share: float) -> None:
    """Raise InvalidObjective unless the shares lie between 0 and 1 and the time is positive."""
    for name, share in (("quantile", quantile), ("target_share", target_share)):
        if not 0.0 < share < 1.0:
            raise InvalidObjective(f"{name} must lie between 0 and 1, got {share}")
    if not 0.0 < threshold_s < 3600.0:
        raise InvalidObjective(f"threshold_s must lie between 0 and 3600, got {threshold_s}")


def is_looser(before: ObjectiveFacts, *, threshold_s: float, target_share: float) -> bool:
    """True if the new numbers let more requests be late (DESIGN law 13 makes that a proposal)."""
    return threshold_s > before.threshold_s or target_share < before.target_share
