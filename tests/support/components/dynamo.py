"""A real Dynamo frontend with real mocker workers, all on loopback, no etcd and no NATS.

The mocker is Dynamo's own worker process with a simulated scheduler in place of the GPU: requests,
KV routing, the hand-off from prefill to decode and every metric are the real program's.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import requests

from tests.support.components.process import (
    OFFLINE,
    READY_S,
    Component,
    answers,
    ports,
    running,
    until,
)
from tools import components

MODEL = "Fake-8B"
_PLANES = (
    *("--discovery-backend", "file"),
    *("--request-plane", "tcp"),
    *("--event-plane", "zmq"),
)


@dataclass(frozen=True)
class Worker:
    """One mocker. `url` is its system port, the only address it has for others than Dynamo."""

    name: str
    role: str
    url: str
    process: Component

    @property
    def metrics_url(self) -> str:
        return f"{self.url}/metrics"


@dataclass(frozen=True)
class Dynamo:
    """The running deployment."""

    url: str
    frontend: Component
    workers: tuple[Worker, ...]

    @property
    def metrics_url(self) -> str:
        return f"{self.url}/metrics"

    def of(self, role: str) -> list[Worker]:
        return [worker for worker in self.workers if worker.role == role]

    def registered(self) -> dict[str, str]:
        """Worker id (decimal) to its component, `prefill` or `backend`, as the frontend lists
        them."""
        answer = requests.get(f"{self.url}/health", timeout=5).json()
        return {
            str(one["instance_id"]): one["component"]
            for one in answer["instances"]
            if one["endpoint"] == "generate"
        }


@contextmanager
def dynamo(folder: Path, prefill: int = 1, decode: int = 2) -> Iterator[Dynamo]:
    """Start a frontend and workers; ready when the frontend lists them all and serves the model."""
    python = components.COMPONENTS["dynamo"].python
    model = model_folder()
    discovery = folder / "discovery"
    discovery.mkdir()
    environment = {
        "DYN_FILE_KV": str(discovery),
        **OFFLINE,
        "DYN_TCP_RPC_HOST": "127.0.0.1",
        "DYN_TCP_RESPONSE_STREAM_HOST": "127.0.0.1",
        "DYN_EVENT_PLANE_HOST": "127.0.0.1",
        # One thread per core and process is enough for four processes on two cores.
        "TOKIO_WORKER_THREADS": "2",
        "RUST_BACKTRACE": "0",
    }
    http_port, *rest = ports(1 + 2 * (prefill + decode))
    url = f"http://127.0.0.1:{http_port}"
    names = [(f"prefill-{i}", "prefill") for i in range(prefill)]
    names += [(f"decode-{i}", "decode") for i in range(decode)]
    workers = []
    for name, role in names:
        system, bootstrap = rest.pop(0), rest.pop(0)
        command: list[str | Path] = [
            python, "-m", "dynamo.mocker", "--model-path", model, "--model-name", MODEL,
            "--disaggregation-mode", role, "--kv-transfer-bandwidth", "20", *_PLANES,
        ]  # fmt: skip
        if role == "prefill":
            command += ["--bootstrap-ports", str(bootstrap)]
        address = f"http://127.0.0.1:{system}"
        process = Component(
            name,
            command,
            lambda address=address: _has_uptime(address),
            folder,
            {**environment, "DYN_SYSTEM_HOST": "127.0.0.1", "DYN_SYSTEM_PORT": str(system)},
        )
        workers.append(Worker(name, role, address, process))
    frontend = Component(
        "frontend",
        [python, "-m", "dynamo.frontend", "--http-host", "127.0.0.1", "--http-port",
         str(http_port), "--router-mode", "kv", *_PLANES],
        lambda: answers(f"{url}/live"),
        folder,
        environment,
    )  # fmt: skip
    found = Dynamo(url, frontend, tuple(workers))
    with running([frontend, *(worker.process for worker in workers)]):
        until(lambda: _is_served(found), READY_S, "the model is served")
        yield found


def _has_uptime(address: str) -> bool:
    # A mocker's /health stays 503 although its endpoints are ready; its metrics do not lie.
    answer = requests.get(f"{address}/metrics", timeout=2)
    return answer.status_code == 200 and "dynamo_component_uptime_seconds" in answer.text


def _is_served(fleet: Dynamo) -> bool:
    wanted = sorted("prefill" if w.role == "prefill" else "backend" for w in fleet.workers)
    models: dict[str, Any] = requests.get(f"{fleet.url}/v1/models", timeout=2).json()
    return (
        any(model["id"] == MODEL for model in models["data"])
        and sorted(fleet.registered().values()) == wanted
    )


def model_folder() -> Path:
    """The model folder, made once per version of its script and kept under `var`."""
    script = Path(__file__).with_name("make_model.py")
    version = hashlib.sha256(script.read_bytes()).hexdigest()[:12]
    place = components.FOLDER / f"model-{version}"
    if place.is_dir():
        return place
    components.FOLDER.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix="model-", dir=components.FOLDER))
    try:
        made = work / "model"
        subprocess.run(
            [components.COMPONENTS["dynamo"].python, script, made],
            check=True, capture_output=True, timeout=120, env={**os.environ, "PYTHONHASHSEED": "0"},
        )  # fmt: skip
        if not place.is_dir():
            made.rename(place)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return place
