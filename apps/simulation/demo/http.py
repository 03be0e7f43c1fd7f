"""A small HTTP/1.1 server on asyncio, made for many short requests and streamed answers.

Handlers are plain callables: they get the request and a `Reply`, and answer now or later. One
request is handled at a time per connection; bytes of the next one wait in the buffer.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, urlsplit

REASONS = {
    200: "OK",
    202: "Accepted",
    400: "Bad Request",
    401: "Unauthorized",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    409: "Conflict",
    413: "Payload Too Large",
    500: "Internal Server Error",
    503: "Service Unavailable",
}
MAX_HEAD = 64 * 1024
MAX_BODY = 8 * 1024 * 1024
JSON = "application/json"


class BadRequest(ValueError):
    """The peer sent something this server cannot read."""


@dataclass(slots=True)
class Request:
    """One request; header names are lower case, `query` holds the last value of each name."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes = b""

    def json(self) -> dict[str, Any]:
        """The body as a JSON object. BadRequest when it is not one."""
        try:
            value = json.loads(self.body or b"{}")
        except ValueError as error:
            raise BadRequest("the body is not JSON") from error
        if not isinstance(value, dict):
            raise BadRequest("the body is not a JSON object")
        return value


@dataclass(slots=True)
class Reply:
    """The answer to one request: `send` once, or `start`, `write`..., `finish`."""

    _connection: Connection
    on_abort: Callable[[], None] | None = None
    started: bool = False
    finished: bool = False

    def send(self, status: int, body: bytes | str, content_type: str = JSON) -> None:
        """A whole answer."""
        data = body.encode() if isinstance(body, str) else body
        self._head(status, content_type, f"content-length: {len(data)}", data)
        self._done()

    def send_json(self, status: int, value: object) -> None:
        """A whole answer in JSON."""
        self.send(status, json.dumps(value))

    def start(self, status: int, content_type: str, first: bytes) -> None:
        """Head of a chunked answer together with its first bytes, in one write."""
        self._head(status, content_type, "transfer-encoding: chunked", _chunk(first))

    def write(self, data: bytes) -> None:
        """More bytes of a chunked answer."""
        if not self.finished:
            self._connection.write(_chunk(data))

    def finish(self, data: bytes = b"") -> None:
        """Last bytes of a chunked answer."""
        if not self.finished:
            self._connection.write((_chunk(data) if data else b"") + b"0\r\n\r\n")
            self._done()

    def _head(self, status: int, content_type: str, length: str, rest: bytes) -> None:
        if self.finished or self.started:
            return
        self.started = True
        head = (
            f"HTTP/1.1 {status} {REASONS.get(status, 'Status')}\r\n"
            f"content-type: {content_type}\r\n{length}\r\n\r\n"
        )
        self._connection.write(head.encode() + rest)

    def _done(self) -> None:
        if not self.finished:
            self.finished = True
            self.on_abort = None
            self._connection.reply_done()

    def abort(self) -> None:
        """The peer went away or the server stops: tell the handler once."""
        if not self.finished:
            self.finished = True
            callback, self.on_abort = self.on_abort, None
            if callback is not None:
                callback()


Handler = Callable[[Request, Reply], None]


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


@dataclass(slots=True)
class Head:
    """Start line (split in three) and headers of a message, and where its body begins."""

    line: tuple[str, str, str]
    headers: dict[str, str]
    end: int


def parse_head(buffer: bytearray) -> Head | None:
    """The head at the start of `buffer`, or None while it is incomplete. Shared with the client."""
    end = buffer.find(b"\r\n\r\n")
    if end < 0:
        if len(buffer) > MAX_HEAD:
            raise BadRequest("the head is too long")
        return None
    first, *rest = bytes(buffer[:end]).decode("latin-1").split("\r\n")
    parts = first.split(" ", 2)
    if len(parts) < 2:
        raise BadRequest(f"bad start line {first[:60]!r}")
    headers = {}
    for line in rest:
        name, _, value = line.partition(":")
        headers[name.strip().lower()] = value.strip()
    return Head((parts[0], parts[1], parts[2] if len(parts) > 2 else ""), headers, end + 4)


def take_chunks(buffer: bytearray) -> tuple[list[bytes], bool]:
    """Whole chunks at the start of `buffer` (removed from it) and whether the last one came."""
    chunks: list[bytes] = []
    position = 0
    finished = False
    while (line_end := buffer.find(b"\r\n", position)) >= 0:
        try:
            size = int(bytes(buffer[position:line_end]).split(b";")[0], 16)
        except ValueError as error:
            raise BadRequest("bad chunk size") from error
        stop = line_end + 2 + size
        if len(buffer) < stop + 2:
            break
        position = stop + 2
        if size == 0:
            finished = True
            break
        chunks.append(bytes(buffer[line_end + 2 : stop]))
    del buffer[:position]
    return chunks, finished


class Connection(asyncio.Protocol):
    """One connection of a `Server`."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._buffer = bytearray()
        self._transport: asyncio.Transport | None = None
        self._head: Head | None = None
        self._chunks: list[bytes] = []
        self._reply: Reply | None = None
        self._close_after = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._server.connections.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._server.connections.discard(self)
        self._transport = None
        if self._reply is not None:
            self._reply.abort()
            self._reply = None

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        if self._reply is None:
            self._next()

    def write(self, data: bytes) -> None:
        """Bytes to the peer, dropped if it is gone."""
        if self._transport is not None:
            self._transport.write(data)

    def reply_done(self) -> None:
        """The current answer is complete: read the next request of this connection."""
        self._reply = None
        if self._close_after and self._transport is not None:
            self._transport.close()
        elif self._buffer:
            asyncio.get_running_loop().call_soon(self._next)

    def abort(self) -> None:
        """Reset the connection, as a process that dies does."""
        if self._transport is not None:
            self._transport.abort()

    def _next(self) -> None:
        if self._reply is not None or self._transport is None:
            return
        try:
            request = self._read()
        except (BadRequest, ValueError):
            self._close_after = True
            self._reply = Reply(self)
            self._reply.send_json(400, {"error": "bad request"})
            return
        if request is None:
            return
        self._close_after = request.headers.get("connection", "").lower() == "close"
        self._reply = reply = Reply(self)
        try:
            self._server.handler(request, reply)
        except BadRequest as error:
            reply.send_json(400, {"error": str(error)})

    def _read(self) -> Request | None:
        if self._head is None:
            self._head = parse_head(self._buffer)
            if self._head is None:
                return None
            del self._buffer[: self._head.end]
        headers = self._head.headers
        if "chunked" in headers.get("transfer-encoding", ""):
            chunks, finished = take_chunks(self._buffer)
            self._chunks += chunks
            if sum(map(len, self._chunks)) > MAX_BODY:
                raise BadRequest("the body is too long")
            if not finished:
                return None
            body = b"".join(self._chunks)
            self._chunks = []
        else:
            length = int(headers.get("content-length", "0"))
            if not 0 <= length <= MAX_BODY:
                raise BadRequest("the body is too long")
            if len(self._buffer) < length:
                return None
            body = bytes(self._buffer[:length])
            del self._buffer[:length]
        method, target, _ = self._head.line
        self._head = None
        parts = urlsplit(target)
        return Request(method, parts.path, dict(parse_qsl(parts.query)), headers, body)


@dataclass(slots=True)
class Server:
    """A listener on 127.0.0.1:`port` that hands each request to `handler`."""

    port: int
    handler: Handler
    connections: set[Connection] = field(default_factory=set)
    _listener: asyncio.Server | None = None

    async def open(self) -> None:
        """Start to listen. OSError if the port is taken."""
        loop = asyncio.get_running_loop()
        self._listener = await loop.create_server(
            lambda: Connection(self), "127.0.0.1", self.port, backlog=512
        )

    def close(self) -> None:
        """Close the listening socket and reset every connection."""
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        for connection in list(self.connections):
            connection.abort()
