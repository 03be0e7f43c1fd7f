"""What charts read of evaluations: the newest of each step, and values that are not there."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from apps.accounts.domain.authorize import SYSTEM
from apps.fleet import services as fleet
from apps.fleet.models import Deployment
from apps.planning import selectors
from apps.planning.models import Evaluation

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)


def _deployment() -> Deployment:
    cluster = fleet.register_cluster(
        actor=SYSTEM, now=NOW, slug="lab", name="lab", uid="lab", mode_cap="recommend"
    )
    return fleet.register_deployment(
        actor=SYSTEM, now=NOW, cluster=cluster, slug="rag", name="rag", served_model="Org/Model",
        environment="production", preset="production",
    )  # fmt: skip


def _stored(value: Any) -> dict[str, Any]:
    return {"value": value, "unit": "ratio", "state": "ok"}


@pytest.mark.django_db
def test_the_newest_of_each_step_in_one_query(django_assert_num_queries: Any) -> None:
    deployment = _deployment()
    for minutes, prefill, decode, good in (
        (9, 0.1, 0.2, 1.0),
        (7, None, 0.3333333333333333, 1e-7),
        (2, 0.25, 0.5, 12345678.9),
    ):
        at = NOW - timedelta(minutes=minutes)
        Evaluation.objects.create(
            deployment=deployment, at=at, window_end=at,
            busy={"prefill": _stored(prefill), "decode": _stored(decode)},
            goodput={"rate": _stored(good)},
        )  # fmt: skip
    last = NOW - timedelta(minutes=1)
    Evaluation.objects.create(deployment=deployment, at=last, window_end=last)
    start = NOW - timedelta(minutes=15)
    with django_assert_num_queries(1):
        found = selectors.evaluations_per_step(deployment, start, NOW, 300)
    # No evaluation in the first step; the newest of the last one has no figures at all.
    assert [(row.prefill_busy, row.decode_busy, row.good_per_s) for row in found] == [
        (None, 0.3333333333333333, 1e-7),
        (None, None, None),
    ]
    assert [row.at for row in found] == [NOW - timedelta(minutes=7), last]
    assert selectors.evaluations_per_step(deployment, NOW, NOW, 300) == []
