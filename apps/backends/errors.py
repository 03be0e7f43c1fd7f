"""From HTTP answers and broken connections to outcomes: the one error table of all adapters.

Source: research on backends, §3.4. A time-out after the request left is UNKNOWN and is never
retried blindly (DESIGN law 7); a refused connection surely changed nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from apps.common.fetch import FetchError

from .protocol import Applied, Outcome

MAX_ANSWER: Final = 500
_RETRY_DEFAULT_S: Final = 5.0
_UNKNOWN_STATUS: Final = frozenset({500, 502, 504})


class PlanRefused(Exception):
    """No plan leads from the snapshot to the targets. `code` is stable, `params` fill its text."""

    def __init__(self, code: str, **params: str) -> None:
        super().__init__(f"{code} {params}" if params else code)
        self.code = code
        self.params = params


class UnknownAdapter(LookupError):
    """No adapter has that name."""


class BadConnection(ValueError):
    """The stored connection cannot be used; the message says what is wrong with it."""


def from_fetch_error(error: FetchError, request: str) -> Applied:
    """Outcome of a call that brought no answer: UNKNOWN if it may have arrived."""
    if error.sent:
        return Applied(Outcome.UNKNOWN, reason=error.kind, request=request, answer=str(error))
    if error.kind in ("denied", "url"):
        return Applied(Outcome.DENIED, reason=error.kind, request=request, answer=str(error))
    return Applied(
        Outcome.RETRYABLE,
        reason=error.kind,
        retry_after_s=_RETRY_DEFAULT_S,
        request=request,
        answer=str(error),
    )


def from_status(
    status: int, *, request: str, answer: str, headers: Mapping[str, str], reference: str = ""
) -> Applied:
    """Outcome of an answer. 2xx is only ACCEPTED; unknown codes of 5xx are UNKNOWN."""
    lower = {name.lower(): value for name, value in headers.items()}
    reason = f"http_{status}"
    retry_after: float | None = None
    if 200 <= status < 300:
        outcome, reason = Outcome.ACCEPTED, ""
    elif status == 409:
        outcome = Outcome.CONFLICT
    elif status in (401, 403, 412):
        outcome = Outcome.DENIED
    elif status in (429, 503):
        outcome, retry_after = Outcome.RETRYABLE, _retry_after(lower.get("retry-after"))
    elif status in _UNKNOWN_STATUS or status > 504:
        outcome = Outcome.UNKNOWN
    else:  # 400, 404, 405, 422 and the rest of 4xx: stop, never another write surface
        outcome = Outcome.UNSUPPORTED
    return Applied(
        outcome,
        reference=reference,
        reason=reason,
        retry_after_s=retry_after,
        request=request,
        answer=answer,
    )


def _retry_after(raw: str | None) -> float:
    try:
        return min(300.0, max(0.5, float(raw or _RETRY_DEFAULT_S)))
    except ValueError:
        return _RETRY_DEFAULT_S


def safe_text(text: str, secrets: Sequence[str]) -> str:
    """An answer that may be stored and shown: capped, one line, without any known secret."""
    for secret in secrets:
        if secret:
            text = text.replace(secret, "•••")
    text = " ".join(text.split())
    return text if len(text) <= MAX_ANSWER else text[: MAX_ANSWER - 1] + "…"
