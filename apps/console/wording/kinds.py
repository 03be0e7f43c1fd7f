"""Kinds of parameters: a parameter name has one meaning and one format in every sentence.

`KINDS` is the vocabulary that read models use in `Text.params`; the value types are written
beside each name. Formats follow the table of `design/ui.md` §5.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from decimal import Decimal
from typing import Any, Final

from django.utils.translation import gettext, pgettext

from apps.common import formatting
from apps.common.measurement import Measurement
from apps.common.units import Unit

from ..reader import NBSP, Reader, duration
from . import labels

Formatter = Callable[[Any, Mapping[str, Any], Reader], str]


def plain(value: Any) -> Any:
    """The number inside a Measurement; other values as they are."""
    return value.value if isinstance(value, Measurement) else value


def number(value: Any) -> float | None:
    """A float of a number or Measurement; None stays None."""
    found = plain(value)
    return None if found is None else float(found)


def by_unit(value: Any, *, objective: float | None = None) -> str:
    """A Measurement in the format of its unit (seconds as stage times)."""
    if not isinstance(value, Measurement):
        return formatting.rate(number(value))
    amount = number(value)
    if amount is None:
        return formatting.MISSING
    return amount_text(value.unit, value.value, objective=objective)


def amount_text(unit: Unit, value: Any, *, objective: float | None = None) -> str:
    """A number with its unit sign."""
    amount = float(value)
    match unit:
        case Unit.SECONDS if objective is not None:
            return formatting.latency(amount, objective_s=objective)
        case Unit.SECONDS:
            return formatting.stage_time(amount)
        case Unit.RATIO:
            return formatting.share(amount)
        case Unit.USD:
            return formatting.money(Decimal(str(value)))
        case Unit.USD_PER_HOUR:
            return formatting.money(Decimal(str(value))) + "/h"
        case Unit.USD_PER_MILLION_TOKENS:
            return formatting.unit_cost(Decimal(str(value)))
        case Unit.BYTES:
            return _binary_free(amount, "B")
        case Unit.BYTES_PER_SECOND:
            return _binary_free(amount, "B/s")
        case Unit.COUNT | Unit.WORKERS | Unit.GPUS:
            return formatting.rate(amount)
    return f"{formatting.rate(amount)}{NBSP}{unit.value}"


def _binary_free(amount: float, unit: str) -> str:
    """Decimal bytes: kB, MB, GB (10⁹), TB."""
    for limit, sign in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if amount >= limit:
            return f"{formatting.rate(amount / limit)}{NBSP}{sign}{unit}"
    return f"{amount:.0f}{NBSP}{unit}"


def signed_share(value: float | None) -> str:
    """A change as +38% or −12%."""
    if value is None:
        return formatting.MISSING
    sign = "+" if value > 0 else "−" if value < 0 else ""
    return f"{sign}{formatting.share(abs(value))}"


def role_name(role: str) -> str:
    return labels.role(role)


def join(items: Iterable[str]) -> str:
    """A list in the reader's punctuation."""
    return pgettext("list separator", ", ").join(items)


def targets(value: Mapping[str, int]) -> str:
    """prefill 6, decode 5, in the fixed order of phases."""
    return join(
        pgettext("role and number of workers", "{role} {count}").format(
            role=role_name(role), count=value[role]
        )
        for role in labels.in_order(value)
    )


def changes(value: Mapping[str, Iterable[int]]) -> str:
    """prefill 4 → 6, decode 6 → 5; `value` maps role to (before, after)."""
    parts = []
    for role in labels.in_order(value):
        before, after = value[role]
        parts.append(
            pgettext(
                "role and number of workers before and after", "{role} {before} → {after}"
            ).format(role=role_name(role), before=before, after=after)
        )
    return join(parts)


def _text(value: Any, params: Mapping[str, Any], reader: Reader) -> str:
    return str(value)


def _count(value: Any, params: Mapping[str, Any], reader: Reader) -> str:
    found = plain(value)
    if found is None:
        return formatting.MISSING
    return f"{int(found):,}" if abs(int(found)) < 10_000 else formatting.rate(float(found))


def _exact(value: Any, params: Mapping[str, Any], reader: Reader) -> str:
    found = plain(value)
    return formatting.MISSING if found is None else f"{int(found):,}"


def _share(value: Any, params: Mapping[str, Any], reader: Reader) -> str:
    return formatting.share(number(value))


def _ttft(value: Any, params: Mapping[str, Any], reader: Reader) -> str:
    return formatting.latency(number(value), objective_s=number(params.get("ttft_objective")))


def _stage(value: Any, params: Mapping[str, Any], reader: Reader) -> str:
    return formatting.stage_time(number(value))


def _figure(value: Any, params: Mapping[str, Any], reader: Reader) -> str:
    return by_unit(value, objective=number(params.get("ttft_objective")))


def _money(value: Any, params: Mapping[str, Any], reader: Reader) -> str:
    found = plain(value)
    return formatting.money(None if found is None else Decimal(str(found)))


def _unit_cost(value: Any, params: Mapping[str, Any], reader: Reader) -> str:
    found = plain(value)
    return formatting.unit_cost(None if found is None else Decimal(str(found)))


def _gpus(value: Any, params: Mapping[str, Any], reader: Reader) -> str:
    found = plain(value)
    return formatting.MISSING if found is None else formatting.gpus(Decimal(str(found)))


def _time(value: Any, params: Mapping[str, Any], reader: Reader) -> str:
    if isinstance(value, str):
        # Parameters of stored errors are JSON: times are ISO 8601 in UTC.
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            return str(value)
    return reader.time(value) if isinstance(value, datetime) else formatting.MISSING


def _duration(value: Any, params: Mapping[str, Any], reader: Reader) -> str:
    return duration(number(value))


def _group(names: str, kind: Formatter) -> dict[str, Formatter]:
    return dict.fromkeys(names.split(), kind)


#: Parameter name -> format. Types of the values are given at the left of each group.
KINDS: Final[Mapping[str, Formatter]] = {
    # str: names and identifiers, shown as they are
    **_group(
        "name worker peer who source deployment command recommendation metric node accelerator "
        "engine version team environment path url error model policy donor place pair reason_text "
        "by scope target",
        _text,
    ),
    # str: a code of `labels`, shown as its word
    **_group("role from_role to_role other_role", lambda v, p, r: role_name(v)),
    "figure": lambda v, p, r: labels.word(labels.FIGURES, v),
    # one code, or several with commas between them
    "guardrail": lambda v, p, r: join(labels.word(labels.GUARDRAILS, i) for i in v.split(", ")),
    "check": lambda v, p, r: labels.word(labels.CHECKS, v),
    "cause": lambda v, p, r: labels.word(labels.CAUSES_SHORT, v),
    "cause_phrase": lambda v, p, r: labels.word(labels.CAUSES_PHRASE, v),
    "mode": lambda v, p, r: labels.word(labels.MODES, v),
    "state": lambda v, p, r: labels.word(labels.COMMAND_STATES, v),
    "permission": lambda v, p, r: labels.word(labels.PERMISSIONS, v),
    "basis": lambda v, p, r: labels.word(labels.USUAL_BASIS, v),
    # sequence of str
    **_group("names metrics workers_named", lambda v, p, r: join(str(item) for item in v)),
    "figures": lambda v, p, r: join(labels.word(labels.FIGURES, item) for item in v),
    "guardrails": lambda v, p, r: join(labels.word(labels.GUARDRAILS, item) for item in v),
    # datetime
    **_group("since at until next_at sample_at expires_at", _time),
    # float seconds, in words
    **_group(
        "for_s age_s about_s wait_s after_s span_s left_s ready_s within_s soak_s cooldown_s "
        "elapsed_s held_s oldest_s",
        _duration,
    ),
    # float 0..1, or a ratio Measurement
    **_group(
        "share limit busy prefill_busy decode_busy kv_used links_used cached median_error "
        "good_share idle_share coverage_share headroom slots_used total_share",
        _share,
    ),
    # float: difference of two shares, in points
    "gap": lambda v, p, r: formatting.points(number(v) or 0.0),
    # float: relative change, signed
    "change": lambda v, p, r: signed_share(number(v)),
    # int
    **_group(
        "count of workers wanted ready serving needed have passed total running waiting failed "
        "requests tokens revision before after missing similar clusters visible shown late "
        "inside steps step draining spare index preemptions approvals lowest minimum maximum",
        _count,
    ),
    "expected": _exact,
    "current": _exact,
    # seconds: TTFT style (2 decimals when `ttft_objective` >= 1 s)
    **_group("ttft ttft_objective", _ttft),
    # seconds: ms style
    **_group("tpot tpot_objective mean usual_s stage_s", _stage),
    # Measurement of any unit
    **_group(
        "value usual other threshold predicted measured rate input output size speed demand "
        "first second price",
        _figure,
    ),
    # Decimal or money Measurement
    **_group("per_hour saved extra per_day", _money),
    "per_million": _unit_cost,
    # Decimal
    **_group("gpus gpus_free gpus_needed from_gpus to_gpus", _gpus),
    # float
    "burn": lambda v, p, r: f"{number(v):.1f}×" if number(v) is not None else formatting.MISSING,
    "times": lambda v, p, r: f"{number(v):.1f}×" if number(v) is not None else formatting.MISSING,
    # mapping role -> int
    **_group("targets wanted_targets serving_targets true_now", lambda v, p, r: targets(v)),
    # mapping role -> (before, after)
    "changes": lambda v, p, r: changes(v),
}


def show(name: str, value: Any, params: Mapping[str, Any], reader: Reader) -> str:
    """A parameter in the reader's language and zone; None is the missing sign."""
    if value is None:
        return formatting.MISSING
    return KINDS[name](value, params, reader)


def yes_no(flag: bool) -> str:
    return gettext("yes") if flag else gettext("no")
