"""Serves written expositions, each as a target of its own."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.support.components.process import ports


@contextmanager
def serving(texts: Mapping[str, str]) -> Iterator[dict[str, str]]:
    """Addresses at which the texts (by name) are served as `/metrics`."""
    with ExitStack() as stack:
        free = ports(len(texts))
        yield {
            name: stack.enter_context(_served(text, port))
            for (name, text), port in zip(texts.items(), free, strict=True)
        }


@contextmanager
def _served(text: str, port: int) -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", port), _handler(text.encode()))
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{port}/metrics"
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)


def _handler(body: bytes) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *args: Any) -> None:
            return

        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("content-type", "text/plain; version=0.0.4")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    return Handler
