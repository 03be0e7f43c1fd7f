"""`prometheus-api-client` on our own checked session.

What the package lacks by itself and gets here: a deadline, no redirects, no proxies from the
environment, the address check, a size cap, the `warnings` of partial answers, retries only where
they can help, and error texts that are safe to show.
"""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from enum import StrEnum
from typing import Any, Final
from urllib.parse import urlencode, urlsplit

import requests
from prometheus_api_client import PrometheusConnect
from prometheus_api_client.exceptions import PrometheusApiClientException

from apps.common.fetch import FetchError, FetchPolicy, FetchResult, fetch

from . import matrix
from .matrix import Series

#: Series one answer may hold; more is refused, not read.
MAX_SERIES: Final = 100_000
#: Bytes one answer may have (a series with its labels and samples takes about 350).
MAX_BYTES: Final = 64_000_000
#: Clocks that differ by more make every window wrong (seconds).
MAX_SKEW_S: Final = 30.0
_OVERLOADED: Final = frozenset({429, 502, 503, 504})
_ATTEMPTS: Final = 3


class Failure(StrEnum):
    """Why a Prometheus gave no figures. `config` is ours or its owner's to mend; asking again
    does not help."""

    CONFIG = "config"
    OVERLOAD = "overload"
    TIMEOUT = "timeout"
    CONNECTION = "connection"
    LIMIT = "limit"
    CLOCK = "clock"
    NOT_PROMETHEUS = "not_prometheus"


class SourceFailed(Exception):
    """The Prometheus cannot be asked; the message is safe to show."""

    def __init__(self, message: str, kind: Failure = Failure.CONFIG) -> None:
        super().__init__(message)
        self.kind = kind


_FOREIGN: Final = "the answer is not that of a Prometheus"
_FETCH_KINDS: Final = {
    "timeout": Failure.TIMEOUT, "too_large": Failure.LIMIT, "denied": Failure.CONFIG,
    "url": Failure.CONFIG, "redirect": Failure.CONFIG,
}  # fmt: skip


class _Answer(requests.Response):
    """An answer that was parsed once; the package asks for `json()` again."""

    parsed: Any = None

    def json(self, **_: Any) -> Any:
        return self.parsed


class CheckedSession(requests.Session):
    """Sends each request through the checked fetcher; adapters that others mount are ignored."""

    def __init__(self, policy: FetchPolicy, deadline_s: float) -> None:
        super().__init__()
        self.trust_env = False
        self.warnings: list[str] = []
        self.requests_sent = 0
        self._policy = policy
        self._ends = time.monotonic() + deadline_s
        # One body is parsed at a time, so that memory holds one large answer, not one per thread.
        self._parsing = threading.Lock()

    def mount(self, prefix: str | bytes, adapter: Any) -> None:
        """No transport but the checked fetcher (the package mounts its own)."""

    def request(self, method: Any, url: Any, **kwargs: Any) -> requests.Response:  # type: ignore[override]
        """One request, repeated with jitter while the server is overloaded and time is left.

        Raises SourceFailed for any answer that is not a success.
        """
        params = {key: str(value) for key, value in (kwargs.get("params") or {}).items()}
        for attempt in range(_ATTEMPTS):
            result = self._once(str(method), str(url), params, kwargs.get("headers"))
            if result.status not in _OVERLOADED or attempt == _ATTEMPTS - 1:
                break
            pause = random.uniform(0.5, 1.0) * 0.2 * 2**attempt
            if time.monotonic() + pause >= self._ends:
                break
            time.sleep(pause)
        if result.status != 200:
            raise _refusal(result)
        _check_clock(result)
        response = _Answer()
        response.status_code = result.status
        response.url = str(url)
        response.headers.update(result.headers)
        # A selector of raw samples is the only query that ends so; its answers are the large ones.
        response.parsed = self._parse(result.body, is_range=params.get("query", "").endswith("]"))
        return response

    def _once(
        self, method: str, url: str, params: Mapping[str, str], headers: Mapping[str, str] | None
    ) -> FetchResult:
        left = self._ends - time.monotonic()
        if left <= 0:
            raise FetchError("the answer did not come in time", sent=False, kind="timeout")
        self.requests_sent += 1
        is_get = method.upper() == "GET"
        return fetch(
            f"{url}?{urlencode(params)}" if is_get and params else url,
            policy=self._policy,
            method=method,
            headers=headers,
            data=None if is_get else params or None,
            connect_s=min(3.0, left),
            total_s=left,
        )

    def _parse(self, body: bytes, *, is_range: bool) -> Any:
        with self._parsing:
            try:
                data = matrix.parse(body) if is_range else json.loads(body)
            except ValueError as error:
                raise SourceFailed(_FOREIGN, Failure.NOT_PROMETHEUS) from error
        found = data.get("warnings") if isinstance(data, dict) else None
        if found:
            self.warnings.extend(str(item)[:200] for item in found)
        return data


def _refusal(result: FetchResult) -> SourceFailed:
    """The body is not ours to show; only what it says about limits decides the kind."""
    status = result.status
    if status in _OVERLOADED:
        return SourceFailed(f"the Prometheus is overloaded (HTTP {status})", Failure.OVERLOAD)
    if status in (401, 403):
        return SourceFailed("the Prometheus refused the credential")
    if status == 404:
        return SourceFailed("there is no Prometheus at this address", Failure.NOT_PROMETHEUS)
    if status in (400, 422):
        if b"too many samples" in result.body[:2000] or b"limit" in result.body[:2000]:
            return SourceFailed("the query exceeds a limit of the Prometheus", Failure.LIMIT)
        return SourceFailed("the Prometheus refused the query")
    if status == 500:
        return SourceFailed("the Prometheus failed (HTTP 500)", Failure.OVERLOAD)
    return SourceFailed("the Prometheus refused the query")


def _check_clock(result: FetchResult) -> None:
    text = next((v for k, v in result.headers.items() if k.lower() == "date"), "")
    try:
        skew = parsedate_to_datetime(text).timestamp() - time.time()
    except (TypeError, ValueError):
        return
    if abs(skew) > MAX_SKEW_S:
        raise SourceFailed(
            f"the clock of the Prometheus differs by {abs(skew):.0f} s", Failure.CLOCK
        )


@dataclass(frozen=True, slots=True)
class Row:
    """One element of an instant vector; infinite and NaN values were dropped before."""

    labels: Mapping[str, str]
    value: float


class Prometheus:
    """Instant queries with one deadline for all of them."""

    def __init__(
        self,
        url: str,
        *,
        policy: FetchPolicy,
        deadline_s: float,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self._session = CheckedSession(policy, deadline_s)
        # The package glues paths to the address, so it may not end in a slash.
        self._client = PrometheusConnect(
            url=url.rstrip("/"), headers=dict(headers or {}), session=self._session, method="POST"
        )
        self._url = url.rstrip("/")
        self._headers = dict(headers or {})
        self.name = urlsplit(url).netloc

    @property
    def is_partial(self) -> bool:
        """True if any answer carried warnings (part of the data is missing)."""
        return bool(self._session.warnings)

    @property
    def requests_sent(self) -> int:
        """HTTP requests so far, retries included."""
        return self._session.requests_sent

    def query(self, expression: str, at: float) -> list[Row]:
        """The instant vector at a Unix time. Raises SourceFailed."""
        return _rows(self._ask(expression, at))

    def ranges(self, selector: str, range_s: float, at: float) -> list[Series]:
        """Raw samples of the `range_s` seconds up to a Unix time. Raises SourceFailed."""
        return self._ask(f"{selector}[{max(1, round(range_s * 1000))}ms]", at)

    def names(self, start: float, end: float) -> frozenset[str]:
        """The metric names that are stored between two Unix times. Raises SourceFailed."""
        params = {"start": f"{start:.0f}", "end": f"{end:.0f}"}
        with _translated():
            found = self._client.get_label_values("__name__", params=params)
        if not isinstance(found, list):
            raise SourceFailed(_FOREIGN, Failure.NOT_PROMETHEUS)
        return frozenset(str(name) for name in found)

    def configuration(self) -> str:
        """The server's own configuration as YAML; empty where it shows none (Thanos, Mimir)."""
        try:
            with _translated():
                answer = self._session.request(
                    "GET", f"{self._url}/api/v1/status/config", headers=self._headers
                )
                data = answer.json()
                return str(data["data"]["yaml"])
        except SourceFailed:
            return ""

    def _ask(self, expression: str, at: float) -> list[Any]:
        with _translated():
            answer = self._client.custom_query(expression, params={"time": f"{at:.3f}"})
        if not isinstance(answer, list):
            raise SourceFailed(_FOREIGN, Failure.NOT_PROMETHEUS)
        if len(answer) > MAX_SERIES:
            raise SourceFailed(
                f"one answer holds {len(answer)} series, more than {MAX_SERIES}", Failure.LIMIT
            )
        return answer


class _translated:
    """Turns whatever a request raises into SourceFailed."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, FetchError):
            cause = _FETCH_KINDS.get(error.kind, Failure.CONNECTION)
            raise SourceFailed(str(error), cause) from error
        if isinstance(error, PrometheusApiClientException):
            # Its message repeats the raw body, which is not ours to show.
            raise SourceFailed("the Prometheus refused the query") from error
        if isinstance(error, (ValueError, KeyError, TypeError, AttributeError)):
            raise SourceFailed(_FOREIGN, Failure.NOT_PROMETHEUS) from error


def _rows(answer: list[Any]) -> list[Row]:
    rows = []
    for item in answer:
        try:
            value = float(item["value"][1])
            labels = {str(k): str(v) for k, v in item["metric"].items()}
        except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
            raise SourceFailed(_FOREIGN, Failure.NOT_PROMETHEUS) from error
        if value == value and abs(value) != float("inf"):
            rows.append(Row(labels, value))
    return rows
