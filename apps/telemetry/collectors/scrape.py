"""The direct collector: fetches `/metrics` of all targets of a source at once."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field

from apps.common.fetch import FetchError, FetchPolicy, fetch
from apps.engines.readings import NotAnExposition, Reading, read
from apps.engines.schema import Profile

#: Threads of one collect; targets beyond them queue inside the one deadline.
THREADS = 8
_ACCEPT = {"Accept": "text/plain;version=0.0.4"}


@dataclass(frozen=True, slots=True)
class TargetRequest:
    """One address to read, and how."""

    key: str
    url: str
    profile: Profile
    match: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Answer:
    """A reading, or why there is none (`error` is safe to show)."""

    reading: Reading | None
    error: str = ""


def scrape(
    targets: Sequence[TargetRequest],
    *,
    policy: FetchPolicy,
    deadline_s: float,
) -> dict[str, Answer]:
    """Answers by key. A target that has not answered at the deadline is not reported; its thread
    ends by its own time-out."""
    if not targets:
        return {}
    ends = time.monotonic() + deadline_s
    pool = ThreadPoolExecutor(min(THREADS, len(targets)), thread_name_prefix="scrape")
    try:
        futures = {pool.submit(_one, target, policy, ends): target.key for target in targets}
        done, _ = wait(futures, timeout=deadline_s)
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
    return {key: _result(future, future in done) for future, key in futures.items()}


def _result(future: Future[Answer], is_done: bool) -> Answer:
    if not is_done or future.cancelled():
        return Answer(None, "the answer did not come in time")
    return future.result()


def _one(target: TargetRequest, policy: FetchPolicy, ends: float) -> Answer:
    left = ends - time.monotonic()
    if left <= 0:
        return Answer(None, "the answer did not come in time")
    try:
        result = fetch(
            target.url, policy=policy, headers=_ACCEPT, connect_s=min(3.0, left), total_s=left
        )
    except FetchError as error:
        return Answer(None, str(error))
    if result.status != 200:
        return Answer(None, f"the target answered HTTP {result.status}")
    try:
        return Answer(read(result.text(), target.profile, target.match))
    except NotAnExposition as error:
        return Answer(None, str(error))
