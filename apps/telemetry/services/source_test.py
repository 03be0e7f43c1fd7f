"""Testing a source before it is connected: what it is, what it holds, and why it does not answer.

Asked only by a person's or token's explicit act; the address passes the checked fetcher, every
failure is a code, and nothing of a foreign answer is shown.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any, Final
from urllib.parse import urlsplit

from apps.accounts.domain.authorize import (
    NotAllowed,
    Permission,
    ScopeKind,
    Viewer,
)
from apps.audit import services as audit
from apps.common.fetch import FetchError, fetch, split_url
from apps.engines.exposition import parse
from apps.fleet import connect

from ..collectors.intervals import seconds
from ..collectors.probe import Probe, ProbeFailed, check_status, code_of
from ..domain.recognise import profile_of

#: Longest a test may take, in seconds.
TEST_S: Final = 8.0
#: Addresses that one direct scrape may list.
MAX_ADDRESSES: Final = 200
_READERS: Final = 8


@dataclass(frozen=True, slots=True)
class AddressTest:
    """One metrics address of a direct scrape. `profile` is empty when no profile reads it."""

    url: str
    problem: str = ""
    status: int | None = None
    profile: str = ""


@dataclass(frozen=True, slots=True)
class SourceTest:
    """What a test found. `problem` is empty when the source can be used, else a code of
    `collectors.probe.ProbeFailed`. Parts that the server does not tell are None or empty.

    `intervals` are (scrape interval in s, number of targets), most targets first; `skew_s` is the
    server's clock minus ours, known to ± `skew_within_s`.
    """

    kind: str
    url: str
    problem: str = ""
    status: int | None = None
    version: str = ""
    retention: str = ""
    intervals: tuple[tuple[float, int], ...] = ()
    skew_s: float | None = None
    skew_within_s: float | None = None
    targets_up: int | None = None
    targets_down: int | None = None
    addresses: tuple[AddressTest, ...] = ()

    @property
    def is_ok(self) -> bool:
        return not self.problem

    def to_json(self) -> dict[str, Any]:
        data: dict[str, Any] = asdict(self)
        return data


def may_connect(actor: Viewer) -> bool:
    """True for who may configure a cluster or the installation."""
    if actor.is_system:
        return True
    wide = (ScopeKind.INSTALLATION, ScopeKind.CLUSTER)
    return any(b.scope_kind in wide for b in actor.scopes_with(Permission.CONFIGURE))


def require_connect(actor: Viewer) -> None:
    """Raise NotAllowed unless the actor may connect something."""
    if not may_connect(actor):
        raise NotAllowed(Permission.CONFIGURE)


def plain_address(url: str) -> str:
    """The address without what must not be kept: user, password, query and fragment."""
    text = url.strip()[:400]
    try:
        parts = urlsplit(text)
    except ValueError:
        return text.rpartition("@")[2]
    host = parts.netloc.rpartition("@")[2]
    if not parts.netloc:
        return text.rpartition("@")[2].partition("?")[0].partition("#")[0]
    return f"{parts.scheme}://{host}{parts.path}"


def metrics_address(text: str) -> str:
    """`host:port` or an address as the address of its metrics."""
    url = plain_address(text)
    url = url if "://" in url else f"http://{url}"
    try:
        has_path = bool(urlsplit(url).path.strip("/"))
    except ValueError:
        return url
    return url if has_path else f"{url.rstrip('/')}/metrics"


def check_prometheus(*, actor: Viewer, now: datetime, url: str, token: str = "") -> SourceTest:
    """Ask a Prometheus what it is. Never raises for what the address answers; raises NotAllowed."""
    require_connect(actor)
    found = _prometheus(plain_address(url), token)
    _record(actor, now, found)
    return found


def check_addresses(*, actor: Viewer, now: datetime, urls: Sequence[str]) -> SourceTest:
    """Read each metrics address once. No credential is ever sent to such an address."""
    require_connect(actor)
    wanted = list(dict.fromkeys(metrics_address(url) for url in urls))[:MAX_ADDRESSES]
    rows = fan_out(_address, wanted)
    good = [row for row in rows if not row.problem and row.profile]
    first = next((row for row in rows if row.problem), None)
    found = SourceTest(
        kind="scrape",
        url="",
        problem="" if good else (first.problem if first else "no_profile"),
        status=None if good or first is None else first.status,
        targets_up=sum(1 for row in rows if not row.problem),
        targets_down=sum(1 for row in rows if row.problem),
        addresses=tuple(rows),
    )
    _record(actor, now, found)
    return found


def bearer(token: str) -> dict[str, str]:
    """Headers that carry a credential; none without one."""
    return {"Authorization": f"Bearer {token}"} if token else {}


def fan_out(work: Callable[[str], AddressTest], urls: Sequence[str]) -> list[AddressTest]:
    """All addresses, a few at a time, in their order."""
    if not urls:
        return []
    with ThreadPoolExecutor(min(_READERS, len(urls)), thread_name_prefix="connect") as pool:
        return list(pool.map(work, urls))


def _prometheus(url: str, token: str) -> SourceTest:
    try:
        split_url(url)
    except FetchError as error:
        return SourceTest("prometheus", url, code_of(error))
    probe = Probe(url, policy=connect.fetch_policy(), deadline_s=TEST_S, headers=bearer(token))
    try:
        skew, within = _skew(probe)
    except ProbeFailed as error:
        return SourceTest("prometheus", url, error.code, error.status)
    version = _text(_optional(probe, "/api/v1/status/buildinfo"), "version")
    retention = _text(_optional(probe, "/api/v1/status/runtimeinfo"), "storageRetention")
    up, down = _up(probe)
    return SourceTest(
        kind="prometheus",
        url=url,
        version=version,
        retention=retention,
        intervals=_intervals(_optional(probe, "/api/v1/targets", state="active")),
        skew_s=skew,
        skew_within_s=within,
        targets_up=up,
        targets_down=down,
    )


def _skew(probe: Probe) -> tuple[float | None, float | None]:
    """The server's clock minus ours, halfway between asking and the answer. This first question
    also proves that it is a Prometheus."""
    asked = time.time()
    data = probe.query("time()")
    answered = time.time()
    try:
        result = data["result"]
        pair = result if data["resultType"] == "scalar" else result[0]["value"]
        theirs = float(pair[1])
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise ProbeFailed("not_prometheus") from error
    return theirs - (asked + answered) / 2, (answered - asked) / 2


def _up(probe: Probe) -> tuple[int | None, int | None]:
    try:
        rows = probe.vector("count_values('up', up)")
    except ProbeFailed:
        return None, None
    counts = {labels.get("up", ""): int(float(value)) for labels, value in rows}
    return counts.get("1", 0), counts.get("0", 0)


def _optional(probe: Probe, path: str, **params: str) -> Any:
    """An answer that not every compatible server gives; None without it."""
    try:
        return probe.get(path, **params)
    except ProbeFailed:
        return None


def _text(data: Any, name: str) -> str:
    return str(data.get(name) or "")[:80] if isinstance(data, Mapping) else ""


def _intervals(data: Any) -> tuple[tuple[float, int], ...]:
    rows = data.get("activeTargets") if isinstance(data, Mapping) else None
    counted: Counter[float] = Counter()
    for row in rows if isinstance(rows, list) else ():
        every = seconds(str(row.get("scrapeInterval", ""))) if isinstance(row, Mapping) else None
        if every:
            counted[every] += 1
    return tuple(counted.most_common())


def _address(url: str) -> AddressTest:
    try:
        result = fetch(
            url,
            policy=connect.fetch_policy(),
            headers={"Accept": "text/plain;version=0.0.4"},
            total_s=TEST_S,
        )
        check_status(result)
    except FetchError as error:
        return AddressTest(url, code_of(error))
    except ProbeFailed as error:
        code = "http_error" if error.code == "not_prometheus" else error.code
        return AddressTest(url, code, error.status)
    series = parse(result.text()).series
    if not series:
        return AddressTest(url, "no_metrics")
    profile = profile_of(frozenset(item.name for item in series))
    return AddressTest(url, profile=profile.profile if profile else "")


def _record(actor: Viewer, now: datetime, found: SourceTest) -> None:
    audit.record(
        actor=actor,
        now=now,
        action="source.test",
        object_kind="source",
        object_id="",
        object_label=found.url or f"{len(found.addresses)} addresses",
        after={"kind": found.kind, "problem": found.problem},
    )
