"""The two pools side by side: same rows in the same place, a strip with one cell a worker."""

from __future__ import annotations

from dataclasses import dataclass

from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from apps.common.units import Unit
from apps.overview.domain import types

from ..reader import Reader
from ..wording import labels, say
from . import parts, svg
from .shown import show


@dataclass(frozen=True, slots=True)
class MeterShown:
    label: str
    text: str
    note: str
    fill: str
    width: str
    usual: str
    limit: str
    tone: str
    label_text: str
    is_missing: bool


@dataclass(frozen=True, slots=True)
class CellShown:
    name: str
    text: str
    y: str
    height: str
    state: str
    state_word: str
    title: str
    is_serving: bool


@dataclass(frozen=True, slots=True)
class PoolShown:
    role: str
    title: str
    fill: str
    status: str
    status_word: str
    headline: str
    spec: str
    source: str
    meters: tuple[MeterShown, ...]
    cells: tuple[CellShown, ...]
    facts: tuple[parts.FigureShown, ...]


def present(pool: types.PoolView, reader: Reader) -> PoolShown:
    fill = parts.fill_of(pool.role)
    role = labels.role_title(pool.role)
    return PoolShown(
        role=pool.role,
        title=_("{role} pool").format(role=role),
        fill=fill,
        status=pool.status.value,
        status_word=labels.word(labels.STATUSES, pool.status.value),
        headline=say(pool.headline, reader),
        spec=_spec(pool, reader),
        source=_("role declared, not reported") if pool.role_source == "declared" else "",
        meters=tuple(_meter(item, fill, reader) for item in pool.meters),
        cells=tuple(_cell(item, reader) for item in pool.cells),
        facts=tuple(parts.figure(item, reader, f"pool-{pool.role}") for item in pool.facts),
    )


def _spec(pool: types.PoolView, reader: Reader) -> str:
    ready = ngettext(
        "{ready} of {wanted} worker ready", "{ready} of {wanted} workers ready", pool.wanted
    ).format(ready=pool.ready, wanted=pool.wanted)
    cost = show(pool.cost_per_hour, "spend_per_hour", reader)
    shown = [
        ready,
        pool.parallelism,
        parts.hardware(pool.gpus, pool.accelerator),
    ]
    if pool.cost_per_hour.value is not None:
        shown.append(cost.text)
    return " · ".join(item for item in shown if item)


def _meter(item: types.Meter, fill: str, reader: Reader) -> MeterShown:
    seen = show(item.measurement, item.code, reader)
    ratio = None
    if item.measurement.value is not None and item.measurement.unit is Unit.RATIO:
        ratio = float(item.measurement.value)
    over = item.limit is not None and ratio is not None and ratio >= item.limit
    tone = "c-crit" if item.status is types.Status.CRIT or (item.status is None and over) else ""
    label = labels.word(labels.FIGURES, item.code)
    return MeterShown(
        label=label,
        text=seen.text,
        note=seen.note,
        fill="var(--unknown)" if seen.is_old else fill,
        width=svg.percent(ratio),
        usual=svg.percent(item.usual) if item.usual is not None else "",
        limit=svg.percent(item.limit) if item.limit is not None else "",
        tone=tone if not seen.is_old else "",
        label_text=f"{label}: {seen.text}" + (f", {seen.note}" if seen.note else ""),
        is_missing=ratio is None,
    )


def _cell(item: types.WorkerCell, reader: Reader) -> CellShown:
    seen = show(item.fill, "busy", reader)
    share = 0.0
    if item.fill.value is not None:
        share = min(1.0, max(0.0, float(item.fill.value)))
    state = labels.word(labels.SERVING, item.serving)
    title = _("{name}: {busy}, {waiting} waiting, {running} running, {state}").format(
        name=item.name,
        busy=seen.text,
        waiting=show(item.waiting, "waiting", reader).text,
        running=show(item.running, "running", reader).text,
        state=state,
    )
    is_serving = item.serving == "serving"
    return CellShown(
        name=item.name,
        text=seen.text,
        y=svg.number(100 - share * 100),
        height=svg.number(share * 100),
        state=item.serving,
        state_word="" if is_serving else state,
        title=title,
        is_serving=is_serving,
    )
