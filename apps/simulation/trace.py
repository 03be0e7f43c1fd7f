"""Replaying a recorded trace at a wanted rate and wanted mean lengths.

Raw slices of the trace differ by more than 20 % in load, enough to turn an overload into a healthy
run. So the slice is normalised: gaps are scaled to the wanted rate and lengths to the wanted means,
block by block, while the order, the burstiness and the spread of lengths stay those of the trace.
"""

from __future__ import annotations

import csv
import datetime
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from apps.simulation.service_time import DATA

TRACE = DATA / "azure_llm_2023_conv.csv"
INPUT_CAP = 12_000
OUTPUT_CAP = 600
INPUT_FLOOR = 16
OUTPUT_FLOOR = 2
BLOCK_S = 30.0
JITTER = 0.2

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Phase:
    """One stretch of load: `seconds` long, `rate` requests/s, mean tokens in and out."""

    name: str
    seconds: float
    rate: float
    input_mean: float
    output_mean: float
    output_cap: int = OUTPUT_CAP


@dataclass(frozen=True, slots=True)
class Arrival:
    """One request to send: offset in seconds from the start, its phase, and tokens in and out."""

    at_s: float
    phase: str
    input_tokens: int
    output_tokens: int


@dataclass(frozen=True, slots=True)
class Trace:
    """Gaps between arrivals (s) and lengths (tokens) of a recorded trace, index by index."""

    gaps_s: Floats
    inputs: Floats
    outputs: Floats

    def __len__(self) -> int:
        return len(self.gaps_s)


def _seconds(stamp: str) -> float:
    """Unix seconds of a UTC stamp, cut from seven to the six digits that fromisoformat takes."""
    return datetime.datetime.fromisoformat(stamp[:26] + "+00:00").timestamp()


def load_trace(path: Path = TRACE) -> Trace:
    """Read an Azure 2023 trace file."""
    stamps: list[float] = []
    inputs: list[float] = []
    outputs: list[float] = []
    with path.open(newline="") as file:
        for row in csv.DictReader(file):
            stamps.append(_seconds(row["TIMESTAMP"]))
            inputs.append(float(row["ContextTokens"]))
            outputs.append(float(row["GeneratedTokens"]))
    order = np.argsort(np.array(stamps), kind="stable")
    times = np.array(stamps)[order]
    gaps = np.diff(times, prepend=times[0])
    return Trace(gaps, np.array(inputs)[order], np.array(outputs)[order])


def scale_lengths(lengths: Floats, mean: float, *, floor: int, cap: int) -> NDArray[np.int64]:
    """Scale `lengths` to a mean of `mean` tokens after clipping to [floor, cap] and rounding.

    One factor for all keeps the shape below the cap. ValueError if the cap or floor forbids it.
    """
    if not floor <= mean <= cap:
        raise ValueError(f"a mean of {mean} tokens is outside [{floor}, {cap}]")
    low, high = 0.0, cap / max(float(lengths.min()), 1e-9)
    for _ in range(60):  # bisection: the clipped mean grows with the factor
        factor = (low + high) / 2
        if float(np.clip(lengths * factor, floor, cap).mean()) < mean:
            low = factor
        else:
            high = factor
    return np.clip(np.rint(lengths * high), floor, cap).astype(np.int64)


def scale_gaps(gaps_s: Floats, seconds: float, rng: np.random.Generator) -> Floats:
    """Arrival offsets (s) in [0, seconds): gaps jittered by up to 20 % and scaled to fit."""
    jittered = (gaps_s + 1e-4) * (1 + JITTER * rng.uniform(-1, 1, len(gaps_s)))
    edges = np.cumsum(jittered)
    offsets: Floats = (edges - jittered[0] / 2) * (seconds / edges[-1])
    return offsets


def replay(
    trace: Trace, phase: Phase, start_s: float, rng: np.random.Generator
) -> Iterator[Arrival]:
    """The arrivals of one phase, from a random place of the trace, normalised block by block."""
    blocks = max(1, round(phase.seconds / BLOCK_S))
    length = phase.seconds / blocks
    position = int(rng.integers(0, len(trace)))
    carried = 0.0  # fractions of a request are carried over, so the phase's rate is exact
    for block in range(blocks):
        carried += phase.rate * length
        count = int(carried + 1e-9)
        carried -= count
        if count == 0:
            continue
        rows = (position + np.arange(count)) % len(trace)
        position += count
        offsets = scale_gaps(trace.gaps_s[rows], length, rng) + start_s + block * length
        inputs = scale_lengths(
            trace.inputs[rows], phase.input_mean, floor=INPUT_FLOOR, cap=INPUT_CAP
        )
        outputs = scale_lengths(
            trace.outputs[rows], phase.output_mean, floor=OUTPUT_FLOOR, cap=phase.output_cap
        )
        for offset, tokens_in, tokens_out in zip(offsets, inputs, outputs, strict=True):
            yield Arrival(float(offset), phase.name, int(tokens_in), int(tokens_out))


def replay_story(
    trace: Trace, phases: tuple[Phase, ...], rng: np.random.Generator
) -> Iterator[Arrival]:
    """Arrivals of `phases` one after another, for ever: after the last phase the first follows."""
    start = 0.0
    while True:
        for phase in phases:
            yield from replay(trace, phase, start, rng)
            start += phase.seconds
