"""The simulated GPU work of one engine: prefill passes, a serial KV link, a decode batch.

Each worker keeps a planned clock: a pass starts where the last one was planned to end, if that is
not more than `catch_up_s` ago. A late wake-up of the event loop is so caught up with the next pass
and times stay right on a busy host. All times are seconds of the event loop's clock.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from apps.simulation.service_time import EngineProfile

Callback = Callable[[], None]


class Clock:
    """The planned clock of one serial resource."""

    def __init__(self, loop: asyncio.AbstractEventLoop, catch_up_s: float) -> None:
        self.loop = loop
        self._catch_up_s = catch_up_s
        self._planned = float("-inf")

    def now(self) -> float:
        """The event loop's time, seconds."""
        return self.loop.time()

    def plan(self, seconds: float, *, not_before: float) -> float:
        """Reserve `seconds` from the earliest start on; the planned end is returned.

        `not_before` is when the work could first have begun; it may lie a little in the past.
        """
        start = max(self._planned, not_before, self.now() - self._catch_up_s)
        self._planned = start + seconds
        return self._planned


@dataclass(slots=True, eq=False)
class PrefillJob:
    """One prompt to compute. `on_computed` gets the planned end of its last pass."""

    tokens: int
    on_computed: Callable[[float], None]
    done: int = 0
    queued_at: float = 0.0
    started_at: float = 0.0
    cancelled: bool = False


class PrefillQueue:
    """FIFO of prompts, computed in passes of up to `batch_tokens` tokens.

    Whole prompts share a pass while they fit; a prompt longer than the budget goes alone in chunks,
    and others fill up its last pass.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, profile: EngineProfile) -> None:
        self._clock = Clock(loop, profile.catch_up_s)
        self._profile = profile
        self.slow_factor = 1.0
        self.waiting: deque[PrefillJob] = deque()
        self.running: list[PrefillJob] = []
        self.on_pass: Callable[[float, int], None] = lambda seconds, tokens: None
        self.on_start: Callable[[PrefillJob], None] = lambda job: None

    def add(self, job: PrefillJob) -> None:
        """Queue a prompt; it starts at once if the worker is idle."""
        job.queued_at = self._clock.now()
        self.waiting.append(job)
        if not self.running:
            self._start(job.queued_at)

    def cancel(self, job: PrefillJob) -> None:
        """Forget a prompt. A pass under way still takes its time, as on a GPU."""
        job.cancelled = True
        if job not in self.running and job in self.waiting:
            self.waiting.remove(job)

    def clear(self) -> None:
        """Forget every prompt, as a process that dies does."""
        for job in (*self.waiting, *self.running):
            job.cancelled = True
        self.waiting.clear()

    @property
    def queued_tokens(self) -> int:
        """Tokens not computed yet of the prompts that wait."""
        return sum(job.tokens - job.done for job in self.waiting)

    def _start(self, not_before: float) -> None:
        budget = self._profile.batch_tokens
        batch: list[tuple[PrefillJob, int, int]] = []
        while self.waiting and budget > 0:
            job = self.waiting[0]
            need = job.tokens - job.done
            if need > budget and batch:
                break
            self.waiting.popleft()
            take = min(need, budget)
            budget -= take
            batch.append((job, job.done, job.done + take))
        if not batch:
            return
        seconds = self._profile.prefill.seconds((start, end) for _, start, end in batch)
        seconds *= self.slow_factor
        for job, start, _ in batch:
            if start == 0:
                job.started_at = self._clock.now()
                self.on_start(job)
        self.running = [job for job, _, _ in batch]
        end = self._clock.plan(seconds, not_before=not_before)
        self._clock.loop.call_at(end, self._finish, batch, seconds, end)

    def _finish(
        self, batch: list[tuple[PrefillJob, int, int]], seconds: float, planned_end: float
    ) -> None:
        self.running = []
        self.on_pass(seconds, sum(end - start for _, start, end in batch))
        ready = []
        for job, _, end in reversed(batch):
            job.done = end
            if job.cancelled:
                continue
            if job.done < job.tokens:
                self.waiting.appendleft(job)  # the next chunk goes first
            else:
                ready.append(job)
        if self.waiting:
            self._start(planned_end)
        for job in reversed(ready):
            job.on_computed(planned_end)


class KvLink:
    """The network link of one prefill worker: transfers go one after another."""

    def __init__(self, loop: asyncio.AbstractEventLoop, profile: EngineProfile) -> None:
        self._clock = Clock(loop, profile.catch_up_s)
        self._profile = profile
        self.bytes_per_s = profile.link_bytes_per_s
        self.active = 0

    def send(self, tokens: int, not_before: float, done: Callable[[float, int], None]) -> None:
        """Move the KV of `tokens`; `done` gets the transfer's own seconds and its bytes."""
        size = tokens * self._profile.kv_bytes_per_token
        seconds = self._profile.link_latency_s + size / self.bytes_per_s
        end = self._clock.plan(seconds, not_before=not_before)
        self.active += 1
        self._clock.loop.call_at(end, self._arrived, seconds, size, done)

    def _arrived(self, seconds: float, size: int, done: Callable[[float, int], None]) -> None:
        self.active -= 1
        done(seconds, size)


@dataclass(slots=True, eq=False)
class DecodeJob:
    """One answer to generate.

    `free_first`: the first token came with the KV (SGLang); else the first step makes it (vLLM).
    `on_admit` is called when KV room and a slot are reserved, `on_tokens(n, last)` when n tokens go
    out, the last of them with `last` true.
    """

    prompt: int
    output: int
    free_first: bool
    on_admit: Callback
    on_tokens: Callable[[int, bool], None]
    produced: int = 0
    queued_at: float = 0.0
    admitted_at: float = 0.0
    delivered_at: float = 0.0
    joined_at: float = 0.0
    state: str = "new"  # new, prealloc, transfer, waiting, running, done

    @property
    def reserved(self) -> int:
        """KV tokens this job may come to hold."""
        return self.prompt + self.output


class DecodeBatch:
    """Continuous batching: every running request gets one token a step.

    A request is admitted in order of arrival when its prompt and whole output fit the KV room and a
    slot is free, so nothing is ever preempted. It joins at a step boundary once its KV is here.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, profile: EngineProfile) -> None:
        self._clock = Clock(loop, profile.catch_up_s)
        self._profile = profile
        self._step = 0
        self._due: dict[int, list[DecodeJob]] = {}
        self._stepping = False
        self.slow_factor = 1.0
        self.prealloc: deque[DecodeJob] = deque()
        self.transferring: set[DecodeJob] = set()
        self.waiting: deque[DecodeJob] = deque()
        self.running: set[DecodeJob] = set()
        self.reserved = 0
        self.kv_running = 0
        self.on_step: Callable[[float, int], None] = lambda seconds, running: None

    def add(self, job: DecodeJob) -> None:
        """Ask for room; `on_admit` may be called before this returns."""
        job.queued_at = self._clock.now()
        job.state = "prealloc"
        self.prealloc.append(job)
        self._admit()

    def deliver(self, job: DecodeJob) -> None:
        """The KV of an admitted job has arrived."""
        if job.state != "transfer":
            return
        self.transferring.discard(job)
        job.state = "waiting"
        job.delivered_at = self._clock.now()
        self.waiting.append(job)
        if not self._stepping:
            self._join_and_step(job.delivered_at)

    def cancel(self, job: DecodeJob) -> None:
        """Forget a job and free its room."""
        if job.state == "prealloc":
            self.prealloc.remove(job)
        elif job.state in ("transfer", "waiting", "running"):
            self.reserved -= job.reserved
            self.transferring.discard(job)
            if job.state == "waiting":
                self.waiting.remove(job)
            elif job.state == "running":
                self.running.discard(job)
                self.kv_running -= job.prompt + job.produced
        job.state = "done"
        self._admit()

    def clear(self) -> None:
        """Forget every job, as a process that dies does."""
        for job in (*self.prealloc, *self.transferring, *self.waiting, *self.running):
            job.state = "done"
        for queue in (self.prealloc, self.transferring, self.waiting, self.running):
            queue.clear()
        self._due.clear()
        self.reserved = self.kv_running = 0

    @property
    def kv_used(self) -> int:
        """KV tokens allocated now: prompts of admitted requests and tokens made so far."""
        return self.kv_running + sum(job.prompt for job in (*self.transferring, *self.waiting))

    @property
    def admitted(self) -> int:
        """Requests that hold a slot."""
        return len(self.transferring) + len(self.waiting) + len(self.running)

    def _admit(self) -> None:
        while self.prealloc:
            job = self.prealloc[0]
            if self.admitted >= self._profile.max_running:
                return
            if self.admitted and self.reserved + job.reserved > self._profile.kv_room_tokens:
                return
            self.prealloc.popleft()
            self.reserved += job.reserved
            self.transferring.add(job)
            job.state = "transfer"
            job.admitted_at = self._clock.now()
            job.on_admit()

    def _join_and_step(self, not_before: float) -> None:
        while self.waiting:
            job = self.waiting.popleft()
            job.state = "running"
            job.joined_at = self._clock.now()
            self.running.add(job)
            self.kv_running += job.prompt
            if job.free_first:
                self._emit(job, 1)
            else:
                self._due.setdefault(self._step + 1, []).append(job)
        self._stepping = bool(self.running)
        if self._stepping:
            seconds = self._profile.decode.seconds(len(self.running), self.kv_running)
            seconds *= self.slow_factor
            end = self._clock.plan(seconds, not_before=not_before)
            self._clock.loop.call_at(end, self._stepped, seconds, end)

    def _stepped(self, seconds: float, planned_end: float) -> None:
        self._step += 1
        running = len(self.running)
        self.kv_running += running
        for job in self.running:
            job.produced += 1
        self.on_step(seconds, running)
        for job in self._due.pop(self._step, ()):
            if job.state == "running":
                self._emit(job, 0)
        self._join_and_step(planned_end)

    def _emit(self, job: DecodeJob, free: int) -> None:
        """Hand out what `job` made since its last event, and plan the next event."""
        job.produced += free
        self.kv_running += free
        made = job.produced
        first = made == 1
        last = made >= job.output
        since = 1 if first else (made - 2) % self._profile.tokens_per_event + 1
        if last:
            self.running.discard(job)
            self.kv_running -= job.prompt + made
            self.reserved -= job.reserved
            job.state = "done"
        else:
            ahead = min(self._profile.tokens_per_event, job.output - made)
            self._due.setdefault(self._step + ahead, []).append(job)
        job.on_tokens(since, last)
        if last:
            self._admit()
