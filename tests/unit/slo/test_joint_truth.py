"""The range of law 3a against 200 random joint distributions, seen request by request."""

from __future__ import annotations

import numpy as np
import pytest

from apps.common.measurement import Measurement, Place, State
from apps.common.units import Unit
from apps.engines.window import HistogramIncrease
from apps.slo.domain.attainment import attainment, goodput
from apps.telemetry.domain.figures import Quantiles

#: As the engines export them (vLLM; SGLang; Dynamo's frontend).
TTFT_LADDERS = (
    (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40),
    (0.1, 0.2, 0.4, 0.6, 0.8, 1, 2, 4, 6, 8, 10, 20, 40, 60, 80, 100, 200, 400),
    (0, 0.0022, 0.0047, 0.01, 0.022, 0.047, 0.1, 0.22, 0.47, 1, 2.2, 4.7, 10, 22, 48, 100),
)
TPOT_LADDERS = (
    (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5, 5, 7.5, 10),
    (0.002, 0.004, 0.006, 0.008, 0.01, 0.015, 0.02, 0.025, 0.03, 0.035, 0.04, 0.06, 0.08, 0.1, 0.2),
    (0, 0.0019, 0.0035, 0.0067, 0.013, 0.024, 0.045, 0.084, 0.16, 0.3, 0.56, 1.1, 2),
)
RATE = Measurement(8.0, Unit.REQUESTS_PER_SECOND, State.OK, None, Place.ROUTER)


def recorded(values: np.ndarray, ladder: tuple[float, ...]) -> Quantiles:
    """What a histogram of this ladder keeps of the requests."""
    at = np.searchsorted(np.array(ladder, float), values, side="left")
    counts = np.bincount(at, minlength=len(ladder) + 1).astype(float)
    figure = Measurement(1.0, Unit.SECONDS, State.OK, None, Place.ROUTER)
    histogram = HistogramIncrease(
        tuple(float(b) for b in ladder), tuple(counts), float(values.sum()), float(len(values))
    )
    return Quantiles(figure, figure, figure, figure, histogram)


@pytest.mark.parametrize("seed", range(200))
def test_the_true_good_share_lies_inside_the_range(seed: int) -> None:
    random = np.random.default_rng(seed)
    count = int(random.integers(200, 4000))
    # Independent, aligned and opposed latencies, and two kinds of request in one stream.
    coupling = random.uniform(-1, 1)
    first = random.standard_normal(count)
    second = coupling * first + np.sqrt(1 - coupling**2) * random.standard_normal(count)
    kind = random.random(count) < random.uniform(0, 0.5)
    ttft = np.exp(np.log(random.uniform(0.02, 4)) + random.uniform(0.2, 1.5) * first + kind)
    tpot = np.exp(np.log(random.uniform(0.008, 0.2)) + random.uniform(0.1, 0.8) * second - kind)
    ladders = TTFT_LADDERS[seed % 3], TPOT_LADDERS[(seed // 3) % 3]
    on_ladder = random.random() < 0.5
    limits = tuple(
        float(random.choice(ladder[1:-1])) if on_ladder else float(np.quantile(values, 0.8))
        for ladder, values in zip(ladders, (ttft, tpot), strict=True)
    )
    shares = [
        attainment(recorded(values, ladder), limit, min_requests=100, observed_at=None).share
        for values, ladder, limit in zip((ttft, tpot), ladders, limits, strict=True)
    ]
    for share, values, limit in zip(shares, (ttft, tpot), limits, strict=True):
        true = float((values <= limit).mean())
        assert share.lower is not None and share.upper is not None
        assert share.lower - 1e-12 <= true <= share.upper + 1e-12
        if on_ladder:
            assert share.lower == share.upper == pytest.approx(true, abs=1e-12)
    found = goodput(shares, RATE).share
    true = float(((ttft <= limits[0]) & (tpot <= limits[1])).mean())
    assert found.lower is not None and found.upper is not None
    assert found.lower - 1e-12 <= true <= found.upper + 1e-12
    assert found.value == found.lower
