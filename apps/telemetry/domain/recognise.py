"""Which profile reads a target, which model and namespace it serves, which GPUs it has. Pure.

Metric names come from the profiles alone; what is spelled here are labels that pipelines add.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from typing import Final

from apps.engines import loader
from apps.engines.exposition import bound, spellings
from apps.engines.schema import Profile, Row
from apps.engines.window import Kind, Signal

from .found import SeriesLabels

_EDGES: Final = ("router", "frontend")
_MODEL_LABELS: Final = ("model_name", "model", "served_model_name")
_NAMESPACE_LABELS: Final = (
    "namespace", "kubernetes_namespace", "k8s_namespace_name", "exported_namespace",
)  # fmt: skip
_POD_LABELS: Final = ("pod", "pod_name", "kubernetes_pod_name", "k8s_pod_name", "exported_pod")
_DEPLOYMENT_LABELS: Final = ("dynamo_namespace",)
_DEVICE_MODEL_LABELS: Final = ("modelName",)
#: What engines write where they do not know their model.
_NO_MODEL: Final = ("", "undefined", "unknown", "none", "n/a")
#: Signals whose plain series carry the labels that discovery looks at.
_ANCHORS: Final = (
    Signal.RUNNING, Signal.WAITING, Signal.KV_USED, Signal.WORKER_HEALTH,
    Signal.DEVICE_UTILISATION, Signal.DEVICE_POWER, Signal.DEVICE_TENSOR_ACTIVE,
    Signal.DEVICE_MEMORY_USED,
)  # fmt: skip


def profiles() -> tuple[Profile, ...]:
    """Every profile that ships."""
    return tuple(loader.load(name) for name in loader.names())


@cache
def spelled(profile_name: str) -> frozenset[str]:
    """All names under which a profile's metrics may be stored."""
    profile = loader.load(profile_name)
    names = {name for kind, _, ref in profile.refs() for name in _forms(ref.name, kind)}
    names |= {form for name in profile.siblings() for form in spellings(name, is_counter=True)}
    return frozenset(names)


@cache
def anchors(profile_name: str) -> tuple[str, ...]:
    """A few plain metrics of a profile, with all spellings: their labels tell what is served."""
    profile = loader.load(profile_name)
    found: list[str] = []
    for signal in _ANCHORS:
        for row in profile.signals[signal].rows if signal in profile.signals else ():
            for ref in (ref for term in row.terms for ref in term.any_of):
                found += _forms(ref.name, Kind.GAUGE)
    return tuple(dict.fromkeys(found))


@cache
def latency_buckets(profile_name: str) -> Mapping[str, tuple[str, float]]:
    """Stored bucket names of a profile's latencies -> (`ttft` or `tpot`, unit in seconds)."""
    profile = loader.load(profile_name)
    found: dict[str, tuple[str, float]] = {}
    for signal, code in ((Signal.TTFT, "ttft"), (Signal.TPOT, "tpot"), (Signal.ITL, "tpot")):
        for row in profile.signals[signal].rows if signal in profile.signals else ():
            for ref in (ref for term in row.terms for ref in term.any_of):
                for form in _forms(ref.name, Kind.HISTOGRAM):
                    found.setdefault(form, (code, ref.scale))
    return found


def ladders(rows: Iterable[tuple[str, str]], profile_name: str) -> dict[str, tuple[float, ...]]:
    """Bucket bounds in seconds of `ttft` and `tpot`, from (bucket name, `le` as written)."""
    names = latency_buckets(profile_name)
    bounds: dict[str, set[float]] = {}
    for name, text in rows:
        if name not in names:
            continue
        code, scale = names[name]
        try:
            edge = bound(text) * scale
        except ValueError:
            continue
        if math.isfinite(edge):
            bounds.setdefault(code, set()).add(edge)
    return {code: tuple(sorted(found)) for code, found in bounds.items()}


@cache
def _own(profile_name: str) -> frozenset[str]:
    """Names that only this profile reads: they prove the engine. Families that a wrapping port
    passes through belong to their engine."""
    mine = loader.load(profile_name)
    others = (p for p in profiles() if p.scope == mine.scope and p.profile != profile_name)
    return _first_hand(mine).difference(*(_first_hand(other) for other in others))


def _first_hand(profile: Profile) -> frozenset[str]:
    passed = (spelled(name) for name in profile.passes_through)
    return spelled(profile.profile).difference(*passed)


def profile_of(names: frozenset[str]) -> Profile | None:
    """The profile that reads a target with these metric names; None if none does."""
    # A Dynamo frontend exports what it observes of workers too; it is no worker for that. A port
    # that passes an engine's families through wins over that engine's own.
    fits: list[tuple[bool, bool, float, str]] = [
        (profile.scope in _EDGES, is_wrapper(profile), len(names & spelled(profile.profile)), name)
        for profile in profiles()
        if names & _own(name := profile.profile)
    ]
    if not fits:
        # An older release has no name of its own beside its successor's: whose names are all there?
        fits = [
            (profile.scope in _EDGES, False, len(names & known) / len(known), profile.profile)
            for profile in profiles()
            if names & (known := _first_hand(profile))
        ]
    return loader.load(max(fits)[-1]) if fits else None


def is_wrapper(profile: Profile) -> bool:
    """True if the port passes another engine's families through."""
    return bool(profile.passes_through)


def engine_behind(names: frozenset[str], profile: Profile) -> str:
    """The engine whose families a wrapping port passes through; empty if it is no wrapper."""
    if not is_wrapper(profile):
        return ""
    fits = [
        (len(names & _own(other.profile)), other.profile)
        for other in map(loader.load, profile.passes_through)
    ]
    most, name = max(fits, default=(0, ""))
    return name if most else ""


def signals_of(names: frozenset[str], profile: Profile, role: str) -> tuple[str, ...]:
    """The canonical signals that these names answer in a role. A family that its exporter creates
    with the first event counts as there when a sibling proves that the exporter is."""
    return tuple(
        sorted(
            signal.value
            for signal, rows in profile.signals.items()
            if any(row.applies_to(role) and _answers(row, rows.kind, names) for row in rows.rows)
        )
    )


def _answers(row: Row, kind: Kind, names: frozenset[str]) -> bool:
    if any(form in names for name in row.siblings for form in spellings(name, is_counter=True)):
        return True
    return all(
        term.optional
        or any(form in names for ref in term.any_of for form in _forms(ref.name, kind))
        for term in row.terms
    )


def _forms(name: str, kind: Kind) -> tuple[str, ...]:
    if kind is Kind.HISTOGRAM:
        return tuple(f"{form}_bucket" for form in spellings(name))
    return spellings(name, is_counter=kind is Kind.COUNTER)


def first_label(labels: Mapping[str, str], names: Iterable[str]) -> str:
    """The first of these labels that is written."""
    return next((labels[name] for name in names if labels.get(name)), "")


def namespace_of(target: Mapping[str, str], series: Sequence[SeriesLabels]) -> str:
    """The Kubernetes namespace: of the target, else of its series."""
    return first_label(target, _NAMESPACE_LABELS) or next(
        (found for s in series if (found := first_label(s.labels, _NAMESPACE_LABELS))), ""
    )


def part_of(series: Sequence[SeriesLabels]) -> str:
    """What the orchestrator calls the deployment (`dynamo_namespace`), if it says."""
    return next((found for s in series if (found := first_label(s.labels, _DEPLOYMENT_LABELS))), "")


def pod_of(target: Mapping[str, str], series: Sequence[SeriesLabels]) -> str:
    return first_label(target, _POD_LABELS) or next(
        (found for s in series if (found := first_label(s.labels, _POD_LABELS))), ""
    )


def models_of(series: Iterable[SeriesLabels]) -> dict[str, tuple[str, str]]:
    """Models that series name, by lower-cased name (Dynamo lower-cases on the frontend only): as
    written, and the label that says it. Mixed case wins over an all-lower spelling."""
    found: dict[str, tuple[str, str]] = {}
    for item in series:
        for label in _MODEL_LABELS:
            name = item.labels.get(label, "").strip()
            if name.lower() in _NO_MODEL:
                continue
            key = name.lower()
            if key not in found or (found[key][0] == key and name != key):
                found[key] = (name, label)
            break
    return found


@dataclass(frozen=True, slots=True)
class Gpus:
    """GPUs that one pod holds: how many, and the exporter's name of their model."""

    count: int
    model: str


def gpus_by_pod(series: Iterable[SeriesLabels]) -> dict[tuple[str, str], Gpus]:
    """(namespace, pod) -> its GPUs, from series of device profiles. A GPU that two exporters of a
    pair report counts once; a MIG instance counts as a device of its own."""
    devices: dict[tuple[str, str], dict[tuple[str, ...], str]] = {}
    join = {
        name: profile.join
        for profile in profiles()
        if profile.scope == "device"
        for name in spelled(profile.profile)
    }
    for item in series:
        labels = join.get(item.name)
        if labels is None:
            continue

        read = {thing: first_label(item.labels, names) for thing, names in labels.items()}
        if not read.get("pod"):
            continue
        card = read.get("uuid") or f"{read.get('node')}/{read.get('gpu')}"
        held = devices.setdefault((read.get("namespace", ""), read["pod"]), {})
        held[(card, read.get("part", ""))] = first_label(item.labels, _DEVICE_MODEL_LABELS)
    return {
        place: Gpus(len(held), next((model for model in held.values() if model), ""))
        for place, held in devices.items()
    }


@dataclass(frozen=True, slots=True)
class CatalogEntry:
    """One accelerator of the catalog with the names that exporters give it."""

    slug: str
    names: tuple[str, ...]


def accelerator_of(model: str, catalog: Sequence[CatalogEntry]) -> str:
    """The slug of an exporter's model name: the longest name that is it or begins it at a word's
    end; empty when none does (then the person is asked)."""
    text = re.sub(r"\s+", " ", model.strip().lower())
    best = ("", "")
    for entry in catalog:
        for name in entry.names:
            low = name.lower()
            rest = text[len(low) :]
            begins = bool(low) and text.startswith(low) and (not rest or not rest[0].isalnum())
            if begins and len(low) > len(best[0]):
                best = (low, entry.slug)
    return best[1]


def share(gpus: int, workers: int) -> str:
    """GPUs per worker of a pod as a decimal text."""
    return format((Decimal(gpus) / Decimal(workers)).normalize(), "f")
