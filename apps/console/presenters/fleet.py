"""The fleet page: what needs me? One row a deployment, one sensible next step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from apps.common import formatting
from apps.common.measurement import Measurement
from apps.overview.domain import types

from ..reader import Reader
from ..wording import labels, say
from . import parts, svg
from .deployment import SourceShown, sources
from .shown import show


@dataclass(frozen=True, slots=True)
class RowShown:
    slug: str
    name: str
    sub: str
    status: str
    status_word: str
    limited_by: str
    limited_detail: str
    ttft: str
    ttft_of: str
    ttft_tone: str
    tpot: str
    tpot_of: str
    tpot_tone: str
    split: tuple[svg.Segment, ...]
    gpus: str
    gpus_label: str
    busy: tuple[tuple[str, str], ...]
    busy_text: str
    busy_label: str
    good: str
    good_tone: str
    cost: str
    budget: str
    budget_tone: str
    next_step: str
    next_link: str
    is_stale: bool
    note: str


@dataclass(frozen=True, slots=True)
class CardShown:
    status: str
    status_word: str
    title: str
    text: str
    link: str
    link_text: str


@dataclass(frozen=True, slots=True)
class FleetShown:
    page: types.FleetPage
    meta: str
    strip: tuple[parts.FigureShown, ...]
    cards: tuple[CardShown, ...]
    all_good: str
    rows: tuple[RowShown, ...]
    banners: tuple[parts.BannerShown, ...]
    sources: tuple[SourceShown, ...]
    as_of_iso: str
    clusters: tuple[str, ...]
    status_choices: tuple[tuple[str, str], ...]


def matches(row: types.FleetRow, words: str) -> bool:
    """True if every word is part of the row's name, model or cluster."""
    text = f"{row.slug} {row.name} {row.model} {row.cluster}".casefold()
    return all(word in text for word in words.casefold().split())


def present(
    page: types.FleetPage, reader: Reader, *, query: str = "", status: str = "", cluster: str = ""
) -> FleetShown:
    """The page after the reader's filters; counts stay those of the whole scope."""
    rows = [
        row
        for row in page.rows
        if (not query or matches(row, query))
        and (not status or row.status.value == status)
        and (not cluster or row.cluster == cluster)
    ]
    words = _Words.of_now()
    return FleetShown(
        page=page,
        meta=_meta(page),
        strip=tuple(parts.figure(item, reader, "strip") for item in page.strip),
        cards=tuple(_card(row, reader) for row in page.cards[:3]),
        all_good=_all_good(page),
        rows=tuple(_row(row, reader, words) for row in rows),
        banners=parts.banners(page.banners, reader),
        sources=sources(page.sources, reader),
        as_of_iso=page.as_of.isoformat() if page.as_of else "",
        clusters=tuple(sorted({row.cluster for row in page.rows})),
        status_choices=tuple(
            (code, labels.word(labels.STATUSES, code))
            for code in ("crit", "warn", "ok", "unknown", "paused")
        ),
    )


def _meta(page: types.FleetPage) -> str:
    count = ngettext("{count} deployment", "{count} deployments", page.shown).format(
        count=page.shown
    )
    if page.visible > page.shown:
        count = _("{shown} of {total} deployments").format(shown=page.shown, total=page.visible)
    clusters = ngettext("{count} cluster", "{count} clusters", page.clusters).format(
        count=page.clusters
    )
    return f"{count} · {clusters}"


def _all_good(page: types.FleetPage) -> str:
    if page.cards or not page.rows:
        return ""
    return ngettext(
        "{count} deployment, within objectives.",
        "All {count} deployments within objectives.",
        len(page.rows),
    ).format(count=len(page.rows))


def _card(row: types.FleetRow, reader: Reader) -> CardShown:
    cause = row.cause or str(row.limited_by.params.get("cause", ""))
    phrase = labels.word(labels.CAUSES_PHRASE, cause) if cause else ""
    phrase = phrase or say(row.limited_by, reader)
    return CardShown(
        status=row.status.value,
        status_word=labels.word(labels.STATUSES, row.status.value),
        title=_("{name}: {problem}").format(name=row.name, problem=phrase),
        text=say(row.limited_detail, reader),
        link=row.next_link,
        link_text=say(row.next_step, reader) or _("Open"),
    )


@dataclass(frozen=True, slots=True)
class _Words:
    """What rows say around their figures, looked up once for all of them."""

    of: str
    gpus: str
    gpus_label: str
    one_pool: str
    busy: str
    both_busy: str

    @classmethod
    def of_now(cls) -> _Words:
        """Those of the active language."""
        return cls(
            of=_("of {objective}"),
            gpus=_("{prefill} : {decode} GPUs"),
            gpus_label=_("prefill : decode, {gpus}"),
            one_pool=_("one pool, {gpus}"),
            busy=_("{share} busy"),
            both_busy=_("prefill {prefill} busy, decode {decode} busy"),
        )


def _row(row: types.FleetRow, reader: Reader, words: _Words) -> RowShown:
    ttft = show(row.ttft_p95, "ttft_p95", reader, objective=row.ttft_objective)
    tpot = show(row.tpot_p95, "tpot_p95", reader)
    good = show(row.good_share, "good_share", reader)
    split, busy = _split(row, words), _busy(row, reader, words)
    budget = show(row.budget_left, "good_share", reader).text if row.budget_left else "–"
    return RowShown(
        slug=row.slug,
        name=row.name,
        sub=" · ".join(item for item in (row.model, row.cluster) if item),
        status=row.status.value,
        status_word=labels.word(labels.STATUSES, row.status.value),
        limited_by=say(row.limited_by, reader),
        limited_detail=say(row.limited_detail, reader),
        ttft=ttft.text,
        ttft_of=_of(words, formatting.latency(row.ttft_objective), row.ttft_objective),
        ttft_tone=_latency_tone(row.ttft_p95, row.ttft_objective),
        tpot=tpot.text,
        tpot_of=_of(words, formatting.stage_time(row.tpot_objective), row.tpot_objective),
        tpot_tone=_latency_tone(row.tpot_p95, row.tpot_objective),
        split=split.segments,
        gpus=split.text,
        gpus_label=split.label,
        busy=busy.bars,
        busy_text=busy.text,
        busy_label=busy.label,
        good=good.text,
        good_tone=_good_tone(row.good_share),
        cost=show(row.cost_per_million_good, "cost_per_million_good", reader).text,
        budget=budget,
        budget_tone=_budget_tone(row.budget_left),
        next_step=say(row.next_step, reader),
        next_link=row.next_link,
        is_stale=row.is_stale,
        note=kinds_note(ttft.note, tpot.note),
    )


def kinds_note(*notes: str) -> str:
    """Notes of a row's figures, each once."""
    return " · ".join(dict.fromkeys(note for note in notes if note))


def _of(words: _Words, text: str, objective: float | None) -> str:
    return words.of.format(objective=text) if objective is not None else ""


def _latency_tone(measurement: Measurement, objective: float | None) -> str:
    """No objective, no colour; within 5 % of it is a warning."""
    if objective is None or measurement.value is None:
        return ""
    share = float(measurement.value) / objective
    return "c-crit" if share > 1 else "c-warn" if share > 0.95 else ""


def _good_tone(measurement: Measurement) -> str:
    if measurement.value is None:
        return ""
    share = float(measurement.value)
    return "c-crit" if share < 0.9 else "c-warn" if share < 0.95 else ""


def _budget_tone(measurement: Measurement | None) -> str:
    if measurement is None or measurement.value is None:
        return ""
    return "c-crit" if float(measurement.value) < 0.15 else ""


@dataclass(frozen=True, slots=True)
class _Split:
    segments: tuple[svg.Segment, ...]
    text: str
    label: str


def _is_single(row: types.FleetRow) -> bool:
    return row.prefill_gpus is None and row.decode_gpus is None


def _split(row: types.FleetRow, words: _Words) -> _Split:
    """The ratio as a bar in GPUs; one bar for a single pool."""
    if _is_single(row):
        gpus = parts.gpu_count(row.total_gpus)
        bar = svg.bar([(float(row.total_gpus or 0), parts.fill_of("mixed"), "")])
        return _Split(bar, gpus, words.one_pool.format(gpus=gpus))
    first, second = row.prefill_gpus, row.decode_gpus
    pair: Sequence[tuple[float, str, str]] = (
        (float(first or 0), parts.fill_of("prefill"), ""),
        (float(second or 0), parts.fill_of("decode"), ""),
    )
    text = words.gpus.format(
        prefill=formatting.gpus(first) if first is not None else "–",
        decode=formatting.gpus(second) if second is not None else "–",
    )
    return _Split(svg.bar(pair), text, words.gpus_label.format(gpus=text))


@dataclass(frozen=True, slots=True)
class _Busy:
    bars: tuple[tuple[str, str], ...]
    text: str
    label: str


def _width(measurement: Measurement) -> str:
    return svg.percent(float(measurement.value)) if measurement.value is not None else ""


def _busy(row: types.FleetRow, reader: Reader, words: _Words) -> _Busy:
    """Busy shares of both phases, never mixed; one for a single pool."""
    if _is_single(row):
        one = row.decode_busy if row.decode_busy.value is not None else row.prefill_busy
        share = show(one, "busy", reader).text
        bars = ((_width(one), parts.fill_of("mixed")),)
        return _Busy(bars, share, words.busy.format(share=share))
    prefill = show(row.prefill_busy, "busy", reader).text
    decode = show(row.decode_busy, "busy", reader).text
    return _Busy(
        (
            (_width(row.prefill_busy), parts.fill_of("prefill")),
            (_width(row.decode_busy), parts.fill_of("decode")),
        ),
        f"{prefill} / {decode}",
        words.both_busy.format(prefill=prefill, decode=decode),
    )
