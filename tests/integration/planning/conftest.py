"""The service under test reads figures from a fluid fleet instead of stored windows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from decimal import Decimal
from uuid import uuid4

import pytest

from apps.accounts.domain.authorize import SYSTEM
from apps.cost import services as cost
from apps.fleet import selectors as fleet_selectors
from apps.fleet import services as fleet
from apps.fleet.models import Deployment, Worker
from apps.planning import services
from apps.planning.models import Recommendation
from apps.planning.services import EvaluationResult
from apps.slo import services as slo
from apps.slo.domain.objective import ObjectiveSignal
from apps.telemetry import selectors as telemetry
from apps.telemetry.domain.figures import DeploymentFigures, Usual
from tests.support.builders import NOW, World, world

from .fluid import Fleet, ticks


@dataclass
class Story:
    """A deployment whose figures come from `fluid`, and the clock."""

    world: World
    fluid: Fleet
    now: datetime
    figures: DeploymentFigures | None = None
    transform: Callable[[DeploymentFigures], DeploymentFigures] = lambda f: f

    @property
    def deployment(self) -> Deployment:
        return fleet_selectors.deployment_by_id(self.world.deployment.pk)

    def run(self, seconds: float) -> list[EvaluationResult]:
        """Evaluate every five seconds for a while."""
        results = []
        for at in ticks(self.now, seconds):
            self.now = at
            self.figures = self.transform(self.fluid.step(at))
            results.append(services.evaluate(deployment_id=self.world.deployment.pk, now=at))
        return results

    def apply(self, recommendation: Recommendation) -> None:
        """What commands do: mark, set the wanted counts, move a worker, finish the change."""
        command = uuid4()
        services.mark_applied(
            actor=self.world.viewer(self.world.alice),
            now=self.now,
            recommendation_id=recommendation.pk,
            command_id=command,
        )
        fleet.begin_change(
            now=self.now, deployment_id=self.deployment.pk, command_id=command, label="C-1"
        )
        fleet.set_wanted(
            actor=SYSTEM,
            now=self.now,
            deployment_id=self.deployment.pk,
            wanted=recommendation.targets,
            expected_revision=recommendation.expected_revision,
        )
        before, after = recommendation.current["prefill"], recommendation.targets["prefill"]
        donor, receiver = ("decode", "prefill") if after > before else ("prefill", "decode")
        moved = Worker.objects.filter(deployment=self.deployment, role=donor).order_by("-name")[0]
        Worker.objects.filter(pk=moved.pk).update(role=receiver)
        self.fluid.prefill = recommendation.targets["prefill"]
        self.fluid.decode = recommendation.targets["decode"]
        self.now += timedelta(seconds=20)
        fleet.finish_change(
            now=self.now,
            deployment_id=self.deployment.pk,
            command_id=command,
            converged=recommendation.targets,
            kind=recommendation.kind,
            direction="to_prefill" if after > before else "to_decode",
        )


@pytest.fixture
def story(db: None, monkeypatch: pytest.MonkeyPatch) -> Story:
    """2 prefill and 4 decode workers, mode approve, both objectives, a price."""
    w = world()
    for signal, seconds in ((ObjectiveSignal.TTFT, 2.5), (ObjectiveSignal.TPOT, 0.025)):
        slo.set_objective(
            actor=SYSTEM,
            now=NOW,
            deployment_id=w.deployment.pk,
            signal=signal,
            threshold_s=seconds,
        )
    book = cost.create_book(actor=SYSTEM, now=NOW, slug="list", name="List")
    cost.set_price(actor=SYSTEM, now=NOW, book_id=book.pk, key="h200-sxm", rate=Decimal("4.59"))
    found = Story(w, Fleet(), NOW)
    monkeypatch.setattr(telemetry, "figures", lambda *_: found.figures)
    monkeypatch.setattr(telemetry, "usual", lambda deployment, now: Usual("since_start"))
    return found


__all__ = ["Story", "replace", "story"]
