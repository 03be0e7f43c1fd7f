"""The six behaviours of prometheus-api-client that our session corrects, against a real server."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs

import pytest

from apps.common.fetch import FetchPolicy
from apps.telemetry.collectors.client import MAX_SERIES, Failure, Prometheus, SourceFailed
from apps.telemetry.collectors.naming import Piece, Use
from apps.telemetry.collectors.ranges import Collector, Span


class Server:
    """Answers every query with one prepared answer and remembers what was asked."""

    def __init__(self) -> None:
        self.status, self.body, self.headers = 200, vector(), {}
        self.delay_s = 0.0
        self.failures = 0  # so many answers are 503 first
        self.drip_s = 0.0
        self.skew_s = 0.0
        self.seen: list[tuple[str, str, dict[str, list[str]], dict[str, str]]] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                size = int(self.headers.get("Content-Length", 0))
                form = parse_qs(self.rfile.read(size).decode())
                outer.seen.append(("POST", self.path, form, dict(self.headers)))
                time.sleep(outer.delay_s)
                busy = outer.failures > 0
                outer.failures -= busy
                self.send_response(503 if busy else outer.status)
                for name, value in outer.headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(outer.body)))
                self.end_headers()
                if outer.drip_s:
                    for byte in outer.body:
                        time.sleep(outer.drip_s)
                        self.wfile.write(bytes([byte]))
                        self.wfile.flush()
                    return
                self.wfile.write(outer.body)

            def date_time_string(self, timestamp=None):
                return super().date_time_string(time.time() + outer.skew_s)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self._server.server_address[1]
        self.thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self.thread.start()

    def client(self, *, deadline_s: float = 5, max_bytes: int = 1_000_000, **options) -> Prometheus:
        policy = FetchPolicy(loopback_ports=frozenset({self.port}), max_bytes=max_bytes)
        url = f"http://127.0.0.1:{self.port}/"
        return Prometheus(url, policy=policy, deadline_s=deadline_s, **options)

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()


def vector(*values: str, **extra: object) -> bytes:
    rows = [{"metric": {"instance": f"i{n}"}, "value": [1, v]} for n, v in enumerate(values)]
    data = {"status": "success", "data": {"resultType": "vector", "result": rows}, **extra}
    return json.dumps(data).encode()


@pytest.fixture
def server() -> Iterator[Server]:
    found = Server()
    yield found
    found.stop()


def test_a_query_is_posted_with_its_time(server):
    server.body = vector("1.5", "NaN", "+Inf", "0")
    rows = server.client(headers={"Authorization": "Bearer abc"}).query('{x="1"}', 12.5)
    assert [(row.labels["instance"], row.value) for row in rows] == [("i0", 1.5), ("i3", 0)]
    (method, path, form, headers) = server.seen[0]
    assert (method, path) == ("POST", "/api/v1/query")
    assert form == {"query": ['{x="1"}'], "time": ["12.500"]}
    assert headers["Authorization"] == "Bearer abc"


def test_warnings_are_not_lost(server):
    client = server.client()
    client.query("up", 1)
    assert not client.is_partial
    server.body = vector("1", warnings=["one store did not answer"])
    client.query("up", 1)
    assert client.is_partial


def test_redirects_are_refused(server):
    server.status, server.headers = 302, {"Location": f"http://127.0.0.1:{server.port}/elsewhere"}
    with pytest.raises(SourceFailed, match="redirects are refused"):
        server.client().query("up", 1)
    assert len(server.seen) == 1


def test_there_is_a_deadline_for_all_queries_and_no_retry(server):
    server.delay_s = 1.0
    client = server.client(deadline_s=0.3)
    started = time.monotonic()
    with pytest.raises(SourceFailed, match="did not come in time"):
        client.query("up", 1)
    assert time.monotonic() - started < 0.9
    with pytest.raises(SourceFailed, match="did not come in time"):
        client.query("up", 1)
    assert len(server.seen) == 1


def test_errors_do_not_repeat_the_answer(server):
    server.status, server.body = 422, b'{"error":"secret-canary"}'
    with pytest.raises(SourceFailed) as raised:
        server.client().query("up", 1)
    assert str(raised.value) == "the Prometheus refused the query"
    assert len(server.seen) == 1


@pytest.mark.parametrize("body", [b"<html>", b"[]", b'{"data": {"result": 3}}', b"{}"])
def test_something_else_than_a_prometheus(server, body):
    server.body = body
    with pytest.raises(SourceFailed, match="not that of a Prometheus"):
        server.client().query("up", 1)


def test_too_large_an_answer_is_cut(server):
    server.body = vector(*["1"] * 10_000)
    with pytest.raises(SourceFailed, match="too large"):
        server.client(max_bytes=10_000).query("up", 1)


def test_proxies_of_the_environment_are_ignored(server, monkeypatch):
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    server.body = vector("2")
    assert server.client().query("up", 1)[0].value == 2


def test_an_address_outside_the_policy_is_refused():
    client = Prometheus("http://127.0.0.1:9", policy=FetchPolicy(), deadline_s=1)
    with pytest.raises(SourceFailed, match="loopback"):
        client.query("up", 1)


def matrix(*values: list[list[object]], **item: object) -> bytes:
    rows = [
        {"metric": {"instance": f"i{n}", "__name__": "x"}, "values": v, **item}
        for n, v in enumerate(values)
    ]
    data = {"status": "success", "data": {"resultType": "matrix", "result": rows}}
    return json.dumps(data).encode()


def test_an_overloaded_server_is_asked_again_within_the_deadline(server):
    server.failures, server.body = 2, vector("1")
    assert server.client().query("up", 1)[0].value == 1
    assert len(server.seen) == 3


def test_a_server_that_stays_overloaded_is_not_hammered(server):
    server.failures = 100
    with pytest.raises(SourceFailed, match="overloaded") as raised:
        server.client().query("up", 1)
    assert raised.value.kind is Failure.OVERLOAD
    assert len(server.seen) == 3


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (400, b"{}", Failure.CONFIG),
        (422, b"{}", Failure.CONFIG),
        (401, b"", Failure.CONFIG),
        (403, b"", Failure.CONFIG),
        (404, b"", Failure.NOT_PROMETHEUS),
        (422, b'{"error": "query processing would load too many samples"}', Failure.LIMIT),
        (500, b"", Failure.OVERLOAD),
    ],
)
def test_what_asking_again_cannot_mend_is_asked_once(server, status, body, kind):
    server.status, server.body = status, body
    with pytest.raises(SourceFailed) as raised:
        server.client().query("up", 1)
    assert raised.value.kind is kind
    assert len(server.seen) == 1


@pytest.mark.parametrize("body", [b"<html>Log in</html>", b'{"status": "succ', b"", b"[1"])
def test_a_login_page_or_half_an_answer_is_no_prometheus(server, body):
    server.body = body
    with pytest.raises(SourceFailed) as raised:
        server.client().ranges("up", 60, 1)
    assert raised.value.kind is Failure.NOT_PROMETHEUS


def test_a_slow_drip_ends_at_the_deadline(server):
    server.body, server.drip_s = vector(*["1"] * 50), 0.05
    started = time.monotonic()
    with pytest.raises(SourceFailed) as raised:
        server.client(deadline_s=0.5).query("up", 1)
    assert raised.value.kind is Failure.TIMEOUT
    assert time.monotonic() - started < 2


def test_more_series_than_one_answer_may_hold(server):
    server.body = matrix(*[[[1, "1"]]] * (MAX_SERIES + 1))
    with pytest.raises(SourceFailed, match="series") as raised:
        server.client(max_bytes=64_000_000, deadline_s=20).ranges("x", 60, 1)
    assert raised.value.kind is Failure.LIMIT


@pytest.mark.parametrize("skew_s", [-120, 120])
def test_a_server_whose_clock_is_wrong_is_not_believed(server, skew_s):
    server.skew_s = skew_s
    with pytest.raises(SourceFailed, match="clock") as raised:
        server.client().query("up", 1)
    assert raised.value.kind is Failure.CLOCK


def taken(server, end: float) -> Collector:
    found = Collector({}, {"i0:80": [("k", {})]}, "instance", ("instance", "job"), end)
    answer = server.client().ranges("x", 60, end)
    found.add(answer, (Use("x", Piece.COUNTER, 0),))
    return found


def test_samples_from_the_future_are_refused(server):
    server.body = matrix([[1000, "1"], [1100, "2"]])
    with pytest.raises(SourceFailed, match="future") as raised:
        taken(server, 1060)
    assert raised.value.kind is Failure.CLOCK


def test_values_that_cannot_be_are_counted_and_left_out(server):
    server.body = matrix([[1, "NaN"], [2, "7"], [3, "+Inf"], [4, "1e308"], [5, "9"]])
    found = taken(server, 5)
    ((_, *samples),) = found.copies["k"][("i0", "")].plain["x"].values()
    assert (samples, found.defects) == ([(2, 5), (7.0, 9.0)], 3)


def test_native_histograms_are_named_not_guessed(server):
    row = {"metric": {"instance": "i0"}, "histograms": [[5, {"count": "3", "sum": "1"}]]}
    data = {"status": "success", "data": {"resultType": "matrix", "result": [row]}}
    server.body = json.dumps(data).encode()
    found = taken(server, 5)
    assert found.natives == {"x"}
    assert not found.readings("k", Span(0, 5, 15, 60))


@pytest.mark.parametrize(
    "item", [{"values": [["a", "b"]]}, {"values": [[1]]}, {"values": [[1, None]]}, {}]
)
def test_an_element_that_is_no_series(server, item):
    row = {"metric": {"instance": "i0"}, **item}
    server.body = json.dumps({"status": "success", "data": {"result": [row]}}).encode()
    with pytest.raises(SourceFailed) as raised:
        taken(server, 5)
    assert raised.value.kind is Failure.NOT_PROMETHEUS
