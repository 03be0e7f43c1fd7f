"""What the fleet must carry: accepted arrivals with trend, mean lengths, backlog.

Source: research on planning §2.1 and peers §3.1-3.2. Demand is taken from accepted arrivals, never
from completions alone: under overload completions fall exactly when demand is highest.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from itertools import pairwise
from typing import Any

from apps.common.measurement import Measurement, State
from apps.telemetry.domain.figures import DeploymentFigures, PhaseFigures

LOST = frozenset({State.STALE, State.NO_DATA, State.SOURCE_DOWN, State.CONFLICT})
FLOW_TOLERANCE = 0.05
TREND_SHARE, TREND_CAP = 0.75, 0.5
RATE_DRIFT_FLOOR, LENGTH_DRIFT_FLOOR = 0.05, 0.03
#: A single step change must not make every later range useless.
STEP_CAP = 0.3
#: What is assumed of drift before there is history, and how many windows it counts for (research
#: on planning §2.1: forecast errors start from N(0, 0.12) with weight 6).
DRIFT_PRIOR, DRIFT_PRIOR_WEIGHT = 0.12, 6


@dataclass(frozen=True, slots=True)
class LoadSample:
    """The load of one past window: requests/s, tokens, requests in flight (None = not known)."""

    at: datetime
    arrivals_per_s: float
    mean_input: float
    mean_output: float
    in_flight: float | None = None


@dataclass(frozen=True, slots=True)
class Drift:
    """Spread of the log ratio from one window to the next, measured on this deployment."""

    rate: float = RATE_DRIFT_FLOOR
    input: float = LENGTH_DRIFT_FLOOR
    output: float = LENGTH_DRIFT_FLOOR


@dataclass(frozen=True, slots=True)
class Demand:
    """Rates in requests/s, lengths in tokens (`mean_input` is uncached), backlog in requests.

    `rate` = max(fast, slow) + trend is what must be carried. `flow_error` is the relative gap of
    the flow check, None where it could not be made; `rebuilt` if arrivals were rebuilt from it.
    """

    rate: float
    fast: float
    slow: float
    trend: float
    mean_input: float
    mean_prompt: float
    mean_output: float
    backlog: float
    decode_backlog: float
    output_tokens_per_s: float
    flow_error: float | None
    rebuilt: bool
    drift: Drift
    history_s: float

    @property
    def context_tokens(self) -> float:
        """KV tokens a running sequence holds on average."""
        return self.mean_prompt + self.mean_output / 2.0

    @property
    def token_rate(self) -> float:
        """Output tokens/s to generate: demand, or what is generated now with its queue if more."""
        return max(self.rate * self.mean_output, self.output_tokens_per_s)

    def as_measured(self) -> Demand:
        """The same with the measured rate. Sizing carries the trend; what people see, and what is
        scored later, is what the measured rate leads to."""
        return replace(self, rate=self.fast)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


class NoDemand(ValueError):
    """The figures do not tell the demand; `code` says which is missing."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code


def demand(
    figures: DeploymentFigures,
    recent: DeploymentFigures,
    history: Sequence[LoadSample],
    *,
    horizon_s: float,
    slow_s: float,
) -> Demand:
    """Demand now and `horizon_s` ahead. Raises NoDemand when arrivals or lengths are unknown.

    `figures` span the diagnosis window and give the lengths, `recent` the shortest stored window
    and gives the fast rate. `history` is oldest first and may hold the present window too (it is
    told apart by time).
    """
    if figures.at is None or recent.at is None:
        raise NoDemand("no_window")
    past = [sample for sample in history if sample.at < figures.at]
    fast, error, rebuilt = _arrivals(recent, past[-1] if past else None)
    idle = fast == 0.0
    mean_input = _length(figures.mean_input_tokens, idle, past, "mean_input", "input_length")
    mean_output = _length(figures.mean_output_tokens, idle, past, "mean_output", "output_length")
    mean_prompt, mean_input = mean_input, mean_input * (1.0 - _cached_share(figures))
    latest = [s for s in past if (figures.at - s.at).total_seconds() <= slow_s]
    slow = _mean([s.arrivals_per_s for s in latest] + [fast])
    base = max(fast, slow)
    trend = min(TREND_CAP * base, _trend(latest, figures.at, fast, horizon_s))
    span = (figures.at - past[0].at).total_seconds() if past else 0.0
    return Demand(
        rate=base + trend,
        fast=fast,
        slow=slow,
        trend=trend,
        mean_input=mean_input,
        mean_prompt=mean_prompt,
        mean_output=mean_output,
        backlog=queued(figures.prefill),
        decode_backlog=queued(figures.decode),
        output_tokens_per_s=_token_rate(figures),
        flow_error=error,
        rebuilt=rebuilt,
        drift=drift(past, recent.span_s),
        history_s=span + figures.span_s,
    )


def load_sample(figures: DeploymentFigures, recent: DeploymentFigures) -> LoadSample | None:
    """The present window as history for later ones; None if its load is not known."""
    arrivals = recent.arrivals_per_s
    if recent.at is None or arrivals.state in LOST or arrivals.value is None:
        return None
    mean_input, mean_output = figures.mean_input_tokens, figures.mean_output_tokens
    if not mean_input.value or not mean_output.value:
        return None
    return LoadSample(
        recent.at,
        whole(arrivals),
        mean_input.number(),
        mean_output.number(),
        in_flight(recent),
    )


def in_flight(figures: DeploymentFigures) -> float | None:
    """Requests inside: those before decode's batch, counted once, and those in it."""
    prefill, decode = figures.prefill, figures.decode
    if prefill is None or decode is None:
        return None
    gauges = (prefill.waiting, prefill.running, decode.waiting, decode.running)
    if any(g.value is None or g.state in LOST for g in gauges):
        return None
    before = max(whole(prefill.waiting) + whole(prefill.running), whole(decode.waiting))
    return before + whole(decode.running)


def queued(phase: PhaseFigures | None) -> float:
    """Requests that wait for the pool; its waiting gauge also counts those in transfer."""
    if phase is None or phase.waiting.value is None or phase.waiting.state in LOST:
        return 0.0
    transferring = phase.transferring
    moving = 0.0 if transferring.value is None else whole(transferring)
    return max(0.0, whole(phase.waiting) - moving)


def whole(figure: Measurement) -> float:
    """A total over workers of which only part reported, scaled to all of them (DESIGN law 1)."""
    if figure.state is not State.PARTIAL or not figure.coverage or not figure.coverage[0]:
        return figure.number()
    reported, expected = figure.coverage
    return figure.number() * max(1.0, expected / reported)


def drift(past: Sequence[LoadSample], span_s: float) -> Drift:
    """Spread of the log ratio between windows that do not overlap, with floors (see `_spread`)."""
    apart = _apart(past, span_s)
    return Drift(
        rate=_spread([s.arrivals_per_s for s in apart], RATE_DRIFT_FLOOR),
        input=_spread([s.mean_input for s in apart], LENGTH_DRIFT_FLOOR),
        output=_spread([s.mean_output for s in apart], LENGTH_DRIFT_FLOOR),
    )


def _arrivals(
    figures: DeploymentFigures, before: LoadSample | None
) -> tuple[float, float | None, bool]:
    """Arrivals per second after the flow check |accepted - finished - change inside| <= 5 %."""
    arrivals, done = figures.arrivals_per_s, figures.completions_per_s
    if arrivals.state is State.NO_TRAFFIC:
        return 0.0, None, False
    known = arrivals.value is not None and arrivals.state not in LOST
    finished = whole(done) if done.value is not None and done.state not in LOST else None
    rebuilt = None
    now_inside = in_flight(figures)
    if finished is not None and before and before.in_flight is not None and now_inside is not None:
        assert figures.at is not None
        gap_s = (figures.at - before.at).total_seconds()
        if 0 < gap_s <= 4 * figures.span_s:
            failed = figures.failures_per_s
            lost = whole(failed) if failed.value is not None else 0.0
            rebuilt = max(0.0, finished + lost + (now_inside - before.in_flight) / gap_s)
    if not known:
        if rebuilt is None:
            raise NoDemand("arrivals")
        return rebuilt, None, True
    accepted = whole(arrivals)
    if rebuilt is None:
        return accepted, None, False
    error = abs(accepted - rebuilt) / accepted if accepted > 0 else 0.0
    # A window of few requests differs by chance: three of them are no contradiction.
    tolerance = max(FLOW_TOLERANCE, 3.0 / max(1.0, accepted * figures.span_s), _noise(figures))
    if error <= tolerance:
        return accepted, error, False
    return max(accepted, rebuilt), error, True


def _noise(figures: DeploymentFigures) -> float:
    """Three standard deviations of a Poisson count, as a share of it."""
    count = figures.arrivals_per_s.number() * figures.span_s
    return 3.0 / math.sqrt(count) if count > 0 else 1.0


def _length(figure: Any, idle: bool, past: Sequence[LoadSample], field: str, code: str) -> float:
    if figure.value and figure.state not in LOST:
        return float(figure.value)
    if past and (idle or figure.state in (State.NO_TRAFFIC, State.TOO_FEW)):
        return float(getattr(past[-1], field))
    raise NoDemand(code)


def _cached_share(figures: DeploymentFigures) -> float:
    cached, whole = figures.cached_tokens_per_s, figures.input_tokens_per_s
    if cached.value is None or not whole.value or cached.state in LOST:
        return 0.0
    return min(0.95, max(0.0, cached.number() / whole.number()))


def _token_rate(figures: DeploymentFigures) -> float:
    """Generated tokens/s x (1 + decode queue / running): demand that decode itself shows (§2.1)."""
    decode, rate = figures.decode, figures.output_tokens_per_s
    if rate.value is None or rate.state in LOST:
        return 0.0
    if decode is None or not decode.running.value:
        return whole(rate)
    # Capped: a queue that stands behind prefill says nothing about decode.
    return whole(rate) * (1.0 + min(0.5, queued(decode) / whole(decode.running)))


def _trend(recent: Sequence[LoadSample], at: datetime, fast: float, horizon_s: float) -> float:
    """Growth over the horizon: 0.75 of a least-squares slope shrunk by its standard error."""
    if len(recent) < 4:
        return 0.0
    times = [(s.at - at).total_seconds() for s in recent] + [0.0]
    rates = [s.arrivals_per_s for s in recent] + [fast]
    n, mean_t, mean_r = len(times), _mean(times), _mean(rates)
    spread = sum((t - mean_t) ** 2 for t in times)
    if spread <= 0:
        return 0.0
    slope = sum((t - mean_t) * (r - mean_r) for t, r in zip(times, rates, strict=True)) / spread
    residual = sum(
        (r - mean_r - slope * (t - mean_t)) ** 2 for t, r in zip(times, rates, strict=True)
    )
    error = math.sqrt(residual / max(1, n - 2) / spread)
    return TREND_SHARE * max(0.0, slope - error) * horizon_s


def _apart(past: Sequence[LoadSample], span_s: float) -> list[LoadSample]:
    kept: list[LoadSample] = []
    for sample in reversed(past):
        if not kept or (kept[-1].at - sample.at).total_seconds() >= span_s:
            kept.append(sample)
    return kept[::-1]


def _spread(values: Sequence[float], floor: float) -> float:
    """Root mean square of the log ratios without the largest, pulled to the prior while there are
    few: the step that asks for a change is not the drift that follows it."""
    pairs = [math.log(b / a) for a, b in pairwise(values) if a > 0 and b > 0]
    kept = sorted(min(STEP_CAP, abs(x)) for x in pairs)[:-1]
    squares = sum(x * x for x in kept) + DRIFT_PRIOR_WEIGHT * DRIFT_PRIOR**2
    return max(floor, math.sqrt(squares / (len(kept) + DRIFT_PRIOR_WEIGHT)))


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
