"""The three real routers in PD mode, before stand-in engines."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import requests

from apps.simulation.demo.router import find_smg
from tests.support.components.engines import Engines
from tests.support.components.process import OFFLINE, Component, answers, ports, running
from tools import components

SGLANG_ROUTER, VLLM_ROUTER, SMG = "sglang-router", "vllm-router", "smg"
#: The engines that each router is made for, as these tests run it.
ENGINES = {SGLANG_ROUTER: "sglang", VLLM_ROUTER: "vllm", SMG: "sglang"}


@dataclass(frozen=True)
class Router:
    """A running router."""

    name: str
    url: str
    metrics_url: str
    engines: Engines
    process: Component


def build(name: str, engines: Engines, folder: Path) -> Router:
    """A router that is not started yet."""
    port, metrics = ports(2)
    url = f"http://127.0.0.1:{port}"
    line: list[str | Path] = [
        *_program(name), "--host", "127.0.0.1", "--port", str(port),
        "--prometheus-host", "127.0.0.1", "--prometheus-port", str(metrics),
        "--policy", "round_robin", "--log-level", "warning" if name == VLLM_ROUTER else "warn",
        # An error comes back as it is: retries would make one request many.
        "--disable-retries", "--disable-circuit-breaker",
    ]  # fmt: skip
    if name == SMG:
        line += ["--disable-worker-overload-protection", "--disable-tokenizer-autoload"]
    for plan in engines.of("prefill"):
        line += ["--prefill", plan.url]
        line += [str(plan.bootstrap_port)] if plan.bootstrap_port is not None else []
    for plan in engines.of("decode"):
        line += ["--decode", plan.url]
    process = Component(name, line, lambda: _is_whole(url, len(engines.engines)), folder, OFFLINE)
    return Router(name, url, f"http://127.0.0.1:{metrics}/metrics", engines, process)


def _is_whole(url: str, count: int) -> bool:
    """True if the router is ready with every engine."""
    if not answers(f"{url}/readiness"):
        return False
    listed = requests.get(f"{url}/workers", timeout=2).json()["workers"]
    return len(listed) == count and all(
        worker.get("is_healthy", worker.get("status") == "ready") for worker in listed
    )


def _program(name: str) -> list[str | Path]:
    program = components.COMPONENTS["routers"].program
    if name == SMG:
        return [find_smg(), "launch", "--pd-disaggregation"]
    if name == SGLANG_ROUTER:
        return [program("sglang-router"), "launch", "--pd-disaggregation"]
    return [program("vllm-router"), "--vllm-pd-disaggregation"]


@contextmanager
def routers(found: list[Router]) -> Iterator[None]:
    """Run them all."""
    with running([router.process for router in found]):
        yield
