"""A real Prometheus as a process."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

import requests

from tests.support.product import wait_until
from tools.services import find, free_port


class Prometheus:
    """Scrapes the targets (`host:port`, at `/metrics`); may be stopped and started again.

    Whoever reads it through the checked fetcher adds `port` to FULCRUM_LOOPBACK_PORTS.
    """

    def __init__(self, targets: Sequence[str], interval_s: float, folder: Path) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        every, patience = (f"{round(interval_s * ms)}ms" for ms in (1000, 900))
        (folder / "prometheus.yml").write_text(
            f"global: {{scrape_interval: {every}, scrape_timeout: {patience}}}\n"
            "scrape_configs:\n"
            "  - job_name: fleet\n"
            f"    static_configs: [{{targets: {list(targets)!r}}}]\n",
            encoding="utf-8",
        )

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        binary = find("prometheus")
        assert binary, "prometheus is not installed"
        self._process = subprocess.Popen(
            [binary, f"--config.file={self._folder / 'prometheus.yml'}",
             f"--storage.tsdb.path={self._folder / 'data'}",
             f"--web.listen-address=127.0.0.1:{self.port}", "--log.level=error"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        wait_until(self._is_ready, 30, "Prometheus")

    def _is_ready(self) -> bool:
        try:
            return requests.get(f"{self.url}/-/ready", timeout=1).status_code == 200
        except requests.RequestException:
            return False

    def stop(self) -> None:
        if self._process is None or self._process.poll() is not None:
            return
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(5)
