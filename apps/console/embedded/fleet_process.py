"""The demo fleet as a child process: start, wait until it is ready, stop."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import requests


class DemoFleetFailed(Exception):
    """The demo fleet did not come up; the message is for the person at the terminal."""


@dataclass
class FleetProcess:
    """A running demo fleet. `state` is its state file's content once it is ready."""

    process: subprocess.Popen[bytes] | None
    state_file: Path
    log_path: Path | None = None
    state: dict[str, Any] = field(default_factory=dict)

    def wait_ready(self, timeout_s: float = 60.0) -> None:
        """Wait for the state file; raises DemoFleetFailed with the fleet's last line."""
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            if self.process is not None and self.process.poll() is not None:
                raise DemoFleetFailed(self._last_line() or f"exit code {self.process.returncode}")
            if self.state_file.exists():
                self.state = read_state(self.state_file)
                return
            time.sleep(0.05)
        self.stop()
        raise DemoFleetFailed(f"not ready after {timeout_s:.0f} s")

    def start_load(self) -> None:
        """Let the load generators begin; an attached fleet's load is its owner's business."""
        if self.process is not None:
            answer = requests.post(f"{self.state['control_url'].rstrip('/')}/start_load", timeout=5)
            answer.raise_for_status()

    def stop(self, grace_s: float = 4.0) -> None:
        """End the child and everything it started; an attached fleet is left alone."""
        if self.process is None or self.process.poll() is not None:
            return
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(grace_s)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(2)

    def _last_line(self) -> str:
        if self.log_path is None:
            return ""
        text = self.log_path.read_text(encoding="utf-8", errors="replace").strip()
        return text.splitlines()[-1] if text else ""


def start(*, state_file: Path, log_path: Path, arguments: list[str]) -> FleetProcess:
    """Start the fleet without its load; `wait_ready` and `start_load` come later."""
    state_file.unlink(missing_ok=True)
    log_path.parent.mkdir(parents=True, exist_ok=True)
    with log_path.open("wb") as log:
        process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "apps.simulation.demo",
                "--state",
                str(state_file),
                "--parent-pid",
                str(os.getpid()),
                "--no-load",
                *arguments,
            ],
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    return FleetProcess(process, state_file, log_path)


def attach(state_file: Path) -> FleetProcess:
    """Use a fleet that somebody else runs."""
    return FleetProcess(None, state_file, state=read_state(state_file))


def read_state(state_file: Path) -> dict[str, Any]:
    """The state file's content; raises DemoFleetFailed when it is not there or not complete."""
    try:
        state: dict[str, Any] = json.loads(state_file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DemoFleetFailed(f"{state_file.name} cannot be read") from error
    return state


def loopback_ports(state: dict[str, Any]) -> frozenset[int]:
    """Every port of the fleet that the product calls: its allow-list, and nothing else."""
    from urllib.parse import urlsplit

    urls: list[str] = []
    for deployment in state["deployments"]:
        urls += [deployment["router"]["url"], deployment["router"]["metrics_url"]]
        for worker in deployment["workers"]:
            urls += [worker["url"], worker["metrics_url"]]
    urls += [exporter["url"] for exporter in state.get("exporters", ())]
    return frozenset(port for url in urls if (port := urlsplit(url).port) is not None)
