"""A figure as a person reads it: value, unit, state in words, age, place, trace."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Final

from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from apps.common import formatting
from apps.common.measurement import Measurement, Place, State
from apps.common.units import Unit
from apps.fleet.domain.defaults import PRODUCTION
from apps.telemetry.domain.hardware_figures import NOT_ATTRIBUTABLE

from ..reader import NBSP, Reader, duration
from ..wording import kinds, labels

#: Ratio figures that are changes against usual: shown with a sign.
SIGNED: Final = frozenset(
    {"input_tokens", "output_tokens", "input_length", "output_length", "context_length",
     "uncached_tokens"}
)  # fmt: skip
#: Ratio figures that are multiples.
TIMES: Final = frozenset(
    {"budget_burn", "worker_vs_peers", "robust_z", "queue_spread", "kv_spread"}
)
#: Second figures that are spans of time, not latencies.
SPANS: Final = frozenset({"idle_time", "data_age", "recovery_time"})
BUDGETS: Final = frozenset({"ttft_budget", "tpot_budget"})
TTFT: Final = frozenset({"ttft_p95", "ttft_p50", "ttft_p99", "worst_ttft_p95"})


_PLAIN: Final = re.compile(r"^\d+(\.\d+)?$")


@dataclass(frozen=True, slots=True)
class Shown:
    """`text` is value and unit together; `note` says in words what the state means."""

    value: str
    unit: str
    text: str
    note: str = ""
    state: str = State.OK.value
    is_old: bool = False
    is_missing: bool = False

    @property
    def css(self) -> str:
        """The class that makes an old or missing figure look so."""
        return "is-missing" if self.is_missing else "is-old" if self.is_old else ""


@dataclass(frozen=True, slots=True)
class TraceLine:
    name: str
    value: str
    is_code: bool = False


def amount(
    code: str, unit: Unit, value: float | Decimal, objective: float | None = None
) -> tuple[str, str]:
    """(value, unit sign) of a number by its code and unit."""
    number = float(value)
    if unit is Unit.RATIO:
        if code in SIGNED:
            return kinds.signed_share(number), ""
        if code in TIMES:
            return f"{number:.1f}×", ""
        if code in BUDGETS:
            # xgettext:no-python-format
            return formatting.share(number).rstrip("%"), _("% left")
        return formatting.share(number), ""
    if unit is Unit.SECONDS:
        if code in SPANS:
            return _split(duration(number))
        if code in TTFT:
            return _split(formatting.latency(number, objective_s=objective))
        return _split(formatting.stage_time(number))
    if unit is Unit.USD_PER_HOUR:
        return formatting.money(Decimal(str(value))), "/h"
    return _split(kinds.amount_text(unit, value))


def _split(text: str) -> tuple[str, str]:
    parts = text.split(NBSP)
    return (parts[0], parts[1]) if len(parts) == 2 else (text, "")


def show(
    measurement: Measurement, code: str, reader: Reader, *, objective: float | None = None
) -> Shown:
    """A figure with its state in words (`design/ui.md` §7)."""
    state = measurement.state
    if measurement.value is None:
        return _without_value(measurement, reader)
    value, unit = amount(code, measurement.unit, measurement.value, objective)
    is_range = (
        measurement.method == "marginals"
        and measurement.lower is not None
        and measurement.upper is not None
        and measurement.lower != measurement.upper
    )
    if is_range:
        value = range_text(measurement, code, objective)
    text = _joined(value, unit)
    note = ""
    if state is State.CLAMPED:
        value, text = f"≥{NBSP}{value}", f"≥{NBSP}{text}"
        note = _("at or above the last bucket bound")
    elif state is State.PARTIAL:
        note = _coverage(measurement)
    elif state is State.TOO_FEW:
        note = _too_few(measurement)
    elif state is State.CONFLICT:
        note = _conflict(measurement, code, objective)
    elif state in (State.STALE, State.SOURCE_DOWN):
        note = _age(measurement, reader)
    return Shown(
        value=value,
        unit=unit,
        text=text,
        note=note,
        state=state.value,
        is_old=state in (State.STALE, State.SOURCE_DOWN),
    )


def _without_value(measurement: Measurement, reader: Reader) -> Shown:
    state = measurement.state
    if state is State.NO_TRAFFIC and measurement.unit is Unit.USD_PER_MILLION_TOKENS:
        # Zero tokens give no unit cost: never 0, never infinity (DESIGN law 11).
        return Shown("–", "", "–", _("no such tokens"), state.value)
    if state is State.NO_TRAFFIC:
        words = _("no traffic")
        return Shown(words, "", words, state=state.value)
    if state is State.TOO_FEW:
        return Shown("–", "", "–", _too_few(measurement), state.value)
    if state is State.PARTIAL:
        return Shown("–", "", "–", _coverage(measurement), state.value)
    if measurement.method == NOT_ATTRIBUTABLE:
        words = _("n/a")
        return Shown(words, "", words, _("workers share this GPU"), state.value)
    if state is State.NO_DATA:
        query = measurement.trace.query
        note = _("metric missing: {name}").format(name=query) if query else _("no data")
        return Shown("–", "", "–", note, state.value, is_missing=True)
    note = str(labels.word(labels.FIGURE_STATES, state.value))
    return Shown("–", "", "–", note, state.value, is_missing=True)


def _joined(value: str, unit: str) -> str:
    if not unit:
        return value
    glue = "" if unit.startswith(("/", "%")) else NBSP
    return f"{value}{glue}{unit}"


def _coverage(measurement: Measurement) -> str:
    if measurement.coverage is None:
        return _("part of the workers reported")
    seen, expected = measurement.coverage
    return _("{seen} of {expected} workers").format(seen=seen, expected=expected)


def _too_few(measurement: Measurement) -> str:
    needed = PRODUCTION.percentile_min_requests
    count = measurement.sample_count
    if count is None:
        return _("too few requests, percentiles need {needed}").format(needed=needed)
    return ngettext(
        "{count} request, percentiles need {needed}",
        "{count} requests, percentiles need {needed}",
        count,
    ).format(count=count, needed=needed)


def _conflict(measurement: Measurement, code: str, objective: float | None) -> str:
    if measurement.lower is None or measurement.upper is None:
        return _("sources disagree")
    first = _joined(*amount(code, measurement.unit, measurement.lower, objective))
    second = _joined(*amount(code, measurement.unit, measurement.upper, objective))
    return _("{first} or {second}: sources disagree").format(first=first, second=second)


def _age(measurement: Measurement, reader: Reader) -> str:
    if measurement.observed_at is None:
        return _("old")
    return _("from {time}, {age} old").format(
        time=reader.time(measurement.observed_at),
        age=duration((reader.now - measurement.observed_at).total_seconds()),
    )


def range_text(measurement: Measurement, code: str, objective: float | None = None) -> str:
    """lower–upper in the value's unit, without the unit sign; empty without bounds."""
    if measurement.lower is None or measurement.upper is None:
        return ""
    low = amount(code, measurement.unit, measurement.lower, objective)[0]
    high = amount(code, measurement.unit, measurement.upper, objective)[0]
    if low == high:
        return low
    low, high = _same_places(low, high)
    if measurement.unit is Unit.RATIO and low.endswith("%"):
        low = low[:-1]
    return formatting.value_range(low, high.lstrip("$"))


def _same_places(low: str, high: str) -> tuple[str, str]:
    """Both ends with as many decimals: 11.0–11.7, never 11–11.7."""
    if not (_PLAIN.match(low) and _PLAIN.match(high)):
        return low, high
    places = max(len(low.partition(".")[2]), len(high.partition(".")[2]))
    return f"{float(low):.{places}f}", f"{float(high):.{places}f}"


def trace_lines(measurement: Measurement, reader: Reader) -> tuple[TraceLine, ...]:
    """What a figure opens: state, sample time, place, method, coverage, source, query (law 10)."""
    lines = [
        TraceLine(_("State"), labels.word(labels.FIGURE_STATES, measurement.state.value)),
        TraceLine(_("Measured at"), labels.word(labels.PLACES, measurement.place.value)),
    ]
    if measurement.observed_at is not None:
        lines.append(
            TraceLine(
                _("Sample"),
                f"{reader.time(measurement.observed_at)} ({reader.utc(measurement.observed_at)})",
            )
        )
    if measurement.sample_count is not None:
        lines.append(TraceLine(_("Requests"), f"{measurement.sample_count:,}"))
    if measurement.coverage is not None:
        lines.append(TraceLine(_("Coverage"), _coverage(measurement)))
    if measurement.method:
        lines.append(TraceLine(_("Method"), measurement.method, is_code=True))
    if measurement.trace.source:
        lines.append(TraceLine(_("Source"), measurement.trace.source))
    if measurement.trace.query:
        lines.append(TraceLine(_("Query or formula"), measurement.trace.query, is_code=True))
    return tuple(lines)


def place_note(measurement: Measurement) -> str:
    """Said beside a TTFT that was not measured at the frontend (DESIGN law 3)."""
    if measurement.value is None:
        return ""
    notes: Mapping[Place, str] = {
        Place.ROUTER: _("measured from the router on"),
        Place.ENGINE: _("measured at the engine"),
        Place.MODEL: _("computed by the model"),
    }
    return notes.get(measurement.place, "")
