"""The demo fleet as a process with real routers: story, role flip, exact counters, clean end."""

from __future__ import annotations

import json
import os
import re
import signal
import stat
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.contract.backends.stand_in import smg_command

pytestmark = pytest.mark.live

ROOT = Path(__file__).resolve().parents[2]
SHIFT_S = 15.0
SAMPLE = re.compile(r"^([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? (\S+)$")
LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"')


def fetch(url: str, key: str = "", method: str = "GET", body: object = None) -> tuple[int, Any]:
    """(status, JSON or text) of one request."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data=data, method=method)
    if key:
        request.add_header("authorization", f"Bearer {key}")
    if data is not None:
        request.add_header("content-type", "application/json")
    try:
        with urllib.request.urlopen(request, timeout=15) as answer:
            status, text = answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        status, text = error.code, error.read().decode()
    try:
        return status, json.loads(text)
    except ValueError:
        return status, text


def samples(url: str) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """The samples of an exposition by name and labels."""
    status, text = fetch(url)
    assert status == 200
    found = {}
    for line in str(text).splitlines():
        if line and not line.startswith("#"):
            match = SAMPLE.match(line)
            assert match, line
            labels = tuple(sorted(LABEL.findall(match[2] or "")))
            found[match[1], labels] = float(match[3])
    return found


class Meter(threading.Thread):
    """Reads token counters of the engines every two seconds, kept by worker and role label."""

    def __init__(self, workers: list[dict[str, Any]]) -> None:
        super().__init__(daemon=True)
        self._workers = workers
        self._ended = threading.Event()
        self.prompt: dict[tuple[str, str], float] = {}
        self.generated: dict[tuple[str, str], float] = {}

    def read(self) -> None:
        """One round. After a switch the old role's series stay for 10 s, so none is missed."""
        for worker in self._workers:
            for (name, labels), value in samples(worker["metrics_url"]).items():
                role = dict(labels).get("engine_type", worker["role"])
                if name.endswith(":prompt_tokens_total"):
                    self.prompt[worker["url"], role] = value
                elif name.endswith(":generation_tokens_total"):
                    self.generated[worker["url"], role] = value

    def run(self) -> None:
        """Read until stopped."""
        while not self._ended.wait(2.0):
            self.read()

    def finish(self) -> tuple[float, float]:
        """Stop, read once more: (prefill input tokens, decode output tokens)."""
        self._ended.set()
        self.join()
        self.read()
        tokens_in = sum(v for (_, role), v in self.prompt.items() if role == "prefill")
        tokens_out = sum(v for (_, role), v in self.generated.items() if role == "decode")
        return tokens_in, tokens_out


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[dict[str, Any]]:
    """A running fleet's state, with `process` and `path` added."""
    smg_command()
    path = tmp_path / "demo-fleet.json"
    command = [sys.executable, "-m", "apps.simulation.demo", "--state", str(path), "--seed", "7"]
    command += ["--shift-after", str(SHIFT_S), "--parent-pid", str(os.getpid())]
    process = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True)
    try:
        until = time.monotonic() + 60
        while not path.exists():
            assert process.poll() is None, process.stderr and process.stderr.read()
            assert time.monotonic() < until, "the fleet did not become ready"
            time.sleep(0.1)
        yield {**json.loads(path.read_text()), "process": process, "path": path}
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()


def wait_for(what: str, seconds: float, check: Any) -> Any:
    """Poll `check` until it returns something true."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if value := check():
            return value
        time.sleep(0.2)
    raise AssertionError(f"not within {seconds} s: {what}")


def answers(url: str) -> bool:
    """Whether something answers 200 there."""
    try:
        return fetch(url)[0] == 200
    except OSError:
        return False


def router_worker(router: dict[str, Any], url: str) -> dict[str, Any] | None:
    """The router's entry of an engine."""
    _, answer = fetch(router["url"] + "/workers", router["read_key"])
    return next((w for w in answer["workers"] if w["url"] == url), None)


def flip(deployment: dict[str, Any], worker: dict[str, Any], role: str) -> None:
    """The recipe that loses no request: DELETE, wait for an idle engine, switch, POST."""
    router, key = deployment["router"], deployment["router"]["admin_key"]
    entry = router_worker(router, worker["url"])
    assert entry is not None
    address = f"{router['url']}/workers/{entry['id']}"
    assert fetch(address, key, "PATCH", {"health": {"drain_settle_secs": 1}})[0] == 202
    time.sleep(0.3)
    assert fetch(address, key, "DELETE")[0] == 202
    wait_for("entry gone", 15, lambda: router_worker(router, worker["url"]) is None)
    idle_seen = 0

    def idle_twice() -> bool:
        nonlocal idle_seen
        state = fetch(worker["url"] + "/server_info")[1]["internal_states"][0]
        idle_seen = idle_seen + 1 if state["idle"] else 0
        return idle_seen >= 2

    wait_for("engine idle twice", 40, idle_twice)
    status, answer = fetch(
        worker["url"] + "/pd_role_switch", deployment["engine_key"], "POST", {"new_role": role}
    )
    assert (status, answer["success"]) == (200, True)
    body: dict[str, Any] = {"url": worker["url"], "worker_type": role}
    if role == "prefill":
        body["bootstrap_port"] = worker["bootstrap_port"]
    assert fetch(router["url"] + "/workers", key, "POST", body)[0] == 202

    def ready() -> bool:
        found = router_worker(router, worker["url"])
        return bool(found and found["status"] == "ready" and found["worker_type"] == role)

    wait_for("ready in the new role", 20, ready)


def check_state_file_is_private_and_complete(fleet: dict[str, Any]) -> None:
    assert stat.S_IMODE(fleet["path"].stat().st_mode) == 0o600
    assert [d["slug"] for d in fleet["deployments"]] == ["chat-pd", "search-pd"]
    ports = [int(w["url"].rsplit(":", 1)[1]) for d in fleet["deployments"] for w in d["workers"]]
    ports += [w["bootstrap_port"] for w in fleet["deployments"][0]["workers"]]
    assert len(ports) == len(set(ports)) == 16
    assert max(ports) < 32768
    for deployment in fleet["deployments"]:
        for worker in deployment["workers"]:
            assert worker["instance_id"] == fetch(worker["url"] + "/server_info")[1]["instance_id"]


def check_keys_are_needed(fleet: dict[str, Any]) -> None:
    chat = fleet["deployments"][0]
    router, worker = chat["router"], chat["workers"][0]
    assert fetch(router["url"] + "/workers")[0] == 401
    nobody = "/workers/00000000-0000-0000-0000-000000000000"
    assert fetch(router["url"] + nobody, router["read_key"], "DELETE")[0] == 403
    for path in ("/pd_role_switch", "/fault"):
        assert fetch(worker["url"] + path, "", "POST", {"new_role": "decode"})[0] == 401
    wrong = {"kind": "explode"}
    assert fetch(worker["url"] + "/fault", chat["engine_key"], "POST", wrong)[0] == 400


def check_wrong_role_and_busy_switch_are_refused(fleet: dict[str, Any]) -> None:
    chat = fleet["deployments"][0]
    prefill, decode = chat["workers"][0], chat["workers"][-1]
    body = {
        "messages": [{"role": "user", "content": "hello"}],
        "bootstrap_host": "127.0.0.1",
        "bootstrap_room": 1,
        "bootstrap_port": decode["bootstrap_port"],
    }
    for worker in (prefill, decode):  # prefill work for a decode worker, decode work for a prefill
        status, answer = fetch(worker["url"] + "/v1/chat/completions", "", "POST", body)
        assert (status, answer["error"]["type"]) == (409, "wrong_role")

    def refused() -> bool:
        status, _ = fetch(
            decode["url"] + "/pd_role_switch", chat["engine_key"], "POST", {"new_role": "bad"}
        )
        assert status == 400
        busy = fetch(decode["url"] + "/server_info")[1]["internal_states"][0]
        return busy["num_running_reqs"] > 3

    wait_for("a busy decode worker", 20, refused)
    status, answer = fetch(
        decode["url"] + "/pd_role_switch", chat["engine_key"], "POST", {"new_role": "prefill"}
    )
    assert status == 409
    assert "not idle" in answer["message"]


def check_story_flip_and_exact_counters(fleet: dict[str, Any]) -> None:
    chat, search = fleet["deployments"]
    control = fleet["control_url"]
    meters = [Meter(chat["workers"]), Meter(search["workers"])]
    for meter in meters:
        meter.start()

    def shifted() -> bool:
        phase = fetch(control + "/truth?since=9e12")[1]["load"]["chat-pd"]["phase"]
        return bool(phase == "long-prompts")

    wait_for("the shift", SHIFT_S + 15, shifted)
    time.sleep(8)
    moved = chat["workers"][-1]
    flip(chat, moved, "prefill")
    time.sleep(10)
    assert fetch(control + "/stop_load", "", "POST", {})[0] == 200

    def drained() -> bool:
        totals = fetch(control + "/truth?since=9e12")[1]["totals"]
        return not any(total["in_flight"] for total in totals.values())

    wait_for("no request in flight", 60, drained)
    time.sleep(0.5)
    truth = fetch(control + "/truth")[1]
    bad = [row for row in truth["requests"] if not row["ok"]]
    assert bad == []
    for deployment, meter in zip((chat, search), meters, strict=True):
        total = truth["totals"][deployment["slug"]]
        tokens_in, tokens_out = meter.finish()
        router = samples(deployment["router"]["metrics_url"])
        sums = {
            name: sum(v for (n, labels), v in router.items() if n == name and keep(labels))
            for name in (
                "smg_router_requests_total",
                "smg_http_responses_total",
                "smg_pd_ttft_seconds_count",
                "smg_pd_ttft_seconds_sum",
            )
        }
        assert total["failed"] == 0
        assert sums["smg_router_requests_total"] == total["sent"] == total["ok"]
        assert sums["smg_http_responses_total"] == total["ok"]
        assert sums["smg_pd_ttft_seconds_count"] == total["ok"]
        assert (tokens_in, tokens_out) == (total["tokens_in"], total["tokens_out"])
        rows = [row for row in truth["requests"] if row["deployment"] == deployment["slug"]]
        mean = sum(row["ttft"] for row in rows) / len(rows)
        assert sums["smg_pd_ttft_seconds_sum"] / total["ok"] == pytest.approx(mean, abs=0.03)
    assert meters[0].prompt[moved["url"], "prefill"] > 0  # it served in its new role


def keep(labels: tuple[tuple[str, str], ...]) -> bool:
    """Chat requests only: the router counts its own pages too."""
    found = dict(labels)
    return found.get("path", "/v1/chat/completions") == "/v1/chat/completions"


def check_faults_show_and_mend(fleet: dict[str, Any]) -> None:
    control, chat = fleet["control_url"], fleet["deployments"][0]
    worker = chat["workers"][2]
    fault = {"deployment": "chat-pd", "worker": worker["name"]}
    assert fetch(control + "/fault", "", "POST", {**fault, "kind": "no_metrics"})[0] == 200
    assert fetch(worker["metrics_url"])[0] == 404
    assert fetch(control + "/fault", "", "POST", {**fault, "kind": "dead_worker"})[0] == 200
    with pytest.raises(OSError):
        fetch(worker["url"] + "/health")
    assert fetch(control + "/fault", "", "POST", {**fault, "kind": "normal"})[0] == 200
    wait_for("the worker back", 5, lambda: answers(worker["url"] + "/health"))
    assert fetch(worker["metrics_url"])[0] == 200


def check_ends_within_two_seconds_and_leaves_nothing(fleet: dict[str, Any]) -> None:
    process: subprocess.Popen[str] = fleet["process"]
    started = time.monotonic()
    process.send_signal(signal.SIGTERM)
    assert process.wait(10) == 0
    assert time.monotonic() - started < 4
    assert not fleet["path"].exists()
    for deployment in fleet["deployments"]:
        with pytest.raises(OSError):
            fetch(deployment["router"]["url"] + "/health")


def test_demo_fleet(fleet: dict[str, Any]) -> None:
    """One test, because the steps are one story and their order matters."""
    check_state_file_is_private_and_complete(fleet)
    check_keys_are_needed(fleet)
    check_wrong_role_and_busy_switch_are_refused(fleet)
    check_story_flip_and_exact_counters(fleet)
    check_faults_show_and_mend(fleet)
    check_ends_within_two_seconds_and_leaves_nothing(fleet)
