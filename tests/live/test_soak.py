"""The embedded product reads its fleet through a Prometheus in which a fault begins every 30 s.

No crash, no growing memory, and no wrong figure that is marked `ok`, by the record of the fleet's
own clients. `make test` soaks for 3 minutes, `make long` for 20.
"""

from __future__ import annotations

import json
import statistics
import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.support.faulty import API_FAULTS, FaultyApi, RestartingMetrics
from tests.support.product import STALL_S, Fleet, Product, fleet, product, wait_until
from tests.support.prometheus import Prometheus

pytestmark = pytest.mark.live

CHAT = "chat-pd"
INTERVAL_S = 5.0
EVERY_S, LASTS_S = 30.0, 12.0
WARM_UP_S = 45.0
#: The Prometheus itself is killed and starts again.
RESTARTED = "prometheus_restart"
CYCLE = ("errors", "empty", "slow", "truncated", "skewed", RESTARTED, "partial", "html")
assert set(API_FAULTS) <= set(CYCLE)
PAGES = ("/fleet/", f"/deployments/{CHAT}/")

#: Every stored window of the router, and the tokens of the decode pool, in the product's process.
SCRIPT = """
import json
from apps.engines.window import CounterIncrease, Signal
from apps.telemetry import selectors
from apps.telemetry.models import StoredWindow
out = []
for row in StoredWindow.objects.filter(deployment__slug="chat-pd", scope__in=["router", "decode"]):
    window = selectors.window_of(row)
    if window.seconds <= 0 or window.is_partial or set(window.expected) - set(window.reported):
        continue
    signal = Signal.REQUESTS_ARRIVED if row.scope == "router" else Signal.OUTPUT_TOKENS
    value = window.values.get(signal)
    if isinstance(value, CounterIncrease):
        out.append([row.scope, row.end.timestamp() - window.seconds, row.end.timestamp(),
                    value.increase])
print("ANSWER" + json.dumps(out))
"""


@dataclass
class Soak:
    """What a soak saw."""

    faults: list[tuple[str, float, float]] = field(default_factory=list)
    memory_mb: list[tuple[float, float]] = field(default_factory=list)
    figures: list[tuple[float, str, dict[str, Any]]] = field(default_factory=list)
    pages: Counter[int] = field(default_factory=Counter)
    windows: list[tuple[str, float, float, float]] = field(default_factory=list)
    truth: dict[str, Any] = field(default_factory=dict)
    log: str = ""
    worst_stall_s: float = 0.0
    recovered: bool = False
    restarts: int = 0
    spoiled: int = 0


def soak(seconds: float, folder: Path) -> Soak:
    found = Soak()
    with ExitStack() as stack:
        running = stack.enter_context(fleet("--scenario", "steady", seed=12))
        engine = next(w for w in running.deployment()["workers"] if w["role"] == "decode")
        restarting = stack.enter_context(RestartingMetrics(engine["metrics_url"]))
        name = urlsplit(engine["metrics_url"]).netloc
        others = [target for target in _targets(running) if target != name]
        proxy = {f"127.0.0.1:{restarting.port}": name}
        prometheus = Prometheus(others, INTERVAL_S, folder, proxy)
        stack.callback(prometheus.stop)
        prometheus.start()
        api = stack.enter_context(FaultyApi(prometheus.url))
        one = stack.enter_context(product(running, "--prometheus", api.url))
        wait_until(lambda: _state(one) == "ok", 90, "the first figures")
        started = time.time()
        number = 0
        due = started + WARM_UP_S
        while time.time() < started + WARM_UP_S + seconds:
            _look(one, found)
            if time.time() >= due:
                _break(number, one, api, prometheus, found)
                number, due = number + 1, due + EVERY_S
                # Every second time, in the calm after it, counters begin again in new series.
                if number % 2 == 0:
                    restarting.restart()
            time.sleep(2.0)
        found.recovered = bool(
            wait_until(lambda: _state(one) == "ok", 60, "figures after the last fault")
        )
        found.restarts, found.spoiled = restarting.restarts, api.spoiled
        found.truth = running.truth(started - 60)
        found.worst_stall_s = running.worst_stall_s(started)
        found.log = one.log()
        answer = one.manage("shell", "-v", "0", "-c", SCRIPT)
        line = next((x for x in answer.stdout.splitlines() if x.startswith("ANSWER")), None)
        assert line is not None, answer.stderr[-2000:]
        found.windows = [
            tuple(row) for row in json.loads(line.removeprefix("ANSWER")) if row[1] > started
        ]
    return found


def _targets(running: Fleet) -> list[str]:
    """Every router and engine of the fleet, as a Prometheus names them."""
    urls = [d["router"]["metrics_url"] for d in running.state["deployments"]]
    urls += [w["metrics_url"] for d in running.state["deployments"] for w in d["workers"]]
    return [urlsplit(url).netloc for url in urls]


def _break(number: int, one: Product, api: FaultyApi, prometheus: Prometheus, found: Soak) -> None:
    kind, began = CYCLE[number % len(CYCLE)], time.time()
    if kind == RESTARTED:
        prometheus.stop()
    else:
        api.fault = kind
    while time.time() < began + LASTS_S:
        _look(one, found)
        time.sleep(2.0)
    api.fault = ""
    if kind == RESTARTED:
        prometheus.start()
    found.faults.append((kind, began, time.time()))


def _look(one: Product, found: Soak) -> None:
    """The figures, the pages and the memory of this instant. Any refused answer fails here."""
    page = one.get(f"/api/v1/deployments/{CHAT}/summary/")
    at = time.time()
    for figure in page["figures"]:
        found.figures.append((at, figure["code"], figure["measurement"]))
    session = getattr(one, "soak_session", None) or one.signed_in()
    one.soak_session = session  # type: ignore[attr-defined]
    for path in PAGES:
        found.pages[session.get(f"{one.url}{path}", timeout=20).status_code] += 1
    assert one.process is not None
    status = Path(f"/proc/{one.process.pid}/status").read_text()
    kilobytes = next(line for line in status.split("\n") if line.startswith("VmRSS")).split()[1]
    found.memory_mb.append((at, int(kilobytes) / 1024))


def _state(one: Product) -> str:
    page = one.get(f"/api/v1/deployments/{CHAT}/summary/")
    figures = {f["code"]: f["measurement"] for f in page["figures"]}
    return str(figures["ttft_p95"]["state"])


# --- judging -----------------------------------------------------------------------------------


def check(found: Soak) -> dict[str, Any]:
    """Assertions of every soak; returns what was seen, for the log."""
    assert found.recovered
    assert set(found.pages) == {200}, found.pages
    assert "Traceback" not in found.log, found.log[found.log.index("Traceback") :][:3000]
    first, last = _thirds([mb for _, mb in found.memory_mb])
    assert last <= 1.10 * first, (first, last)
    too_old = [
        (code, figure["observed_at"], at)
        for at, code, figure in found.figures
        if figure["state"] == "ok"
        and figure["place"] != "declared"
        and figure["observed_at"]
        and at - _unix(figure["observed_at"]) > 2 * INTERVAL_S + 2.0
    ]
    assert not too_old, too_old[:5]
    wrong = [row for row in found.windows if not _holds(found, *row)]
    assert len(found.windows) >= 10, "no windows to judge"
    assert not wrong, (wrong[:5], found.faults)
    shown = [
        (code, figure)
        for _, code, figure in found.figures
        if code == "output_rate" and figure["state"] == "ok" and figure["value"]
    ]
    wrong_shown = [item for item in shown if not _rate_holds(found, item[1])]
    assert len(shown) >= 5
    assert not wrong_shown, (wrong_shown[:3], found.faults)
    return {
        "faults": [kind for kind, _, _ in found.faults],
        "windows": len(found.windows),
        "figures": len(found.figures),
        "ok": sum(1 for _, _, figure in found.figures if figure["state"] == "ok"),
        "memory_mb": (round(first), round(last)),
        "stall_s": found.worst_stall_s,
    }


def _thirds(values: list[float]) -> tuple[float, float]:
    third = max(1, len(values) // 3)
    return statistics.median(values[:third]), statistics.median(values[-third:])


def _unix(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def _holds(found: Soak, scope: str, start: float, end: float, increase: float) -> bool:
    """A count may be off by what a scrape interval at either end holds, never by more."""
    low, high = _bounds(found, scope, start, end)
    return low - 1 <= increase <= high + 1


def _bounds(found: Soak, scope: str, start: float, end: float) -> tuple[float, float]:
    slack = 2 * INTERVAL_S + found.worst_stall_s

    def count(a: float, b: float) -> float:
        rows = [r for r in found.truth["requests"] if r["deployment"] == CHAT]
        if scope == "router":
            return sum(1.0 for r in rows if a < r["start"] <= b)
        # A token is counted when it is made; the clients know it when the answer ends.
        return sum(r["tokens_out"] * _overlap(r, a, b) for r in rows if r["ok"])

    return count(start + slack, end - slack), count(start - slack, end + slack)


def _overlap(row: dict[str, Any], a: float, b: float) -> float:
    first = row["start"]
    whole = max(1e-6, row["end"] - first)
    return max(0.0, min(b, row["end"]) - max(a, first)) / whole


def _rate_holds(found: Soak, figure: dict[str, Any]) -> bool:
    span = float(figure["trace"]["query"].split("[", 1)[1].split("s]", 1)[0])
    end = _unix(figure["observed_at"])
    return _holds(found, "decode", end - span, end, figure["value"] * span)


# --- the soaks ---------------------------------------------------------------------------------


def test_three_minutes_with_a_fault_every_half_minute(tmp_path: Path) -> None:
    found = soak(180.0, tmp_path)
    if found.worst_stall_s > 5 * STALL_S:
        found = soak(180.0, tmp_path / "again")
    print(check(found), flush=True)
    assert found.spoiled > 0 and found.restarts >= 2


@pytest.mark.long
def test_twenty_minutes_with_every_fault(tmp_path: Path) -> None:
    found = soak(1200.0, tmp_path)
    print(check(found), flush=True)
    assert {kind for kind, _, _ in found.faults} == set(CYCLE)
    assert found.restarts >= 2


# --- the judge itself --------------------------------------------------------------------------


def _steady(**changes: Any) -> Soak:
    """Ten requests a second for ten minutes, each of 100 tokens over two seconds."""
    rows = [
        {"deployment": CHAT, "start": i / 10, "end": i / 10 + 2, "tokens_out": 100, "ok": True}
        for i in range(6000)
    ]
    windows = [("router", 30.0 * n, 30.0 * n + 30, 300.0) for n in range(2, 16)]
    good = Soak(
        recovered=True,
        truth={"requests": rows},
        windows=windows,
        memory_mb=[(float(i), 180.0) for i in range(9)],
        figures=[(310.0 + i, "output_rate", _shown(1000.0)) for i in range(6)],
        pages=Counter({200: 12}),
    )
    return replace(good, **changes)


def _shown(value: float, at: float = 305.0) -> dict[str, Any]:
    when = datetime.fromtimestamp(at, UTC).isoformat()
    query = "increase(tokens[30s])"
    return {
        "state": "ok", "value": value, "observed_at": when, "place": "engine",
        "trace": {"query": query},
    }  # fmt: skip


def test_a_right_soak_passes() -> None:
    assert check(_steady())["windows"] == 14


@pytest.mark.parametrize(
    "changes",
    [
        {"windows": [("router", 60.0, 90.0, 600.0)] * 12},
        {"windows": [("router", 60.0, 90.0, 0.0)] * 12},
        {"figures": [(310.0, "output_rate", _shown(2000.0))] * 6},
        {"figures": [(330.0, "output_rate", _shown(1000.0))] * 6},
        {"memory_mb": [(float(i), 180.0 + 5 * i) for i in range(9)]},
        {"pages": Counter({200: 5, 500: 1})},
        {"log": "Traceback (most recent call last)"},
        {"recovered": False},
    ],
    ids=["counted_twice", "outage_as_zero", "wrong_rate", "old", "leak", "page", "crash", "stuck"],
)
def test_a_wrong_soak_is_found(changes: dict[str, Any]) -> None:
    with pytest.raises(AssertionError):
        check(_steady(**changes))
