"""Which windows a calibration keeps: a few per region of load, so that one hour cannot drown a day.

The planner's capacity comes from these samples (research on planning, learnt capacity): retained by
bucket grid, taken only from windows in which nothing structural was wrong.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence

from apps.common.measurement import State
from apps.simulation.service_time import TimeSample, decode_sample, prefill_sample
from apps.telemetry.domain.figures import DeploymentFigures

PER_CELL, LIMIT = 12, 96
#: Squared coefficient of variation of prompt lengths when no length histogram is exported: that of
#: the public Azure 2023 conversation trace is 0.92.
LENGTH_CV2 = 1.0
#: Below this many tokens per second a window's mean is mostly chance.
MIN_TOKENS_PER_S = 20.0


def prefill_window(figures: DeploymentFigures, cv2: float = LENGTH_CV2) -> TimeSample | None:
    """Seconds of prefill work per prompt in this window, or None if it cannot be told.

    Seconds per prompt are those of all its tokens (mean tokens x forward seconds per second over
    tokens per second); they are learnt against the tokens that were computed.
    """
    phase = figures.prefill
    if phase is None:
        return None
    tokens, forward, mean = (
        phase.tokens_per_s,
        phase.forward_seconds_per_s,
        figures.mean_input_tokens,
    )
    if any(m.state is not State.OK or not m.value for m in (tokens, forward, mean)):
        return None
    if tokens.number() < MIN_TOKENS_PER_S:
        return None
    seconds = mean.number() * forward.number() / tokens.number()
    return prefill_sample(figures.mean_uncached_tokens.number(), cv2, seconds)


def decode_window(figures: DeploymentFigures) -> TimeSample | None:
    """(batch, resident KV, step time) of an average decode worker, or None.

    The batch comes from Little's law (tokens/s x TPOT), not from the running gauge, whose single
    reading is noise.
    """
    phase = figures.decode
    if phase is None or phase.workers_serving == 0:
        return None
    tokens = phase.tokens_per_s if phase.tokens_per_s.value is not None else None
    tokens = tokens or figures.output_tokens_per_s
    step, prompt, answer = (
        figures.tpot.mean,
        figures.mean_input_tokens,
        figures.mean_output_tokens,
    )
    if any(m.state is not State.OK or not m.value for m in (tokens, step, prompt, answer)):
        return None
    if tokens.number() < MIN_TOKENS_PER_S:
        return None
    batch = tokens.number() * step.number() / phase.workers_serving
    return decode_sample(
        batch, batch * context_tokens(prompt.number(), answer.number()), step.number()
    )


def context_tokens(prompt: float, answer: float) -> float:
    """KV tokens a running sequence holds on average: its prompt and half of its answer."""
    return prompt + answer / 2.0


def retain(rows: Sequence[Sequence[float]]) -> list[list[float]]:
    """The newest few rows of each cell of a log2 grid over the two features, oldest first."""
    cells: dict[tuple[int, int], list[tuple[int, Sequence[float]]]] = defaultdict(list)
    for index, row in enumerate(rows):
        cells[(_half_octave(row[1]), _half_octave(row[2]))].append((index, row))
    kept = [pair for cell in cells.values() for pair in cell[-PER_CELL:]]
    kept.sort(key=lambda pair: pair[0])
    return [list(row) for _, row in kept[-LIMIT:]]


def _half_octave(value: float) -> int:
    return round(2 * math.log2(max(value, 1e-9)))
