"""The load generator of one deployment and its own truth about every request.

Open loop: arrivals follow the replayed trace whatever the service does. The product must not read
this truth; it is there to check the product's numbers.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from apps.simulation.demo.chat import CHARS_PER_TOKEN
from apps.simulation.demo.client import ChatClient, StreamResult
from apps.simulation.trace import INPUT_CAP, Arrival, Phase, Trace, replay_story

KEEP_REQUESTS = 200_000
LETTERS = b"abcdefghijklmnopqrstuvwxyz"


@dataclass(frozen=True, slots=True)
class RequestTruth:
    """One finished request as its client saw it. Unix seconds, seconds, tokens.

    `tpot` is null for a single token, `ttft` for a request without a first byte. `ok` needs the
    usage event.
    """

    id: int
    deployment: str
    phase: str
    start: float
    end: float
    ttft: float | None
    tpot: float | None
    tokens_in: int
    tokens_out: int
    ok: bool
    status: int
    error: str


class Truth:
    """Totals and the finished requests of one deployment, oldest first."""

    def __init__(self, deployment: str) -> None:
        self.deployment = deployment
        self.sent = 0
        self.ok = 0
        self.failed = 0
        self.tokens_in = 0
        self.tokens_out = 0
        self.requests: deque[RequestTruth] = deque(maxlen=KEEP_REQUESTS)

    def totals(self) -> dict[str, int]:
        """Requests sent, ok, failed and in flight; tokens of the good ones."""
        return {
            "sent": self.sent,
            "ok": self.ok,
            "failed": self.failed,
            "in_flight": self.sent - self.ok - self.failed,
            "tokens_in": self.tokens_in,
            "tokens_out": self.tokens_out,
        }

    def since(self, end: float) -> list[dict[str, Any]]:
        """Requests that ended after `end` (Unix s)."""
        found: list[dict[str, Any]] = []
        for request in reversed(self.requests):
            if request.end <= end:
                break
            found.append(asdict(request))
        found.reverse()
        return found

    def add(self, request: RequestTruth) -> None:
        """Record a finished request."""
        self.requests.append(request)
        if request.ok:
            self.ok += 1
            self.tokens_in += request.tokens_in
            self.tokens_out += request.tokens_out
        else:
            self.failed += 1


class Load:
    """Sends the phases of a story to one router until it is stopped."""

    def __init__(
        self,
        deployment: str,
        url: str,
        model: str,
        phases: tuple[Phase, ...],
        trace: Trace,
        seed: int,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self.truth = Truth(deployment)
        self.phase = ""
        self.phases = phases
        self._trace = trace
        self._seed = seed
        self._runs = 0
        self._loop = loop
        self._client = ChatClient(url, loop)
        self._task: asyncio.Task[None] | None = None
        self._sending: set[asyncio.Task[None]] = set()
        self._text = prompt_text(np.random.default_rng([seed, 1]))
        self._before = f'{{"model":"{model}","messages":[{{"role":"user","content":"'.encode()

    @property
    def running(self) -> bool:
        """Whether requests are being sent."""
        return self._task is not None and not self._task.done()

    def start(self) -> None:
        """Send from the first phase on; nothing if it runs already."""
        if not self.running:
            self._task = self._loop.create_task(self._run())

    def stop(self) -> None:
        """Send no more; requests in flight go on."""
        if self._task is not None:
            self._task.cancel()
            self._task = None
        self.phase = ""

    def close(self) -> None:
        """Stop and drop the requests in flight."""
        self.stop()
        self._client.close()

    async def _run(self) -> None:
        # Each start takes another place of the trace, decided by the seed alone.
        rng = np.random.default_rng([self._seed, 2, self._runs])
        self._runs += 1
        began = self._loop.time()
        for arrival in replay_story(self._trace, self.phases, rng):
            delay = began + arrival.at_s - self._loop.time()
            if delay > 0:
                await asyncio.sleep(delay)
            self.phase = arrival.phase
            body = self._body(arrival, int(rng.integers(0, len(self._text) // 2)))
            self.truth.sent += 1
            task = self._loop.create_task(self._client.send(body, self._recorder(arrival)))
            self._sending.add(task)
            task.add_done_callback(self._sending.discard)

    def _body(self, arrival: Arrival, offset: int) -> bytes:
        content = self._text[offset : offset + arrival.input_tokens * CHARS_PER_TOKEN]
        options = (
            b'"}],"stream":true,"ignore_eos":true,"stream_options":{"include_usage":true},'
            b'"max_tokens":%d}' % arrival.output_tokens
        )
        return self._before + content + options

    def _recorder(self, arrival: Arrival) -> Callable[[StreamResult], None]:
        number, started = self.truth.sent, time.time()

        def record(result: StreamResult) -> None:
            ok = not result.error
            tokens = result.output_tokens or 0
            first, last = result.first_byte, result.last_token
            tpot = None
            if ok and tokens > 1 and first is not None and last is not None:
                tpot = (last - first) / (tokens - 1)
            self.truth.add(
                RequestTruth(
                    id=number,
                    deployment=self.truth.deployment,
                    phase=arrival.phase,
                    start=started,
                    end=time.time(),
                    ttft=None if first is None else first - result.sent,
                    tpot=tpot,
                    tokens_in=result.prompt_tokens or 0,
                    tokens_out=tokens,
                    ok=ok,
                    status=result.status,
                    error=result.error,
                )
            )

        return record


def prompt_text(rng: np.random.Generator) -> bytes:
    """Random words to cut prompts from, twice as long as the longest prompt, so that two prompts
    hardly ever share a beginning."""
    wanted = 2 * INPUT_CAP * CHARS_PER_TOKEN
    letters = np.frombuffer(LETTERS, dtype=np.uint8)[rng.integers(0, len(LETTERS), wanted)].copy()
    letters[np.cumsum(rng.integers(2, 10, wanted // 4)) % wanted] = ord(" ")
    return letters.tobytes()


class StallWatch:
    """Notes when the event loop, and so the whole fleet, stood still."""

    SLEEP_S = 0.02
    LIMIT_S = 0.2

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.stalls: deque[dict[str, float]] = deque(maxlen=1000)

    async def run(self) -> None:
        """Sleep 20 ms for ever; a sleep that took over 0.2 s longer is a stall."""
        before = self._loop.time()
        while True:
            await asyncio.sleep(self.SLEEP_S)
            now = self._loop.time()
            gap = now - before - self.SLEEP_S
            if gap > self.LIMIT_S:
                self.stalls.append({"at": time.time() - gap, "seconds": gap})
            before = now
