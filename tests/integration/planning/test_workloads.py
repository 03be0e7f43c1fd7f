"""Workload profiles built from stored windows: once each, in spans, in steps."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pytest

from apps.accounts.domain.authorize import SYSTEM
from apps.engines.window import CounterIncrease, HistogramIncrease, Signal, SignalValue, Window
from apps.fleet import services as fleet
from apps.fleet.models import AttributeSource, Deployment, Worker
from apps.planning import services, workloads
from apps.planning.models import WorkloadProfile
from apps.telemetry.services.store import store_windows
from tests.support.builders import NOW, world

pytestmark = pytest.mark.django_db

LADDER = (500.0, 1000.0, 2000.0)
SHORT, LONG = (70.0, 30.0, 0.0, 0.0), (0.0, 20.0, 60.0, 20.0)
#: After the inventory was declared.
T0 = datetime(2026, 12, 1, 0, 0, tzinfo=UTC)


def count(value: float) -> CounterIncrease:
    return CounterIncrease(value, {"a": value})


@dataclass
class Traffic:
    """Ten-minute windows of 100 requests each, written as a collector would."""

    deployment: Deployment
    at: datetime = T0

    def run(self, hours: float, counts: tuple[float, ...] = SHORT) -> None:
        for _ in range(round(hours * 6)):
            start, self.at = self.at, self.at + timedelta(minutes=10)
            inputs: dict[Signal, SignalValue] = {
                Signal.INPUT_LENGTH: HistogramIncrease(LADDER, counts, 70_000, 100),
                Signal.INPUT_TOKENS: count(70_000),
                Signal.CACHED_TOKENS: count(7_000),
                Signal.REQUESTS_COMPLETED: count(100),
            }
            outputs: dict[Signal, SignalValue] = {
                Signal.OUTPUT_TOKENS: count(20_000), Signal.REQUESTS_COMPLETED: count(100),
            }  # fmt: skip
            arrived: dict[Signal, SignalValue] = {Signal.REQUESTS_ARRIVED: count(100)}
            store_windows(
                (self.deployment.pk, Window(scope, start, self.at, values, ("a",), ("a",)))
                for scope, values in (
                    ("router", arrived), ("prefill", inputs), ("decode", outputs),
                )
            )  # fmt: skip

    def build(self) -> int:
        """At a time at which all of it has settled."""
        now = self.at + timedelta(minutes=30)
        return services.build_workload(deployment=self.deployment, now=now)

    @property
    def profiles(self) -> list[workloads.Workload]:
        rows = WorkloadProfile.objects.filter(deployment=self.deployment).order_by("span_from")
        return [workloads.workload_of(row) for row in rows]


@pytest.fixture
def traffic(db: None) -> Traffic:
    return Traffic(world().deployment)


def test_it_grows_hour_by_hour_and_twice_is_once(traffic: Traffic) -> None:
    traffic.run(2)
    assert traffic.build() == 36
    assert traffic.build() == 0
    traffic.run(1)
    assert traffic.build() == 18
    (found,) = traffic.profiles
    assert found.requests == 1800
    assert found.lengths["input"].counts == tuple(18 * value for value in SHORT)
    assert (found.lengths["input"].method, found.lengths["output"].method) == (
        "histogram", "mean_only",
    )  # fmt: skip
    assert found.lengths["output"].mean == 200
    assert found.cached_share == pytest.approx(0.1)
    # A Tuesday from midnight on: hours 24 to 26 of the week, 600 requests in 3,600 s each.
    assert {hour: load.arrivals_per_s for hour, load in found.hours.items()} == {
        24: pytest.approx(1 / 6), 25: pytest.approx(1 / 6), 26: pytest.approx(1 / 6),
    }  # fmt: skip
    assert (found.reason, found.split) == ("first", "decode+prefill")


def test_sliding_windows_count_each_second_once(traffic: Traffic) -> None:
    """Windows of ten minutes that end every five."""
    traffic.run(1)
    traffic.at = T0 + timedelta(minutes=5)
    traffic.run(0.5)
    traffic.at = T0 + timedelta(hours=1)
    traffic.build()
    (found,) = traffic.profiles
    assert found.requests == 600


def test_windows_that_still_slide_wait(traffic: Traffic) -> None:
    traffic.run(1)
    services.build_workload(deployment=traffic.deployment, now=traffic.at)
    (found,) = traffic.profiles
    assert (found.requests, found.built_to) == (300, traffic.at - timedelta(minutes=30))


def test_a_deployment_without_windows_has_no_profile(traffic: Traffic) -> None:
    assert services.build_workloads(now=NOW + timedelta(days=2)) == 0
    assert traffic.profiles == []
    assert workloads.workload_profile(traffic.deployment, NOW) is None


def test_a_new_checkpoint_starts_a_span(traffic: Traffic) -> None:
    traffic.run(2)
    pool = traffic.deployment.pools.get(role="prefill")
    changed = traffic.at - timedelta(minutes=55)
    fleet.set_span(
        now=changed, subject_kind="pool", subject_id=pool.pk, attribute="checkpoint",
        value="qwen3-32b-v2", source=AttributeSource.DECLARED,
    )  # fmt: skip
    traffic.build()
    first, second = traffic.profiles
    assert (first.span_to, second.span_from, second.reason) == (changed, changed, "checkpoint")
    assert (first.checkpoint, second.checkpoint) == ("", "qwen3-32b-v2")
    # The window that holds the change belongs to neither.
    assert (first.requests, second.requests) == (600, 500)
    before = workloads.workload_profile(traffic.deployment, changed - timedelta(minutes=1))
    after = workloads.workload_profile(traffic.deployment, changed)
    assert before is not None and before.reason == "first"
    assert after is not None and after.reason == "checkpoint"


def test_a_deployment_that_stops_being_split_starts_a_span(traffic: Traffic) -> None:
    traffic.run(1)
    for worker in Worker.objects.filter(deployment=traffic.deployment):
        fleet.record_role(
            now=traffic.at, worker_id=worker.pk, role="mixed", source=AttributeSource.DECLARED
        )
    traffic.run(1)
    traffic.build()
    assert [(one.reason, one.split, one.requests) for one in traffic.profiles] == [
        ("first", "decode+prefill", 600), ("split", "mixed", 600),
    ]  # fmt: skip


def test_moving_a_worker_between_the_pools_starts_none(traffic: Traffic) -> None:
    traffic.run(1)
    worker = Worker.objects.filter(deployment=traffic.deployment, role="decode").first()
    assert worker is not None
    fleet.record_role(
        now=traffic.at, worker_id=worker.pk, role="prefill", source=AttributeSource.DECLARED
    )
    traffic.run(1)
    traffic.build()
    assert len(traffic.profiles) == 1


def test_another_model_starts_a_span_when_it_is_noticed(traffic: Traffic) -> None:
    traffic.run(1)
    traffic.build()
    Deployment.objects.filter(pk=traffic.deployment.pk).update(served_model="other/model")
    traffic.deployment.refresh_from_db()
    traffic.run(1)
    traffic.build()
    assert [(one.reason, one.served_model == "other/model") for one in traffic.profiles] == [
        ("first", False), ("model", True),
    ]  # fmt: skip
    assert sum(one.requests for one in traffic.profiles) == 1200


def test_a_strong_drift_starts_a_span_with_the_last_day(traffic: Traffic) -> None:
    traffic.run(48)
    traffic.build()
    assert len(traffic.profiles) == 1
    traffic.run(24, LONG)
    traffic.build()
    first, second = traffic.profiles
    assert second.reason == "drift"
    assert first.span_to == second.span_from
    assert first.requests + second.requests == 72 * 600
    assert first.lengths["input"].counts[3] < 0.05 * first.requests
    assert second.lengths["input"].counts[2] > 0.5 * second.requests
    traffic.run(24, LONG)
    traffic.build()
    assert len(traffic.profiles) == 2


def test_a_long_history_is_caught_up_in_steps(traffic: Traffic) -> None:
    traffic.run(24 * 9)
    traffic.build()
    (found,) = traffic.profiles
    assert found.built_to < traffic.at
    traffic.build()
    (found,) = traffic.profiles
    assert found.requests == 9 * 24 * 600
    assert len(found.hours) == 168
    row = WorkloadProfile.objects.get()
    assert len(row.recent) <= 25


def test_shares_by_model_are_over_what_the_viewer_sees(traffic: Traffic) -> None:
    traffic.run(1)
    traffic.build()
    assert workloads.model_shares(SYSTEM) == {traffic.deployment.served_model: 1.0}
    assert [row.deployment for row in workloads.workloads_for(SYSTEM)] == [traffic.deployment]
