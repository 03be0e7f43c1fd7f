"""Pages and charts of a large fleet: 200 deployments, 90 days of roll-ups, on PostgreSQL.

Every figure is of whole requests as a signed-in person makes them, through Django's own stack: the
page of the fleet, of one deployment, and the series behind its charts (all six panels). The ratio
compares three hours of those panels with asking a real Prometheus, which holds one deployment's
series only, for the same panels. Growth is that of the stored rows, per pool and day, by level.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from benchmarks.startup import row
from tools import services as servers

REQUESTS = 60
WARM = 5
#: Bytes per pool and day: about one and a half times what was measured when they were set.
GROWTH_LIMITS = {
    "raw": 8_000_000,
    "1m": 250_000,
    "5m": 150_000,
    "1h": 12_000,
    "1d": 800,
}
PANELS = "ttft,tpot,busy,flow,tokens,queue"


def measure() -> list[dict[str, Any]]:
    """All rows; takes some minutes, most of them for filling."""
    with servers.postgresql() as url, tempfile.TemporaryDirectory() as state:
        os.environ |= {
            "FULCRUM_DATABASE_URL": url,
            "FULCRUM_STATE_DIR": state,
            "DJANGO_SETTINGS_MODULE": "controlplane.settings.test",
        }
        import django

        django.setup()
        from django.core.management import call_command
        from django.db import connections

        call_command("migrate", verbosity=0)
        try:
            return _measured()
        finally:
            connections.close_all()


def _measured() -> list[dict[str, Any]]:
    import time_machine
    from django.db import connection
    from django.test import Client
    from django.test.utils import CaptureQueriesContext

    from apps.common.heap import settle
    from benchmarks import pages_fleet, pages_prometheus

    began = time.monotonic()
    at = datetime.now(UTC).replace(microsecond=0)
    now = datetime.fromtimestamp(at.timestamp() // 15 * 15, UTC)
    made = pages_fleet.make(now)
    filled_s = time.monotonic() - began
    growth = _growth(now)
    client = Client()
    settle()
    # The clock stands two seconds after the last collect: a page of old data is another page.
    with time_machine.travel(now.timestamp() + 2, tick=False):
        client.force_login(made.user)
        with CaptureQueriesContext(connection) as queries:
            _get(client, "/fleet/")
        rows = len(queries)
        fleet = _times(lambda _: _get(client, "/fleet/"))
        slugs = [made.deployments[i].slug for i in range(pages_fleet.TEMPLATES)]

        def series(span: str) -> Timed:
            return _times(
                lambda i: _get(
                    client,
                    f"/api/v1/deployments/{slugs[i % len(slugs)]}/series/"
                    f"?panels={PANELS}&from={span}",
                )
            )

        page = _times(lambda i: _get(client, f"/deployments/{slugs[i % len(slugs)]}/"))
        hours, month, quarter = series("-3h"), series("-30d"), series("-90d")
    prometheus = pages_prometheus.times(now, REQUESTS // 3)
    theirs = statistics.median(prometheus)
    ratio = statistics.median(hours) / theirs
    filled = f"{pages_fleet.DEPLOYMENTS} deployments filled in {filled_s:.0f} s"
    return [
        row("fleet_p95_ms", _p95(fleet), "ms", 150, f"{_spread(fleet)}; {filled}"),
        row("fleet_sql_queries", rows, "", 12, "of the whole request, with session and rail"),
        row("deployment_p95_ms", _p95(page), "ms", 120, _spread(page)),
        row("series_3h_p95_ms", _p95(hours), "ms", 60, _spread(hours)),
        row("series_30d_p95_ms", _p95(month), "ms", 60, f"{_spread(month)}; 90 d: {_p95(quarter)}"),
        row(
            "series_vs_query_range_ratio", round(ratio, 3), "", 0.5,
            f"medians of 3 h, six panels: {statistics.median(hours):.1f} ms to {theirs:.1f} ms for"
            f" {len(pages_prometheus.QUERIES)} range queries",
        ),
        *growth,
    ]  # fmt: skip


def _get(client: Any, address: str) -> None:
    answer = client.get(address)
    assert answer.status_code == 200, (address, answer.status_code, answer.content[:300])


class Timed(list[float]):
    """Milliseconds of each request; `cpu_ms` of this process per request, which says how much of
    them was waiting: for the database, or for a busy machine."""

    cpu_ms: float = 0.0


def _times(ask: Callable[[int], None]) -> Timed:
    """The times of requests, after some that only warm up."""
    for index in range(WARM):
        ask(index)
    found = Timed()
    cpu = time.process_time()
    for index in range(REQUESTS):
        began = time.perf_counter()
        ask(index)
        found.append((time.perf_counter() - began) * 1000)
    found.cpu_ms = (time.process_time() - cpu) * 1000 / REQUESTS
    return found


def _p95(values: list[float]) -> float:
    return round(sorted(values)[int(0.95 * (len(values) - 1))], 1)


def _spread(values: Timed) -> str:
    middle = statistics.median(values)
    worst = f"worst {max(values):.1f} of {len(values)}"
    return f"median {middle:.1f}, {worst}, own CPU {values.cpu_ms:.1f}"


def _growth(now: datetime) -> list[dict[str, Any]]:
    """Bytes per pool and day that each level grows by, from a template's stored rows: payloads,
    row and index overhead as PostgreSQL stores them."""
    from django.db import connection

    from apps.telemetry.domain.levels import BY_NAME
    from apps.telemetry.services.partitions import TABLES
    from benchmarks import pages_fleet

    rows = []
    with connection.cursor() as cursor:
        for name, table in TABLES.items():
            cursor.execute(
                "SELECT sum(pg_total_relation_size(relid)) FROM pg_partition_tree(%s) WHERE isleaf",
                [table._meta.db_table],
            )
            size = float(cursor.fetchone()[0] or 0)
            first, last = ("min(start)", 'max("end")')
            cursor.execute(
                f"SELECT count(*), extract(epoch FROM {last} - {first}) / 86400,"
                f" count(DISTINCT deployment_id) FROM {table._meta.db_table}"
                + (' WHERE "end" <= %s AND tile > 0' if name == "raw" else ""),
                [now] if name == "raw" else [],
            )
            count, days, deployments = cursor.fetchone()
            cursor.execute(f"SELECT count(*) FROM {table._meta.db_table}")
            every = cursor.fetchone()[0]
            per_row = size / every
            per_pool = count * per_row / float(days) / deployments / 2
            if name == "raw":
                # Most of the fleet holds three hours of them only: count a day of minute tiles.
                per_pool = 1440 * 3 * per_row / 2
            kept = BY_NAME[name].kept.days
            rows.append(
                row(
                    f"growth_{name}_bytes_per_pool_day", round(per_pool), "B", GROWTH_LIMITS[name],
                    f"{per_row:.0f} B a row, {pages_fleet.WORKERS} workers a pool, kept {kept} d",
                )
            )  # fmt: skip
    return rows


if __name__ == "__main__":
    found = measure()
    if "--json" in sys.argv:
        print(json.dumps(found, indent=1))
    else:
        for item in found:
            mark = "pass" if item["pass"] else "MISSED"
            print(f"{item['name']:<32} {item['value']:>10} {item['unit']:<4} "
                  f"target {item['target']} {mark}  {item['detail']}")  # fmt: skip
