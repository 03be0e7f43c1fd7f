"""Approvals, membership, the rollback rule, scoring, the soak."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from apps.backends.protocol import StepKind, StepSpec, WorkerRef
from apps.commands.domain import membership, rollback_rule, scoring, soak
from apps.commands.domain.approvals import PLANNER, Proposer, proposers_of, refusal
from apps.commands.services import errors
from apps.common.measurement import Measurement, State, missing
from apps.common.units import Unit

T0 = datetime(2026, 11, 30, tzinfo=UTC)
ALICE = Proposer("a", "alice")


def ask(**change: Any) -> str | None:
    base: dict[str, Any] = {
        "environment": "production",
        "mode": "approve",
        "proposers": (ALICE,),
        "approver_id": "b",
        "is_system": False,
        "is_active": True,
        "holds_role": True,
        "via_token": False,
    }
    return refusal(**{**base, **change})


@pytest.mark.parametrize(
    ("change", "answer"),
    [
        ({}, None),
        ({"approver_id": "a"}, "own_proposal"),
        ({"approver_id": "a", "environment": "staging"}, "own_proposal"),
        ({"approver_id": "a", "environment": "demo"}, None),
        ({"approver_id": "a", "environment": "unheard of"}, "own_proposal"),
        ({"proposers": (Proposer("", PLANNER),), "approver_id": "a"}, None),
        ({"proposers": (Proposer("", PLANNER), ALICE), "approver_id": "a"}, "own_proposal"),
        ({"via_token": True}, "token"),
        ({"via_token": True, "environment": "demo"}, None),
        ({"is_active": False}, "inactive"),
        ({"holds_role": False}, "no_role"),
        ({"is_system": True}, "not_automatic"),
        ({"is_system": True, "mode": "auto"}, "not_automatic"),
        (
            {"is_system": True, "mode": "auto", "proposers": (Proposer("", PLANNER),)},
            None,
        ),
    ],
)
def test_who_may_approve(change: dict[str, Any], answer: str | None) -> None:
    assert ask(**change) == answer


def test_whoever_edits_proposes() -> None:
    assert proposers_of("a", "alice", untouched_recommendation=False) == (ALICE,)
    assert proposers_of("a", "alice", untouched_recommendation=True) == (Proposer("", PLANNER),)


# --- membership


def spec(kind: StepKind, url: str, target: str) -> StepSpec:
    worker = WorkerRef(url, url, "decode", None)
    return StepSpec(0, kind, worker, target, 30, Decimal(1), {}, {"from_role": "decode"})


REMOVE = spec(StepKind.REMOVE_WORKER, "d", "prefill")
ADD = spec(StepKind.ADD_WORKER, "d", "prefill")
BEFORE = {"p": "prefill", "d": "decode", "e": "decode"}


@pytest.mark.parametrize(
    ("done", "under_way", "observed", "changes"),
    [
        ([], None, BEFORE, []),
        ([], REMOVE, BEFORE, []),
        ([], REMOVE, {"p": "prefill", "e": "decode"}, []),
        ([REMOVE], None, {"p": "prefill", "e": "decode"}, []),
        ([REMOVE], None, BEFORE, [("d", "added", "", "decode")]),
        ([REMOVE], ADD, {"p": "prefill", "e": "decode", "d": "prefill"}, []),
        ([REMOVE], ADD, BEFORE, [("d", "added", "", "decode")]),
        ([], REMOVE, {"p": "prefill", "d": "decode"}, [("e", "removed", "decode", "")]),
        ([], REMOVE, {**BEFORE, "e": "prefill"}, [("e", "role", "decode", "prefill")]),
        ([REMOVE, ADD], None, {**BEFORE, "d": "prefill"}, []),
        ([], None, {**BEFORE, "x": "decode"}, [("x", "added", "", "decode")]),
    ],
)
def test_foreign_changes(
    done: list[StepSpec],
    under_way: StepSpec | None,
    observed: dict[str, str],
    changes: list[tuple[str, str, str, str]],
) -> None:
    found = membership.foreign_changes(BEFORE, done, under_way, observed)
    assert [(c.url, c.change, c.was, c.found) for c in found] == changes


# --- rollback rule


def ratio(value: float, lower: float | None = None, state: State = State.OK) -> Measurement:
    return Measurement(value, Unit.RATIO, state, T0, lower=lower)


@pytest.mark.parametrize(
    ("now", "bad_before", "verdict"),
    [
        (ratio(0.95), 1, (False, 0, "ok")),
        (ratio(0.89), 0, (False, 1, "worse_than_doing_nothing")),
        (ratio(0.89), 1, (True, 2, "worse_than_doing_nothing")),
        # Below the prediction, yet better than without the change: it stays.
        (ratio(0.91), 1, (False, 0, "ok")),
        # Worse than doing nothing would be, but inside the prediction.
        (ratio(0.92), 1, (False, 0, "ok")),
        (missing(Unit.RATIO), 1, (False, 1, "not_measured")),
        (ratio(0.1, state=State.STALE), 1, (False, 1, "not_measured")),
        (ratio(0.1, state=State.PARTIAL), 1, (False, 1, "not_measured")),
        (None, 1, (False, 1, "not_measured")),
    ],
)
def test_the_rollback_rule(
    now: Measurement | None, bad_before: int, verdict: tuple[bool, int, str]
) -> None:
    nothing = ratio(0.93) if now is not None and now.value == 0.92 else ratio(0.90)
    found = rollback_rule.judge(
        attainment=now,
        predicted=ratio(0.96, lower=0.92),
        do_nothing=nothing,
        bad_before=bad_before,
        windows_needed=2,
    )
    assert (found.roll_back, found.bad_windows, found.reason) == verdict


def test_without_a_prediction_or_forecast_nothing_is_taken_back() -> None:
    for predicted, nothing, reason in (
        (None, ratio(0.9), "not_predicted"),
        (ratio(0.96, lower=0.92), None, "no_forecast"),
    ):
        found = rollback_rule.judge(
            attainment=ratio(0.1),
            predicted=predicted,
            do_nothing=nothing,
            bad_before=1,
            windows_needed=2,
        )
        assert (found.roll_back, found.bad_windows, found.reason) == (False, 1, reason)


# --- scoring


def seconds(value: float, lower: float | None = None, upper: float | None = None) -> Measurement:
    return Measurement(value, Unit.SECONDS, State.OK, T0, lower=lower, upper=upper)


def test_scores_and_accuracy() -> None:
    predicted = {
        "ttft_p95": seconds(0.80, 0.66, 0.96),
        "tpot_p95": seconds(0.020, 0.018, 0.022),
        "goodput": ratio(0.97),
        "cost_per_million": missing(Unit.USD_PER_MILLION_TOKENS),
    }
    measured = {
        "ttft_p95": seconds(0.81),
        "tpot_p95": seconds(0.025),
        "goodput": ratio(0.97),
        "cost_per_million": Measurement(Decimal("0.67"), Unit.USD_PER_MILLION_TOKENS, State.OK, T0),
    }
    found = scoring.scores(predicted, measured)
    assert [(one.key, one.inside) for one in found] == [
        ("ttft_p95", True),
        ("tpot_p95", False),
        ("goodput", None),
    ]
    total = scoring.accuracy(found)
    assert (total.count, total.inside) == (2, 1)
    assert total.median_error == pytest.approx(0.0125)
    assert scoring.accuracy(()) == scoring.Accuracy(0, 0, None)


def sample(second: float, ttft: float | None, goodput: float | None = None) -> scoring.Sample:
    return scoring.Sample(T0 + timedelta(seconds=second), ttft_p95=ttft, goodput=goodput)


def test_worst_and_recovery() -> None:
    predicted = {"ttft_p95": seconds(0.8, 0.6, 1.0)}
    samples = [sample(15, 10.1), sample(30, 5.8), sample(45, 0.9), sample(60, 3.3), sample(75, 0.9)]
    found = scoring.worst(samples)
    assert found["ttft_p95"] == {"value": 10.1, "at": samples[0].at.isoformat()}
    assert "goodput" not in found
    # 0.9 at 45 s did not last, so it is no recovery.
    assert scoring.recovery_s(samples, T0, predicted) == 75
    assert scoring.recovery_s(samples[:4], T0, predicted) is None
    assert scoring.recovery_s([sample(15, 0.7)], T0, predicted) == 0
    assert scoring.recovery_s(samples, T0, {}) is None
    assert scoring.recovery_s([sample(15, None)], T0, predicted) is None
    assert [scoring.Sample.from_json(s.to_json()) for s in samples] == samples


def test_soak_windows_never_mix_two_topologies() -> None:
    def due(last: float | None, now: float) -> bool:
        return soak.window_due(
            converged_at=T0,
            last_judged_at=None if last is None else T0 + timedelta(seconds=last),
            now=T0 + timedelta(seconds=now),
            window_s=30,
        )

    assert (due(None, 29), due(None, 30), due(30, 59), due(30, 60)) == (False, True, False, True)
    assert soak.ends_at(T0, 600) - T0 == timedelta(minutes=10)


# --- errors


def test_every_error_has_a_code_of_its_own_and_says_what_to_do() -> None:
    kinds = errors.CommandError.__subclasses__()
    assert len({kind.code for kind in kinds}) == len(kinds) > 20
    for kind in kinds:
        text = str(kind())
        assert text and kind.what_to_do.endswith(".") and 400 <= kind.http_status < 600
