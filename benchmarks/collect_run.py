"""One size of `benchmarks.collect`, in a process of its own, so that its memory is its own.

Reads from the command line where the filled Prometheus is; the database comes from the
environment. Prints one JSON object.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from unittest import mock
from urllib.parse import urlsplit

from .prometheus_history import MadeFleet, made_fleet

if TYPE_CHECKING:
    from apps.telemetry.models import Source


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--url", required=True)
    parser.add_argument("--pools", type=int, required=True)
    parser.add_argument("--first", type=float, required=True)
    parser.add_argument("--last", type=float, required=True)
    parser.add_argument("--ticks", type=int, default=10)
    options = parser.parse_args()
    os.environ["FULCRUM_LOOPBACK_PORTS"] = str(urlsplit(options.url).port)
    import django

    django.setup()
    from django.core.management import call_command

    call_command("migrate", verbosity=0)
    source = inventory(made_fleet(options.pools), options.url, options.first)
    print(json.dumps(measure(source, options)))


def inventory(fleet: MadeFleet, url: str, first: float) -> Source:
    """The made fleet's rows, written directly: registering 4,000 workers is not what is timed."""
    from apps.fleet.models import Backend, Cluster, Deployment, Pool, Span, Worker
    from apps.telemetry.models import Source

    early = datetime.fromtimestamp(first, UTC) - timedelta(hours=1)
    Cluster.objects.filter(slug="bench").delete()
    cluster = Cluster.objects.create(slug="bench", name="bench", uid="bench")
    deployments = [
        Deployment(
            slug=made.name, name=made.name, namespace=made.namespace, cluster=cluster,
            served_model=made.model, preset="production", created_at=early,
        )
        for made in fleet.deployments
    ]  # fmt: skip
    Deployment.objects.bulk_create(deployments)
    pools, workers, backends = [], [], []
    for made, deployment in zip(fleet.deployments, deployments, strict=True):
        backends.append(
            Backend(deployment=deployment, parameters={"metrics_url": f"http://{made.router}"})
        )
        pools += [
            Pool(deployment=deployment, role=role, engine=made.engine, wanted_workers=4)
            for role in ("prefill", "decode")
        ]
        workers += [
            Worker(
                deployment=deployment, name=worker.pod, url=worker.url, role=worker.role,
                metrics_url=f"{worker.url}/metrics", role_source="declared", serving="serving",
                first_seen_at=early,
            )
            for worker in made.workers
        ]  # fmt: skip
    Backend.objects.bulk_create(backends)
    Pool.objects.bulk_create(pools)
    Worker.objects.bulk_create(workers)
    Span.objects.bulk_create(
        Span(
            subject_kind="worker", subject_id=worker.pk, attribute="role", value=worker.role,
            source="declared", valid_from=early,
        )
        for worker in workers
    )  # fmt: skip
    return Source.objects.create(
        name="bench", cluster=cluster, kind="prometheus", url=url, interval_s=15, created_at=early,
        parameters={"jobs": ["llm"], "pool_labels": ["namespace", "role"]},
    )  # fmt: skip


def measure(source: Source, options: argparse.Namespace) -> dict[str, Any]:
    """Seconds per cycle: as the product runs it, without histograms, and without the server."""
    first = datetime.fromtimestamp(options.first + 105, UTC)
    ticks = min(options.ticks, int((options.last - options.first - 105) // 15))
    times = [first + timedelta(seconds=15 * number) for number in range(ticks)]
    collect_at(source, times[0])  # targets are made, caches fill
    rss_before = peak_mb()
    staggered = [collect_at(source, at) for at in times]
    with_histograms = stored_histograms(times[-1])
    with without_histograms():
        fast = [collect_at(source, at) for at in times]
    memory = peak_mb()
    ours = [replayed(source, at) for at in times[:2]]
    with without_histograms():
        ours_fast = [replayed(source, at) for at in times[:2]]
    return {
        "fast": [seconds for seconds, _, _ in fast],
        "fast_cpu": [cpu for _, cpu, _ in fast],
        "histogram": [seconds for seconds, _, _ in staggered],
        "histogram_cpu": [cpu for _, cpu, _ in staggered],
        "ours": [seconds for seconds, _ in ours],
        "ours_cpu": [cpu for _, cpu in ours],
        "ours_fast": [seconds for seconds, _ in ours_fast],
        "ours_fast_cpu": [cpu for _, cpu in ours_fast],
        "queries": max(result.requests for _, _, result in staggered),
        "windows": [result.windows for _, _, result in staggered][-1],
        "answered": [result.answered for _, _, result in staggered][-1],
        "errors": sorted({result.error for _, _, result in staggered} - {""}),
        "peak_mb": memory,
        "rss_before_mb": rss_before,
        "with_histograms": with_histograms,
    }


def collect_at(source: Source, at: datetime) -> tuple[float, float, Any]:
    """One collect as the worker runs it: wall seconds, our processor seconds, its result."""
    from apps.telemetry import services
    from apps.telemetry.models import Source

    Source.objects.filter(pk=source.pk).update(last_ok_at=None, next_due_at=None)
    began, cpu = time.perf_counter(), time.process_time()
    result = services.collect_source(source_id=source.pk, now=at, owner="bench")
    seconds = time.perf_counter() - began
    assert result is not None
    return round(seconds, 3), round(time.process_time() - cpu, 3), result


@contextmanager
def without_histograms() -> Iterator[None]:
    """The counter cycle alone."""
    from apps.telemetry.services import through_prometheus

    plans: Callable[..., Any] = through_prometheus._plans
    with mock.patch.object(
        through_prometheus,
        "_plans",
        lambda *given: [replace(plan, has_histograms=False) for plan in plans(*given)],
    ):
        yield


def replayed(source: Source, at: datetime) -> tuple[float, float]:
    """The cycle with recorded answers: what is left is ours (parse, window, evaluate, store)."""
    from apps.common.fetch import fetch
    from apps.telemetry.collectors import client

    real, kept = fetch, {}

    def recorded(url: str, **options: Any) -> Any:
        key = (url, tuple(sorted((options.get("data") or {}).items())))
        if key not in kept:
            kept[key] = real(url, **options)
        return kept[key]

    with mock.patch.object(client, "fetch", recorded):
        collect_at(source, at)
        seconds, cpu, _ = collect_at(source, at)
    return seconds, cpu


def stored_histograms(at: datetime) -> int:
    """Windows of the last tick that hold a histogram."""
    from apps.engines.window import HistogramIncrease
    from apps.telemetry import selectors
    from apps.telemetry.models import StoredWindow

    rows = StoredWindow.objects.filter(end=at)
    return sum(
        any(isinstance(v, HistogramIncrease) for v in selectors.window_of(row).values.values())
        for row in rows
    )


def peak_mb() -> float:
    """Largest resident memory of this process so far."""
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1)


if __name__ == "__main__":
    main()
