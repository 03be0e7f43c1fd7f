"""A tick through the direct collector: fetch, then difference against the stored samples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from uuid import UUID

from apps.engines import loader
from apps.engines.readings import Reading, from_json
from apps.fleet import connect

from ..collectors.scrape import TargetRequest, scrape
from ..domain.refused import sentence
from ..domain.windows import window_start, windows_of_tick
from ..models import Sample, Source
from .tick import Collected, DeploymentTick, history_of


def collect(source: Source, ticks: Sequence[DeploymentTick], deadline_s: float) -> Collected:
    """Read all targets at once; windows per deployment from what answered."""
    targets = [target for tick in ticks for target in tick.targets]
    answers = scrape(
        [TargetRequest(str(t.pk), t.url, loader.load(t.profile), dict(t.match)) for t in targets],
        policy=connect.fetch_policy(),
        deadline_s=deadline_s,
    )
    result = Collected()
    for target in targets:
        answer = answers[str(target.pk)]
        if answer.reading is None:
            result.errors[target.pk] = answer.error
        else:
            result.readings[target.pk] = answer.reading
            result.answered.add(target.pk)
    for tick in ticks:
        result.at = tick.at
        history = _history(tick, result.readings)
        times = {at for readings in history.values() for at, _ in readings}
        start = window_start(
            times, tick.at, tick.defaults.window_s, tick.defaults.collect_interval_s
        )
        windows = windows_of_tick(
            [history_of(tick, target, history[target.pk]) for target in tick.targets],
            start=start,
            end=tick.at,
            expected=tick.expected,
            source=f"{source.name} (direct scrape)",
            refused=result.refused,
        )
        result.windows += [(tick.deployment.pk, window) for window in windows]
    result.warning = sentence((r.defects for r in result.readings.values()), result.refused)
    return result


def _history(
    tick: DeploymentTick, new: Mapping[UUID, Reading]
) -> dict[UUID, list[tuple[datetime, Reading]]]:
    found: dict[UUID, list[tuple[datetime, Reading]]] = {t.pk: [] for t in tick.targets}
    stored = Sample.objects.filter(
        target_id__in=list(found), at__gte=tick.horizon, at__lt=tick.at
    ).order_by("at")
    for target_id, at, payload in stored.values_list("target_id", "at", "payload"):
        found[target_id].append((at, from_json(payload)))
    for target_id in found:
        if target_id in new:
            found[target_id].append((tick.at, new[target_id]))
    return found
