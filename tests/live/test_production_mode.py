"""The same code in several processes, on PostgreSQL and Redis: gunicorn, worker and beat."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
import requests

from tests.support.product import ROOT, fleet, wait_until
from tools import services

pytestmark = pytest.mark.live

BIN = Path(sys.executable).parent


def environment(database: str, broker: str, folder: str, ports: str) -> dict[str, str]:
    return {
        **os.environ,
        "DJANGO_SETTINGS_MODULE": "controlplane.settings.production",
        "FULCRUM_DATABASE_URL": database,
        "FULCRUM_BROKER_URL": broker,
        "FULCRUM_STATE_DIR": folder,
        "FULCRUM_SECRET_KEY": "k" * 48,
        "FULCRUM_SECRET_BOX_KEYS": "box",
        "FULCRUM_TOKEN_PEPPERS": "pepper",
        "FULCRUM_HTTPS": "0",
        "FULCRUM_LOOPBACK_PORTS": ports,
    }


@contextmanager
def process(command: list[str], env: dict[str, str], log: Path) -> Iterator[Any]:
    with log.open("ab") as out:
        started = subprocess.Popen(command, cwd=ROOT, env=env, stdout=out, stderr=subprocess.STDOUT)
    try:
        yield started
    finally:
        started.send_signal(signal.SIGTERM)
        try:
            started.wait(10)
        except subprocess.TimeoutExpired:
            started.kill()
            started.wait(3)


def test_figures_come_through_redis_and_postgresql() -> None:
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="fulcrum-prod-"))
        log = Path(folder) / "log"
        database = stack.enter_context(services.postgresql())
        broker = stack.enter_context(services.redis())
        running = stack.enter_context(fleet("--scenario", "steady"))
        from apps.console.embedded.fleet_process import loopback_ports

        ports = ",".join(map(str, loopback_ports(running.state)))
        env = environment(database, broker, folder, ports)
        manage = [sys.executable, "manage.py"]
        for command in (
            ["migrate", "--verbosity", "0"],
            ["collectstatic", "--verbosity", "0", "--noinput"],
            ["seed_demo", "--state", str(running.state_file)],
            ["check", "--fail-level", "ERROR"],
        ):
            subprocess.run([*manage, *command], cwd=ROOT, env=env, check=True, capture_output=True)
        port = services.free_port()
        stack.enter_context(process(
            [str(BIN / "gunicorn"), "-k", "gthread", "--threads", "4", "-b", f"127.0.0.1:{port}",
             "controlplane.wsgi:application"], env, log))  # fmt: skip
        stack.enter_context(process(
            [str(BIN / "celery"), "-A", "controlplane", "worker", "-Q", "collect,control,reports",
             "-P", "threads", "-c", "4", "-l", "WARNING"], env, log))  # fmt: skip
        stack.enter_context(process(
            [str(BIN / "celery"), "-A", "controlplane", "beat", "-l", "WARNING",
             "-s", str(Path(folder) / "beat")], env, log))  # fmt: skip

        def ready() -> Any:
            try:
                answer = requests.get(f"http://127.0.0.1:{port}/readyz", timeout=5).json()
            except requests.RequestException:
                return None
            age = answer.get("collector", {}).get("age_s")
            return answer if age is not None and age < 10 else None

        answer = wait_until(ready, 60, "a fresh collection", 0.5)
        assert answer["database"]["ok"] and answer["broker"]["ok"], answer
        text = requests.get(f"http://127.0.0.1:{port}/metrics", timeout=5).text
        assert 'fulcrum_source_up{kind="scrape",source="chat-pd"} 1.0' in text, log.read_text()[
            -2000:
        ]


def test_a_worker_beside_the_memory_broker_is_refused() -> None:
    with tempfile.TemporaryDirectory(prefix="fulcrum-prod-") as folder:
        env = {**os.environ, "DJANGO_SETTINGS_MODULE": "controlplane.settings.embedded",
               "FULCRUM_STATE_DIR": folder}  # fmt: skip
        done = subprocess.run(
            [str(BIN / "celery"), "-A", "controlplane", "worker", "-P", "solo"],
            cwd=ROOT, env=env, capture_output=True, text=True, timeout=60,
        )  # fmt: skip
        assert done.returncode != 0
        assert "manage.py up" in done.stderr + done.stdout
