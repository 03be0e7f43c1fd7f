"""One worker against its peers: pool averages hide a bad one (research on planning §5, rule 3)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from apps.telemetry.domain.figures import PhaseFigures, WorkerFigures

from .symptoms import LOST

RATIO, ROBUST_Z, MAD_FLOOR = 1.25, 4.0, 0.02
#: For decode the time per token also depends on the batch: a worker is slow only if it makes far
#: fewer tokens with a batch that is not smaller than its peers'.
DECODE_RATIO, BATCH_SHARE = 1.8, 0.8
#: With one or two workers there is no median: the peer, or the calibration, is the yardstick.
PAIR_RATIO, ALONE_RATIO, CALIBRATION_RATIO = 1.6, 2.0, 1.4


@dataclass(frozen=True, slots=True)
class Outlier:
    """A worker whose time per token is `ratio` times `reference` seconds."""

    worker: WorkerFigures
    reference: float
    ratio: float


def worst_worker(phase: PhaseFigures | None, expected: float | None) -> Outlier | None:
    """The worker of a pool that is slow by itself, or None.

    `expected` is the calibrated seconds per token (prefill only). In a pool of two the slower one
    is bad when it takes over 1.6 times its peer's time and, where a calibration exists, also over
    1.4 times the expected time (else the two merely had different prompts).
    """
    if phase is None:
        return None
    timed = _with_work([(t, w) for w in phase.workers if (t := _time(w)) is not None])
    if phase.role == "decode":
        return _slow_decoder(timed)
    if not timed:
        return None
    slowest, worker = max(timed, key=lambda pair: (pair[0], pair[1].url))
    if len(timed) >= 3:
        return _against_pool(slowest, worker, [value for value, _ in timed], RATIO)
    if len(timed) == 2:
        peer = min(value for value, _ in timed)
        beyond = expected is None or slowest > CALIBRATION_RATIO * expected
        if slowest > PAIR_RATIO * peer and beyond:
            return Outlier(worker, peer, slowest / peer)
        return None
    if expected is not None and slowest > ALONE_RATIO * expected:
        return Outlier(worker, expected, slowest / expected)
    return None


def _time(worker: WorkerFigures) -> float | None:
    per_token = worker.seconds_per_token
    if not worker.is_reporting or per_token.state in LOST or not per_token.value:
        return None
    return per_token.number()


def _slow_decoder(timed: list[tuple[float, WorkerFigures]]) -> Outlier | None:
    """Of three or more: slow per token, and not because its batch is small."""
    if len(timed) < 3 or any(w.running.value is None for _, w in timed):
        return None
    slowest, worker = max(timed, key=lambda pair: (pair[0], pair[1].url))
    batch = median([w.running.number() for _, w in timed])
    if worker.running.number() < max(2.0, BATCH_SHARE * batch):
        return None
    return _against_pool(slowest, worker, [value for value, _ in timed], DECODE_RATIO)


def _with_work(timed: list[tuple[float, WorkerFigures]]) -> list[tuple[float, WorkerFigures]]:
    """Without those that did hardly anything in the window: their times are chance."""
    rates = [w.tokens_per_s.number() for _, w in timed if w.tokens_per_s.value is not None]
    least = 0.1 * sum(rates) / len(rates) if rates else 0.0
    return [
        (t, w) for t, w in timed if w.tokens_per_s.value is None or w.tokens_per_s.number() >= least
    ]


def _against_pool(
    slowest: float, worker: WorkerFigures, values: Sequence[float], ratio: float
) -> Outlier | None:
    middle = median(values)
    spread = max(1.4826 * median([abs(value - middle) for value in values]), MAD_FLOOR * middle)
    if slowest > ratio * middle and (slowest - middle) / spread > ROBUST_Z:
        return Outlier(worker, middle, slowest / middle)
    return None


def uneven(phase: PhaseFigures | None) -> tuple[WorkerFigures, float, float] | None:
    """(fullest worker, its requests, the pool's mean) when work piles up on one of the workers.

    Piled up: 2.5 times the mean, at least 8 above the emptiest, which holds a quarter or less.
    """
    if phase is None:
        return None
    held = [
        (w.waiting.number() + w.running.number(), w)
        for w in phase.workers
        if w.waiting.value is not None and w.running.value is not None and w.is_reporting
    ]
    if len(held) < 3:
        return None
    mean = sum(value for value, _ in held) / len(held)
    most, worker = max(held, key=lambda pair: (pair[0], pair[1].url))
    least = min(value for value, _ in held)
    if most > 2.5 * mean and most - least >= 8 and least <= 0.25 * most:
        return worker, most, mean
    return None
