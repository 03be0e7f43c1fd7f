"""A tick through a Prometheus: the same windows from PromQL."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from itertools import pairwise
from urllib.parse import urlsplit

from apps.engines import loader
from apps.engines.combine import TargetPart
from apps.fleet import connect
from apps.fleet.domain.spans import cuts, value_at

from ..collectors import prometheus
from ..collectors.client import Prometheus, SourceFailed
from ..collectors.prometheus import Instance, Labels
from ..domain.windows import window_start, windows_of_parts
from ..models import Source, StoredWindow, Target, TargetScope
from .tick import Collected, DeploymentTick


def collect(
    source: Source,
    ticks: Sequence[DeploymentTick],
    headers: Mapping[str, str],
    deadline_s: float,
) -> Collected:
    """Ask the Prometheus about all targets of the source's deployments."""
    result = Collected()
    client = Prometheus(
        source.url, policy=connect.fetch_policy(), deadline_s=deadline_s, headers=headers
    )
    try:
        labels = Labels.from_parameters(source.parameters)
        for tick in ticks:
            _tick(source, client, labels, tick, result)
    except (SourceFailed, ValueError) as error:
        return Collected(error=str(error))
    return result


def _tick(
    source: Source, client: Prometheus, labels: Labels, tick: DeploymentTick, result: Collected
) -> None:
    delay = timedelta(seconds=float(source.parameters.get("delay_s", 0)))
    end = tick.at - delay
    result.at = end
    if not tick.targets:
        return
    max_age_s = tick.defaults.fresh_intervals * tick.defaults.collect_interval_s
    up = prometheus.up_instances(
        client, labels, (instance_of(t) for t in tick.targets), at=end, max_age_s=max_age_s
    )
    for target in tick.targets:
        if instance_of(target) in up:
            result.answered.add(target.pk)
        else:
            result.errors[target.pk] = "the Prometheus does not scrape it, or sees it down"
    start = _start(tick, end)
    parts: list[tuple[str, TargetPart]] = []
    reported = [target for target in tick.targets if target.pk in result.answered]
    for piece_start, piece_end, instances in _pieces(tick, reported, start, end):
        parts += prometheus.collect(
            client, labels, instances, start=piece_start, end=piece_end, max_age_s=max_age_s
        )
    windows = windows_of_parts(
        parts,
        start=start,
        end=end,
        expected=tick.expected,
        source=f"{source.name} ({client.name})",
        is_partial=client.is_partial,
    )
    result.windows += [(tick.deployment.pk, window) for window in windows]


def instance_of(target: Target) -> str:
    """The instance label of a target: host and port of its address."""
    return urlsplit(target.url).netloc


def _start(tick: DeploymentTick, end: datetime) -> datetime:
    """An earlier tick's end, so that windows tile; else a whole window back: a Prometheus has
    history that we have not read yet."""
    defaults = tick.defaults
    ends = StoredWindow.objects.filter(
        deployment=tick.deployment, end__lt=end, end__gte=tick.horizon - timedelta(seconds=60)
    ).values_list("end", flat=True)
    exact = end - timedelta(seconds=defaults.window_s)
    found = window_start(ends, end, defaults.window_s, defaults.collect_interval_s)
    near = abs((found - exact).total_seconds()) <= defaults.collect_interval_s / 2
    return found if near else exact


def _pieces(
    tick: DeploymentTick, targets: Sequence[Target], start: datetime, end: datetime
) -> list[tuple[datetime, datetime, list[Instance]]]:
    """Targets by the parts of the window in which their role did not change. Only a role change
    adds queries."""
    pieces: dict[tuple[datetime, datetime], list[Instance]] = {}
    for target in targets:
        spans = tick.spans[target.pk] if target.scope == TargetScope.ENGINE else ()
        edges = [start, *cuts(spans, start, end), end]
        for piece_start, piece_end in pairwise(edges):
            role = value_at(spans, piece_start)
            is_last = piece_end == end
            scope = tick.roles_now[target.pk] if is_last or role is None else str(role)
            pieces.setdefault((piece_start, piece_end), []).append(
                Instance(
                    instance=instance_of(target),
                    owner=tick.owners[target.pk],
                    scope=scope,
                    profile=loader.load(target.profile),
                    match=tuple(sorted((str(k), str(v)) for k, v in target.match.items())),
                    is_current=is_last,
                )
            )
    return [(a, b, instances) for (a, b), instances in pieces.items()]
