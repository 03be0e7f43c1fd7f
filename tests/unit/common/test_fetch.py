"""Addresses that people enter (law 14)."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from apps.common.fetch import FetchError, FetchPolicy, fetch, split_url


class Handler(BaseHTTPRequestHandler):
    seen: list[str] = []

    def do_GET(self) -> None:
        Handler.seen.append(self.headers.get("Host", ""))
        if self.path == "/redirect":
            self.send_response(302)
            self.send_header("Location", "http://169.254.169.254/")
            self.end_headers()
            return
        body = b"x" * (200_000 if self.path == "/big" else 5)
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def port() -> Iterator[int]:
    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server.server_address[1]
    server.shutdown()


def test_only_the_listed_loopback_ports_answer(port: int) -> None:
    allowed = FetchPolicy(loopback_ports=frozenset({port}))
    assert fetch(f"http://127.0.0.1:{port}/", policy=allowed).body == b"xxxxx"
    with pytest.raises(FetchError, match="loopback") as caught:
        fetch(f"http://127.0.0.1:{port}/", policy=FetchPolicy())
    assert not caught.value.sent


@pytest.mark.parametrize(
    "url",
    [
        "http://169.254.169.254/latest/",
        "http://[::ffff:169.254.169.254]/",
        "http://0.0.0.0/",
        "http://100.100.100.200/",
        "http://[fd00:ec2::254]/",
        "http://2130706433/",
        "http://0x7f.1/",
        "http://[::1]:80/",
        "http://8.8.8.8/",
    ],
)
def test_denied_addresses_are_never_called(url: str) -> None:
    with pytest.raises(FetchError) as caught:
        fetch(url, policy=FetchPolicy())
    assert not caught.value.sent


@pytest.mark.parametrize(
    "url",
    [
        "ftp://10.0.0.1/",
        "file:///etc/passwd",
        "http://a:b@10.0.0.1/",
        "http:///x",
        "http://ехample.org/",
    ],
)
def test_addresses_that_are_not_plain_are_refused(url: str) -> None:
    with pytest.raises(FetchError):
        split_url(url)


def test_redirects_are_refused(port: int) -> None:
    policy = FetchPolicy(loopback_ports=frozenset({port}))
    with pytest.raises(FetchError, match="redirect"):
        fetch(f"http://127.0.0.1:{port}/redirect", policy=policy)


def test_the_body_is_capped(port: int) -> None:
    policy = FetchPolicy(loopback_ports=frozenset({port}), max_bytes=100_000)
    with pytest.raises(FetchError, match="too large"):
        fetch(f"http://127.0.0.1:{port}/big", policy=policy)


def test_a_name_is_pinned_and_its_host_header_kept(port: int) -> None:
    policy = FetchPolicy(loopback_ports=frozenset({port}))
    fetch(f"http://localhost:{port}/", policy=policy)
    assert Handler.seen[-1] == f"localhost:{port}"


def test_a_refused_connection_was_not_sent() -> None:
    policy = FetchPolicy(loopback_ports=frozenset({1}))
    with pytest.raises(FetchError, match="refused") as caught:
        fetch("http://127.0.0.1:1/", policy=policy)
    assert not caught.value.sent


@pytest.mark.parametrize("first", [b"HTTP/1.1 200 OK\r\nX-A: ", b"HTTP/1.1 200 OK\r\n\r\n", b""])
def test_the_deadline_holds_whatever_part_of_the_answer_drips(first: bytes) -> None:
    """Headers, a body that ends with the connection (half of it is no answer), nothing at all."""
    listener = socket.create_server(("127.0.0.1", 0))

    def drip() -> None:
        connection, _ = listener.accept()
        with connection, suppress(OSError):
            connection.recv(4096)
            connection.sendall(first)
            for _ in range(30):
                time.sleep(0.1)
                connection.sendall(b"a" if first else b"")

    threading.Thread(target=drip, daemon=True).start()
    port = listener.getsockname()[1]
    started = time.monotonic()
    with pytest.raises(FetchError) as caught:
        fetch(f"http://127.0.0.1:{port}/", policy=FetchPolicy(any_loopback_port=True), total_s=0.5)
    listener.close()
    assert time.monotonic() - started < 1.5
    assert (caught.value.kind, caught.value.sent) == ("timeout", True)
