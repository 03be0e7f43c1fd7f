"""Which worker runs on which GPU and host: what exporters say joined with the inventory. Pure.

A GPU belongs to the pod that uses it, else to the worker that the inventory puts on its index;
a host to the workers whose GPUs, declared nodes or addresses name it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from ipaddress import ip_address
from urllib.parse import urlsplit

from apps.fleet.domain.spans import SpanFacts, cuts, value_at

from .units import Key, Step, UnitPlace, UnitSeries


@dataclass(frozen=True, slots=True)
class DeclaredDevice:
    """A GPU as the inventory names it; `is_shared`: less than a whole one, or of several
    workers."""

    node: str
    index: int
    is_shared: bool = False


@dataclass(frozen=True, slots=True)
class WorkerPlace:
    """A worker, where the inventory says it runs, and its roles over the window."""

    url: str
    name: str
    namespace: str
    role_now: str
    roles: tuple[SpanFacts, ...] = ()
    devices: tuple[DeclaredDevice, ...] = ()

    def role_at(self, at: datetime) -> str:
        found = value_at(self.roles, at)
        return self.role_now if found is None else str(found)

    def role_over(self, step: Step) -> str:
        """The role of a whole step; empty if it changed inside."""
        if cuts(self.roles, step.start, step.end):
            return ""
        return self.role_at(step.start)


@dataclass(frozen=True, slots=True)
class Joined:
    """The units of each worker (by URL), the workers whose GPUs are shared, and units of nobody."""

    by_worker: Mapping[str, tuple[UnitSeries, ...]]
    shared: frozenset[str]
    unjoined: tuple[UnitPlace, ...]
    seen: int


def host_names(text: str) -> tuple[str, ...]:
    """A host as it may be spelled: without port, lower case, and without its domain."""
    host = (urlsplit(text if "//" in text else f"//{text}").hostname or "").lower()
    if not host:
        return ()
    try:
        ip_address(host)
    except ValueError:
        short = host.split(".", 1)[0]
        return (host,) if short == host else (host, short)
    return (host,)


class Joiner:
    """Workers by what exporters may call them: their pod, their declared GPUs, their hosts."""

    def __init__(self, workers: Sequence[WorkerPlace]) -> None:
        self._pods: dict[tuple[str, str], set[str]] = {}
        self._devices: dict[tuple[str, int], set[str]] = {}
        self._hosts: dict[str, set[str]] = {}
        self._shared = {w.url for w in workers if any(d.is_shared for d in w.devices)}
        for worker in workers:
            for namespace in (worker.namespace.lower(), ""):
                self._pods.setdefault((namespace, worker.name.lower()), set()).add(worker.url)
            for device in worker.devices:
                for name in host_names(device.node):
                    self._devices.setdefault((name, device.index), set()).add(worker.url)
                self.learn_host(device.node, worker.url)
            self.learn_host(worker.url, worker.url)

    def learn_host(self, host: str, url: str) -> None:
        """A host on which a worker runs, as its GPUs say too."""
        for name in host_names(host):
            self._hosts.setdefault(name, set()).add(url)

    def devices(self, units: Sequence[UnitSeries]) -> Joined:
        """GPUs to workers: by the pod that uses one, else by its declared index on its node."""
        return self._join(self._once_each(units), self._workers_of_device, is_exclusive=True)

    def hosts(self, units: Sequence[UnitSeries]) -> Joined:
        """Hosts to the workers on them; several workers may share one."""
        return self._join(units, self._workers_of_host, is_exclusive=False)

    def _once_each(self, units: Sequence[UnitSeries]) -> list[UnitSeries]:
        """Each GPU once. A pod that is no worker (an exporter's own, or one that left) says nothing
        of who uses a GPU: its series are one with the others that say nothing, and nobody's where a
        worker's pod is named for the same GPU."""
        named = [unit for unit in units if self._by_pod(unit.place)]
        taken = {unit.place.physical for unit in named}
        others: dict[UnitPlace, list[UnitSeries]] = {}
        for unit in units:
            physical = unit.place.physical
            if physical not in taken:
                others.setdefault(physical, []).append(unit)
        return [*named, *(_merged(place, mine) for place, mine in others.items())]

    def _by_pod(self, place: UnitPlace) -> set[str]:
        urls = self._pods.get((place.namespace.lower(), place.pod.lower()), set())
        return urls if place.pod and len(urls) == 1 else set()

    def _join(
        self,
        units: Sequence[UnitSeries],
        find: Callable[[UnitPlace], set[str]],
        *,
        is_exclusive: bool,
    ) -> Joined:
        found: dict[str, list[UnitSeries]] = {}
        shared = set(self._shared)
        joined: set[UnitPlace] = set()
        for unit in units:
            urls = find(unit.place)
            if urls:
                joined.add(unit.place.physical)
            if is_exclusive and len(urls) > 1:
                shared |= urls
            for url in urls:
                found.setdefault(url, []).append(unit)
        seen = {unit.place.physical for unit in units}
        return Joined(
            by_worker={url: tuple(mine) for url, mine in found.items()},
            shared=frozenset(shared),
            unjoined=tuple(sorted(seen - joined, key=lambda place: place.name)),
            seen=len(seen),
        )

    def _workers_of_device(self, place: UnitPlace) -> set[str]:
        named = self._by_pod(place)
        for url in named:
            self.learn_host(place.node, url)
        if named:
            return named
        if place.gpu.isdigit():
            for name in host_names(place.node):
                urls = self._devices.get((name, int(place.gpu)), set())
                if urls:
                    return urls
        return set()

    def _workers_of_host(self, place: UnitPlace) -> set[str]:
        for name in host_names(place.node):
            if name in self._hosts:
                return self._hosts[name]
        return set()


def _merged(place: UnitPlace, units: Sequence[UnitSeries]) -> UnitSeries:
    """One unit of several names: a gauge counts once, increases follow one another."""
    gauges: dict[Key, float] = {}
    for unit in units:
        for key, value in unit.gauges.items():
            gauges[key] = max(gauges.get(key, value), value)
    steps = [step for unit in units for step in unit.steps]
    together: dict[tuple[datetime, datetime], dict[Key, float]] = {}
    for step in steps:
        sums = together.setdefault((step.start, step.end), {})
        for key, value in step.increases.items():
            sums[key] = sums.get(key, 0.0) + value
    return UnitSeries(
        place, gauges, tuple(Step(*span, sums) for span, sums in sorted(together.items()))
    )
