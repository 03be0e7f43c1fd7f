"""The running product for tests: `manage.py up --demo` as a process, with its fleet beside it.

The fleet is a process of its own, so that the product can be killed and started again while the
engines, the routers and the load go on, as in real life.
"""

from __future__ import annotations

import json
import math
import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import requests

from tools.services import free_port

ROOT = Path(__file__).resolve().parents[2]
Found = TypeVar("Found")
#: A machine that stood still for longer spoils what is timed. What is not timed holds all the same.
STALL_S = 1.0


class NotInTime(AssertionError):
    """A wait ran out."""


class Stalled(Exception):
    """Something was not in time while the machine stood still."""


@dataclass
class Fleet:
    """A demo fleet started for one test."""

    process: subprocess.Popen[bytes]
    state: dict[str, Any]
    state_file: Path

    def post(self, path: str, **body: Any) -> Any:
        """A call to the fleet's control port: /fault, /stop_load, /start_load."""
        url = f"{self.state['control_url'].rstrip('/')}{path}"
        answer = requests.post(url, json=body, timeout=10)
        answer.raise_for_status()
        return answer.json()

    def truth(self, since: float = 0.0) -> dict[str, Any]:
        url = f"{self.state['control_url'].rstrip('/')}/truth"
        answer = requests.get(url, params={"since": since}, timeout=10)
        answer.raise_for_status()
        found: dict[str, Any] = answer.json()
        return found

    def deployment(self, slug: str = "chat-pd") -> dict[str, Any]:
        return next(item for item in self.state["deployments"] if item["slug"] == slug)

    def router_rows(self, slug: str = "chat-pd") -> list[dict[str, Any]]:
        """Every row of the real router's list, so that a doubled one shows."""
        router = self.deployment(slug)["router"]
        answer = requests.get(
            f"{router['url']}/workers",
            headers={"Authorization": f"Bearer {router['read_key']}"},
            timeout=10,
        )
        answer.raise_for_status()
        found: list[dict[str, Any]] = answer.json()["workers"]
        return found

    def router_workers(self, slug: str = "chat-pd") -> dict[str, str]:
        """URL -> worker type, as the real router lists them."""
        return {w["url"]: w["worker_type"] for w in self.router_rows(slug)}

    def engine_roles(self, slug: str = "chat-pd") -> dict[str, str]:
        """URL -> role by each SGLang engine's own word."""
        found = {}
        for worker in self.deployment(slug)["workers"]:
            answer = requests.get(f"{worker['url']}/server_info", timeout=10)
            answer.raise_for_status()
            # The launch flag stands beside it and does not change with a role switch.
            found[worker["url"]] = answer.json()["internal_states"][0]["disaggregation_mode"]
        return found

    def fault(self, worker: str, kind: str, value: Any = None, slug: str = "chat-pd") -> None:
        """Break one engine, or mend it with `normal`."""
        self.post("/fault", deployment=slug, worker=worker, kind=kind, value=value)

    def worst_stall_s(self, since: float = 0.0) -> float:
        """The longest time the fleet's process stood still since `since` (Unix s)."""
        return max((stall["seconds"] for stall in self.truth(since)["stalls"]), default=0.0)

    def stop(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(6)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait(3)


@contextmanager
def fleet(*arguments: str, seed: int = 1, timeout_s: float = 60) -> Iterator[Fleet]:
    """Start a demo fleet on free ports and stop it at the end."""
    with tempfile.TemporaryDirectory(prefix="fulcrum-fleet-") as folder:
        state_file = Path(folder) / "fleet.json"
        log = (Path(folder) / "fleet.log").open("wb")
        process = subprocess.Popen(
            [sys.executable, "-m", "apps.simulation.demo", "--state", str(state_file),
             "--seed", str(seed), "--parent-pid", str(os.getpid()), *arguments],
            cwd=ROOT, stdout=log, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
        running = None
        try:
            wait_until(
                lambda: state_file.exists() or process.poll() is not None, timeout_s, "the fleet"
            )
            assert process.poll() is None, (Path(folder) / "fleet.log").read_text()[-2000:]
            running = Fleet(process, json.loads(state_file.read_text()), state_file)
            yield running
        finally:
            (running or Fleet(process, {}, state_file)).stop()
            log.close()


@dataclass
class Product:
    """The product on a fleet. `kill()` is kill -9; `start()` runs it again on the same state."""

    fleet: Fleet
    folder: Path
    extra: tuple[str, ...] = ()
    process: subprocess.Popen[bytes] | None = None
    details: dict[str, str] = field(default_factory=dict)
    port: int = 0
    started_in_s: float = 0.0

    @property
    def demo_file(self) -> Path:
        return self.folder / "demo.json"

    def start(self, timeout_s: float = 60) -> None:
        self.demo_file.unlink(missing_ok=True)
        began = time.monotonic()
        self.port = self.port or free_port()
        log = (self.folder / "product.log").open("ab")
        self.process = subprocess.Popen(
            [sys.executable, "manage.py", "up", "--demo", "--attach", str(self.fleet.state_file),
             "--port", str(self.port), "--demo-file", str(self.demo_file), *self.extra],
            cwd=ROOT, env=self.environment, stdout=log, stderr=subprocess.STDOUT,
            start_new_session=True,
        )  # fmt: skip
        log.close()
        wait_until(
            lambda: self.demo_file.exists() or self.process.poll() is not None,  # type: ignore[union-attr]
            timeout_s,
            "the product",
        )
        assert self.process.poll() is None, self.log()[-3000:]
        self.details = json.loads(self.demo_file.read_text())
        self.started_in_s = time.monotonic() - began

    def kill(self) -> None:
        """kill -9 at this instant."""
        assert self.process is not None
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.wait(5)

    def stop(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(8)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait(3)

    def log(self) -> str:
        return (self.folder / "product.log").read_text(errors="replace")

    @property
    def url(self) -> str:
        return self.details["url"].rstrip("/")

    @property
    def environment(self) -> dict[str, str]:
        return {
            **os.environ,
            "FULCRUM_STATE_DIR": str(self.folder / "state"),
            "DJANGO_SETTINGS_MODULE": "controlplane.settings.embedded",
        }

    def manage(self, *arguments: str, timeout_s: float = 90) -> subprocess.CompletedProcess[str]:
        """`manage.py ...` on this product's state; the caller reads the exit code."""
        return subprocess.run(
            [sys.executable, "manage.py", *arguments], cwd=ROOT, env=self.environment,
            capture_output=True, text=True, timeout=timeout_s,
        )  # fmt: skip

    def rows(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        """Rows of the product's database, opened read-only; works while it is killed too."""
        file = self.folder / "state" / "fulcrum.sqlite3"
        with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True, timeout=10)) as database:
            return database.execute(query, values).fetchall()

    def signed_in(self) -> requests.Session:
        """A browser's session of the demo user."""
        session = requests.Session()
        page = session.get(f"{self.url}/signin/", timeout=20)
        assert page.status_code == 200, page.text[:500]
        done = session.post(
            f"{self.url}/signin/",
            data={
                "login": self.details["user"],
                "password": self.details["password"],
                "csrfmiddlewaretoken": session.cookies["csrftoken"],
            },
            headers={"Referer": f"{self.url}/signin/"},
            allow_redirects=False,
            timeout=20,
        )
        assert done.status_code == 302, (done.status_code, done.text[:500])
        return session

    def request(self, method: str, path: str, **arguments: Any) -> requests.Response:
        headers = {"Authorization": f"Bearer {self.details['token']}"}
        headers |= arguments.pop("headers", {})
        return requests.request(
            method, f"{self.url}{path}", headers=headers, timeout=20, **arguments
        )

    def get(self, path: str) -> Any:
        answer = self.request("GET", path)
        assert answer.status_code == 200, (path, answer.status_code, answer.text[:500])
        return answer.json()

    def post(self, path: str, body: Any = None, expect: int | None = None) -> Any:
        answer = self.request("POST", path, json=body or {})
        if expect is not None:
            assert answer.status_code == expect, (path, answer.status_code, answer.text[:800])
        return answer.json()

    def approved(self, targets: dict[str, int], slug: str = "chat-pd") -> str:
        """Propose the first change of a deployment and approve it; the command's number."""
        asked = {"deployment": slug, "targets": targets, "expected_revision": 1}
        made = self.post("/api/v1/commands/", asked, expect=201)
        number: str = made["number"]
        hashed = {"plan_hash": made["plan_hash"]}
        self.post(f"/api/v1/commands/{number}/approve/", hashed, expect=200)
        return number

    def open_recommendation(self, slug: str = "chat-pd") -> dict[str, Any] | None:
        """The open recommendation that may be applied now."""
        rows = self.get(f"/api/v1/recommendations/?deployment={slug}&state=open")["results"]
        return rows[0] if rows and not rows[0]["blocked"] else None


@contextmanager
def product(running: Fleet, *extra: str) -> Iterator[Product]:
    """Start the product on a running fleet and stop it at the end."""
    with tempfile.TemporaryDirectory(prefix="fulcrum-product-") as folder:
        one = Product(running, Path(folder), tuple(extra))
        try:
            one.start()
            yield one
        finally:
            one.stop()


def wait_until(
    condition: Callable[[], Any], timeout_s: float, what: str, every_s: float = 0.25
) -> Any:
    """Poll until the condition is true, the last time at the limit; `NotInTime` names what did not
    happen."""
    deadline = time.monotonic() + timeout_s
    while True:
        found = condition()
        if found:
            return found
        left = deadline - time.monotonic()
        if left <= 0:
            raise NotInTime(f"{what}: not within {timeout_s:.0f} s")
        time.sleep(min(every_s, left))


@contextmanager
def stalls_explain(
    running: Fleet, *, late: tuple[type[Exception], ...] = (NotInTime,)
) -> Iterator[None]:
    """Turn what came late into `Stalled` if the machine stood still meanwhile."""
    began = time.time()
    try:
        yield
    except late as error:
        worst = running.worst_stall_s(began)
        if worst <= STALL_S:
            raise
        raise Stalled(f"the machine stood still for {worst:.1f} s") from error


def once_more_after_a_stall(
    run: Callable[[], Found], mend: Callable[[], object] = lambda: None
) -> Found:
    """Run; if that was `Stalled`, mend what it left behind and run a second time."""
    try:
        return run()
    except Stalled as stall:
        print(f"once more: {stall}", flush=True)
        mend()
        return run()


def quantile(values: Sequence[float], q: float) -> float:
    """The smallest value that a share `q` of the values does not exceed."""
    return sorted(values)[max(1, math.ceil(q * len(values))) - 1]
