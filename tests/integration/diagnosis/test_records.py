"""Stored diagnoses and calibrations: two windows decide, since is kept, nothing counts twice."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from apps.diagnosis import selectors, services
from apps.diagnosis.domain.busy import Capacity, busy_shares
from apps.diagnosis.domain.causes import Evidence
from apps.diagnosis.models import Calibration, DiagnosisRecord
from apps.fleet.models import Deployment
from apps.simulation.service_time import CALIBRATED, MODEL_ONLY, ObjectiveRate, prefill_sample
from apps.telemetry.domain.figures import DeploymentFigures
from tests.support.builders import NOW, world
from tests.unit.diagnosis.builders import USUAL, figures, overloaded

pytestmark = pytest.mark.django_db
RATE = ObjectiveRate(36.0, 0.02375, 1500.0, "tpot", True)


def see(
    deployment: Deployment, f: DeploymentFigures, now: datetime, **changes: Any
) -> DiagnosisRecord:
    fields: dict[str, Any] = {
        "now": now,
        "deployment": deployment,
        "figures": f,
        "usual": USUAL,
        "busy": busy_shares(f, Capacity(0.3, CALIBRATED, RATE, CALIBRATED)),
        "ttft_objective_s": 2.5,
        "tpot_objective_s": 0.025,
        "prefill_seconds": 0.3,
        "expected_seconds_per_token": None,
        "needed": 2,
        "of": 2,
        "replica_grace_s": 20.0,
        "idle_hold_s": 60.0,
        "imbalance_ratio": 1.5,
        "imbalance_smaller_below": 0.5,
        "has_open_command": False,
    }
    return services.record_diagnosis(**{**fields, **changes})


def at(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


def test_two_windows_decide_and_since_is_kept() -> None:
    d = world().deployment
    first = see(d, figures(at=at(0)), at(0))
    assert (first.cause, first.since) == ("balanced", at(0))
    once = see(d, overloaded(at=at(5)), at(5))
    assert (once.raw_cause, once.cause) == ("prefill_saturated", "balanced")
    assert once.since == at(0)
    assert once.sentence == "balanced", "the page keeps the evidence of what stands"
    twice = see(d, overloaded(at=at(10)), at(10))
    assert (twice.cause, twice.since, twice.severity) == ("prefill_saturated", at(10), "crit")
    later = see(d, overloaded(at=at(15)), at(15))
    assert later.since == at(10)
    assert selectors.latest(d) == later
    assert [r.cause for r in selectors.history(d, at(0), at(12))] == [
        "balanced",
        "balanced",
        "prefill_saturated",
    ]


def test_the_same_window_does_not_vote_twice() -> None:
    d = world().deployment
    see(d, figures(at=at(0)), at(0))
    f = overloaded(at=at(5))
    for seconds in (5, 6, 7):
        assert see(d, f, at(seconds)).cause == "balanced"


def test_the_same_instant_is_one_row() -> None:
    d = world().deployment
    for _ in range(2):
        see(d, figures(at=at(0)), at(0))
    assert DiagnosisRecord.objects.count() == 1


def test_evidence_reads_back_as_it_was_written() -> None:
    d = world().deployment
    see(d, overloaded(at=at(0)), at(0))
    record = selectors.latest(d)
    assert record is not None
    tiles = selectors.evidence(record)
    assert [t.code for t in tiles][:3] == ["queue_share", "prefill_busy", "decode_busy"]
    assert all(isinstance(t, Evidence) for t in tiles)
    assert tiles[1].measurement.value == pytest.approx(1.99 / 2)


def test_a_lost_replica_is_found_after_the_grace_time() -> None:
    d = world().deployment
    lost = {"workers_serving": 3, "workers_reporting": 3}
    causes = [see(d, figures(at=at(t), decode_changes=lost), at(t)).cause for t in range(0, 40, 5)]
    assert causes[:5] == ["balanced"] * 5
    assert causes[-1] == "replica_lost"


def test_our_own_command_is_no_lost_replica() -> None:
    d = world().deployment
    lost = {"workers_serving": 3, "workers_reporting": 3}
    for t in range(0, 60, 5):
        record = see(d, figures(at=at(t), decode_changes=lost), at(t), has_open_command=True)
    assert record.cause == "balanced"


def test_idle_is_said_only_after_its_hold_time() -> None:
    d = world().deployment
    causes = [see(d, figures(at=at(t)), at(t)).cause for t in range(0, 80, 5)]
    assert causes[:13] == ["balanced"] * 13
    assert causes[-1] == "idle_decode"


def learn(deployment: Deployment, seconds: int, per_prompt: float, source: str = "prior") -> Any:
    return services.update_calibration(
        now=at(seconds),
        deployment=deployment,
        phase="prefill",
        prior=(0.012, 9e-5, 2e-9),
        prior_source=source,
        sample=prefill_sample(1150, 1.0, per_prompt),
        window_end=at(seconds),
    )


def test_a_calibration_starts_as_a_prior_and_becomes_calibrated() -> None:
    d = world().deployment
    facts = [learn(d, 5 * i, 0.13) for i in range(8)]
    assert facts[0].basis == MODEL_ONLY
    assert facts[-1].basis == CALIBRATED and facts[-1].is_calibrated
    a, b, c = facts[-1].coefficients
    assert a + b * 1150 + 2 * c * 1150**2 == pytest.approx(0.13, rel=0.01)
    assert selectors.calibrations(d)["prefill"] == facts[-1]


def test_a_window_is_learnt_once() -> None:
    d = world().deployment
    for _ in range(3):
        learn(d, 5, 0.13)
    assert len(Calibration.objects.get().samples) == 1


def test_another_accelerator_starts_a_new_calibration() -> None:
    d = world().deployment
    for i in range(8):
        learn(d, 5 * i, 0.13)
    fresh = learn(d, 100, 0.05, source="another GPU")
    assert (fresh.samples, fresh.basis) == (1, MODEL_ONLY)


def test_old_diagnoses_are_forgotten() -> None:
    d = world().deployment
    see(d, figures(at=at(0)), at(0))
    assert services.prune(now=at(0) + timedelta(days=13), deployment=d) == 0
    assert services.prune(now=at(0) + timedelta(days=15), deployment=d) == 1
