"""From what a source knows to deployments, pools and edges (design of Connect, step 2). Pure.

A deployment is one model in one namespace (and one part of it, where the orchestrator names it);
the same model in two namespaces is two deployments. Roles are guesses by the order of trust of
`roles`, each with its evidence, for a person to confirm.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final
from urllib.parse import urlsplit

from .found import (
    Discovery,
    FoundDeployment,
    FoundEdge,
    FoundGroup,
    FoundWorker,
    Observation,
    ScrapedTarget,
    Unread,
)
from .identity import same_address
from .recognise import (
    CatalogEntry,
    Gpus,
    accelerator_of,
    engine_behind,
    first_label,
    gpus_by_pod,
    share,
    signals_of,
)
from .roles import (
    PREFILL,
    Behaviour,
    Claim,
    RoleDecision,
    RoleEvidence,
    RoleSource,
    claims_of,
    decide,
)
from .seen import Seen, adopted, line, metrics_url, read, without_doubles

_WORKER_LABELS: Final = ("worker", "worker_url")


@dataclass(frozen=True, slots=True)
class Guess:
    """A role with the evidence that it rests on."""

    decision: RoleDecision
    claim: Claim | None


def discover(
    observed: Observation,
    catalog: Sequence[CatalogEntry] = (),
    behaviours: Mapping[str, Behaviour] | None = None,
) -> Discovery:
    """Group engines into deployments and pools, and routers and frontends with them.

    `behaviours` (by instance) are a cross-check and the last guess where no label names a role.
    """
    seen, unread = read(observed)
    engines, doubled = without_doubles([s for s in seen if s.profile.scope == "engine"])
    edges = [s for s in seen if s.profile.scope in ("router", "frontend")]
    gpus = gpus_by_pod(observed.series)
    places: dict[tuple[str, str, str], list[Seen]] = {}
    for item in engines:
        places.setdefault(item.place, []).append(item)
    found = [
        _deployment(place, members, gpus, catalog, behaviours or {}, observed.at)
        for place, members in sorted(adopted(places).items())
    ]
    found = _named(found)
    attached, lost = _attach(found, edges, observed.at)
    rest = [
        *unread,
        *_unread(doubled, "counted_already"),
        *_unread((s for s in seen if s.profile.scope in ("device", "host")), "hardware"),
        *_unread(lost, "no_workers"),
    ]
    return Discovery(tuple(attached), tuple(rest), observed.ladders)


def undecided(observed: Observation) -> tuple[tuple[str, str], ...]:
    """(instance, profile) of engines whose role no label names: behaviour is worth asking for."""
    engines = [item for item in read(observed)[0] if item.profile.scope == "engine"]
    decisions = _decide(engines, {})
    return tuple(
        (item.target.instance, item.profile.profile)
        for item in engines
        if decisions[item.target.instance].decision.source is RoleSource.UNKNOWN
    )


def _decide(members: Sequence[Seen], behaviours: Mapping[str, Behaviour]) -> dict[str, Guess]:
    """Roles of one deployment's engines: `backend` means decode only where something prefills."""
    decisions: dict[str, Guess] = {}
    for has_prefill in (False, True):
        for item in members:
            evidence = RoleEvidence(
                inventory_role=item.target.role,
                inventory_source=(RoleSource.REPORTED if item.target.role else RoleSource.UNKNOWN),
                pod_labels=item.target.labels,
                metric_labels=_metric_labels(item),
                engine=engine_behind(item.names, item.profile) or item.profile.profile,
                behaviour=behaviours.get(item.target.instance),
                has_prefill=has_prefill,
            )
            claim = next(iter(claims_of(evidence)), None)
            decisions[item.target.instance] = Guess(decide(evidence), claim)
        if not any(guess.decision.role == PREFILL for guess in decisions.values()):
            break
    return decisions


def _metric_labels(item: Seen) -> dict[str, tuple[str, ...]]:
    """Values of the labels that are the exporter's own, not the target's."""
    values: dict[str, set[str]] = {}
    for series in item.series:
        for name, value in series.labels.items():
            if value and name not in item.target.labels:
                values.setdefault(name, set()).add(value)
    return {name: tuple(sorted(found)) for name, found in values.items()}


def _deployment(
    place: tuple[str, str, str],
    members: Sequence[Seen],
    gpus: Mapping[tuple[str, str], Gpus],
    catalog: Sequence[CatalogEntry],
    behaviours: Mapping[str, Behaviour],
    at: float,
) -> FoundDeployment:
    namespace, _, model = place
    key = hashlib.sha256("\0".join(place).encode()).hexdigest()[:10]
    decisions = _decide(members, behaviours)
    per_pod: dict[str, int] = {}
    for item in members:
        per_pod[item.pod] = per_pod.get(item.pod, 0) + 1
    groups: dict[tuple[str, ...], list[FoundWorker]] = {}
    for item in members:
        held = gpus.get((item.namespace, item.pod)) if item.pod else None
        sharers = per_pod[item.pod]
        worker = _worker(item, decisions[item.target.instance], sharers > 1, at)
        if held is not None:
            worker = replace(
                worker,
                accelerator=accelerator_of(held.model, catalog),
                devices=share(held.count, sharers),
            )
        groups.setdefault(_alike(worker), []).append(worker)
    written = next((item.models[model][0] for item in members if model in item.models), model)
    return FoundDeployment(
        key=key,
        namespace=namespace,
        model=written,
        name="",
        slug="",
        groups=tuple(_group(key, alike, workers) for alike, workers in sorted(groups.items())),
    )


def _alike(worker: FoundWorker) -> tuple[str, ...]:
    value = "" if worker.role_source == RoleSource.BEHAVIOUR.value else worker.evidence_value
    return (
        worker.role, worker.role_source, worker.evidence, value, worker.profile,
        worker.accelerator, worker.devices or "",
    )  # fmt: skip


def _group(key: str, alike: tuple[str, ...], workers: Sequence[FoundWorker]) -> FoundGroup:
    digest = hashlib.sha256("\0".join((key, *alike)).encode()).hexdigest()[:10]
    first = workers[0]
    return FoundGroup(
        key=digest,
        role=first.role,
        role_source=first.role_source,
        evidence=first.evidence,
        evidence_value=first.evidence_value,
        profile=first.profile,
        accelerator=first.accelerator,
        devices=first.devices,
        workers=tuple(sorted(workers, key=lambda worker: (worker.name, worker.instance))),
    )


def _worker(item: Seen, guess: Guess, is_sharing: bool, at: float) -> FoundWorker:
    target, decision, claim = item.target, guess.decision, guess.claim
    scheme = urlsplit(target.url).scheme or "http"
    port = target.instance.rpartition(":")[2]
    name = item.pod or target.instance
    return FoundWorker(
        instance=target.instance,
        url=f"{scheme}://{target.instance}",
        metrics_url=metrics_url(target),
        name=(f"{item.pod}:{port}" if item.pod and is_sharing else name)[:120],
        role=decision.role,
        role_source=decision.source.value,
        evidence=claim.name if claim else "",
        evidence_value=claim.value if claim else "",
        against=tuple(f"{c.name}={c.value}" for c in decision.contradicting),
        profile=item.profile.profile,
        pod=item.pod,
        age_s=None if target.sample_at is None else max(0.0, at - target.sample_at),
        signals=signals_of(item.names, item.profile, decision.role or "mixed"),
    )


def _named(found: Sequence[FoundDeployment]) -> list[FoundDeployment]:
    """Names and slugs: the model's last part, with its namespace where that is not enough."""
    stems = [slug_of(item.model.rsplit("/", 1)[-1] or item.namespace or "model") for item in found]
    taken: set[str] = set()
    named = []
    for item, stem in zip(found, stems, strict=True):
        is_alone = stems.count(stem) == 1
        wanted = stem if is_alone else slug_of(f"{stem}-{item.namespace}")
        slug, number = wanted, 2
        while slug in taken:
            slug, number = f"{wanted[:58]}-{number}", number + 1
        taken.add(slug)
        named.append(replace(item, name=slug, slug=slug))
    return named


def slug_of(text: str) -> str:
    """A slug of at most 63 characters."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:63].strip("-") or "deployment"


def _attach(
    found: Sequence[FoundDeployment], edges: Sequence[Seen], at: float
) -> tuple[list[FoundDeployment], list[Seen]]:
    """Edges with the deployments they serve: by the workers they name, else by their models,
    else by being in the only namespace that fits."""
    mine: dict[str, list[FoundEdge]] = {item.key: [] for item in found}
    lost = []
    for edge in edges:
        owners = _owners(edge, found)
        for owner in owners:
            mine[owner.key].append(_edge(edge, owner, at))
        if not owners:
            lost.append(edge)
    return [replace(item, edges=tuple(mine[item.key])) for item in found], lost


def _owners(edge: Seen, found: Sequence[FoundDeployment]) -> list[FoundDeployment]:
    workers = {
        same_address(value)
        for series in edge.series
        if (value := first_label(series.labels, _WORKER_LABELS))
    }
    by_worker = [d for d in found if workers & {same_address(w.url) for w in d.workers}]
    if by_worker:
        return by_worker
    fits = [d for d in found if not edge.models or d.model.lower() in edge.models]
    near = [d for d in fits if edge.namespace and d.namespace == edge.namespace]
    if near:
        # Without a model label, two deployments in one namespace cannot be told apart.
        return near if edge.models or len(near) == 1 else []
    if edge.models:
        names = [d.model.lower() for d in fits]
        return [d for d in fits if names.count(d.model.lower()) == 1]
    return fits if len(fits) == 1 else []


def _edge(edge: Seen, owner: FoundDeployment, at: float) -> FoundEdge:
    written, label = edge.models.get(owner.model.lower(), ("", ""))
    target = edge.target
    return FoundEdge(
        instance=target.instance,
        metrics_url=metrics_url(target),
        scope=edge.profile.scope,
        profile=edge.profile.profile,
        models=tuple(sorted(name for name, _ in edge.models.values())),
        match={label: written} if len(edge.models) > 1 and written else {},
        signals=signals_of(edge.names, edge.profile, edge.profile.scope),
        age_s=None if target.sample_at is None else max(0.0, at - target.sample_at),
    )


def _unread(items: Iterable[Seen], reason: str) -> list[Unread]:
    jobs: dict[str, list[ScrapedTarget]] = {}
    for item in items:
        jobs.setdefault(item.target.job, []).append(item.target)
    return [line(job, reason, targets, "") for job, targets in sorted(jobs.items())]
