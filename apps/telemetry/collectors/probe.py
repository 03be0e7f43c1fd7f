"""What a Prometheus says about itself: checked requests outside the query path, and every way in
which they fail as a code. Nothing of an answer that is not a Prometheus' is kept or shown."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlencode

from apps.common.fetch import FetchError, FetchPolicy, FetchResult, fetch

_KINDS: Final = {
    "denied": "denied",
    "url": "bad_address",
    "dns": "dns",
    "timeout": "timeout",
    "redirect": "redirect",
    "too_large": "too_large",
    "broken": "broken",
    "tls_expired": "tls_expired",
    "tls_host": "tls_host",
    "tls_untrusted": "tls_untrusted",
    "tls_plain": "tls_plain",
    "tls": "tls",
}
_STATUSES: Final = {401: "unauthorized", 403: "forbidden", 404: "not_prometheus"}


class ProbeFailed(Exception):
    """Why there is no usable answer: `code` is stable (`refused`, `timeout`, `html_page`,
    `unauthorized`, `forbidden`, `tls_expired`, `tls_host`, `tls_untrusted`, `tls_plain`, `tls`,
    `not_prometheus`, `denied`, `dns`, `bad_address`, `redirect`, `too_large`, `broken`,
    `no_answer`, `http_error`, `refused_query`)."""

    def __init__(self, code: str, status: int | None = None) -> None:
        super().__init__(code)
        self.code = code
        self.status = status


def code_of(error: FetchError) -> str:
    """The code of a request that brought no answer."""
    if error.kind == "connect":
        text = str(error)
        return "refused" if "refused" in text else "broken" if "broke" in text else "no_answer"
    return _KINDS.get(error.kind, "broken")


def is_page(result: FetchResult) -> bool:
    """True for a web page where data was expected (a login page, a proxy's error)."""
    kind = next((v for k, v in result.headers.items() if k.lower() == "content-type"), "")
    return "html" in kind.lower() or result.body.lstrip()[:1] == b"<"


def check_status(result: FetchResult) -> None:
    """Raise ProbeFailed unless the answer is a 200 that is no web page."""
    if result.status in (401, 403):
        raise ProbeFailed(_STATUSES[result.status], result.status)
    if is_page(result):
        raise ProbeFailed("html_page", result.status)
    if result.status != 200:
        raise ProbeFailed(_STATUSES.get(result.status, "http_error"), result.status)


class Probe:
    """Requests to one Prometheus with one deadline for all of them."""

    def __init__(
        self, url: str, *, policy: FetchPolicy, deadline_s: float, headers: Mapping[str, str]
    ) -> None:
        self._base = url.rstrip("/")
        self._policy = policy
        self._headers = dict(headers)
        self._ends = time.monotonic() + deadline_s

    def get(self, path: str, **params: str) -> Any:
        """`data` of an API answer. Raises ProbeFailed."""
        query = f"?{urlencode(params)}" if params else ""
        return self._data(self._fetch(f"{path}{query}", None))

    def query(self, expression: str, at: float | None = None) -> Any:
        """`data` of an instant query, at the server's own now unless a Unix time is given."""
        form = {"query": expression}
        if at is not None:
            form["time"] = f"{at:.3f}"
        return self._data(self._fetch("/api/v1/query", form))

    def vector(self, expression: str, at: float | None = None) -> list[tuple[dict[str, str], str]]:
        """An instant vector as (labels, value as text). Raises ProbeFailed."""
        data = self.query(expression, at)
        try:
            return [
                ({str(k): str(v) for k, v in item["metric"].items()}, str(item["value"][1]))
                for item in data["result"]
            ]
        except (KeyError, IndexError, TypeError, AttributeError) as error:
            raise ProbeFailed("not_prometheus") from error

    def _fetch(self, path: str, form: Mapping[str, str] | None) -> FetchResult:
        left = self._ends - time.monotonic()
        if left <= 0:
            raise ProbeFailed("timeout")
        try:
            return fetch(
                self._base + path,
                policy=self._policy,
                method="GET" if form is None else "POST",
                headers=self._headers,
                data=form,
                connect_s=min(3.0, left),
                total_s=left,
            )
        except FetchError as error:
            raise ProbeFailed(code_of(error)) from error

    @staticmethod
    def _data(result: FetchResult) -> Any:
        if result.status in (400, 422) and not is_page(result):
            raise ProbeFailed("refused_query", result.status)
        check_status(result)
        try:
            body = json.loads(result.body)
        except ValueError as error:
            raise ProbeFailed("not_prometheus", result.status) from error
        if not isinstance(body, dict) or body.get("status") != "success" or "data" not in body:
            raise ProbeFailed("not_prometheus", result.status)
        return body["data"]
