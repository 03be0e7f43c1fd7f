"""Testing and finding a source: every way it can fail, over real sockets and real TLS; secrets."""

from __future__ import annotations

import json
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from apps.accounts import services as accounts
from apps.accounts.domain.authorize import SYSTEM, NotAllowed, Role, ScopeKind, Viewer
from apps.accounts.selectors import viewer_for
from apps.audit.models import AuditEvent
from apps.telemetry.collectors.intervals import seconds
from apps.telemetry.models import ConnectDraft
from apps.telemetry.services import connect, drafts, source_test
from apps.telemetry.services.discover import find_at_addresses, find_in_prometheus
from tests.support import builders
from tests.support.prometheus import Prometheus

from .conftest import T0, Fleet
from .metric_servers import MetricServer, Sglang

pytestmark = pytest.mark.django_db
CANARY = "canary-token-9f2c"


class Answering:
    """A real server that answers each request the same way."""

    def __init__(self, answer: Callable[[BaseHTTPRequestHandler], None]) -> None:
        self.seen: list[tuple[str, str]] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.seen.append((self.path, self.headers.get("Authorization", "")))
                length = int(self.headers.get("Content-Length") or 0)
                self.rfile.read(length)
                answer(self)

            do_POST = do_GET

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self.server.server_address[1]
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True)
        self.thread.start()

    def stop(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.thread.join(5)


def send(status: int, body: str, kind: str = "application/json", **headers: str):
    def answer(handler: BaseHTTPRequestHandler) -> None:
        raw = body.encode()
        handler.send_response(status)
        handler.send_header("Content-Type", kind)
        handler.send_header("Content-Length", str(len(raw)))
        for name, value in headers.items():
            handler.send_header(name, value)
        handler.end_headers()
        handler.wfile.write(raw)

    return answer


@pytest.fixture()
def serve(settings) -> Iterator[Callable[..., Answering]]:
    started: list[Answering] = []

    def start(answer: Callable[[BaseHTTPRequestHandler], None]) -> Answering:
        one = Answering(answer)
        started.append(one)
        settings.FULCRUM_LOOPBACK_PORTS = settings.FULCRUM_LOOPBACK_PORTS | {one.port}
        return one

    yield start
    for one in started:
        one.stop()


def tried(url: str, token: str = "") -> source_test.SourceTest:
    return source_test.check_prometheus(actor=SYSTEM, now=T0, url=url, token=token)


@pytest.mark.parametrize(
    ("answer", "problem", "status"),
    [
        (send(200, "<html><form>Sign in</form></html>", "text/html"), "html_page", 200),
        (send(200, "\n <!doctype html>", "text/plain"), "html_page", 200),
        (send(401, "<html>who are you</html>", "text/html"), "unauthorized", 401),
        (send(403, "{}"), "forbidden", 403),
        (send(302, "", Location="https://sso.example/"), "redirect", None),
        (send(404, "no such page", "text/plain"), "not_prometheus", 404),
        (send(200, '{"hello": "world"}'), "not_prometheus", 200),
        (send(200, "[1, 2]"), "not_prometheus", 200),
        (send(200, '{"status": "success", "data": {"result": 7}}'), "not_prometheus", None),
        (send(200, "not json at all", "text/plain"), "not_prometheus", 200),
        (send(503, "busy", "text/plain"), "http_error", 503),
        (send(400, '{"status": "error"}'), "refused_query", 400),
    ],
)
def test_what_answers_but_is_no_prometheus_is_named(serve, answer, problem, status) -> None:
    found = tried(f"http://127.0.0.1:{serve(answer).port}")
    assert (found.problem, found.status) == (problem, status)
    assert "Sign in" not in json.dumps(found.to_json())


def test_nothing_listens_and_nothing_answers(serve, settings, monkeypatch) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    settings.FULCRUM_LOOPBACK_PORTS = settings.FULCRUM_LOOPBACK_PORTS | {port}
    assert tried(f"http://127.0.0.1:{port}").problem == "refused"
    monkeypatch.setattr(source_test, "TEST_S", 0.4)
    slow = serve(lambda handler: time.sleep(1.0))
    began = time.monotonic()
    assert tried(f"http://127.0.0.1:{slow.port}").problem == "timeout"
    assert time.monotonic() - began < 3


def test_an_answer_that_breaks_off(serve) -> None:
    def cut(handler: BaseHTTPRequestHandler) -> None:
        handler.connection.close()

    assert tried(f"http://127.0.0.1:{serve(cut).port}").problem == "broken"


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("http://169.254.169.254/", "denied"),
        ("http://127.0.0.1:1/", "denied"),
        ("http://8.8.8.8:9090/", "denied"),
        ("ftp://10.0.0.1/", "bad_address"),
        ("prometheus:9090", "bad_address"),
        ("http://no-such-host.invalid:9090", "dns"),
    ],
)
def test_addresses_that_may_not_be_called(url: str, problem: str) -> None:
    assert tried(url).problem == problem


class Certificates:
    """A certificate authority of the test, and servers that show its certificates."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "lab authority")])
        self.root = self._sign(self.name, self.key, ("lab",), is_root=True)
        (folder / "ca.pem").write_bytes(self.root.public_bytes(serialization.Encoding.PEM))

    def _sign(self, subject, key, names, *, is_root=False, until=None):  # type: ignore[no-untyped-def]
        now = datetime.now(UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self.name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(days=9))
            .not_valid_after(until or now + timedelta(days=9))
            .add_extension(x509.BasicConstraints(ca=is_root, path_length=None), critical=True)
            .add_extension(
                x509.SubjectAlternativeName([x509.DNSName(n) for n in names]), critical=False
            )
        )
        return builder.sign(self.key, hashes.SHA256())

    def context(self, *names: str, until: datetime | None = None) -> ssl.SSLContext:
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, names[0])])
        certificate = self._sign(subject, key, names, until=until)
        path = self.folder / f"{names[0]}.pem"
        path.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
            + certificate.public_bytes(serialization.Encoding.PEM)
        )
        found = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        found.load_cert_chain(path)
        return found


def test_tls_failures_are_told_apart(serve, tmp_path: Path, monkeypatch) -> None:
    """Expired, of another name, of an unknown authority, no TLS at all; and one that is right."""
    lab = Certificates(tmp_path)
    good = '{"status": "success", "data": {"resultType": "scalar", "result": [%f, "%f"]}}'

    def now(handler: BaseHTTPRequestHandler) -> None:
        send(200, good % (time.time(), time.time()))(handler)

    def over(context: ssl.SSLContext | None) -> str:
        one = serve(now)
        if context is not None:
            one.server.socket = context.wrap_socket(one.server.socket, server_side=True)
        return tried(f"https://localhost:{one.port}", CANARY).problem

    past = datetime.now(UTC) - timedelta(days=1)
    assert over(lab.context("localhost")) == "tls_untrusted"
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
    assert over(lab.context("localhost", until=past)) == "tls_expired"
    assert over(lab.context("elsewhere.example")) == "tls_host"
    assert over(None) == "tls_plain"
    assert over(lab.context("localhost")) == ""


def test_a_clock_that_is_wrong_is_seen(serve) -> None:
    body = '{"status": "success", "data": {"resultType": "scalar", "result": [0, "%f"]}}'
    ahead = serve(lambda handler: send(200, body % (time.time() + 90))(handler))
    found = tried(f"http://127.0.0.1:{ahead.port}")
    assert found.is_ok
    assert found.skew_s is not None and found.skew_within_s is not None
    assert abs(found.skew_s - 90) <= found.skew_within_s + 0.05
    # This server tells nothing else: that is not zero.
    assert (found.version, found.intervals, found.targets_up) == ("", (), None)


@pytest.mark.parametrize(
    ("text", "value"), [("15s", 15.0), ("1m30s", 90.0), ("500ms", 0.5), ("soon", None), ("", None)]
)
def test_durations_as_prometheus_writes_them(text: str, value: float | None) -> None:
    assert seconds(text) == value


def test_the_token_goes_to_the_tested_address_and_nowhere_else(serve) -> None:
    elsewhere = serve(send(200, "{}"))
    first = serve(send(302, "", Location=f"http://127.0.0.1:{elsewhere.port}/"))
    tried(f"http://127.0.0.1:{first.port}", CANARY)
    assert {token for _, token in first.seen} == {f"Bearer {CANARY}"}
    assert elsewhere.seen == []
    assert CANARY not in str(list(AuditEvent.objects.values()))


def test_only_who_configures_a_cluster_may_test_and_find(metric_fleet: Fleet) -> None:
    url = metric_fleet.url("p0")
    people = [builders.person(role.value, role) for role in Role if role is not Role.ADMIN]
    viewers = [viewer_for(person) for person in people]
    small = builders.person("charlie")
    accounts.bind_role(
        actor=SYSTEM, now=T0, user=small, role=Role.ADMIN, scope_kind=ScopeKind.DEPLOYMENT,
        scope_id=metric_fleet.deployment.pk,
    )  # fmt: skip
    before = AuditEvent.objects.count(), metric_fleet.servers["p0"].requests
    for actor in (*viewers, viewer_for(small), Viewer(None, "")):
        for act in (
            lambda a: source_test.check_prometheus(actor=a, now=T0, url=url),
            lambda a: source_test.check_addresses(actor=a, now=T0, urls=[url]),
            lambda a: find_in_prometheus(actor=a, now=T0, url=url),
            lambda a: find_at_addresses(actor=a, now=T0, urls=[url]),
            lambda a: connect.router_workers(actor=a, now=T0, address=url, credential=""),
            lambda a: drafts.open_draft(actor=a, now=T0),
        ):
            with pytest.raises(NotAllowed):
                act(actor)
    assert (AuditEvent.objects.count(), metric_fleet.servers["p0"].requests) == before
    assert not ConnectDraft.objects.exists()


def test_a_direct_scrape_says_what_each_address_is(metric_fleet: Fleet, serve) -> None:
    page = serve(send(200, "<html>", "text/html"))
    found = source_test.check_addresses(
        actor=SYSTEM, now=T0,
        urls=[metric_fleet.url("d0"), f"127.0.0.1:{page.port}", "http://10.0.0.1.5/x"],
    )  # fmt: skip
    assert [(row.profile, row.problem) for row in found.addresses] == [
        ("sglang", ""), ("", "html_page"), ("", "bad_address"),
    ]  # fmt: skip
    assert found.is_ok and (found.targets_up, found.targets_down) == (1, 2)


def test_finding_by_addresses(metric_fleet: Fleet) -> None:
    metric_fleet.serve()
    urls = [server.metrics_url for server in metric_fleet.servers.values()]
    (one,) = find_at_addresses(actor=SYSTEM, now=T0, urls=urls).deployments
    assert one.model == "qwen3-32b"
    assert sorted((g.role, len(g.workers)) for g in one.groups) == [("decode", 2), ("prefill", 2)]
    assert [(e.scope, e.profile) for e in one.edges] == [("router", "smg")]
    told = find_at_addresses(
        actor=SYSTEM, now=T0, urls=urls, roles={metric_fleet.servers["p0"].metrics_url: "decode"}
    )
    worker = next(w for w in told.deployments[0].workers if w.url == metric_fleet.url("p0"))
    assert (worker.role, worker.role_source) == ("decode", "reported")
    assert worker.against == ("engine_type=prefill",)


def test_a_real_prometheus_is_tested_and_searched(
    metric_fleet: Fleet, settings, tmp_path: Path
) -> None:
    """Version, retention, interval, clock and targets; then deployments with roles and ladders."""
    metric_fleet.serve()
    hosts = [f"127.0.0.1:{server.port}" for server in metric_fleet.servers.values()]
    dead = MetricServer(Sglang("decode"))
    dead.stop()
    prometheus = Prometheus([*hosts, f"127.0.0.1:{dead.port}"], 1, tmp_path)
    settings.FULCRUM_LOOPBACK_PORTS = settings.FULCRUM_LOOPBACK_PORTS | {prometheus.port}
    prometheus.start()
    try:
        ends = time.monotonic() + 20
        while True:
            found = tried(prometheus.url)
            if (found.targets_up, found.targets_down) == (5, 1) or time.monotonic() > ends:
                break
            time.sleep(0.3)
        assert found.is_ok
        assert (found.targets_up, found.targets_down) == (5, 1)
        assert found.version.count(".") == 2
        assert found.retention == "15d"
        assert found.intervals == ((1.0, 6),)
        assert found.skew_s is not None and abs(found.skew_s) < 0.5
        time.sleep(1.2)
        seen = find_in_prometheus(actor=SYSTEM, now=T0, url=prometheus.url)
        (one,) = seen.deployments
        assert {(w.url, w.role) for w in one.workers} == {
            (metric_fleet.url(n), "prefill" if n[0] == "p" else "decode")
            for n in ("p0", "p1", "d0", "d1")
        }
        assert {w.metrics_url for w in one.workers} == {
            metric_fleet.servers[n].metrics_url for n in ("p0", "p1", "d0", "d1")
        }
        assert [e.instance for e in one.edges] == [hosts[-1]]
        assert [(u.job, u.reason, u.count) for u in seen.unread] == [("fleet", "down", 1)]
        assert "refused" in seen.unread[0].error
        assert 1.25 in seen.ladders["smg"]["ttft"]
        assert max(w.age_s or 0 for w in one.workers) < 10
    finally:
        prometheus.stop()


def admin() -> Viewer:
    return viewer_for(builders.person("alice", Role.ADMIN))


def test_secrets_of_a_draft_are_sealed_for_it_alone(db) -> None:
    actor = admin()
    drafts.type_in(
        actor=actor, now=T0, step="source", fields={"url": "http://10.0.0.1"},
        secrets={"token": CANARY},
    )  # fmt: skip
    row = ConnectDraft.objects.get()
    stored = str(ConnectDraft.objects.values().get())
    assert CANARY not in stored
    assert drafts.secret(row, "token") == CANARY
    other = ConnectDraft(owner_id=row.owner_id, sealed=row.sealed)
    assert drafts.secret(other, "token") == ""
    # Under another name it does not open either.
    row.sealed = {"router_key": row.sealed["token"]}
    assert drafts.secret(row, "router_key") == ""


def test_a_draft_is_its_owners(db) -> None:
    actor = admin()
    bob = viewer_for(builders.person("bob", Role.ADMIN))
    drafts.type_in(actor=actor, now=T0, step="source", fields={"url": "http://10.0.0.1"})
    assert drafts.draft_of(bob) is None
    drafts.discard(actor=bob)
    assert ConnectDraft.objects.count() == 1


@pytest.mark.parametrize(
    ("typed", "kept"),
    [
        ("http://user:hunter2@10.0.0.1:9090/x", "http://10.0.0.1:9090/x"),
        ("http://10.0.0.1/?token=hunter2#hunter2", "http://10.0.0.1/"),
        ("user:hunter2@10.0.0.1", "10.0.0.1"),
        ("//user:hunter2@10.0.0.1/", "://10.0.0.1/"),
        (" https://prometheus.example:9090/prom ", "https://prometheus.example:9090/prom"),
    ],
)
def test_addresses_lose_what_must_not_be_kept(typed: str, kept: str) -> None:
    assert source_test.plain_address(typed) == kept
