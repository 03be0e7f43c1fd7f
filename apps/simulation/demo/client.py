"""HTTP client parts of the demo fleet: streamed chat requests, and small JSON calls.

A stream counts as good only if its usage event came: a stream that a dying engine cuts still ends
with status 200 and `[DONE]`.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from apps.simulation.demo.http import BadRequest, Head, parse_head, take_chunks

CONTENT_MARK = b'"content"'
USAGE_MARK = b'"usage": {'


@dataclass(slots=True)
class StreamResult:
    """What a client saw of one streamed request; times are seconds of the event loop's clock."""

    sent: float
    status: int = 0
    first_byte: float | None = None
    last_token: float | None = None
    prompt_tokens: int | None = None
    output_tokens: int | None = None
    error: str = ""
    ended: float = 0.0


OnDone = Callable[[StreamResult], None]


class _Stream(asyncio.Protocol):
    """A connection to the router that carries one request at a time and is then reused."""

    def __init__(self, client: ChatClient) -> None:
        self._client = client
        self._loop = client.loop
        self._transport: asyncio.Transport | None = None
        self._buffer = bytearray()
        self._events = bytearray()
        self._head: Head | None = None
        self._result: StreamResult | None = None
        self._on_done: OnDone | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    @property
    def usable(self) -> bool:
        """Whether another request can be sent on this connection."""
        return self._transport is not None and not self._transport.is_closing()

    def send(self, payload: bytes, result: StreamResult, on_done: OnDone) -> None:
        """Send one request."""
        self._result, self._on_done = result, on_done
        self._head = None
        self._buffer.clear()
        self._events.clear()
        assert self._transport is not None
        self._transport.write(payload)

    def close(self) -> None:
        """Drop the connection and the request on it."""
        if self._transport is not None:
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._client.forget(self)
        self._finish(error="connection lost")

    def data_received(self, data: bytes) -> None:
        result = self._result
        if result is None:
            return
        self._buffer += data
        try:
            if self._head is None:
                self._head = parse_head(self._buffer)
                if self._head is None:
                    return
                del self._buffer[: self._head.end]
                result.status = int(self._head.line[1])
            if self._body(self._head, result):
                error = "" if result.status == 200 else _short(self._events)
                if result.status == 200 and result.output_tokens is None:
                    error = "the stream was cut: no usage event"
                self._finish(error=error)
        except (BadRequest, ValueError):
            self._finish(error="unreadable answer")
            self.close()

    def _body(self, head: Head, result: StreamResult) -> bool:
        if "chunked" in head.headers.get("transfer-encoding", ""):
            chunks, finished = take_chunks(self._buffer)
            for chunk in chunks:
                self._events += chunk
        else:
            self._events += self._buffer
            self._buffer.clear()
            finished = len(self._events) >= int(head.headers.get("content-length", "0"))
        if result.status == 200 and self._events:
            self._read_events(result)
        return finished

    def _read_events(self, result: StreamResult) -> None:
        now = self._loop.time()
        if result.first_byte is None:
            result.first_byte = now
        end = self._events.rfind(b"\n\n")
        if end < 0:
            return
        block = bytes(self._events[:end])
        del self._events[: end + 2]
        if CONTENT_MARK in block:
            result.last_token = now
        mark = block.find(USAGE_MARK)
        if mark >= 0:
            usage = json.loads(block[mark + len(USAGE_MARK) - 1 : block.index(b"}", mark) + 1])
            result.prompt_tokens = int(usage["prompt_tokens"])
            result.output_tokens = int(usage["completion_tokens"])

    def _finish(self, *, error: str) -> None:
        result, on_done = self._result, self._on_done
        self._result = self._on_done = None
        if result is None or on_done is None:
            return
        result.ended = self._loop.time()
        result.error = error
        self._client.release(self)
        on_done(result)


def _short(body: bytearray) -> str:
    return bytes(body[:200]).decode("utf-8", "replace") or "error status"


class ChatClient:
    """Sends streamed chat requests to one router over connections that are kept for reuse."""

    def __init__(self, url: str, loop: asyncio.AbstractEventLoop) -> None:
        parts = urlsplit(url)
        self._host, self._port = parts.hostname or "127.0.0.1", parts.port or 80
        self._head = (
            f"POST /v1/chat/completions HTTP/1.1\r\nhost: {self._host}:{self._port}\r\n"
            "content-type: application/json\r\ncontent-length: "
        ).encode()
        self.loop = loop
        self._idle: list[_Stream] = []
        self._all: set[_Stream] = set()

    async def send(self, body: bytes, on_done: OnDone) -> None:
        """Send `body`; `on_done` is called once, when the answer is complete or lost."""
        payload = self._head + b"%d\r\n\r\n" % len(body) + body
        result = StreamResult(sent=self.loop.time())
        while self._idle:
            stream = self._idle.pop()
            if stream.usable:
                stream.send(payload, result, on_done)
                return
        try:
            _, stream = await self.loop.create_connection(
                lambda: _Stream(self), self._host, self._port
            )
        except OSError as error:
            result.ended = self.loop.time()
            result.error = f"cannot connect: {error}"
            on_done(result)
            return
        self._all.add(stream)
        stream.send(payload, result, on_done)

    def release(self, stream: _Stream) -> None:
        """Take a connection back whose request is over."""
        if stream.usable:
            self._idle.append(stream)

    def forget(self, stream: _Stream) -> None:
        """A connection is gone."""
        self._all.discard(stream)
        if stream in self._idle:
            self._idle.remove(stream)

    def close(self) -> None:
        """Drop every connection."""
        for stream in list(self._all):
            stream.close()


async def call(
    method: str, url: str, body: object = None, *, key: str = "", timeout_s: float = 5.0
) -> tuple[int, Any]:
    """One small request on its own connection: (status, JSON value or text).

    OSError or TimeoutError if the peer cannot be reached or does not answer in time.
    """
    parts = urlsplit(url)
    target = parts.path or "/"
    if parts.query:
        target += f"?{parts.query}"
    data = b"" if body is None else json.dumps(body).encode()
    head = [f"{method} {target} HTTP/1.1", f"host: {parts.netloc}", "connection: close"]
    head.append(f"content-length: {len(data)}")
    if body is not None:
        head.append("content-type: application/json")
    if key:
        head.append(f"authorization: Bearer {key}")
    async with asyncio.timeout(timeout_s):
        reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
        try:
            writer.write("\r\n".join(head).encode() + b"\r\n\r\n" + data)
            raw = bytearray(await reader.read())
        finally:
            writer.close()
    answer = parse_head(raw)
    if answer is None:
        raise OSError(f"{url} closed the connection without an answer")
    del raw[: answer.end]
    if "chunked" in answer.headers.get("transfer-encoding", ""):
        chunks, _ = take_chunks(raw)
        raw = bytearray(b"".join(chunks))
    text = bytes(raw).decode("utf-8", "replace")
    try:
        return int(answer.line[1]), json.loads(text)
    except ValueError:
        return int(answer.line[1]), text
