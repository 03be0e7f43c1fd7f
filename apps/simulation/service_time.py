"""Service times: of the demo engines (first part), and learnt from a real fleet (second part).

Prefill is fitted by least squares from the profile table in `data/`; decode coefficients stand in
`data/demo_profile.json`, which says where they come from. Times are seconds, lengths are tokens.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

DATA = Path(__file__).resolve().parent / "data"
PROFILE_TABLE = DATA / "aic_profile_qwen3_32b_vllm.csv"
PROFILE = DATA / "demo_profile.json"


@dataclass(frozen=True, slots=True)
class PrefillTimes:
    """Time of one prefill pass: base + per_token * tokens + per_square * sum(end^2 - start^2).

    The last term is attention: a chunk from token `start` to token `end` of its prompt costs the
    difference of squares, so that chunks of one prompt add up to the cost of the whole.
    """

    base_s: float
    per_token_s: float
    per_square_s: float

    def seconds(self, chunks: Iterable[tuple[int, int]]) -> float:
        """Seconds of a pass over `chunks`, each (start, end) in tokens of its own prompt."""
        tokens = squares = 0
        for start, end in chunks:
            tokens += end - start
            squares += end * end - start * start
        return self.base_s + self.per_token_s * tokens + self.per_square_s * squares


@dataclass(frozen=True, slots=True)
class DecodeTimes:
    """Time of one decode step: base + per_request * running + per_kv_token * KV tokens held."""

    base_s: float
    per_request_s: float
    per_kv_token_s: float

    def seconds(self, running: int, kv_tokens: int) -> float:
        """Seconds of one step with `running` requests that hold `kv_tokens` tokens together."""
        return self.base_s + self.per_request_s * running + self.per_kv_token_s * kv_tokens


@dataclass(frozen=True, slots=True)
class EngineProfile:
    """Everything that decides how one demo engine behaves in time."""

    model: str
    accelerator: str
    devices: int
    prefill: PrefillTimes
    decode: DecodeTimes
    batch_tokens: int
    kv_bytes_per_token: int
    kv_room_tokens: int
    max_running: int
    link_bytes_per_s: float
    link_latency_s: float
    warmup_s: float
    bootstrap_timeout_s: float
    keep_old_series_s: float
    catch_up_s: float
    tokens_per_event: int

    def with_room(self, *, kv_room_tokens: int, max_running: int) -> EngineProfile:
        """The same engine with another KV room (tokens) and batch limit (requests)."""
        return replace(self, kv_room_tokens=kv_room_tokens, max_running=max_running)


def prefill_points(
    path: Path = PROFILE_TABLE, *, system: str = "h200_sxm", tp: int = 1
) -> list[tuple[int, float]]:
    """(input tokens, seconds) of the table's batch-1 prefill rows for `system` and `tp`."""
    with path.open(newline="") as file:
        return [
            (int(row["input_tokens"]), float(row["iteration_ms"]) / 1000.0)
            for row in csv.DictReader(file)
            if row["phase"] == "prefill"
            and row["system"] == system
            and int(row["tp"]) == tp
            and int(row["batch"]) == 1
        ]


def fit_prefill(points: Sequence[tuple[int, float]]) -> PrefillTimes:
    """Least-squares fit of seconds = a + b * n + c * n^2 to (tokens, seconds) points.

    Raises ValueError with fewer than three points or when a coefficient comes out negative, because
    such a fit would let a pass take less time for more work.
    """
    if len(points) < 3:
        raise ValueError(f"a prefill fit needs at least 3 points, got {len(points)}")
    tokens = np.array([p[0] for p in points], dtype=float)
    seconds = np.array([p[1] for p in points], dtype=float)
    # Columns scaled to their largest value keep the system well conditioned.
    scale = np.array([1.0, tokens.max(), tokens.max() ** 2])
    columns = np.stack([np.ones_like(tokens), tokens, tokens**2], axis=1) / scale
    solution, *_ = np.linalg.lstsq(columns, seconds, rcond=None)
    base, per_token, per_square = (float(v) for v in solution / scale)
    if min(base, per_token, per_square) < 0:
        raise ValueError(
            f"prefill fit has a negative coefficient: {base}, {per_token}, {per_square}"
        )
    return PrefillTimes(base, per_token, per_square)


def load_profile(path: Path = PROFILE) -> EngineProfile:
    """The demo profile with its prefill times fitted from the table."""
    raw: dict[str, Any] = json.loads(path.read_text())
    prefill, decode, kv, engine = raw["prefill"], raw["decode"], raw["kv"], raw["engine"]
    points = prefill_points(system=prefill["system"], tp=int(prefill["tp"]))
    return EngineProfile(
        model=raw["model"],
        accelerator=raw["accelerator"],
        devices=int(raw["devices_per_worker"]),
        prefill=fit_prefill(points),
        decode=DecodeTimes(
            float(decode["base_s"]), float(decode["per_request_s"]), float(decode["per_kv_token_s"])
        ),
        batch_tokens=int(prefill["batch_tokens"]),
        kv_bytes_per_token=int(kv["bytes_per_token"]),
        kv_room_tokens=int(kv["room_tokens"]),
        max_running=int(kv["max_running"]),
        link_bytes_per_s=float(kv["link_bytes_per_s"]),
        link_latency_s=float(kv["link_latency_s"]),
        warmup_s=float(engine["warmup_s"]),
        bootstrap_timeout_s=float(engine["bootstrap_timeout_s"]),
        keep_old_series_s=float(engine["keep_old_series_s"]),
        catch_up_s=float(engine["catch_up_s"]),
        tokens_per_event=int(engine["tokens_per_event"]),
    )


# ---- Learnt models of a real fleet: what the planner calibrates -------------------------------

#: 97.5 % point of chi-square with 2 degrees of freedom: the innovation gate of research §3.3.
INNOVATION_GATE = 7.378
#: Relative measurement noise of one window and relative doubt about each prior coefficient.
NOISE, PRIOR_DOUBT = 0.05, 1.0
MIN_SAMPLES, HOLD_OUT_FOLDS = 6, 4
CALIBRATED_ERROR = 0.25
MODEL_ONLY, CALIBRATED = "model only", "calibrated"


@dataclass(frozen=True, slots=True)
class PrefillModel:
    """S(n) = a + b n + c n^2 seconds for a prompt of n uncached tokens (research §3.3)."""

    a_s: float
    b_s: float
    c_s: float

    def seconds(self, tokens: float) -> float:
        """Seconds of prefill work of one prompt of `tokens`."""
        return self.a_s + self.b_s * tokens + self.c_s * tokens * tokens

    def mean_seconds(self, mean_tokens: float, cv2: float) -> float:
        """E[S(n)] for lengths of this mean and squared coefficient of variation."""
        return self.a_s + self.b_s * mean_tokens + self.c_s * mean_tokens**2 * (1.0 + cv2)

    @property
    def coefficients(self) -> tuple[float, float, float]:
        return (self.a_s, self.b_s, self.c_s)


@dataclass(frozen=True, slots=True)
class DecodeModel:
    """tau(B, K) = alpha + beta B + gamma K seconds per step; K = KV tokens resident (§3.3)."""

    alpha_s: float
    beta_s: float
    gamma_s: float

    def step_seconds(self, batch: float, kv_tokens: float) -> float:
        """Seconds of one step with `batch` sequences that hold `kv_tokens` together."""
        return self.alpha_s + self.beta_s * batch + self.gamma_s * kv_tokens

    @property
    def coefficients(self) -> tuple[float, float, float]:
        return (self.alpha_s, self.beta_s, self.gamma_s)


@dataclass(frozen=True, slots=True)
class TimeSample:
    """One observed window: the model's features (1, x, y) and the seconds they took."""

    features: tuple[float, float, float]
    seconds: float


@dataclass(frozen=True, slots=True)
class Fit:
    """A fitted model. `error` is the mean absolute relative hold-out error, None if too few.

    `covered` is the range of the second feature (tokens or batch) that the kept samples span.
    """

    coefficients: tuple[float, float, float]
    error: float | None
    kept: int
    rejected: int
    covered: tuple[float, float] | None

    @property
    def basis(self) -> str:
        """`calibrated` with enough samples and a small hold-out error, else `model only`."""
        trusted = self.error is not None and self.error <= CALIBRATED_ERROR
        return CALIBRATED if trusted and self.kept >= MIN_SAMPLES else MODEL_ONLY


def prefill_sample(mean_tokens: float, cv2: float, seconds_per_prompt: float) -> TimeSample:
    """A window in which prompts of this mean length took `seconds_per_prompt` each on average."""
    return TimeSample((1.0, mean_tokens, mean_tokens**2 * (1.0 + cv2)), seconds_per_prompt)


def decode_sample(batch: float, kv_tokens: float, step_seconds: float) -> TimeSample:
    """A window in which a worker held `batch` sequences and a step took `step_seconds`."""
    return TimeSample((1.0, batch, kv_tokens), step_seconds)


def fit(prior: Sequence[float], samples: Sequence[TimeSample]) -> Fit:
    """Ridge regression to `prior` with coefficients >= 0, in relative error, gated for outliers.

    The active set is found exactly by trying all eight sets of free coefficients (the problem is
    convex). A window whose squared innovation exceeds `INNOVATION_GATE` spreads is left out, unless
    that would leave out most of them: then the fleet has changed, not the window.
    """
    usable = [s for s in samples if s.seconds > 0 and np.isfinite(s.features).all()]
    if not usable:
        return Fit(_three(prior), None, 0, 0, None)
    kept = _gated(prior, usable)
    solution = _solve(prior, kept)
    seen = [float(s.features[1]) for s in kept]
    return Fit(
        coefficients=_three(solution),
        error=_hold_out_error(prior, kept),
        kept=len(kept),
        rejected=len(usable) - len(kept),
        covered=(min(seen), max(seen)),
    )


def _gated(prior: Sequence[float], samples: list[TimeSample]) -> list[TimeSample]:
    if len(samples) < MIN_SAMPLES:
        return samples
    residuals = _relative_residuals(_solve(prior, samples), samples)
    centre = float(np.median(residuals))
    spread = max(NOISE, 1.4826 * float(np.median(np.abs(residuals - centre))))
    inside = ((residuals - centre) / spread) ** 2 <= INNOVATION_GATE
    kept = [sample for sample, ok in zip(samples, inside, strict=True) if ok]
    return kept if len(kept) * 2 > len(samples) else samples


def _hold_out_error(prior: Sequence[float], samples: list[TimeSample]) -> float | None:
    if len(samples) < MIN_SAMPLES:
        return None
    errors: list[float] = []
    for fold in range(HOLD_OUT_FOLDS):
        held = samples[fold::HOLD_OUT_FOLDS]
        rest = [s for i, s in enumerate(samples) if i % HOLD_OUT_FOLDS != fold]
        errors.extend(np.abs(_relative_residuals(_solve(prior, rest), held)).tolist())
    return float(np.mean(errors))


def _relative_residuals(
    coefficients: np.ndarray[Any, Any], samples: list[TimeSample]
) -> np.ndarray[Any, Any]:
    features = np.array([s.features for s in samples])
    seconds = np.array([s.seconds for s in samples])
    return np.asarray((features @ coefficients - seconds) / seconds)


def _solve(prior: Sequence[float], samples: Sequence[TimeSample]) -> np.ndarray[Any, Any]:
    features = np.array([s.features for s in samples])
    seconds = np.array([s.seconds for s in samples])
    centre = np.maximum(np.array(prior, dtype=float), 0.0)
    # A coefficient that the prior says is nothing may still be a tenth of the time observed.
    typical = 0.1 * seconds.mean() / np.maximum(np.abs(features).mean(axis=0), 1e-12)
    scale = np.where(centre > 0, centre, typical)
    rows = features / seconds[:, None] * scale
    pull = NOISE / PRIOR_DOUBT
    system = np.vstack([rows, pull * np.eye(3)])
    target = np.concatenate([np.ones(len(seconds)), pull * centre / scale])
    best, best_loss = np.zeros(3), np.inf
    for free in product((False, True), repeat=3):
        columns = np.array(free)
        trial = np.zeros(3)
        if columns.any():
            trial[columns] = np.linalg.lstsq(system[:, columns], target, rcond=None)[0]
        loss = float(((system @ trial - target) ** 2).sum())
        if (trial >= 0).all() and loss < best_loss:
            best, best_loss = trial, loss
    return np.asarray(best * scale)


def _three(values: Iterable[float]) -> tuple[float, float, float]:
    first, second, third = (float(v) for v in values)
    return (first, second, third)


@dataclass(frozen=True, slots=True)
class ObjectiveRate:
    """G*: what one decode worker can do inside the TPOT objective (DESIGN law 3b).

    `binding` names what limits the batch: `tpot`, `kv` or `sequences`. Not `feasible`: even a batch
    of one misses the objective.
    """

    batch: float
    step_s: float
    tokens_per_s: float
    binding: str
    feasible: bool


def objective_rate(
    model: DecodeModel,
    *,
    context_tokens: float,
    tpot_objective_s: float,
    max_sequences: int | None,
    kv_capacity_tokens: float | None,
    margin: float = 0.05,
    kv_share: float = 0.85,
    sequences_share: float = 0.94,
) -> ObjectiveRate:
    """Token rate of one worker at the largest batch inside the objective (research §2.1).

    `context_tokens` are the KV tokens a running sequence holds on average.
    """
    per_sequence = model.beta_s + model.gamma_s * context_tokens
    room = tpot_objective_s * (1.0 - margin) - model.alpha_s
    limits = {"tpot": room / per_sequence if per_sequence > 0 else np.inf}
    if max_sequences:
        limits["sequences"] = sequences_share * max_sequences
    if kv_capacity_tokens:
        limits["kv"] = kv_share * kv_capacity_tokens / max(context_tokens, 1.0)
    binding = min(limits, key=lambda name: limits[name])
    largest = float(limits[binding])
    if not np.isfinite(largest):
        raise ValueError("nothing bounds the batch: a step costs the same at any size")
    batch = max(1.0, largest)
    step = model.step_seconds(batch, batch * context_tokens)
    feasible = limits["tpot"] >= 1.0
    return ObjectiveRate(batch, step, batch / step, binding, feasible)


def prefill_roofline(
    *, active_params: float, flops: float, efficiency: float = 0.5, overhead_s: float = 0.01
) -> PrefillModel:
    """A prior without a profile: two operations per active parameter and token.

    `flops` are the worker's dense FLOP/s. Always `model only`. Attention's n^2 term is left out:
    it is small below a few thousand tokens and the fit finds it.
    """
    return PrefillModel(overhead_s, 2.0 * active_params / (flops * efficiency), 0.0)


def decode_roofline(
    *,
    active_params: float,
    weight_bytes: float,
    kv_bytes_per_token: float,
    flops: float,
    bytes_per_s: float,
    bandwidth_share: float = 0.75,
) -> DecodeModel:
    """A prior without a profile: read the weights and the resident KV once per step."""
    return DecodeModel(
        weight_bytes / (bytes_per_s * bandwidth_share),
        2.0 * active_params / (flops * 0.5),
        kv_bytes_per_token / (bytes_per_s * bandwidth_share),
    )
