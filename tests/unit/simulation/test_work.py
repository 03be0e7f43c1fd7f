"""Timing of the simulated GPU work on a virtual clock."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np
import pytest

from apps.simulation.demo.work import DecodeBatch, DecodeJob, KvLink, PrefillJob, PrefillQueue
from apps.simulation.service_time import load_profile
from tests.unit.simulation.virtual import VirtualLoop

PROFILE = load_profile()
PREFILL, DECODE = PROFILE.prefill, PROFILE.decode


class Asked:
    """Decode jobs whose KV arrives `delay_s` after admission, with what they gave out."""

    def __init__(self, loop: VirtualLoop, batch: DecodeBatch, delay_s: float = 0.05) -> None:
        self.loop, self.batch, self.delay_s = loop, batch, delay_s
        self.times: dict[int, list[tuple[float, int]]] = {}
        self.done: dict[int, float] = {}
        self.jobs: list[DecodeJob] = []

    def add(self, prompt: int, output: int, *, free_first: bool = True) -> DecodeJob:
        number = len(self.jobs)
        self.times[number] = []

        def tokens(count: int, last: bool) -> None:
            self.times[number].append((self.loop.time(), count))
            if last:
                self.done[number] = self.loop.time()

        def admitted() -> None:
            self.loop.call_later(self.delay_s, self.batch.deliver, job)

        job = DecodeJob(prompt, output, free_first, admitted, tokens)
        self.jobs.append(job)
        self.batch.add(job)
        return job


def test_a_lone_prompt_takes_its_service_time(loop: VirtualLoop) -> None:
    queue = PrefillQueue(loop, PROFILE)
    ends: list[float] = []
    queue.add(PrefillJob(2000, ends.append))
    loop.run_until(10)
    assert ends == [pytest.approx(PREFILL.seconds([(0, 2000)]))]


def test_prompts_share_a_pass_up_to_the_budget_in_order(loop: VirtualLoop) -> None:
    queue = PrefillQueue(loop, PROFILE)
    order: list[int] = []
    passes: list[int] = []
    queue.on_pass = lambda seconds, tokens: passes.append(tokens)
    for number, tokens in enumerate((1000, 4000, 4000, 3000, 500)):
        queue.add(PrefillJob(tokens, lambda end, number=number: order.append(number)))
    loop.run_until(10)
    assert order == [0, 1, 2, 3, 4]
    assert passes == [1000, 8000, 3500]


def test_an_overlong_prompt_goes_in_chunks_and_others_fill_its_last_pass(
    loop: VirtualLoop,
) -> None:
    queue = PrefillQueue(loop, PROFILE)
    passes: list[int] = []
    ends: dict[str, float] = {}
    queue.on_pass = lambda seconds, tokens: passes.append(tokens)
    queue.add(PrefillJob(12_000, lambda end: ends.update(long=end)))
    queue.add(PrefillJob(1000, lambda end: ends.update(short=end)))
    loop.run_until(10)
    assert passes == [8192, 4808]
    assert ends["long"] == ends["short"]


def test_busy_time_adds_up_under_overload(loop: VirtualLoop) -> None:
    queue = PrefillQueue(loop, PROFILE)
    busy = 0.0
    last = 0.0

    def count(seconds: float, tokens: int) -> None:
        nonlocal busy
        busy += seconds

    def ended(end: float) -> None:
        nonlocal last
        last = end

    queue.on_pass = count
    for i in range(300):
        loop.call_at(i * 0.1, queue.add, PrefillJob(2000, ended))
    loop.run_until(200)
    assert busy == pytest.approx(last, rel=1e-6)  # never idle, never two passes at once


def test_a_cancelled_prompt_is_never_reported(loop: VirtualLoop) -> None:
    queue = PrefillQueue(loop, PROFILE)
    ends: list[float] = []
    jobs = [PrefillJob(6000, ends.append) for _ in range(3)]
    for job in jobs:
        queue.add(job)
    queue.cancel(jobs[0])  # in its pass already
    queue.cancel(jobs[1])
    loop.run_until(10)
    assert len(ends) == 1
    assert ends[0] == pytest.approx(2 * PREFILL.seconds([(0, 6000)]))


def test_slow_worker_and_slow_link_stretch_their_own_part(loop: VirtualLoop) -> None:
    queue, link = PrefillQueue(loop, PROFILE), KvLink(loop, PROFILE)
    queue.slow_factor = 4.0
    link.bytes_per_s = 1.3e9
    times: list[float] = []
    queue.add(
        PrefillJob(1000, lambda end: link.send(1000, end, lambda s, b: times.extend((end, s))))
    )
    loop.run_until(10)
    assert times[0] == pytest.approx(4 * PREFILL.seconds([(0, 1000)]))
    assert times[1] == pytest.approx(0.005 + 1000 * 262_144 / 1.3e9)


def test_the_link_sends_one_after_another(loop: VirtualLoop) -> None:
    link = KvLink(loop, PROFILE)
    ends: list[float] = []
    for _ in range(3):
        link.send(4000, 0.0, lambda seconds, size: ends.append(loop.time()))
    assert link.active == 3
    loop.run_until(5)
    one = 0.005 + 4000 * 262_144 / 25e9
    assert ends == [pytest.approx(one * i) for i in (1, 2, 3)]
    assert link.active == 0


def test_a_late_wake_up_is_caught_up(loop: VirtualLoop) -> None:
    queue = PrefillQueue(loop, PROFILE)
    ends: list[float] = []
    queue.add(PrefillJob(6000, ends.append))
    queue.add(PrefillJob(6000, ends.append))
    one = PREFILL.seconds([(0, 6000)])

    def stall() -> None:  # the loop stands still over the end of the first pass
        loop._virtual_now += 0.2

    loop.call_at(one - 0.01, stall)
    loop.run_until(10)
    assert ends == [pytest.approx(one), pytest.approx(2 * one)]


def test_decode_tpot_is_the_step_time(loop: VirtualLoop) -> None:
    batch = DecodeBatch(loop, PROFILE)
    asked = Asked(loop, batch)
    asked.add(1000, 100)
    loop.run_until(10)
    events = asked.times[0]
    assert [count for _, count in events] == [1, *[8] * 12, 3]
    assert events[0][0] == pytest.approx(0.05)  # the first token comes with the KV
    tpot = (events[-1][0] - events[0][0]) / 99
    assert DECODE.seconds(1, 1001) <= tpot <= DECODE.seconds(1, 1100)


def test_vllm_style_first_token_comes_after_a_step(loop: VirtualLoop) -> None:
    batch = DecodeBatch(loop, PROFILE)
    asked = Asked(loop, batch)
    asked.add(1000, 3, free_first=False)
    loop.run_until(10)
    events = asked.times[0]
    assert [count for _, count in events] == [1, 2]
    assert events[0][0] == pytest.approx(0.05 + DECODE.seconds(1, 1000))


def test_more_requests_make_every_token_slower(loop: VirtualLoop) -> None:
    ends = []
    for number in (1, 20, 60):
        batch = DecodeBatch(loop, PROFILE)
        asked = Asked(loop, batch)
        began = loop.time()
        for _ in range(number):
            asked.add(500, 50)
        loop.run_until(began + 20)
        ends.append(asked.done[0] - began)
    assert ends[0] < ends[1] < ends[2]


def test_room_and_slots_hold_requests_back_in_order(loop: VirtualLoop) -> None:
    batch = DecodeBatch(loop, PROFILE.with_room(kv_room_tokens=10_000, max_running=3))
    asked = Asked(loop, batch)
    asked.add(6000, 100)
    asked.add(6000, 100)  # does not fit beside the first
    asked.add(100, 10)  # would fit, but waits its turn
    assert [job.state for job in asked.jobs] == ["transfer", "prealloc", "prealloc"]
    loop.run_until(60)
    assert asked.times[1][0][0] >= asked.done[0]
    assert len(asked.done) == 3
    slots = Asked(loop, batch)
    for _ in range(5):
        slots.add(100, 20)
    assert batch.admitted == 3
    loop.run_until(120)
    assert len(slots.done) == 5


def test_nothing_is_lost_and_all_room_comes_back(loop: VirtualLoop) -> None:
    batch = DecodeBatch(loop, PROFILE.with_room(kv_room_tokens=40_000, max_running=16))
    asked = Asked(loop, batch, delay_s=0.2)
    rng = np.random.default_rng(5)
    outputs = rng.integers(1, 300, 200)
    for i, output in enumerate(outputs):
        prompt, free = int(rng.integers(16, 8000)), bool(rng.integers(0, 2))
        loop.call_at(
            i * 0.1,
            lambda p=prompt, o=int(output), f=free: asked.add(p, o, free_first=f),
        )
    cancelled = {10, 50, 51, 120}
    for number in cancelled:
        loop.call_at(number * 0.1 + 0.6, lambda n=number: batch.cancel(asked.jobs[n]))
    steps = 0

    def step(seconds: float, running: int) -> None:
        nonlocal steps
        steps += 1
        assert running <= 16
        assert batch.reserved <= 40_000
        assert batch.kv_used <= batch.reserved

    batch.on_step = step
    loop.run_until(600)
    for number, output in enumerate(outputs):
        if number not in cancelled:
            assert sum(count for _, count in asked.times[number]) == output
    assert (batch.reserved, batch.kv_running, batch.admitted) == (0, 0, 0)
    assert steps > 100


def test_an_hour_of_load_is_simulated_in_moments(loop: VirtualLoop) -> None:
    began = time.perf_counter()
    queue = PrefillQueue(loop, replace(PROFILE, batch_tokens=4096))
    ends: list[float] = []
    for i in range(3600):
        loop.call_at(float(i), queue.add, PrefillJob(1000, ends.append))
    loop.run_until(3700)
    assert len(ends) == 3600
    assert time.perf_counter() - began < 10
