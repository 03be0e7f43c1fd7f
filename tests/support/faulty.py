"""Proxies that break what passes through them, for tests: a Prometheus API and engines' metrics.

Both stand on loopback and end with their context.
"""

from __future__ import annotations

import re
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final
from urllib.parse import parse_qsl, urlencode

EMPTY: Final = b'{"status":"success","data":{"resultType":"vector","result":[]}}'
WHOLE: Final = b'"status":"success",'
PART: Final = b'"status":"success","warnings":["a store is away"],'
#: Faults of the API, in the order in which a soak walks through them.
API_FAULTS: Final = ("errors", "empty", "slow", "truncated", "skewed", "partial", "html")
SLOW_S: Final = 12.0
SKEW_S: Final = 120.0


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    handle_any: Callable[[BaseHTTPRequestHandler, bytes], None]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.0"
    server: _Server

    def _answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        try:
            self.server.handle_any(self, body)
        except (OSError, ValueError):
            self.close_connection = True

    do_GET = do_POST = _answer

    def log_message(self, *_: Any) -> None:
        """Tests print nothing for each request."""


class _Proxy:
    def __init__(self) -> None:
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._server.handle_any = self._handle
        self.port: int = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    def __enter__(self) -> Any:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _handle(self, request: BaseHTTPRequestHandler, body: bytes) -> None:
        raise NotImplementedError


def _send(request: BaseHTTPRequestHandler, status: int, body: bytes, kind: str) -> None:
    request.send_response(status)
    request.send_header("Content-Type", kind)
    request.send_header("Content-Length", str(len(body)))
    request.end_headers()
    request.wfile.write(body)


class FaultyApi(_Proxy):
    """Before a Prometheus: `fault` is empty or one of API_FAULTS."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self.upstream = url
        self.fault = ""
        self.spoiled = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def _handle(self, request: BaseHTTPRequestHandler, body: bytes) -> None:
        fault = self.fault
        self.spoiled += bool(fault)
        if fault == "errors":
            return _send(request, 500, b'{"status":"error","error":"no"}', "application/json")
        if fault == "html":
            return _send(request, 200, b"<html>Please sign in</html>", "text/html")
        if fault == "empty":
            return _send(request, 200, EMPTY, "application/json")
        if fault == "slow":
            time.sleep(SLOW_S)
        status, answer, kind = self._ask(request, self._skewed(body) if fault == "skewed" else body)
        if fault == "partial":
            answer = answer.replace(WHOLE, PART, 1)
        if fault == "truncated":
            request.send_response(status)
            request.send_header("Content-Type", kind)
            request.send_header("Content-Length", str(len(answer)))
            request.end_headers()
            request.wfile.write(answer[: len(answer) // 2])
            request.close_connection = True
            return None
        return _send(request, status, answer, kind)

    def _ask(self, request: BaseHTTPRequestHandler, body: bytes) -> tuple[int, bytes, str]:
        call = urllib.request.Request(
            f"{self.upstream}{request.path}", data=body or None, method=request.command
        )
        call.add_header("Content-Type", request.headers.get("Content-Type", "text/plain"))
        try:
            with urllib.request.urlopen(call, timeout=20) as answer:
                return answer.status, answer.read(), answer.headers.get_content_type()
        except urllib.error.HTTPError as error:
            return error.code, error.read(), error.headers.get_content_type()

    @staticmethod
    def _skewed(body: bytes) -> bytes:
        """A server whose clock is slow: what it calls now is two minutes ago."""
        fields = dict(parse_qsl(body.decode()))
        if "time" in fields:
            fields["time"] = f"{float(fields['time']) - SKEW_S:.3f}"
        return urlencode(fields).encode()


_SAMPLE: Final = re.compile(r"^(?P<series>[a-zA-Z_:][^ {]*(?:\{[^}]*\})?) (?P<value>\S+)$")


class RestartingMetrics(_Proxy):
    """Before a `/metrics` address: `restart()` makes its counters begin again at 0 and, as a new
    process does, under another `pid` label."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self.upstream = url
        self.restarts = 0
        self._base: dict[str, float] = {}
        self._lock = threading.Lock()

    def restart(self) -> None:
        counters = {s: v for s, v in self._read() if _is_cumulative(s)}
        with self._lock:
            self._base, self.restarts = counters, self.restarts + 1

    def _read(self) -> list[tuple[str, float]]:
        with urllib.request.urlopen(self.upstream, timeout=5) as answer:
            text = answer.read().decode()
        found = []
        for line in text.split("\n"):
            match = _SAMPLE.match(line)
            if match:
                found.append((match["series"], float(match["value"])))
        return found

    def _handle(self, request: BaseHTTPRequestHandler, body: bytes) -> None:
        rows = self._read()
        with self._lock:
            base, number = self._base, self.restarts
        lines = [f"{_labelled(s, number)} {v - base.get(s, 0.0):.17g}" for s, v in rows]
        _send(request, 200, ("\n".join(lines) + "\n").encode(), "text/plain; version=0.0.4")


def _is_cumulative(series: str) -> bool:
    name = series.split("{", 1)[0]
    return name.endswith(("_total", "_bucket", "_count", "_sum"))


def _labelled(series: str, number: int) -> str:
    if not number:
        return series
    if series.endswith("}"):
        return f'{series[:-1]},pid="{number}"}}'
    return f'{series}{{pid="{number}"}}'
