"""A tiny stand-in for an SGLang engine, and the real smg process in front of some of them.

The engine answers just what smg 1.13.0 and the adapter ask for. It counts every role switch it
carried out, so that a test can prove that a step acted exactly once.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from apps.simulation.demo.router import RouterFailed, find_smg

ENGINE_KEY = "engine-key"
ADMIN_KEY = "admin-key"
USER_KEY = "user-key"
MODEL = "stand-in"


def free_ports(count: int) -> list[int]:
    """Ports that were free a moment ago, below the ephemeral range where possible."""
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


class Engine:
    """One engine: a role, counts that a test sets, and a log of its role switches."""

    def __init__(self, role: str) -> None:
        self.role = role
        self.launch_role = role
        self.port, self.bootstrap_port = free_ports(2)
        self.url = f"http://127.0.0.1:{self.port}"
        self.running = 0
        self.queued = 0
        self.transferring = 0
        self.served = {"prefill": 0, "decode": 0}
        self.switches: list[str] = []
        self.switch_status = 200
        self.switch_delay_s = 0.0
        self._http = _Server(("127.0.0.1", self.port), _handler(self))
        self._bootstrap = _Server(("127.0.0.1", self.bootstrap_port), _handler(self))
        for server in (self._http, self._bootstrap):
            threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()

    def close(self) -> None:
        """Stop listening; connections that are open break."""
        for server in (self._http, self._bootstrap):
            server.shutdown()
            server.server_close()

    def server_info(self) -> dict[str, Any]:
        return {
            "model_path": MODEL,
            "served_model_name": MODEL,
            "tokenizer_path": MODEL,
            "model_type": "qwen3",
            "is_generation": True,
            "version": "0.5.9",
            "dp_size": 1,
            "tp_size": 1,
            "disaggregation_mode": self.launch_role,
            "disaggregation_bootstrap_port": self.bootstrap_port,
            "enable_pd_role_switch": True,
            "instance_id": f"instance-{self.port}",
            "internal_states": [
                {
                    "disaggregation_mode": self.role,
                    "num_running_reqs": self.running,
                    "num_queued_reqs": self.queued,
                    "num_transferring_reqs": self.transferring,
                }
            ],
        }

    def metrics(self) -> str:
        return (
            f"sglang:num_running_reqs {self.running}\n"
            f"sglang:num_queue_reqs {self.queued}\n"
            f'sglang:realtime_tokens_total{{mode="prefill_compute"}} {self.served["prefill"]}\n'
            f'sglang:realtime_tokens_total{{mode="decode"}} {self.served["decode"]}\n'
        )


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Broken connections are part of these tests."""


def _handler(engine: Engine) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *args: Any) -> None:
            return

        def _send(self, status: int, body: Any, kind: str = "application/json") -> None:
            data = body.encode() if isinstance(body, str) else json.dumps(body).encode()
            self.send_response(status)
            self.send_header("content-type", kind)
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def do_GET(self) -> None:
            path = self.path.split("?")[0]
            if path in ("/server_info", "/get_server_info", "/model_info", "/get_model_info"):
                self._send(200, engine.server_info())
            elif path == "/metrics":
                self._send(200, engine.metrics(), "text/plain")
            elif path == "/v1/models":
                self._send(200, {"object": "list", "data": [{"id": MODEL, "object": "model"}]})
            elif path in ("/health", "/health_generate"):
                self._send(200, "OK", "text/plain")
            else:
                self._send(404, {"error": "unknown"})

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            if self.path == "/pd_role_switch":
                self._switch(json.loads(body or b"{}"))
            elif self.path == "/v1/chat/completions":
                engine.served[engine.role] += 8
                self._send(
                    200,
                    {
                        "id": "c1",
                        "object": "chat.completion",
                        "created": 1,
                        "model": MODEL,
                        "choices": [
                            {
                                "index": 0,
                                "message": {"role": "assistant", "content": "ok"},
                                "finish_reason": "stop",
                            }
                        ],
                        "usage": {"prompt_tokens": 4, "completion_tokens": 1, "total_tokens": 5},
                    },
                )
            else:
                self._send(404, {"error": "unknown"})

        def _switch(self, body: dict[str, Any]) -> None:
            if self.headers.get("authorization") != f"Bearer {ENGINE_KEY}":
                self._send(401, {"error": "the engine's admin key is needed"})
                return
            if engine.switch_status != 200:
                self._send(engine.switch_status, {"success": False, "message": "not idle"})
                return
            engine.switches.append(body["new_role"])
            engine.role = body["new_role"]
            if engine.switch_delay_s:
                time.sleep(engine.switch_delay_s)
            self._send(200, {"success": True, "role": engine.role})

    return Handler


class Router:
    """The real smg 1.13.0 in PD mode."""

    def __init__(self, process: subprocess.Popen[bytes], port: int, metrics_port: int) -> None:
        self.process = process
        self.url = f"http://127.0.0.1:{port}"
        self.metrics_url = f"http://127.0.0.1:{metrics_port}/metrics"

    def call(
        self, method: str, path: str, body: Any = None, key: str = ADMIN_KEY
    ) -> tuple[int, Any]:
        """One plain request, outside the adapter under test."""
        request = urllib.request.Request(
            self.url + path,
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"authorization": f"Bearer {key}", "content-type": "application/json"},
        )
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:
                status, raw = answer.status, answer.read()
        except urllib.error.HTTPError as error:
            status, raw = error.code, error.read()
        try:
            return status, json.loads(raw)
        except ValueError:
            return status, raw.decode("utf-8", "replace")

    def workers(self) -> Mapping[str, Any]:
        """The router's own list, by address."""
        status, body = self.call("GET", "/workers")
        assert status == 200, body
        return {one["url"]: one for one in body["workers"]}

    def chat(self, count: int = 1) -> None:
        """Requests of a user, through both pools."""
        for _ in range(count):
            body = {"model": MODEL, "messages": [{"role": "user", "content": "hi"}]}
            self.call("POST", "/v1/chat/completions", body)


def smg_command() -> str:
    """The smg of this environment; without one the test fails."""
    try:
        return find_smg()
    except RouterFailed as error:
        pytest.fail(str(error))


@contextlib.contextmanager
def router_with(prefill: list[Engine], decode: list[Engine]) -> Iterator[Router]:
    """smg before these engines, ready, and stopped by its own process id at the end."""
    command = smg_command()
    port, metrics_port = free_ports(2)
    arguments = [
        command, "launch", "--host", "127.0.0.1", "--port", str(port), "--pd-disaggregation",
        "--policy", "round_robin", "--disable-worker-overload-protection",
        "--prometheus-host", "127.0.0.1", "--prometheus-port", str(metrics_port),
        "--health-check-interval-secs", "3", "--health-check-timeout-secs", "5",
        "--worker-startup-timeout-secs", "20", "--worker-startup-check-interval", "1",
        "--log-level", "warn",
        "--control-plane-api-keys", f"root:root:admin:{ADMIN_KEY}", f"u:u:user:{USER_KEY}",
    ]  # fmt: skip
    for engine in prefill:
        arguments += ["--prefill", engine.url, str(engine.bootstrap_port)]
    for engine in decode:
        arguments += ["--decode", engine.url]
    process = subprocess.Popen(
        arguments,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        env={**os.environ, "RUST_BACKTRACE": "0"},
    )
    router = Router(process, port, metrics_port)
    try:
        _wait_ready(router, len(prefill) + len(decode))
        yield router
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.wait(10)


def _wait_ready(router: Router, count: int) -> None:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        assert router.process.poll() is None, "smg ended at its start"
        with contextlib.suppress(OSError, AssertionError, ValueError):
            workers = router.workers()
            if len(workers) == count and all(w["status"] == "ready" for w in workers.values()):
                return
        time.sleep(0.1)
    raise AssertionError("smg was not ready in time")
