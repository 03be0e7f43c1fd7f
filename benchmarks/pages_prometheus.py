"""The same panels asked of a real Prometheus that holds three hours of one deployment."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

import requests

from apps.engines.window import CounterIncrease, GaugeValue, HistogramIncrease, Signal
from tools.services import find, free_port

from .pages_fleet import INTERVAL_S, windows

_TTFT, _TPOT = "router_ttft", "decode_tpot"
#: One query a line of the panels ttft, tpot, flow, tokens, queue and busy.
QUERIES: Final = (
    *(
        f"histogram_quantile({q}, sum by (le) (rate({name}_bucket[1m])))"
        for name in (_TTFT, _TPOT)
        for q in (0.5, 0.95, 0.99)
    ),
    "sum(rate(router_requests_arrived_total[1m]))",
    "sum(rate(prefill_input_tokens_total[1m]))",
    "sum(rate(decode_output_tokens_total[1m]))",
    "sum(prefill_waiting)",
    "sum(decode_waiting)",
    "sum(rate(prefill_prefill_time_sum[1m]))",
    "avg(decode_kv_used)",
)


def times(now: datetime, count: int) -> list[float]:
    """Milliseconds to answer all queries over the last three hours in steps of a minute."""
    with tempfile.TemporaryDirectory() as folder, _prometheus(Path(folder), now) as url:
        found = []
        with requests.Session() as session:
            for index in range(count + 3):
                began = time.perf_counter()
                for query in QUERIES:
                    _ask(session, url, query, now)
                if index >= 3:
                    found.append((time.perf_counter() - began) * 1000)
        return found


def _ask(session: requests.Session, url: str, query: str, now: datetime) -> None:
    start = now - timedelta(hours=3)
    answer = session.get(
        f"{url}/api/v1/query_range",
        params={
            "query": query, "start": start.timestamp(), "end": now.timestamp(), "step": 60,
        },  # type: ignore[arg-type]
        timeout=30,
    )  # fmt: skip
    result = answer.json()["data"]["result"]
    assert result and len(result[0]["values"]) > 150, query


@contextlib.contextmanager
def _prometheus(folder: Path, now: datetime) -> Iterator[str]:
    text, data = folder / "history.om", folder / "data"
    text.write_text(_history(now), encoding="ascii")
    promtool, binary = find("promtool"), find("prometheus")
    assert promtool and binary, "prometheus is not installed"
    subprocess.run(
        [promtool, "tsdb", "create-blocks-from", "openmetrics", str(text), str(data)],
        check=True, capture_output=True,
    )  # fmt: skip
    (folder / "prometheus.yml").write_text("global: {}\n", encoding="ascii")
    port = free_port()
    process = subprocess.Popen(
        [binary, f"--config.file={folder / 'prometheus.yml'}", f"--storage.tsdb.path={data}",
         "--storage.tsdb.retention.time=10y", f"--web.listen-address=127.0.0.1:{port}",
         "--log.level=error"],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    try:
        _wait(f"http://127.0.0.1:{port}/-/ready")
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(20)
        shutil.rmtree(data, ignore_errors=True)


def _wait(address: str) -> None:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        with contextlib.suppress(requests.RequestException):
            if requests.get(address, timeout=1).status_code == 200:
                return
        time.sleep(0.1)
    raise TimeoutError("Prometheus did not start")


def _history(now: datetime) -> str:
    """Three hours and a bit of one deployment's cumulative series, a scrape every 15 s."""
    totals: dict[tuple[str, str], float] = {}
    samples: dict[str, dict[str, list[str]]] = {}
    kinds: dict[str, str] = {}
    step = timedelta(seconds=INTERVAL_S)
    at = now - timedelta(hours=3, minutes=5)

    def put(family: str, series: str, value: float) -> None:
        line = f"{series} {value:g} {at.timestamp():.0f}"
        samples.setdefault(family, {}).setdefault(series, []).append(line)

    def add(family: str, series: str, increase: float) -> None:
        totals[(family, series)] = totals.get((family, series), 0.0) + increase
        put(family, series, totals[(family, series)])

    while at <= now:
        for window in windows(0, at - step, at):
            for signal, value in window.values.items():
                family = f"{window.scope}_{signal.value}"
                if isinstance(value, HistogramIncrease):
                    kinds[family] = "histogram"
                    for worker in value.count_by_worker or {"router": value.count}:
                        share = (value.count_by_worker.get(worker, value.count)) / (
                            value.count or 1.0
                        )
                        below = 0.0
                        for bound, inside in zip(
                            (*value.bounds, "+Inf"), value.counts, strict=True
                        ):
                            below += inside * share
                            label = f'{family}_bucket{{instance="{worker}",le="{bound}"}}'
                            add(family, label, below)
                        add(family, f'{family}_sum{{instance="{worker}"}}', value.total * share)
                        add(family, f'{family}_count{{instance="{worker}"}}', below)
                elif isinstance(value, CounterIncrease):
                    kinds[family] = "counter"
                    for worker, part in (value.by_worker or {"router": value.increase}).items():
                        add(family, f'{family}_total{{instance="{worker}"}}', part)
                elif isinstance(value, GaugeValue):
                    kinds[family] = "gauge"
                    for worker, part in value.by_worker.items():
                        put(family, f'{family}{{instance="{worker}"}}', part)
        at += step
    assert Signal.TTFT.value in _TTFT
    lines: list[str] = []
    for family, kind in kinds.items():
        lines.append(f"# TYPE {family} {kind}")
        for found in samples[family].values():
            lines += found
    return "\n".join([*lines, "# EOF", ""])
