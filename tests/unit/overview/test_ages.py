"""Evidence is shown at its age, by the rule of every other figure."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from apps.common.measurement import Measurement, State
from apps.diagnosis.domain.rules import diagnose
from apps.diagnosis.models import DiagnosisRecord
from apps.fleet.domain.defaults import DEMO
from apps.overview import deployment
from apps.overview.domain.types import DiagnosisView
from apps.overview.loaded import Loaded
from tests.unit.diagnosis.builders import AT, overloaded
from tests.unit.diagnosis.test_rules import symptoms

INTERVAL = timedelta(seconds=DEMO.collect_interval_s)


def shown(wait_age: timedelta, tile_age: timedelta = timedelta(0), **more: Any) -> DiagnosisView:
    """The diagnosis of an overloaded fleet, with the ages of its queue wait and of its tiles."""
    s = symptoms(overloaded())
    found = diagnose(s)
    prefill = s.figures.prefill
    assert prefill is not None

    def taken(figure: Measurement, age: timedelta) -> Measurement:
        return replace(figure, observed_at=AT - age)

    wait = taken(prefill.queue_time_mean, wait_age)
    tiles = [replace(e, measurement=taken(e.measurement, tile_age)) for e in found.evidence]
    loaded = Loaded(SimpleNamespace(), SimpleNamespace(), AT)  # type: ignore[arg-type]
    given = {
        "diagnosis": DiagnosisRecord(
            at=AT, window_end=AT, raw_cause=found.cause, cause=found.cause,
            severity=found.severity.value, since=AT, sentence=found.sentence,
            params=dict(found.params), evidence=[tile.to_json() for tile in tiles],
            wont_help=found.wont_help, worker="", role=found.role, busy=s.busy.to_json(),
        ),
        "figures": replace(s.figures, prefill=replace(prefill, queue_time_mean=wait)),
        "usual": s.usual, "objectives": {}, "evaluation": None, "defaults": DEMO, "sources": [],
    }  # fmt: skip
    vars(loaded).update(given | more)
    return deployment.diagnosis_of(loaded)


def states(view: DiagnosisView) -> dict[str, State]:
    return {tile.code: tile.measurement.state for tile in view.evidence}


def test_a_queue_wait_of_an_older_window_is_old() -> None:
    assert states(shown(INTERVAL))["queue_wait"] is State.OK
    late = states(shown(3 * INTERVAL))
    assert late.pop("queue_wait") is State.STALE
    assert set(late.values()) == {State.OK}


@pytest.mark.parametrize(
    ("sources", "state"),
    [([], State.STALE), ([SimpleNamespace(state="down")], State.SOURCE_DOWN)],
)
def test_old_evidence_keeps_its_value_and_says_why_it_is_old(
    sources: list[Any], state: State
) -> None:
    view = shown(3 * INTERVAL, 3 * INTERVAL, sources=sources)
    assert set(states(view).values()) == {state}
    assert all(tile.measurement.value is not None for tile in view.evidence)
