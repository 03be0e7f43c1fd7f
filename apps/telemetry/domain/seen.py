"""One target with all that was read of it, and which targets are engines to count. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from apps.engines.schema import Profile

from .found import Observation, ScrapedTarget, SeriesLabels, Unread
from .recognise import (
    engine_behind,
    is_wrapper,
    models_of,
    namespace_of,
    part_of,
    pod_of,
    profile_of,
)

#: Names of targets that one line of what is not read shows.
EXAMPLES: Final = 3


@dataclass(frozen=True, slots=True)
class Seen:
    """One target with all that was read of it."""

    target: ScrapedTarget
    profile: Profile
    series: tuple[SeriesLabels, ...]
    names: frozenset[str]
    namespace: str
    part: str
    pod: str
    models: Mapping[str, tuple[str, str]]

    @property
    def place(self) -> tuple[str, str, str]:
        """Namespace, part and model (lower case) of what an engine serves."""
        return self.namespace, self.part, min(self.models, default="")


def read(observed: Observation) -> tuple[list[Seen], list[Unread]]:
    by_instance: dict[str, list[SeriesLabels]] = {}
    for series in observed.series:
        by_instance.setdefault(series.instance, []).append(series)
    seen: list[Seen] = []
    silent: dict[tuple[str, str], list[ScrapedTarget]] = {}
    known: set[str] = set()
    for target in sorted(observed.targets, key=lambda t: (not t.is_up, t.job, t.instance)):
        # Two jobs that scrape one address would be one engine counted twice.
        if target.instance in known:
            continue
        names = observed.names.get(target.instance, frozenset())
        profile = profile_of(names) if target.is_up else None
        if profile is None:
            reason = "no_profile" if target.is_up else "down"
            silent.setdefault((target.job, reason), []).append(target)
            continue
        known.add(target.instance)
        mine = tuple(by_instance.get(target.instance, ()))
        seen.append(
            Seen(
                target=target,
                profile=profile,
                series=mine,
                names=names,
                namespace=namespace_of(target.labels, mine),
                part=part_of(mine),
                pod=pod_of(target.labels, mine),
                models=models_of(mine),
            )
        )
    unread = [
        line(job, reason, targets, next((t.error for t in targets if t.error), ""))
        for (job, reason), targets in sorted(silent.items())
    ]
    return seen, unread


def without_doubles(engines: Sequence[Seen]) -> tuple[list[Seen], list[Seen]]:
    """Engines counted once: a wrapping port passes the engine's own families through, so the
    engine's own port on the same pod is left out."""
    wrapped = {
        (item.namespace, item.pod)
        for item in engines
        if item.pod and engine_behind(item.names, item.profile)
    }
    kept: list[Seen] = []
    doubled: list[Seen] = []
    for item in engines:
        is_double = (item.namespace, item.pod) in wrapped and not is_wrapper(item.profile)
        (doubled if is_double else kept).append(item)
    return kept, doubled


def adopted(
    places: Mapping[tuple[str, str, str], list[Seen]],
) -> dict[tuple[str, str, str], list[Seen]]:
    """Engines that name no model (a Dynamo prefill worker before its first request) belong to the
    only model beside them; with several they stay on their own, for a person to sort out."""
    found = {place: list(members) for place, members in places.items()}
    for place in [place for place in places if not place[2]]:
        beside = [other for other in places if other[:2] == place[:2] and other[2]]
        if len(beside) == 1:
            found[beside[0]] += found.pop(place)
    return found


def metrics_url(target: ScrapedTarget) -> str:
    """The address of a target's metrics. Its host and port are the instance label: that is how
    the collector finds its series again."""
    parts = urlsplit(target.url)
    if parts.netloc and parts.netloc == target.instance:
        return target.url
    return f"{parts.scheme or 'http'}://{target.instance}{parts.path or '/metrics'}"


def line(job: str, reason: str, targets: Sequence[ScrapedTarget], error: str) -> Unread:
    shown = tuple(target.instance for target in targets[:EXAMPLES])
    return Unread(job, reason, len(targets), shown, error[:200])
