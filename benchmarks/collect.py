"""A cluster source of 1,000 pools and 4,000 workers: how long a collect takes, how it grows.

The fleet's past is filled into a real Prometheus on this machine (`prometheus_history`), and the
product collects at times inside it. `cycle_fast`: counters and gauges of all workers, the server
included. `cycle_histogram`: the same plus the histograms of this tick's share of the deployments
(each deployment's are read every 60 s). `cycle_ours`: the latter with recorded answers, so without
the server. `queries_growth` and `growth_exponent` compare 1,000 pools with 100 (the latter by
processor time, which neighbours on the machine change less than wall time).
"""

from __future__ import annotations

import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from tools.services import postgresql

from .prometheus_history import SPAN_STARTS, Past, add_rules, fill, made_fleet, series_of, serving

LARGE: Final = 1000
SMALL: Final = 100
SCRAPES: Final = 14
ROOT: Final = Path(__file__).resolve().parents[1]
RULES: Final = ROOT / "deploy" / "prometheus" / "rules" / "fulcrum.yml"


def measure(folder: Path | None = None, ticks: int = 6) -> list[dict[str, Any]]:
    """All rows. `folder` keeps the filled Prometheus for the next run; `ticks` collects of each
    kind are timed."""
    with tempfile.TemporaryDirectory(prefix="fulcrum-collect-") as made:
        place = folder or Path(made)
        small_past = _past(place / str(SMALL), SMALL)
        small = _run(small_past, SMALL, ticks)
        small_sqlite = _run(small_past, SMALL, ticks, sqlite=Path(made) / "bench.sqlite3")
        large_past = _past(place / str(LARGE), LARGE)
        large = _run(large_past, LARGE, ticks)
        recorded = _with_rules(large_past, place / f"{LARGE}-rules")
        ruled = _run(recorded, LARGE, ticks)
    return rows(small, small_sqlite, large, ruled, large_past)


def _past(folder: Path, pools: int) -> Past:
    if (folder / "data").exists():
        return Past(folder, SPAN_STARTS, SPAN_STARTS + (SCRAPES - 1) * 15, 0, 0)
    return fill(series_of(made_fleet(pools)), folder, scrapes=SCRAPES)


def _with_rules(past: Past, folder: Path) -> Past:
    """A copy of a past in which the rules were evaluated from just before the first tick on."""
    found = replace(past, folder=folder)
    if not folder.exists():
        shutil.copytree(past.folder, folder)
        add_rules(found, RULES, since=SPAN_STARTS + 90, every_s=30)
    return found


def _run(past: Past, pools: int, ticks: int, *, sqlite: Path | None = None) -> dict[str, Any]:
    if sqlite is not None:
        return _measured(past, pools, ticks, f"sqlite:///{sqlite}")
    with postgresql() as url:
        return _measured(past, pools, ticks, url)


def _measured(past: Past, pools: int, ticks: int, database: str) -> dict[str, Any]:
    with serving(past.folder) as (url, _):
        environment = {
            **os.environ,
            "FULCRUM_DATABASE_URL": database,
            "DJANGO_SETTINGS_MODULE": "controlplane.settings.test",
        }
        done = subprocess.run(
            [
                sys.executable, "-m", "benchmarks.collect_run", "--url", url, "--pools", str(pools),
                "--first", str(past.first), "--last", str(past.last),
                "--ticks", str(ticks),
            ],
            env=environment, capture_output=True, text=True,
        )  # fmt: skip
    if done.returncode:
        raise RuntimeError(done.stderr[-2000:])
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def rows(
    small: dict[str, Any],
    sqlite: dict[str, Any],
    large: dict[str, Any],
    ruled: dict[str, Any],
    past: Past,
) -> list[dict[str, Any]]:
    """The rows of the issue; a run that brought an error or no histograms passes nothing."""
    load = "load average " + " ".join(f"{value:.1f}" for value in os.getloadavg())
    cpu = f"{os.cpu_count()} cores, {load}"
    broken = [
        f"{name}: {run['errors'] or 'no histogram was stored'}"
        for name, run in (("small", small), ("large", large), ("rules", ruled))
        if run["errors"] or not run["with_histograms"]
    ]
    exponent = math.log(median(large["ours_cpu"]) / median(small["ours_cpu"]), LARGE / SMALL)
    growth = large["queries"] / small["queries"]
    sizes = f"{large['windows']} windows of {large['answered']} targets"
    ours = f"cycles {large['ours']} s; processor time {large['ours_cpu']} s; "
    ours += f"counters alone {large['ours_fast']} s, processor {large['ours_fast_cpu']} s; "
    ours += f"{sizes}; {cpu}"
    found = [
        row("cycle_ours_p95_s", p95(large["ours"]), "s", 4.0, ours),
        row(
            "cycle_fast_p95_s", p95(large["fast"]), "s", 8.0,
            f"cycles {large['fast']} s; our processor time {large['fast_cpu']} s; SQLite at "
            f"{SMALL} pools {p95(sqlite['fast'])} s, PostgreSQL {p95(small['fast'])} s; {cpu}",
        ),
        row(
            "cycle_histogram_p95_s", p95(large["histogram"]), "s", 30.0,
            f"cycles {large['histogram']} s; our processor time {large['histogram_cpu']} s; "
            f"{large['with_histograms']} windows with histograms in the last; SQLite at {SMALL} "
            f"pools {p95(sqlite['histogram'])} s, PostgreSQL {p95(small['histogram'])} s; {cpu}",
        ),
        row(
            "cycle_histogram_with_rules_p95_s", p95(ruled["histogram"]), "s", 8.0,
            f"cycles {ruled['histogram']} s; our processor time {ruled['histogram_cpu']} s; {cpu}",
        ),
        row(
            "queries_growth", round(growth, 3), "", 1.0,
            f"{small['queries']} requests at {SMALL} pools, {large['queries']} at {LARGE}",
        ),
        row(
            "growth_exponent", round(exponent, 3), "", 1.05,
            f"processor time of our part: {median(small['ours_cpu'])} s at {SMALL} pools, "
            f"{median(large['ours_cpu'])} s at {LARGE}",
        ),
        row("peak_memory_mb", large["peak_mb"], "MB", 800.0, "of the collecting process"),
    ]  # fmt: skip
    for item in found:
        if broken:
            item["pass"] = False
            item["detail"] += f"; BROKEN: {broken}"
    return found


def p95(values: list[float]) -> float:
    """The 95th percentile; of few values the largest."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, math.ceil(0.95 * len(ordered)) - 1)]


def median(values: list[float]) -> float:
    ordered = sorted(values)
    return ordered[len(ordered) // 2]


def row(name: str, value: float, unit: str, target: float, detail: str) -> dict[str, Any]:
    """One row; `pass` if the value does not exceed the target."""
    return {
        "name": name,
        "value": value,
        "unit": unit,
        "target": target,
        "pass": value <= target,
        "detail": detail,
    }


if __name__ == "__main__":
    kept = [Path(text.split("=", 1)[1]) for text in sys.argv if text.startswith("--folder=")]
    ticks = [int(text.split("=", 1)[1]) for text in sys.argv if text.startswith("--ticks=")]
    result = measure(kept[0] if kept else None, ticks[0] if ticks else 6)
    if "--json" in sys.argv:
        print(json.dumps(result, indent=1))
    else:
        for item in result:
            mark = "pass" if item["pass"] else "MISSED"
            print(f"{item['name']:<34} {item['value']:>8} {item['unit']:<3} "
                  f"target {item['target']} {mark}  {item['detail']}")  # fmt: skip
