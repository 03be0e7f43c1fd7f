"""The checked fetcher: HTTP to addresses that people entered (DESIGN law 14).

The address is resolved once, every answer is checked, and the connection goes to the checked
address with the original Host and SNI, so a name cannot be re-pointed between check and use.
Redirects are refused, environment proxies and netrc are ignored, the body and the total time are
capped. The message of `FetchError` is safe to show; it never holds a banner or a credential.
"""

from __future__ import annotations

import ipaddress
import socket
import ssl
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import urlsplit

import requests
from requests.adapters import HTTPAdapter
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.exceptions import HTTPError, ReadTimeoutError

#: Never reachable, whatever the allow-list says (cloud metadata and unroutable ranges).
ALWAYS_DENIED: Final = tuple(
    ipaddress.ip_network(net)
    for net in (
        "0.0.0.0/8", "169.254.0.0/16", "100.100.100.200/32", "224.0.0.0/4", "240.0.0.0/4",
        "fe80::/10", "fd00:ec2::254/128", "ff00::/8", "64:ff9b::/96", "::/128",
    )
)  # fmt: skip


class FetchError(Exception):
    """The request was refused or failed. `sent` is False if it surely never left this host."""

    def __init__(self, message: str, *, sent: bool, kind: str) -> None:
        super().__init__(message)
        self.sent = sent
        self.kind = kind


@dataclass(frozen=True, slots=True)
class FetchPolicy:
    """Which addresses may be called.

    `allowed_networks` and `allowed_ports` name the reachable ranges; `loopback_ports` opens
    127.0.0.0/8 and ::1 for exactly those ports (the demo's own; empty in production).
    """

    allowed_networks: Sequence[str] = ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7")
    allow_public: bool = False
    loopback_ports: frozenset[int] = frozenset()
    any_loopback_port: bool = False
    max_bytes: int = 16_000_000
    _networks: tuple[Any, ...] = field(init=False, repr=False, default=())

    def __post_init__(self) -> None:
        nets = tuple(ipaddress.ip_network(net) for net in self.allowed_networks)
        object.__setattr__(self, "_networks", nets)

    def check(self, address: str, port: int) -> None:
        """Raise FetchError unless this address and port may be called."""
        ip = ipaddress.ip_address(address)
        if isinstance(ip, ipaddress.IPv6Address) and ip.ipv4_mapped:
            ip = ip.ipv4_mapped
        if any(ip.version == net.version and ip in net for net in ALWAYS_DENIED):
            raise FetchError("the address is in a denied range", sent=False, kind="denied")
        if ip.is_loopback:
            if self.any_loopback_port or port in self.loopback_ports:
                return
            raise FetchError("loopback addresses are not allowed", sent=False, kind="denied")
        if self.allow_public and ip.is_global:
            return
        if any(ip.version == net.version and ip in net for net in self._networks):
            return
        raise FetchError("the address is outside the allowed networks", sent=False, kind="denied")


@dataclass(frozen=True, slots=True)
class FetchResult:
    """A complete answer."""

    status: int
    body: bytes
    headers: Mapping[str, str]
    elapsed_s: float

    def text(self) -> str:
        return self.body.decode("utf-8", "replace")

    def json(self) -> Any:
        import json

        return json.loads(self.body)


class _Watch:
    """Ends the connections of one request at its deadline. The time-out of a socket starts anew
    with each byte, so that a server that drips its headers would hold a worker as long as it
    likes."""

    def __init__(self, seconds: float) -> None:
        self.is_over = False
        self._sockets: list[socket.socket] = []
        self._lock = threading.Lock()
        self._timer = threading.Timer(seconds, self._end)
        self._timer.daemon = True

    def __enter__(self) -> _Watch:
        self._token = _WATCH.set(self)
        self._timer.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()
        _WATCH.reset(self._token)
        with self._lock:
            for copy in self._sockets:
                copy.close()
            self._sockets.clear()

    def add(self, connected: socket.socket) -> None:
        """A copy of the handle: TLS takes the first one over."""
        with self._lock:
            self._sockets.append(connected.dup())
            if self.is_over:
                connected.shutdown(socket.SHUT_RDWR)

    def _end(self) -> None:
        with self._lock:
            self.is_over = True
            for copy in self._sockets:
                with suppress(OSError):
                    copy.shutdown(socket.SHUT_RDWR)


_WATCH: Final[ContextVar[_Watch]] = ContextVar("_WATCH")


class _Connection(HTTPConnection):
    def _new_conn(self) -> socket.socket:
        made = super()._new_conn()
        _WATCH.get().add(made)
        return made


class _TlsConnection(HTTPSConnection):
    def _new_conn(self) -> socket.socket:
        made = super()._new_conn()
        _WATCH.get().add(made)
        return made


class _Pool(HTTPConnectionPool):
    ConnectionCls = _Connection


class _TlsPool(HTTPSConnectionPool):
    ConnectionCls = _TlsConnection


class _PinnedAdapter(HTTPAdapter):
    """Connects to a checked address while Host and SNI keep the original name. Trusts the host's
    own authorities (and `SSL_CERT_FILE`) beside the bundled ones: a Prometheus inside a company
    often has a certificate of the company."""

    def __init__(self, scheme: str, host: str) -> None:
        self._scheme, self._host = scheme, host
        super().__init__(max_retries=0)

    def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:
        if self._scheme == "https":
            kwargs["ssl_context"] = ssl.create_default_context()
            kwargs["assert_hostname"] = self._host
            kwargs["server_hostname"] = self._host
        super().init_poolmanager(*args, **kwargs)
        self.poolmanager.pool_classes_by_scheme = {"http": _Pool, "https": _TlsPool}


def resolve(host: str, port: int, policy: FetchPolicy) -> str:
    """The first address of `host` after every one of its addresses has passed the policy."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise FetchError(f"the name {host} cannot be resolved", sent=False, kind="dns") from error
    addresses = [str(entry[4][0]) for entry in found]
    for address in addresses:
        policy.check(address, port)
    return addresses[0]


def split_url(url: str) -> tuple[str, str, int, str]:
    """(scheme, host, port, path and query) of an address; raises FetchError if it is not plain."""
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise FetchError("the address is not readable", sent=False, kind="url") from error
    if parts.scheme not in ("http", "https"):
        raise FetchError("the address must start with http:// or https://", sent=False, kind="url")
    if parts.username or parts.password:
        raise FetchError("the address must not hold a password", sent=False, kind="url")
    host = parts.hostname or ""
    if not host or not host.isascii():
        raise FetchError("the address has no plain host name", sent=False, kind="url")
    if host[-1].isdigit() or ":" in host:
        try:
            ipaddress.ip_address(host)
        except ValueError as error:
            raise FetchError("the address is not a plain IP", sent=False, kind="url") from error
    try:
        port = parts.port or (443 if parts.scheme == "https" else 80)
    except ValueError as error:
        raise FetchError("the port is not a number", sent=False, kind="url") from error
    path = parts.path or "/"
    return parts.scheme, host, port, path + (f"?{parts.query}" if parts.query else "")


def fetch(
    url: str,
    *,
    policy: FetchPolicy,
    method: str = "GET",
    headers: Mapping[str, str] | None = None,
    json_body: Any = None,
    data: Mapping[str, str] | None = None,
    connect_s: float = 3.0,
    total_s: float = 10.0,
) -> FetchResult:
    """One request to a checked address.

    Raises FetchError with `sent=False` when it never left, `sent=True` when the outcome is not
    known (read time-out, broken answer): then observe before any retry (DESIGN law 7).
    """
    scheme, host, port, path = split_url(url)
    address = resolve(host, port, policy)
    literal = f"[{address}]" if ":" in address else address
    target = f"{scheme}://{literal}:{port}{path}"
    session = requests.Session()
    session.trust_env = False
    session.mount(f"{scheme}://", _PinnedAdapter(scheme, host))
    sent_headers = dict(headers or {})
    sent_headers["Host"] = host if port in (80, 443) else f"{host}:{port}"
    started = time.monotonic()
    with _Watch(total_s) as watch:
        try:
            answer, body = _exchange(
                session,
                method,
                target,
                {"headers": sent_headers, "json": json_body, "data": data},
                timeout=(connect_s, total_s),
                max_bytes=policy.max_bytes,
            )
        except FetchError as error:
            if watch.is_over and error.sent and error.kind != "timeout":
                raise FetchError(
                    "the answer did not come in time", sent=True, kind="timeout"
                ) from error
            raise
        if watch.is_over:  # what ended with the connection may be half of it
            raise FetchError("the answer took too long", sent=True, kind="timeout")
    if 300 <= answer.status_code < 400 and answer.status_code != 304:
        raise FetchError("the server redirects; redirects are refused", sent=True, kind="redirect")
    return FetchResult(answer.status_code, body, dict(answer.headers), time.monotonic() - started)


def _exchange(
    session: requests.Session,
    method: str,
    target: str,
    content: Mapping[str, Any],
    *,
    timeout: tuple[float, float],
    max_bytes: int,
) -> tuple[requests.Response, bytes]:
    started = time.monotonic()
    try:
        answer = session.request(
            method, target, timeout=timeout, allow_redirects=False, stream=True, **content
        )
    except requests.ConnectTimeout as error:
        raise FetchError("no answer to the connection", sent=False, kind="connect") from error
    except requests.exceptions.SSLError as error:
        raise _tls_error(error) from error
    except requests.ConnectionError as error:
        refused = "refused" in str(error).lower() or "NewConnectionError" in str(error)
        message = "the connection was refused" if refused else "the connection broke"
        raise FetchError(message, sent=not refused, kind="connect") from error
    except requests.RequestException as error:
        raise FetchError("the answer did not come in time", sent=True, kind="timeout") from error
    try:
        return answer, _read_capped(answer, max_bytes, started + timeout[1])
    finally:
        answer.close()
        session.close()


def _tls_error(error: Exception) -> FetchError:
    """Why no secure connection came about. A refused handshake sent nothing; a failure after it
    may have. The text of the library is read for its kind only, it is not shown."""
    text = str(error).lower()
    for part, kind, message in (
        ("certificate has expired", "tls_expired", "the certificate has expired"),
        ("not yet valid", "tls_expired", "the certificate is not valid yet"),
        ("mismatch", "tls_host", "the certificate belongs to another name"),
        ("doesn't match", "tls_host", "the certificate belongs to another name"),
        ("is not valid for", "tls_host", "the certificate belongs to another name"),
        ("self-signed", "tls_untrusted", "the certificate is signed by nobody we trust"),
        ("self signed", "tls_untrusted", "the certificate is signed by nobody we trust"),
        ("unable to get", "tls_untrusted", "the certificate is signed by nobody we trust"),
        ("wrong version number", "tls_plain", "the server does not speak TLS on this port"),
        ("record layer failure", "tls_plain", "the server does not speak TLS on this port"),
    ):
        if part in text:
            return FetchError(message, sent=False, kind=kind)
    return FetchError("the secure connection failed", sent=True, kind="tls")


def _read_capped(answer: requests.Response, max_bytes: int, deadline: float) -> bytes:
    chunks: list[bytes] = []
    size = 0
    try:
        # `read1` gives what has come; `iter_content` would wait for a full chunk, so that a server
        # that drips bytes could hold a worker far beyond the deadline.
        while chunk := answer.raw.read1(65_536, decode_content=True):
            size += len(chunk)
            if size > max_bytes:
                raise FetchError("the answer is too large", sent=True, kind="too_large")
            if time.monotonic() > deadline:
                raise FetchError("the answer took too long", sent=True, kind="timeout")
            chunks.append(chunk)
    except TimeoutError as error:
        raise FetchError("the answer took too long", sent=True, kind="timeout") from error
    except (requests.RequestException, HTTPError, OSError) as error:
        if isinstance(error, ReadTimeoutError):
            raise FetchError("the answer took too long", sent=True, kind="timeout") from error
        raise FetchError("the answer broke off", sent=True, kind="broken") from error
    return b"".join(chunks)
