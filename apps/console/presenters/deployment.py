"""The deployment page: diagnosis, path, figures, recommendation, pools, cost, changes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from apps.common import formatting
from apps.overview.domain import types

from ..reader import NBSP, Reader, duration
from ..wording import heading, kinds, labels, say, say_html
from . import parts, pools, recommendation, svg
from .shown import TraceLine, place_note, show, trace_lines

COST_FILL: Final[Mapping[str, str]] = {
    "prefill_gpus": "var(--prefill)",
    "decode_gpus": "var(--decode)",
    "mixed_gpus": "var(--accent)",
    "cpu_memory": "var(--ink-2)",
    "network_storage": "url(#h1)",
    "software_operations": "url(#h2)",
    "redundancy_failures": "url(#h3)",
    "idle": "url(#hq)",
}


@dataclass(frozen=True, slots=True)
class DiagnosisShown:
    cause: str
    status: str
    status_word: str
    heading: str
    sentence: str
    wont_help: str
    tiles: tuple[parts.FigureShown, ...]


@dataclass(frozen=True, slots=True)
class StageShown:
    phase: str
    key: str
    label: str
    share: str
    value: str
    small: str
    detail: str
    note: str
    is_hot: bool
    is_hatched: bool
    css: str
    trace: tuple[TraceLine, ...]


@dataclass(frozen=True, slots=True)
class PathShown:
    basis: str
    place: str
    now: tuple[svg.Segment, ...]
    usual: tuple[svg.Segment, ...]
    total: str
    usual_total: str
    label_now: str
    label_usual: str
    stages: tuple[StageShown, ...]


@dataclass(frozen=True, slots=True)
class CostLineShown:
    label: str
    fill: str
    per_hour: str
    share: str
    per_million: str


@dataclass(frozen=True, slots=True)
class CostShown:
    basis: str
    bar: tuple[svg.Segment, ...]
    bar_label: str
    lines: tuple[CostLineShown, ...]
    total: str
    total_per_million: str
    unit_costs: tuple[parts.FigureShown, ...]
    price_book: str
    missing: str


@dataclass(frozen=True, slots=True)
class ChangeShown:
    time: str
    utc: str
    status: str
    status_word: str
    title: str
    detail: str
    who: str
    link: str


@dataclass(frozen=True, slots=True)
class SourceShown:
    status: str
    status_word: str
    text: str
    title: str


@dataclass(frozen=True, slots=True)
class DeploymentShown:
    page: types.DeploymentPage
    chips: tuple[parts.Chip, ...]
    meta: str
    banners: tuple[parts.BannerShown, ...]
    diagnosis: DiagnosisShown
    path: PathShown
    figures: tuple[parts.FigureShown, ...]
    recommendation: recommendation.RecommendationShown | None
    no_recommendation: str
    running_command: str
    pools: tuple[pools.PoolShown, ...]
    cost: CostShown
    changes: tuple[ChangeShown, ...]
    sources: tuple[SourceShown, ...]
    coverage: str
    as_of_iso: str


def present(page: types.DeploymentPage, reader: Reader) -> DeploymentShown:
    """Everything the deployment page prints."""
    advised = page.recommendation
    return DeploymentShown(
        page=page,
        chips=_chips(page, reader),
        meta=_meta(page),
        banners=parts.banners(page.banners, reader),
        diagnosis=_diagnosis(page.diagnosis, reader),
        path=_path(page.path, reader),
        figures=tuple(parts.figure(item, reader, "kpi") for item in page.figures),
        recommendation=recommendation.present(advised, reader) if advised else None,
        no_recommendation=say(page.no_recommendation, reader),
        running_command=page.sync.command if page.sync.kind == "applying" else "",
        pools=tuple(pools.present(pool, reader) for pool in page.pools),
        cost=_cost(page.cost, reader),
        changes=changes(page.changes, reader),
        sources=sources(page.sources, reader),
        coverage=_("{found} of {required} required signals found").format(
            found=page.signals_found, required=page.signals_required
        ),
        as_of_iso=page.as_of.isoformat() if page.as_of else "",
    )


def _chips(page: types.DeploymentPage, reader: Reader) -> tuple[parts.Chip, ...]:
    """Worst status and sync; once where both say the same."""
    status = parts.Chip(page.status.value, say(page.status_text, reader))
    sync = _sync(page.sync)
    return (status, sync) if status.text != sync.text else (sync,)


def _meta(page: types.DeploymentPage) -> str:
    known = (
        page.model,
        parts.engine_title(page.engine),
        parts.hardware(page.gpus, page.accelerator),
        page.cluster,
        labels.word(labels.ENVIRONMENTS, page.environment),
        _("mode {mode}").format(mode=labels.word(labels.MODES, page.mode)),
    )
    return " · ".join(item for item in known if item)


def _sync(sync: types.Sync) -> parts.Chip:
    differ = ""
    if sync.wanted and sync.serving:
        differ = _("wanted {wanted}, serving {serving}").format(
            wanted=kinds.targets(sync.wanted), serving=kinds.targets(sync.serving)
        )
    if sync.kind == "in_sync":
        return parts.Chip("ok", _("In sync · rev {revision}").format(revision=sync.revision))
    if sync.kind == "out_of_sync":
        return parts.Chip("warn", _("Out of sync"), differ)
    if sync.kind == "applying":
        words = _("Applying {command}").format(command=sync.command)
        return parts.Chip("info", words, differ)
    return parts.Chip("unknown", _("Sync unknown"), differ)


def _diagnosis(view: types.DiagnosisView, reader: Reader) -> DiagnosisShown:
    return DiagnosisShown(
        cause=view.cause,
        status=view.status.value,
        status_word=labels.word(labels.STATUSES, view.status.value),
        heading=heading(view, reader),
        sentence=say_html(view.sentence, reader),
        wont_help=say(view.wont_help, reader),
        tiles=tuple(parts.tile(item, reader, i) for i, item in enumerate(view.evidence[:5])),
    )


def _path(path: types.PathView, reader: Reader) -> PathShown:
    now, usual = [], []
    for stage in path.stages:
        label = labels.word(labels.PHASES, stage.phase.value)
        fill = parts.fill_of(stage.phase.value)
        if stage.mean.value is not None:
            text = formatting.stage_time(float(stage.mean.value))
            now.append((float(stage.mean.value), fill, f"{label} {text}"))
        if stage.usual_s is not None:
            usual.append((stage.usual_s, fill, f"{label} {formatting.stage_time(stage.usual_s)}"))
    scale = max(sum(item[0] for item in now), sum(item[0] for item in usual)) or None
    total = show(path.total, "ttft_mean", reader)
    basis = _("mean of the last {span}").format(span=duration(path.span_s))
    if path.requests is not None:
        count = int(path.requests)
        basis = ngettext(
            "mean of {count} request, last {span}", "mean of {count} requests, last {span}", count
        ).format(count=f"{count:,}", span=duration(path.span_s))
    has_usual = bool(usual) and path.usual_total_s is not None
    return PathShown(
        basis=basis,
        place=total.note or place_note(path.total),
        now=svg.bar(now, scale),
        usual=svg.bar(usual, scale) if has_usual else (),
        total=total.text,
        usual_total=formatting.stage_time(path.usual_total_s),
        label_now=kinds.join(item[2] for item in now),
        label_usual=kinds.join(item[2] for item in usual),
        stages=tuple(_stage(stage, reader) for stage in path.stages),
    )


def _stage(stage: types.Stage, reader: Reader) -> StageShown:
    seen = show(stage.mean, "stage", reader)
    small = ""
    if stage.phase is types.Phase.DECODE:
        small = _("first step")
    elif stage.usual_s is not None:
        small = _("usual {time}").format(time=_same_unit(seen.text, stage.usual_s))
    lines = [say(stage.detail, reader), say(stage.stream, reader)]
    is_joint = stage.phase is types.Phase.PREFILL_AND_KV
    if is_joint and stage.detail is None:
        lines.insert(0, _("not measured apart"))
    return StageShown(
        phase=stage.phase.value,
        key=f"stage-{stage.phase.value}",
        label=labels.word(labels.PHASES, stage.phase.value),
        share=formatting.share(stage.share),
        value=seen.text,
        small=small,
        detail=kinds.join(item for item in lines if item),
        note=seen.note,
        is_hot=stage.is_hot,
        is_hatched=is_joint or seen.is_missing,
        css=seen.css,
        trace=trace_lines(stage.mean, reader),
    )


def _same_unit(text: str, seconds: float) -> str:
    """A time beside another one: its unit is left out where both have the same."""
    shown = formatting.stage_time(seconds)
    value, _sep, unit = shown.partition(NBSP)
    return value if unit and text.endswith(f"{NBSP}{unit}") else shown


def _cost(cost: types.CostView, reader: Reader) -> CostShown:
    bars = []
    lines = []
    for line in cost.lines:
        fill = COST_FILL.get(line.code, "url(#h3)")
        label = labels.word(labels.COST_LINES, line.code)
        per_hour = show(line.per_hour, "spend_per_hour", reader)
        if line.per_hour.value is not None:
            bars.append((float(line.per_hour.value), fill, f"{label} {per_hour.text}"))
        lines.append(
            CostLineShown(
                label=label,
                fill=fill,
                per_hour=per_hour.value,
                share=formatting.share(line.share),
                per_million=show(line.per_million, "cost_per_million_good", reader).text,
            )
        )
    total = show(cost.total_per_hour, "spend_per_hour", reader)
    idle = show(cost.idle_share, "idle_share", reader)
    basis = total.text
    if cost.idle_share.value is not None:
        basis = _("{total}, {idle} of it idle").format(total=total.text, idle=idle.text)
    good = next((f for f in cost.unit_costs if f.code == "cost_per_million_good"), None)
    return CostShown(
        basis=basis,
        bar=svg.bar(bars),
        bar_label=kinds.join(item[2] for item in bars),
        lines=tuple(lines),
        total=total.value,
        total_per_million=show(good.measurement, good.code, reader).text if good else "–",
        unit_costs=tuple(parts.figure(item, reader, "cost") for item in cost.unit_costs),
        price_book=cost.price_book,
        missing=_("no price for {names}").format(names=kinds.join(cost.missing_prices))
        if cost.missing_prices
        else "",
    )


def changes(
    found: tuple[types.Change, ...], reader: Reader, *, exact: bool = False
) -> tuple[ChangeShown, ...]:
    """A time line; `exact` adds seconds, for the log of one command."""
    return tuple(
        ChangeShown(
            time=reader.seconds(item.at) if exact else reader.time(item.at),
            utc=reader.utc(item.at),
            status=item.status.value,
            status_word=labels.word(labels.STATUSES, item.status.value),
            title=say(item.title, reader),
            detail=say(item.detail, reader),
            who=item.who,
            link=item.link,
        )
        for item in found
    )


def sources(found: tuple[types.SourceLine, ...], reader: Reader) -> tuple[SourceShown, ...]:
    shown = []
    for item in found:
        text = item.name
        if item.age_s is not None:
            text = _("{name}, {age} ago").format(name=item.name, age=duration(item.age_s))
        elif item.kind != "prices":
            text = _("{name}, never answered").format(name=item.name)
        shown.append(
            SourceShown(
                status=item.status.value,
                status_word=labels.word(labels.STATUSES, item.status.value),
                text=text,
                title=item.error or (reader.utc(item.observed_at) if item.observed_at else ""),
            )
        )
    return tuple(shown)
