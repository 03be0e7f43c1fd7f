"""GPUs and hosts as exporters show them: where each is, who uses it, what was read. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from apps.engines.schema import Profile

#: What was read: the metric's key and how its series come together.
Key = tuple[str, str]


@dataclass(frozen=True, slots=True)
class UnitPlace:
    """What an exporter says of one GPU (or slice) or host: where it is, and who uses it."""

    node: str = ""
    gpu: str = ""
    uuid: str = ""
    part: str = ""
    namespace: str = ""
    pod: str = ""

    @property
    def name(self) -> str:
        """For reports: the node, and of a GPU its index or UUID."""
        return " ".join(item for item in (self.node, self.gpu or self.uuid, self.part) if item)

    @property
    def physical(self) -> UnitPlace:
        """Without its user."""
        return replace(self, namespace="", pod="")


def place_of(labels: Mapping[str, str], profile: Profile, *, node: str = "") -> UnitPlace:
    """The place that the labels of a series name, by the profile's `join`; `node` is what was
    declared of an exporter that names none."""

    def first(thing: str) -> str:
        found = (labels.get(name, "") for name in profile.join.get(thing, ()))
        return next((value for value in found if value), "")

    return UnitPlace(
        node=node or first("node"),
        gpu=first("gpu"),
        uuid=first("uuid"),
        part=first("part"),
        namespace=first("namespace"),
        pod=first("pod"),
    )


@dataclass(frozen=True, slots=True)
class Step:
    """Increases between two samples."""

    start: datetime
    end: datetime
    increases: Mapping[Key, float]


@dataclass(frozen=True, slots=True)
class UnitSeries:
    """One GPU or host with one user: gauges of now (empty when it did not answer at the end, or is
    used by somebody else by then), and increases."""

    place: UnitPlace
    gauges: Mapping[Key, float]
    steps: tuple[Step, ...] = ()
