"""A furnished installation with a diagnosis, figures, a recommendation and commands in it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import time_machine

from apps.accounts.domain.authorize import SYSTEM
from apps.planning.models import Recommendation
from apps.slo import services as slo
from apps.slo.domain.objective import ObjectiveSignal
from apps.telemetry import selectors as telemetry
from apps.telemetry.domain.figures import Usual
from tests.integration.api import lab as laboratory
from tests.integration.planning.conftest import Story
from tests.integration.planning.fluid import LONG, Fleet
from tests.support.builders import NOW


@pytest.fixture
def lab(
    db: None, monkeypatch: pytest.MonkeyPatch, settings: Any, tmp_path: Path
) -> Iterator[laboratory.Lab]:
    laboratory.stand_in(monkeypatch, settings, tmp_path)
    built = laboratory.build()
    laboratory.furnish(built)
    with time_machine.travel(NOW, tick=False) as clock:
        Recommendation.objects.update(state="expired")
        slo.set_objective(
            actor=SYSTEM,
            now=NOW,
            deployment_id=built.deployment.pk,
            signal=ObjectiveSignal.TPOT,
            threshold_s=0.025,
        )
        built.numbers["commands"] = built.recorded().number
        story = Story(built, Fleet(), NOW)  # type: ignore[arg-type]
        monkeypatch.setattr(telemetry, "figures", lambda *_: story.figures)
        monkeypatch.setattr(telemetry, "usual", lambda deployment, now: Usual("since_start"))
        story.run(60)
        story.fluid.load = LONG
        story.run(60)
        built.numbers["recommendations"] = Recommendation.objects.get(state="open").number
        clock.move_to(story.now)
        built.now = story.now
        yield built
