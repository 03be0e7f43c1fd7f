"""What the planner knows of one deployment when it decides: frozen, passed as an argument."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

from apps.simulation.service_time import DecodeModel, PrefillModel


@dataclass(frozen=True, slots=True, order=True)
class Pair:
    """Workers of the two planned roles."""

    prefill: int
    decode: int

    @property
    def total(self) -> int:
        return self.prefill + self.decode

    def as_dict(self) -> dict[str, int]:
        return {"prefill": self.prefill, "decode": self.decode}

    def moved_from(self, other: Pair) -> int:
        """Workers that start, stop or change role to get here."""
        return max(abs(self.prefill - other.prefill), abs(self.decode - other.decode))


@dataclass(frozen=True, slots=True)
class Targets:
    """The objectives a plan must meet, None where nobody set one. Seconds and quantiles."""

    ttft_s: float | None
    ttft_quantile: float
    tpot_s: float | None
    tpot_quantile: float


@dataclass(frozen=True, slots=True)
class Engine:
    """Learnt service times and limits of one worker of each role.

    `prefill_error` and `decode_error` are relative errors of the models (hold-out, or a prior's
    doubt); `length_cv2` and `output_cv2` squared coefficients of variation of the lengths;
    `transfer_s` mean KV transfer time; `tpot_spread` how many standard deviations of the batch the
    measured P95 of TPOT lies above its mean.
    """

    prefill: PrefillModel
    decode: DecodeModel
    prefill_error: float
    decode_error: float
    prefill_basis: str
    decode_basis: str
    length_cv2: float
    transfer_s: float
    max_sequences: int | None
    kv_capacity_tokens: float | None
    arrival_cv2: float = 1.0
    tpot_spread: float = 2.0


@dataclass(frozen=True, slots=True)
class Money:
    """USD per worker-hour of each role and per hour of the rest; None where a price is missing."""

    prefill: Decimal | None
    decode: Decimal | None
    other: Decimal = Decimal(0)

    def per_hour(self, pair: Pair) -> Decimal | None:
        if self.prefill is None or self.decode is None:
            return None
        return self.prefill * pair.prefill + self.decode * pair.decode + self.other
