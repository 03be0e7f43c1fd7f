"""What commands read from the rooms below: measurements, predictions, recommendations.

One narrow door, so that everything a command rests on is listed here, and so that tests can say
what the world looks like.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol
from uuid import UUID

from apps.accounts.domain.authorize import Viewer
from apps.common.measurement import Measurement
from apps.fleet.models import Deployment
from apps.fleet.selectors import NotVisible

from ..domain.proof import Load
from ..domain.scoring import Sample


@dataclass(frozen=True, slots=True)
class RecommendationFacts:
    """A recommendation as commands need it. `predicted` and `do_nothing` map a key of
    `domain.scoring.KEYS` to a Measurement's JSON (after the change; without any change)."""

    id: UUID
    number: str
    deployment_id: UUID
    state: str
    targets: Mapping[str, int]
    expected_revision: int
    predicted: Mapping[str, Any]
    do_nothing: Mapping[str, Any]


class Facts(Protocol):
    """Reads, and the one write back to planning."""

    def data_age_s(self, deployment: Deployment, now: datetime) -> float | None:
        """Age of the oldest figure that a plan cannot do without; None if one has none."""
        ...

    def loads(self, deployment: Deployment, now: datetime) -> Mapping[str, Load]:
        """Busy shares that may drive a reduction; roles without one are left out."""
        ...

    def measured(
        self, deployment: Deployment, end: datetime, span_s: float
    ) -> Mapping[str, Measurement]:
        """The figures of `domain.scoring.KEYS` over the window that ends at `end`."""
        ...

    def sample(self, deployment: Deployment, end: datetime, span_s: float) -> Sample:
        """One window on the way, with the share of failed requests."""
        ...

    def recommendation(self, recommendation_id: UUID) -> RecommendationFacts | None: ...

    def recommendation_id(self, viewer: Viewer, number: str) -> UUID:
        """The id behind a number ("R-12") or an id in text. Raises NotVisible."""
        ...

    def recheck(self, recommendation_id: UUID, now: datetime) -> tuple[str, ...]:
        """Codes of the guardrails that refuse now."""
        ...

    def mark_applied(
        self, recommendation_id: UUID, *, actor: Viewer, now: datetime, command_id: UUID
    ) -> bool:
        """Close the recommendation as applied; False if it is not open any more."""
        ...

    def score(
        self, recommendation_id: UUID, *, now: datetime, measured: Mapping[str, Measurement]
    ) -> None:
        """Tell planning what came of its prediction."""
        ...

    def predict(
        self, deployment: Deployment, targets: Mapping[str, int], now: datetime
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """(predicted, do nothing) for targets that a person set; empty where no model exists."""
        ...

    def thresholds(self, deployment: Deployment) -> Mapping[str, float]:
        """The objectives in seconds, by key of `domain.scoring.KEYS`."""
        ...

    def guardrails(self, deployment: Deployment) -> Mapping[str, Any]:
        """Limits and revisions of the policy that a plan was proved with."""
        ...

    def appliable(self, deployment: Deployment) -> UUID | None:
        """The open recommendation that nothing blocks (for mode `auto`)."""
        ...


class Nothing:
    """No measurements, no predictions: what an installation without planning would know."""

    def data_age_s(self, deployment: Deployment, now: datetime) -> float | None:
        return None

    def loads(self, deployment: Deployment, now: datetime) -> Mapping[str, Load]:
        return {}

    def measured(
        self, deployment: Deployment, end: datetime, span_s: float
    ) -> Mapping[str, Measurement]:
        return {}

    def sample(self, deployment: Deployment, end: datetime, span_s: float) -> Sample:
        return Sample(at=end)

    def recommendation(self, recommendation_id: UUID) -> RecommendationFacts | None:
        return None

    def recommendation_id(self, viewer: Viewer, number: str) -> UUID:
        raise NotVisible(number)

    def recheck(self, recommendation_id: UUID, now: datetime) -> tuple[str, ...]:
        return ()

    def mark_applied(
        self, recommendation_id: UUID, *, actor: Viewer, now: datetime, command_id: UUID
    ) -> bool:
        return True

    def score(
        self, recommendation_id: UUID, *, now: datetime, measured: Mapping[str, Measurement]
    ) -> None:
        return None

    def predict(
        self, deployment: Deployment, targets: Mapping[str, int], now: datetime
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        return {}, {}

    def thresholds(self, deployment: Deployment) -> Mapping[str, float]:
        return {}

    def guardrails(self, deployment: Deployment) -> Mapping[str, Any]:
        return {}

    def appliable(self, deployment: Deployment) -> UUID | None:
        return None


#: What the services ask; the package puts the rooms below here, tests put theirs.
provider: Facts = Nothing()
