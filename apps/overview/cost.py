"""Cost per token now: components, shares, unit costs."""

from __future__ import annotations

from decimal import Decimal

from apps.common.measurement import Measurement, State
from apps.common.units import Unit

from .domain.types import CostLine, CostView, Figure
from .labels import in_order
from .loaded import Loaded

GPU_LINES = {"prefill": "prefill_gpus", "decode": "decode_gpus", "mixed": "mixed_gpus"}


def view(loaded: Loaded) -> CostView:
    """The cost block, from the latest evaluation."""
    costs = loaded.evaluation.costs if loaded.evaluation else {}
    total = loaded.evaluated(costs.get("total_per_hour"), Unit.USD_PER_HOUR)
    good = loaded.evaluated(costs.get("good_per_million"), Unit.USD_PER_MILLION_TOKENS)
    stored = costs.get("per_hour") or {}
    lines = []
    for code in in_order(stored):
        per_hour = loaded.evaluated(stored[code], Unit.USD_PER_HOUR)
        share = _share(per_hour, total)
        lines.append(
            CostLine(
                code=GPU_LINES.get(code, code),
                per_hour=per_hour,
                share=share,
                per_million=_part(good, share),
            )
        )
    book = loaded.price_book
    return CostView(
        total_per_hour=total,
        lines=tuple(lines),
        unit_costs=tuple(
            Figure(code, loaded.evaluated(costs.get(key), Unit.USD_PER_MILLION_TOKENS), None, None,
                   None)
            for code, key in (
                ("cost_per_million_input", "input_per_million"),
                ("cost_per_million_output", "output_per_million"),
                ("cost_per_million_completed", "completed_per_million"),
                ("cost_per_million_good", "good_per_million"),
            )
        ),
        idle_share=loaded.evaluated(costs.get("idle_share"), Unit.RATIO),
        price_book=book.name if book else "",
        missing_prices=tuple(costs.get("missing_prices") or ()),
    )  # fmt: skip


def _share(part: Measurement, total: Measurement) -> float | None:
    if part.value is None or total.value is None or not Decimal(str(total.value)):
        return None
    return float(Decimal(str(part.value)) / Decimal(str(total.value)))


def _part(whole: Measurement, share: float | None) -> Measurement:
    """A line's part of the cost per 1M good tokens."""
    if whole.value is None or share is None:
        return Measurement(None, Unit.USD_PER_MILLION_TOKENS, State.NO_DATA)
    value = Decimal(str(whole.value)) * Decimal(str(share))
    return Measurement(value, whole.unit, whole.state, whole.observed_at, whole.place, "share")
