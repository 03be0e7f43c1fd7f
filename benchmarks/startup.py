"""Start and memory of the product beside a demo fleet that runs already.

`warm_start_s`: from `manage.py up --demo --attach` with an empty state folder (so with migrations,
static files and seeding; without the fleet's own start) until the API's summary of `chat-pd` has a
figure with a value. Median of three such starts on one fleet under steady load.

`idle_memory_mb`: VmRSS of the product's process 20 s after that figure, in the last of the three.
Nobody looks at a page or changes anything, but it goes on collecting and evaluating; the fleet's
processes do not count.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from typing import Any

from tests.support.product import Fleet, fleet, product, wait_until


def measure() -> list[dict[str, Any]]:
    starts: list[float] = []
    memory = 0.0
    with fleet("--scenario", "steady", seed=1) as running:
        for _ in range(3):
            seconds, memory = _one_run(running)
            starts.append(seconds)
    return [
        row("warm_start_s", statistics.median(starts), "s", 30.0, f"runs: {starts}"),
        row("idle_memory_mb", memory, "MB", 350.0, "VmRSS of the product's process"),
    ]


def _one_run(running: Fleet) -> tuple[float, float]:
    began = time.monotonic()
    with product(running) as app:

        def has_figures() -> bool:
            figures = app.get("/api/v1/deployments/chat-pd/summary/")["figures"]
            return any(figure["measurement"]["value"] is not None for figure in figures)

        wait_until(has_figures, 60, "live figures")
        seconds = round(time.monotonic() - began, 1)
        time.sleep(20)
        assert app.process is not None
        return seconds, resident_mb(app.process.pid)


def resident_mb(pid: int) -> float:
    """VmRSS of a process in MB."""
    with open(f"/proc/{pid}/status", encoding="ascii") as status:
        line = next(text for text in status if text.startswith("VmRSS"))
    return round(int(line.split()[1]) / 1024, 1)


def row(name: str, value: float, unit: str, target: float, detail: str) -> dict[str, Any]:
    return {
        "name": name,
        "value": value,
        "unit": unit,
        "target": target,
        "pass": value <= target,
        "detail": detail,
    }


if __name__ == "__main__":
    rows = measure()
    if "--json" in sys.argv:
        print(json.dumps(rows, indent=1))
    else:
        for item in rows:
            mark = "pass" if item["pass"] else "MISSED"
            print(f"{item['name']:<20} {item['value']:>8} {item['unit']:<4} "
                  f"target {item['target']} {mark}  {item['detail']}")  # fmt: skip
