"""A fluid model of the demo fleet that gives figures every five seconds; no randomness.

It keeps its own equations (work in, work out, backlog), written apart from the planner's, and the
figures an exporter would show: TTFT lags, because it is known only when the first token comes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta

from apps.common.measurement import Place
from apps.common.units import Unit
from apps.telemetry.domain.figures import DeploymentFigures
from tests.unit.diagnosis.builders import TPOT_BOUNDS, figures, latency, ok, worker

CALM, LONG = (5.5, 1150.0, 200.0), (7.5, 2850.0, 200.0)
STEP_S = 5.0


def prompt_seconds(tokens: float) -> float:
    return 0.012 + 9e-5 * tokens + 1.5e-9 * tokens**2 * 1.9


@dataclass
class Fleet:
    """Present counts, load and backlog (requests). `slow` multiplies prefill time of one worker."""

    prefill: int = 2
    decode: int = 4
    load: tuple[float, float, float] = CALM
    backlog: float = 0.0
    noise: tuple[float, ...] = (0.98, 1.01, 1.02, 0.99, 1.0)
    ticks: int = 0
    waits: list[float] = field(default_factory=lambda: [0.0])

    def step(self, at: datetime) -> DeploymentFigures:
        """Five seconds later."""
        self.ticks += 1
        wobble = self.noise[self.ticks % len(self.noise)]
        rate, prompt, answer = self.load[0] * wobble, self.load[1], self.load[2]
        seconds = prompt_seconds(prompt)
        most = self.prefill / seconds
        done = min(most, rate + self.backlog / STEP_S)
        self.backlog = max(0.0, self.backlog + (rate - done) * STEP_S)
        busy = done * seconds / self.prefill
        # A queue of random arrivals stands even below saturation.
        random_wait = seconds * busy**2 / max(0.08, 1 - busy) / self.prefill
        self.waits.append(self.backlog / most + random_wait)
        wait = sum(self.waits[-3:]) / len(self.waits[-3:])
        rate_each = done * answer / self.decode
        step_s = 0.012 / max(0.05, 1 - rate_each * (0.00025 + 6e-8 * (prompt + answer / 2)))
        batch = rate_each * step_s
        workers = tuple(
            worker(f"p-{i}", "prefill", seconds / prompt * (1 + 0.01 * i))
            for i in range(self.prefill)
        )
        return figures(
            prefill=self.prefill,
            decode=self.decode,
            at=at,
            ttft=latency(2.6 * (seconds + wait) + 0.05, mean=seconds + wait + 0.05, at=at),
            tpot=latency(step_s * 1.15, mean=step_s, bounds=TPOT_BOUNDS, place=Place.ENGINE, at=at),
            arrivals_per_s=ok(rate, Unit.REQUESTS_PER_SECOND, at=at, place=Place.ROUTER),
            completions_per_s=ok(done, Unit.REQUESTS_PER_SECOND, at=at, place=Place.ROUTER),
            input_tokens_per_s=ok(done * prompt, Unit.TOKENS_PER_SECOND, at=at),
            output_tokens_per_s=ok(done * answer, Unit.TOKENS_PER_SECOND, at=at),
            mean_input_tokens=ok(prompt, Unit.TOKENS, at=at),
            mean_output_tokens=ok(answer, Unit.TOKENS, at=at),
            prefill_changes={
                "waiting": ok(self.backlog + 1, at=at),
                "transferring": ok(1, at=at),
                "running": ok(self.prefill * busy, at=at),
                "tokens_per_s": ok(done * prompt, Unit.TOKENS_PER_SECOND, at=at),
                "forward_seconds_per_s": ok(done * seconds, Unit.RATIO, at=at),
                "queue_time_mean": ok(wait, Unit.SECONDS, at=at),
                "stage_time_mean": ok(seconds, Unit.SECONDS, at=at),
                "kv_transfer_mean": ok(0.035, Unit.SECONDS, at=at),
                "workers": workers,
            },
            decode_changes={
                "waiting": ok(self.backlog, at=at),
                "transferring": ok(self.backlog, at=at),
                "running": ok(batch * self.decode, at=at),
                "kv_used": ok(min(0.8, batch * prompt / 230_000 + 0.02), Unit.RATIO, at=at),
                "tokens_per_s": ok(done * answer, Unit.TOKENS_PER_SECOND, at=at),
            },
        )


def ticks(start: datetime, seconds: float) -> list[datetime]:
    """Evaluation times, one every five seconds."""
    return [start + timedelta(seconds=STEP_S * i) for i in range(1, int(seconds / STEP_S) + 1)]
