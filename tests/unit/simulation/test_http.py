"""Reading HTTP from pieces, as sockets deliver it; choosing ports; the command line."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import pytest

from apps.simulation.demo.__main__ import parse
from apps.simulation.demo.client import call
from apps.simulation.demo.fleet import plan_workers, write_state
from apps.simulation.demo.http import BadRequest, Reply, Request, Server, take_chunks
from apps.simulation.demo.ports import NoFreePorts, free_block


def echo(request: Request, reply: Reply) -> None:
    if request.path == "/json":
        reply.send_json(200, request.json())
    else:
        reply.start(200, "text/plain", request.body or b"-")
        reply.write(b"+")
        reply.finish(b".")


def exchange(*pieces: bytes) -> bytes:
    """What the server answers to a connection that sends `pieces` one by one."""

    async def run() -> bytes:
        (port,) = free_block(1)
        server = Server(port, echo)
        await server.open()
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for piece in pieces:
            writer.write(piece)
            await asyncio.sleep(0.005)
        writer.write_eof()
        try:
            return await asyncio.wait_for(reader.read(), 2)
        finally:
            server.close()

    return asyncio.run(run())


def test_a_request_may_come_in_any_pieces() -> None:
    raw = b"POST /x HTTP/1.1\r\nhost: a\r\ncontent-length: 5\r\nconnection: close\r\n\r\nhello"
    whole = exchange(raw)
    assert whole == exchange(raw[:10], raw[10:60], raw[60:-2], raw[-2:])
    assert whole.endswith(b"5\r\nhello\r\n1\r\n+\r\n1\r\n.\r\n0\r\n\r\n")


def test_chunked_bodies_and_two_requests_in_one_packet() -> None:
    chunked = b"POST /x HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"
    last = b"GET /y HTTP/1.1\r\nconnection: close\r\n\r\n"
    answer = exchange(chunked + last)
    assert answer.count(b"HTTP/1.1 200") == 2
    assert b"abc" in answer


@pytest.mark.parametrize(
    "raw",
    [
        b"nonsense\r\n\r\n",
        b"POST /json HTTP/1.1\r\ncontent-length: x\r\n\r\n",
        b"POST /json HTTP/1.1\r\ncontent-length: 99999999\r\n\r\n",
        b"POST /json HTTP/1.1\r\ncontent-length: 2\r\n\r\n[]",
    ],
)
def test_bad_requests_get_400(raw: bytes) -> None:
    assert exchange(raw).startswith(b"HTTP/1.1 400 ")


def test_chunks_are_taken_whole() -> None:
    buffer = bytearray(b"3\r\nabc\r\n4\r\nde")
    assert take_chunks(buffer) == ([b"abc"], False)
    buffer += b"fg\r\n0\r\n\r\n"
    assert take_chunks(buffer) == ([b"defg"], True)
    assert buffer == b""
    with pytest.raises(BadRequest):
        take_chunks(bytearray(b"zz\r\nabc\r\n"))


def test_call_reads_json() -> None:
    async def run() -> tuple[int, object]:
        (port,) = free_block(1)
        server = Server(port, echo)
        await server.open()
        try:
            return await call("POST", f"http://127.0.0.1:{port}/json", {"a": 1})
        finally:
            server.close()

    assert asyncio.run(run()) == (200, {"a": 1})


def test_blocks_pass_over_busy_ports() -> None:
    first = free_block(3)
    assert first == list(range(first[0], first[0] + 3))
    assert first[-1] < 32_768
    with socket.socket() as busy:
        busy.bind(("127.0.0.1", first[1]))
        busy.listen()
        assert not set(free_block(3, first[0])) & set(first)
    with pytest.raises(NoFreePorts):
        free_block(10, 32_695)


def test_worker_plans_never_share_a_port() -> None:
    ports = list(range(100, 140))
    plans = plan_workers(ports, 2, 4, bootstrap=True)
    assert [plan.name for plan in plans] == ["p-0", "p-1", "d-0", "d-1", "d-2", "d-3"]
    used = [p.port for p in plans] + [p.bootstrap_port for p in plans]
    assert len(set(used)) == 12
    assert len({plan.instance_id for plan in plans}) == 6
    assert not set(used) & set(ports)


def test_state_file_is_written_whole_and_private(tmp_path: Path) -> None:
    path = tmp_path / "var" / "fleet.json"
    write_state(path, {"a": 1})
    write_state(path, {"a": 2})
    assert path.read_text() == '{\n "a": 2\n}'
    assert path.stat().st_mode & 0o777 == 0o600
    assert [p.name for p in path.parent.iterdir()] == ["fleet.json"]


def test_command_line() -> None:
    options = parse(["--state", "x.json", "--scenario", "decode", "--shift-after", "20"])
    assert (options.scenario, options.shift_after_s, options.load) == ("decode", 20.0, True)
    with pytest.raises(SystemExit):
        parse(["--state", "x.json", "--rate-scale", "0"])
    with pytest.raises(SystemExit):
        parse(["--state", "x.json", "--scenario", "storm"])
