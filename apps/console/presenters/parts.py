"""Small parts that several pages share: chips, banners, tiles, figures, predicted rows, diffs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Final

from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from apps.common import formatting
from apps.common.measurement import Measurement
from apps.common.units import Unit
from apps.overview.domain import types

from ..reader import NBSP, Reader
from ..wording import kinds, labels, say
from . import svg
from .shown import (
    BUDGETS,
    TTFT,
    Shown,
    TraceLine,
    place_note,
    range_text,
    show,
    trace_lines,
)

#: Fill of a phase in bars; hatches are patterns of the page's sprite.
PHASE_FILL: Final[Mapping[str, str]] = {
    "queue": "url(#hq)",
    "prefill": "var(--prefill)",
    "kv_transfer": "var(--kv)",
    "prefill_and_kv": "url(#hpk)",
    "decode": "var(--decode)",
    "mixed": "var(--accent)",
}


def fill_of(role: str) -> str:
    return PHASE_FILL.get(role, "var(--queue)")


_ENDS: Final = ("first", "second")


@dataclass(frozen=True, slots=True)
class Chip:
    status: str
    text: str
    title: str = ""


@dataclass(frozen=True, slots=True)
class BannerShown:
    status: str
    text: str
    link: str
    link_text: str


def banners(found: Sequence[types.Banner], reader: Reader) -> tuple[BannerShown, ...]:
    return tuple(
        BannerShown(
            banner.status.value,
            say(banner.text, reader),
            banner.link,
            say(banner.link_text, reader) or _("Show"),
        )
        for banner in found
    )


@dataclass(frozen=True, slots=True)
class FigureShown:
    """A key figure or an evidence tile; `key` is unique on its page (for its trace popover)."""

    key: str
    label: str
    shown: Shown
    status: str
    status_word: str
    detail: str
    note: str
    spark: svg.Spark | None
    meter: str
    trace: tuple[TraceLine, ...]
    tone: str = ""


def figure(item: types.Figure, reader: Reader, prefix: str) -> FigureShown:
    """A key figure with its sparkline, or a bar for an error budget."""
    seen = show(item.measurement, item.code, reader, objective=item.objective)
    is_budget = item.code in BUDGETS and item.measurement.value is not None
    said = say(_one_end(item.detail, reader), reader)
    drawn = None
    if item.series and not is_budget:
        drawn = svg.spark(item.series, item.objective, is_old=seen.is_old)
    return FigureShown(
        key=f"{prefix}-{item.code}",
        label=labels.word(labels.FIGURES, item.code),
        shown=seen,
        status=_status_of(item.status, seen),
        status_word=_status_word(item.status, seen),
        detail=said,
        note=""
        if seen.is_missing and said
        else seen.note or (place_note(item.measurement) if item.code in TTFT else ""),
        spark=drawn,
        meter=svg.percent(float(item.measurement.value or 0)) if is_budget else "",
        trace=trace_lines(item.measurement, reader),
        tone=_late(item, seen),
    )


def _one_end(detail: types.Text | None, reader: Reader) -> types.Text | None:
    """A range whose ends read the same is one value."""
    if detail is None or detail.code != "figure.share_range_of_demand":
        return detail
    first, second = (kinds.show(name, detail.params.get(name), {}, reader) for name in _ENDS)
    if first != second:
        return detail
    share = kinds.number(detail.params["first"])
    return types.Text("figure.share_of_demand", {**detail.params, "share": share})


def _late(item: types.Figure, seen: Shown) -> str:
    """Red is for a latency over its objective; other figures keep their shape and word."""
    is_latency = item.measurement.unit is Unit.SECONDS
    return "c-crit" if is_latency and item.status is types.Status.CRIT and not seen.is_old else ""


def tile(item: types.Evidence, reader: Reader, index: int) -> FigureShown:
    """One measurement behind a diagnosis."""
    objective = None
    if item.comparison is not None:
        found = item.comparison.params.get("ttft_objective")
        objective = float(found) if isinstance(found, int | float | Decimal) else None
    seen = show(item.measurement, item.code, reader, objective=objective)
    return FigureShown(
        key=f"ev-{index}-{item.code}",
        label=labels.word(labels.FIGURES, item.code),
        shown=seen,
        status=_status_of(item.status, seen),
        status_word=_status_word(item.status, seen),
        detail=say(item.comparison, reader),
        note=seen.note,
        spark=None,
        meter="",
        trace=trace_lines(item.measurement, reader),
    )


def _status_of(status: types.Status | None, seen: Shown) -> str:
    if seen.is_old or seen.is_missing:
        return types.Status.UNKNOWN.value
    return status.value if status is not None else ""


def _status_word(status: types.Status | None, seen: Shown) -> str:
    code = _status_of(status, seen)
    return labels.word(labels.STATUSES, code) if code else ""


@dataclass(frozen=True, slots=True)
class PredictedShown:
    """`tick`: "ok" or "crit" where an objective is met or not, else empty."""

    label: str
    now: str
    now_tone: str
    after: str
    tick: str
    tick_word: str
    range: str
    measured: str = ""
    verdict: str = ""
    verdict_word: str = ""


def predicted(rows: Sequence[types.PredictedRow], reader: Reader) -> tuple[PredictedShown, ...]:
    shown = []
    for row in rows:
        now = show(row.now, row.code, reader, objective=row.objective)
        after = show(row.after, row.code, reader, objective=row.objective)
        tick = "" if row.meets_objective is None else "ok" if row.meets_objective else "crit"
        measured = ""
        if row.measured is not None:
            measured = show(row.measured, row.code, reader, objective=row.objective).text
        shown.append(
            PredictedShown(
                label=labels.word(labels.FIGURES, row.code),
                now=now.text,
                now_tone=_over(row.now, row.objective, row.code),
                after=after.text,
                tick=tick,
                tick_word={"ok": _("objective met"), "crit": _("objective missed")}.get(tick, ""),
                range=_range(row),
                measured=measured,
                verdict="" if row.inside_range is None else "ok" if row.inside_range else "warn",
                verdict_word=""
                if row.inside_range is None
                else _("inside the range")
                if row.inside_range
                else _("outside the range"),
            )
        )
    return tuple(shown)


def _range(row: types.PredictedRow) -> str:
    after = row.after
    if after.lower is None or after.upper is None:
        return "–"
    if after.lower == after.upper and after.value == row.now.value:
        return _("same")
    return range_text(after, row.code, row.objective).lstrip("$")


def _over(measurement: Measurement, objective: float | None, code: str) -> str:
    """Red only for a latency over its objective (no objective, no judgement)."""
    if objective is None or measurement.value is None or measurement.unit is not Unit.SECONDS:
        return ""
    return "c-crit" if float(measurement.value) > objective else ""


@dataclass(frozen=True, slots=True)
class DiffShown:
    kind: str
    sign: str
    text: str
    gpus: str


def diff(lines: Sequence[types.DiffLine]) -> tuple[DiffShown, ...]:
    """`prefill workers: 4 … 16 GPUs`, removed lines with −, added with +."""
    shown = []
    for line in lines:
        is_added = line.sign == "+"
        shown.append(
            DiffShown(
                kind="add" if is_added else "del",
                sign="+" if is_added else "−",
                text=_("{role} workers: {count}").format(
                    role=labels.role(line.role), count=line.workers
                ),
                gpus=gpu_count(line.gpus),
            )
        )
    return tuple(shown)


def gpu_count(count: Decimal | None) -> str:
    if count is None:
        return "–"
    amount = 1 if count == 1 else 2
    return ngettext("{count} GPU", "{count} GPUs", amount).format(count=formatting.gpus(count))


def hardware(count: Decimal | None, accelerator: str) -> str:
    """64 × H200, or the count alone where the accelerator is not known."""
    title = accelerator_title(accelerator)
    if count is None:
        return title
    if not title:
        return gpu_count(count)
    return f"{formatting.gpus(count)}{NBSP}×{NBSP}{title}"


def engine_title(engine: str) -> str:
    """Engines by their own spelling."""
    known = {"sglang": "SGLang", "vllm": "vLLM", "trtllm": "TensorRT-LLM", "dynamo": "Dynamo"}
    name, _sep, version = engine.partition(" ")
    return f"{known.get(name.lower(), name)} {version}".strip()


def accelerator_title(slug: str) -> str:
    """A catalog slug as people write it: h200-sxm → H200 SXM."""
    is_slug = bool(slug) and slug == slug.lower() and " " not in slug
    return slug.upper().replace("-", " ") if is_slug else slug


__all__ = [
    "BannerShown",
    "Chip",
    "DiffShown",
    "FigureShown",
    "PredictedShown",
    "accelerator_title",
    "banners",
    "diff",
    "engine_title",
    "figure",
    "fill_of",
    "gpu_count",
    "hardware",
    "predicted",
    "tile",
]
