"""A fleet of 200 deployments with 90 days of history, written by the collector's own writer.

Two deployments are filled window by window through `store_windows` and `roll_up`, with tiles as
long as their age allows; retention then drops what is old. The rows that this makes are copied to
the other 198: writing 8 million windows one by one would take hours and make the same rows.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Final

import numpy as np
from django.db import connection

from apps.accounts import services as accounts
from apps.accounts.domain.authorize import SYSTEM, Role, ScopeKind
from apps.accounts.models import User
from apps.engines.window import (
    CounterIncrease,
    GaugeValue,
    HistogramIncrease,
    Signal,
    SignalValue,
    Window,
)
from apps.fleet import services as fleet
from apps.fleet.models import Accelerator, Deployment, Worker
from apps.planning.services import evaluate
from apps.slo.domain.objective import ObjectiveSignal
from apps.slo.services import set_objective
from apps.telemetry import services
from apps.telemetry.models import RollUpMark, Source
from apps.telemetry.services import partitions
from apps.telemetry.services.store import store_windows

DEPLOYMENTS: Final = 200
TEMPLATES: Final = 2
WORKERS: Final = 4
DAYS: Final = 90
INTERVAL_S: Final = 15
#: Ladders as smg, and SGLang's decode and prefill, export them.
ROUTER: Final = (
    0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 15, 30, 45, 60, 90, 120, 180,
    240, 300, 480, 900, 1800, 3600, 7200,
)  # fmt: skip
TOKEN: Final = (
    0.002, 0.004, 0.006, 0.008, 0.01, 0.015, 0.02, 0.025, 0.03, 0.035, 0.04, 0.06, 0.08, 0.1, 0.2,
    0.4, 0.6, 0.8, 1, 2, 4, 6, 8,
)  # fmt: skip
QUEUE: Final = (
    0, 0.001, 0.005, 0.01, 0.05, 0.1, 0.2, 0.5, 1, 2, 3, 4, 5, 10, 15, 20, 30, 40, 50, 60, 70, 80,
    90, 100, 200, 300, 400, 500, 600, 700, 800, 900, 1000, 1200, 1400, 1600, 1800, 2000, 2500, 3000,
)  # fmt: skip
STAGE: Final = tuple(round(0.001 * 1.62**step, 6) for step in range(30))
#: Requests per second at the middle of the day's wave, tokens of a prompt and of an answer.
RATE, PROMPT, ANSWER = 8.0, 1800, 260


@dataclass(frozen=True, slots=True)
class Made:
    """The fleet, the user that looks at it, and the time at which it is looked at."""

    user: User
    deployments: tuple[Deployment, ...]
    now: datetime


def make(now: datetime) -> Made:
    """Inventory, history and evaluations as of `now`."""
    early = now - timedelta(days=DAYS + 1)
    user = accounts.create_user(actor=SYSTEM, now=early, username="alice", password=None)
    accounts.bind_role(
        actor=SYSTEM, now=early, user=user, role=Role.OPERATOR,
        scope_kind=ScopeKind.INSTALLATION, scope_id=None,
    )  # fmt: skip
    deployments = _inventory(early)
    for deployment in deployments[:TEMPLATES]:
        _fill(deployment, now)
    services.prune(now=now)
    assert not RollUpMark.objects.filter(due_at__lte=now).exists()
    _copy(deployments, now)
    tick(deployments, now)
    for deployment in deployments:
        evaluate(deployment_id=deployment.pk, now=now)
    _evaluations(deployments, now)
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE")
    return Made(user, deployments, now)


def _inventory(now: datetime) -> tuple[Deployment, ...]:
    accelerator, _ = Accelerator.objects.get_or_create(
        slug="h200-sxm", defaults={"vendor": "nvidia", "name": "H200"}
    )
    found: list[Deployment] = []
    for number in range(DEPLOYMENTS):
        if number % 50 == 0:
            name = f"cluster-{number // 50}"
            cluster = fleet.register_cluster(
                actor=SYSTEM, now=now, slug=name, name=name, uid=name, mode_cap="recommend"
            )
            # Not through the service: it looks the address up, and nothing collects here.
            Source.objects.create(
                name=f"prometheus-{name}", cluster=cluster, kind="prometheus",
                url=f"https://prometheus.{name}.example.test/", interval_s=INTERVAL_S, state="ok",
                last_ok_at=now + timedelta(days=DAYS + 1), created_at=now,
            )  # fmt: skip
        deployment = fleet.register_deployment(
            actor=SYSTEM, now=now, cluster=cluster, slug=f"d{number:03}", name=f"d{number:03}",
            served_model=f"Org/Model-{number % 20}", environment="production",
            preset="production",
        )  # fmt: skip
        for role in ("prefill", "decode"):
            fleet.declare_pool(
                actor=SYSTEM, now=now, deployment=deployment, role=role,
                accelerator=accelerator.slug, devices_per_worker=Decimal(1), engine="sglang",
                engine_version="0.5.23", wanted=WORKERS, facts={"max_sequences": 48},
            )  # fmt: skip
            for index in range(WORKERS):
                url = worker_url(number, role, index)
                fleet.declare_worker(
                    now=now, deployment=deployment, name=f"{role}-{index}", url=url, role=role,
                    metrics_url=f"{url}/metrics", bootstrap_port=None,
                )  # fmt: skip
        for signal, threshold_s in ((ObjectiveSignal.TTFT, 1.0), (ObjectiveSignal.TPOT, 0.04)):
            set_objective(
                actor=SYSTEM, now=now, deployment_id=deployment.pk, signal=signal,
                threshold_s=threshold_s,
            )  # fmt: skip
        fleet.connect_backend(
            actor=SYSTEM, now=now, deployment=deployment, adapter="noop", address="", parameters={}
        )
        found.append(deployment)
    Worker.objects.update(serving="serving")
    return tuple(found)


def worker_url(number: int, role: str, index: int) -> str:
    """The address of a made worker."""
    return f"http://10.{100 + (role == 'decode')}.{number // 250}.{number % 250}:{8000 + index}"


def _fill(deployment: Deployment, now: datetime) -> None:
    number = int(deployment.slug[1:])
    batch: list[Window] = []
    for start, end in _times(now):
        batch += windows(number, start, end)
        if len(batch) >= 1500:
            store_windows((deployment.pk, found) for found in batch)
            batch = []
    store_windows((deployment.pk, found) for found in batch)
    services.roll_up(now=now)


def _times(now: datetime) -> Iterator[tuple[datetime, datetime]]:
    """Windows from the oldest on: hours, from 35 days on five minutes, from 48 h on minutes, and
    for the last 15 min one a collect."""
    at = now - timedelta(days=DAYS)
    at -= timedelta(seconds=at.timestamp() % 3600)
    while at < now:
        age = now - at
        seconds = 3600 if age > timedelta(days=35) else 300 if age > timedelta(hours=48) else 60
        # A tile does not cross the edge to finer ones, nor the present.
        end = min(at + timedelta(seconds=seconds - at.timestamp() % seconds), now)
        yield at, end
        at = end
    for step in range(60):
        end = now - timedelta(seconds=INTERVAL_S * step)
        yield end - timedelta(seconds=60), end


def windows(number: int, start: datetime, end: datetime) -> Iterator[Window]:
    """The router's, the prefill pool's and the decode pool's window."""
    seconds = (end - start).total_seconds()
    wave = 1 + 0.5 * math.sin(2 * math.pi * (end.timestamp() % 86400) / 86400)
    random = np.random.default_rng([number, int(end.timestamp())])
    count = float(random.poisson(RATE * wave * seconds))
    urls = {
        role: [worker_url(number, role, index) for index in range(WORKERS)]
        for role in ("prefill", "decode")
    }

    def counter(total: float, role: str) -> CounterIncrease:
        parts = random.multinomial(int(total), [1 / WORKERS] * WORKERS)
        return CounterIncrease(
            float(parts.sum()), dict(zip(urls[role], map(float, parts), strict=True))
        )

    def gauge(mean: float, role: str, scale: float = 1.0) -> GaugeValue:
        parts = (random.poisson(mean / scale, WORKERS) * scale).round(4).tolist()
        return GaugeValue(sum(parts), dict(zip(urls[role], parts, strict=True)))

    def hist(ladder: tuple[float, ...], median: float, role: str = "") -> HistogramIncrease:
        total = count * median * 1.2
        share = dict.fromkeys(urls.get(role, ()), total / WORKERS)
        each = dict.fromkeys(urls.get(role, ()), count / WORKERS)
        counts = random.multinomial(int(count), _shares(ladder, median))
        return HistogramIncrease(ladder, tuple(map(float, counts)), total, count, share, each)

    def window(scope: str, values: dict[Signal, SignalValue], members: list[str]) -> Window:
        names = {signal: f"sglang:{signal.value}" for signal in values}
        return Window(
            scope, start, end, values, tuple(members), tuple(members), "scrape", names=names
        )

    yield window(
        "router",
        {
            Signal.REQUESTS_ARRIVED: CounterIncrease(count),
            Signal.REQUESTS_COMPLETED: CounterIncrease(count),
            Signal.REQUESTS_FAILED: CounterIncrease(0.0),
            Signal.TTFT: hist(ROUTER, 0.35 * wave),
            Signal.E2E: hist(ROUTER, 5.0),
        },
        [f"http://10.102.0.{number % 250}:29000"],
    )
    yield window(
        "prefill",
        {
            Signal.INPUT_TOKENS: counter(count * PROMPT, "prefill"),
            Signal.CACHED_TOKENS: counter(count * PROMPT * 0.3, "prefill"),
            Signal.REQUESTS_COMPLETED: counter(count, "prefill"),
            Signal.QUEUE_TIME: hist(QUEUE, 0.08 * wave, "prefill"),
            Signal.PREFILL_TIME: hist(STAGE, 0.15, "prefill"),
            Signal.KV_TRANSFER_TIME: hist(STAGE, 0.02, "prefill"),
            Signal.WAITING: gauge(1.5 * wave, "prefill"),
            Signal.RUNNING: gauge(2.0, "prefill"),
            Signal.KV_USED: gauge(0.4, "prefill", 0.01),
        },
        urls["prefill"],
    )
    yield window(
        "decode",
        {
            Signal.OUTPUT_TOKENS: counter(count * ANSWER, "decode"),
            Signal.REQUESTS_COMPLETED: counter(count, "decode"),
            Signal.PREEMPTIONS: counter(0, "decode"),
            Signal.TPOT: hist(TOKEN, 0.018 * wave, "decode"),
            Signal.ITL: hist(TOKEN, 0.016, "decode"),
            Signal.WAITING: gauge(0.5, "decode"),
            Signal.RUNNING: gauge(20 * wave, "decode"),
            Signal.KV_USED: gauge(0.5 * wave, "decode", 0.01),
        },
        urls["decode"],
    )


_KNOWN: dict[tuple[tuple[float, ...], float], list[float]] = {}


def _shares(ladder: tuple[float, ...], median: float) -> list[float]:
    """Shares of the buckets for a lognormal with this median."""
    key = (ladder, round(median, 3))
    if key not in _KNOWN:
        below = [
            0.0 if bound <= 0 else 0.5 * math.erfc(-math.log(bound / median) / (0.6 * 2**0.5))
            for bound in ladder
        ]
        shares = np.clip(np.diff([0.0, *below, 1.0]), 0, 1)
        _KNOWN[key] = (shares / shares.sum()).tolist()
    return _KNOWN[key]


def tick(deployments: tuple[Deployment, ...], end: datetime) -> None:
    """One collect of the whole fleet."""
    for deployment in deployments:
        number = int(deployment.slug[1:])
        start = end - timedelta(seconds=60)
        store_windows((deployment.pk, found) for found in windows(number, start, end))


def _copy(deployments: tuple[Deployment, ...], now: datetime) -> None:
    """The templates' rows for all others; of windows the last three hours."""
    pairs = [
        (other.pk, deployments[index % TEMPLATES].pk)
        for index, other in enumerate(deployments[TEMPLATES:])
    ]
    with connection.cursor() as cursor:
        for name, table in partitions.TABLES.items():
            columns = [
                connection.ops.quote_name(field.column)
                for field in table._meta.fields
                if field.column not in ("id", "deployment_id")
            ]
            listed = ", ".join(columns)
            where = ' AND "end" > %s' if name == "raw" else ""
            for other, template in pairs:
                cursor.execute(
                    f"INSERT INTO {table._meta.db_table} (deployment_id, {listed})"
                    f" SELECT %s, {listed} FROM {table._meta.db_table}"
                    f" WHERE deployment_id = %s{where}",
                    [other, template, *([now - timedelta(hours=3)] if where else [])],
                )


def _evaluations(deployments: tuple[Deployment, ...], now: datetime) -> None:
    """The templates' evaluations of 14 days, one a collect, as copies of the newest."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT * FROM planning_evaluation LIMIT 0")
        columns = [
            f'"{column.name}"'
            for column in cursor.description
            if column.name not in ("id", "at", "window_end")
        ]
        listed = ", ".join(columns)
        for deployment in deployments[:TEMPLATES]:
            cursor.execute(
                f"INSERT INTO planning_evaluation (id, at, window_end, {listed})"
                " SELECT gen_random_uuid(), at - step * interval '15 s',"
                f" window_end - step * interval '15 s', {listed}"
                " FROM planning_evaluation, generate_series(1, 80640) AS step"
                " WHERE deployment_id = %s",
                [deployment.pk],
            )
