"""Stand-ins for sockets, so that engines can be driven on a virtual clock."""

from __future__ import annotations

import json
from typing import Any

from apps.simulation.demo.http import BadRequest, Reply, Request


class Wire:
    """Collects what a reply writes; stands for a connection."""

    def __init__(self) -> None:
        self.data = b""
        self.times: list[float] = []
        self.clock: Any = None

    def write(self, data: bytes) -> None:
        self.data += data
        if self.clock is not None:
            self.times.append(self.clock())

    def reply_done(self) -> None:
        pass

    @property
    def status(self) -> int:
        return int(self.data.split(b" ", 2)[1]) if self.data else 0

    @property
    def body(self) -> str:
        return self.data.partition(b"\r\n\r\n")[2].decode()


def post(engine: Any, path: str, body: dict[str, Any], key: str = "") -> tuple[Wire, Reply]:
    """Hand a POST to an engine; the wire shows the answer as it comes."""
    return _send(engine, Request("POST", path, {}, _auth(key), json.dumps(body).encode()))


def get(engine: Any, path: str) -> Wire:
    """Hand a GET to an engine."""
    return _send(engine, Request("GET", path, {}, {}))[0]


def _auth(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"} if key else {}


def _send(engine: Any, request: Request) -> tuple[Wire, Reply]:
    wire = Wire()
    wire.clock = engine.loop.time
    reply = Reply(wire)  # type: ignore[arg-type]
    try:
        engine.handle(request, reply)
    except BadRequest as error:  # as the connection does
        reply.send_json(400, {"error": str(error)})
    return wire, reply


def chat_body(tokens_in: int, tokens_out: int, **extra: Any) -> dict[str, Any]:
    """A chat request of exactly so many tokens in and out."""
    return {
        "messages": [{"role": "user", "content": "abcd" * tokens_in}],
        "max_tokens": tokens_out,
        "stream": True,
        "stream_options": {"include_usage": True},
        **extra,
    }
