"""Numbers for people, by the table of `design/ui.md` §5. Pure text; words are added by callers."""

from __future__ import annotations

from datetime import timedelta
from decimal import ROUND_HALF_EVEN, Decimal

EN_DASH = "–"
MISSING = "–"
NBSP = "\u00a0"


def latency(seconds: float | None, *, objective_s: float | None = None) -> str:
    """TTFT style: 2 decimals in s when the objective (else the value) is >= 1 s, else whole ms."""
    if seconds is None:
        return MISSING
    scale = objective_s if objective_s is not None else seconds
    return f"{seconds:.2f}{NBSP}s" if scale >= 1 else f"{seconds * 1000:.0f}{NBSP}ms"


def stage_time(seconds: float | None) -> str:
    """TPOT and stage times: whole ms, 1 decimal under 10 ms."""
    if seconds is None:
        return MISSING
    ms = seconds * 1000
    if ms >= 10_000:
        return f"{seconds:.1f}{NBSP}s"
    return f"{ms:,.0f}{NBSP}ms" if ms >= 10 else f"{ms:.1f}{NBSP}ms"


def rate(value: float | None) -> str:
    """Counts and rates: k, M, G from 10,000 up, 3 significant digits."""
    if value is None:
        return MISSING
    size = abs(value)
    for limit, suffix in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if size >= limit:
            factor = 1e3 if suffix == "k" else limit
            return f"{_three(value / factor)}{suffix}"
    if size >= 1000:
        return f"{value:,.0f}"
    return _three(value)


def share(value: float | None) -> str:
    """Whole percent; 1 decimal under 1 % or over 99 %; no space."""
    if value is None:
        return MISSING
    percent = value * 100
    if percent in (0, 100) or 1 <= percent <= 99 or percent > 100:
        return f"{percent:.0f}%"
    return f"{percent:.1f}%"


def points(gap: float) -> str:
    """A gap between two shares, in points."""
    return f"{abs(gap) * 100:.0f}"


def money(amount: Decimal | None, symbol: str = "$") -> str:
    """Money per hour: 2 decimals."""
    if amount is None:
        return MISSING
    return f"{symbol}{amount.quantize(Decimal('0.01'), ROUND_HALF_EVEN):,}"


def unit_cost(amount: Decimal | None, symbol: str = "$") -> str:
    """Money per 1M tokens: 2 decimals, 3 under 0.20. The caller names the denominator."""
    if amount is None:
        return MISSING
    places = Decimal("0.001") if abs(amount) < Decimal("0.20") else Decimal("0.01")
    return f"{symbol}{amount.quantize(places, ROUND_HALF_EVEN):,}"


def value_range(low: str, high: str) -> str:
    """A prediction's range with an en dash, e.g. 0.66–0.96."""
    return low if low == high else f"{low}{EN_DASH}{high}"


def duration(span: timedelta | float) -> str:
    """A duration: 45 s, 4 min, 3 h 5 min, 2 d. Unit signs are the same in both languages."""
    seconds = span.total_seconds() if isinstance(span, timedelta) else float(span)
    seconds = max(0.0, seconds)
    if seconds < 90:
        return f"{seconds:.0f}{NBSP}s"
    minutes = int(seconds // 60)
    if minutes < 90:
        return f"{minutes}{NBSP}min"
    hours, rest = divmod(minutes, 60)
    if hours < 48:
        return f"{hours}{NBSP}h{NBSP}{rest}{NBSP}min" if rest else f"{hours}{NBSP}h"
    return f"{hours // 24}{NBSP}d"


def gpus(count: Decimal) -> str:
    """A GPU count without trailing zeros (shares of a GPU are allowed)."""
    return format(count.normalize(), "f")


def _three(value: float) -> str:
    size = abs(value)
    if size >= 100:
        return f"{value:.0f}"
    if size >= 10:
        return f"{value:.1f}".rstrip("0").rstrip(".")
    return f"{value:.2f}".rstrip("0").rstrip(".") if size else "0"
