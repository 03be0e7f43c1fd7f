"""`prometheus-api-client` on our own checked session.

What the package lacks by itself and gets here: a deadline, no redirects, no proxies from the
environment, the address check, a size cap, the `warnings` of partial answers, and error texts that
are safe to show.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import requests
from prometheus_api_client import PrometheusConnect
from prometheus_api_client.exceptions import PrometheusApiClientException

from apps.common.fetch import FetchError, FetchPolicy, fetch


class SourceFailed(Exception):
    """The Prometheus cannot be asked; the message is safe to show."""


class CheckedSession(requests.Session):
    """Sends each request through the checked fetcher; adapters that others mount are ignored."""

    def __init__(self, policy: FetchPolicy, deadline_s: float) -> None:
        super().__init__()
        self.trust_env = False
        self.warnings: list[str] = []
        self._policy = policy
        self._ends = time.monotonic() + deadline_s

    def mount(self, prefix: str | bytes, adapter: Any) -> None:
        """No transport but the checked fetcher (the package mounts its own)."""

    def request(self, method: Any, url: Any, **kwargs: Any) -> requests.Response:  # type: ignore[override]
        left = self._ends - time.monotonic()
        if left <= 0:
            raise FetchError("the answer did not come in time", sent=False, kind="timeout")
        params = {key: str(value) for key, value in (kwargs.get("params") or {}).items()}
        result = fetch(
            str(url),
            policy=self._policy,
            method=str(method),
            headers=kwargs.get("headers"),
            data=params or None,
            connect_s=min(3.0, left),
            total_s=left,
        )
        response = requests.Response()
        response.status_code = result.status
        response._content = result.body
        response.url = str(url)
        response.headers.update(result.headers)
        if result.status == 200:
            self._note_warnings(result.body)
        return response

    def _note_warnings(self, body: bytes) -> None:
        try:
            data = json.loads(body)
        except ValueError:
            return
        found = data.get("warnings") if isinstance(data, dict) else None
        if found:
            self.warnings.extend(str(item)[:200] for item in found)


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
        self.name = urlsplit(url).netloc

    @property
    def is_partial(self) -> bool:
        """True if any answer carried warnings (part of the data is missing)."""
        return bool(self._session.warnings)

    def query(self, expression: str, at: float) -> list[Row]:
        """The instant vector at a Unix time. Raises SourceFailed."""
        try:
            answer = self._client.custom_query(expression, params={"time": f"{at:.3f}"})
        except FetchError as error:
            raise SourceFailed(str(error)) from error
        except PrometheusApiClientException as error:
            # Its message repeats the raw body, which is not ours to show.
            raise SourceFailed("the Prometheus refused the query") from error
        except (ValueError, KeyError, TypeError) as error:
            raise SourceFailed("the answer is not that of a Prometheus") from error
        return _rows(answer)


def _rows(answer: Any) -> list[Row]:
    if not isinstance(answer, list):
        raise SourceFailed("the answer is not that of a Prometheus")
    rows = []
    for item in answer:
        try:
            value = float(item["value"][1])
            labels = {str(k): str(v) for k, v in item["metric"].items()}
        except (KeyError, IndexError, TypeError, ValueError) as error:
            raise SourceFailed("the answer is not that of a Prometheus") from error
        if value == value and abs(value) != float("inf"):
            rows.append(Row(labels, value))
    return rows
