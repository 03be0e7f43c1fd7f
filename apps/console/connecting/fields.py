"""What was typed in the Connect wizard, read: values, and what is wrong with which field.

Texts stay as typed in the draft, also wrong ones. Errors are codes of `wording.connect.ERRORS`.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from typing import Any, Final

from django.conf import settings

from apps.accounts import selectors as accounts
from apps.accounts.domain.authorize import ObjectScope, Permission, Viewer
from apps.common.fetch import FetchError, split_url
from apps.fleet import selectors as fleet
from apps.telemetry.collectors.promql import label
from apps.telemetry.domain.discovery import slug_of
from apps.telemetry.domain.found import FoundDeployment, FoundEdge, FoundGroup, FoundWorker
from apps.telemetry.services import connect, drafts
from apps.telemetry.services.connect import Cluster, Team
from apps.telemetry.services.drafts import ConnectDraft
from apps.telemetry.services.source_test import MAX_ADDRESSES, metrics_address

_SLUG: Final = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")
#: Roles that a person may choose; a reported other one stays as it is.
ROLES: Final = ("prefill", "decode", "mixed")
LEAVE_OUT: Final = "none"
#: Workers that get a role of their own on the page; more are changed in the group.
MAX_SINGLE: Final = 64

Errors = dict[str, str]


@dataclass(frozen=True, slots=True)
class Source:
    kind: str
    url: str
    interval_s: float
    parameters: Mapping[str, Any]
    addresses: tuple[str, ...]
    router_url: str
    cluster: Cluster | None
    cluster_name: str
    cluster_slug: str


@dataclass(frozen=True, slots=True)
class ChosenGroup:
    """A found group with what the person made of it; `workers` maps role to workers."""

    found: FoundGroup
    role: str
    accelerator: str
    gpus: Decimal | None
    workers: Mapping[str, tuple[FoundWorker, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Chosen:
    """A found deployment with what the person made of it."""

    found: FoundDeployment
    is_included: bool
    name: str
    slug: str
    environment: str
    team: Team | None
    groups: tuple[ChosenGroup, ...]
    edges: tuple[FoundEdge, ...]

    @property
    def key(self) -> str:
        return self.found.key


def typed(draft: ConnectDraft, step: str) -> Mapping[str, str]:
    found: Mapping[str, str] = draft.typed.get(step, {})
    return found


def environments() -> tuple[str, ...]:
    """`demo` (where one person decides) only where the installation is a demo."""
    real = ("production", "staging")
    return (*real, "demo") if settings.FULCRUM_LOOPBACK_PORTS else real


def may_price(actor: Viewer) -> bool:
    """Prices hold for the whole installation."""
    return actor.can(Permission.CONFIGURE, ObjectScope())


def read_source(actor: Viewer, draft: ConnectDraft) -> tuple[Source, Errors]:
    text = typed(draft, "source")
    errors: Errors = {}
    kind = "scrape" if text.get("kind") == "scrape" else "prometheus"
    url = text.get("url", "")
    if kind == "prometheus":
        check_address(url, "url", errors)
    parameters = _labels(text, errors)
    router = text.get("router_url", "")
    if router and kind == "scrape":
        check_address(router, "router_url", errors)
    addresses = tuple(line.strip() for line in text.get("addresses", "").split() if line.strip())
    if kind == "scrape":
        if not addresses and not router:
            errors["addresses"] = "required"
        elif len(addresses) > MAX_ADDRESSES:
            errors["addresses"] = "too_many"
        elif any(not _is_address(metrics_address(item)) for item in addresses):
            errors["addresses"] = "bad_list"
    cluster, name, slug = _cluster(actor, text, errors)
    interval = _number(text.get("interval_s", "") or "15", "interval_s", errors, 1, 300)
    source = Source(
        kind, url, float(interval or 15), parameters, addresses, router, cluster, name, slug
    )
    return source, errors


def _labels(text: Mapping[str, str], errors: Errors) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, default in (("instance_label", "instance"), ("job_label", "job")):
        value = text.get(name, "").strip() or default
        try:
            found[name] = label(value)
        except ValueError:
            errors[name] = "bad_label"
    jobs = [job.strip() for job in text.get("jobs", "").split(",") if job.strip()]
    if jobs:
        found["jobs"] = jobs
    return found


def _cluster(
    actor: Viewer, text: Mapping[str, str], errors: Errors
) -> tuple[Cluster | None, str, str]:
    chosen = text.get("cluster", "")
    if chosen:
        found = [c for c in connect.clusters_to_connect(actor) if c.slug == chosen]
        if not found:
            errors["cluster"] = "unknown_cluster"
        return (found[0] if found else None), "", ""
    name = text.get("cluster_name", "").strip()
    slug = text.get("cluster_slug", "").strip() or (slug_of(name) if name else "")
    if not may_price(actor):
        errors["cluster"] = "new_cluster_not_allowed"
    elif not name:
        errors["cluster_name"] = "required"
    elif not _SLUG.fullmatch(slug):
        errors["cluster_slug"] = "bad_slug"
    elif connect.is_cluster_slug_taken(slug):
        errors["cluster_slug"] = "cluster_slug_taken"
    return None, name[:120], slug


def _is_address(url: str) -> bool:
    try:
        split_url(url)
    except FetchError:
        return False
    return True


def check_address(url: str, name: str, errors: Errors) -> None:
    if not url:
        errors[name] = "required"
    elif not _is_address(url):
        errors[name] = "bad_address"


def _number(
    text: str, name: str, errors: Errors, low: float, high: float, code: str = "bad_number"
) -> Decimal | None:
    """A plain decimal within bounds; None (with an error) for anything else."""
    try:
        value = Decimal(text.strip().replace(",", "."))
    except InvalidOperation:
        value = Decimal("NaN")
    if not value.is_finite() or not Decimal(str(low)) <= value <= Decimal(str(high)):
        errors[name] = code
        return None
    return value


def worker_field(worker: FoundWorker) -> str:
    """The field of one worker's own role."""
    return f"worker-{hashlib.sha256(worker.instance.encode()).hexdigest()[:10]}"


def read_found(actor: Viewer, draft: ConnectDraft) -> tuple[tuple[Chosen, ...], Errors]:
    """What the person made of what was found; errors of included deployments only."""
    discovery = drafts.found_in(draft)
    if discovery is None:
        return (), {"": "find_first"}
    text = typed(draft, "find")
    errors: Errors = {}
    known = set(fleet.accelerators().values_list("slug", flat=True))
    teams = {team.slug: team for team in accounts.teams_for(actor)}
    edges = {edge.instance: edge for d in discovery.deployments for edge in d.edges}
    chosen = tuple(
        _chosen(item, text, teams, known, edges, errors) for item in discovery.deployments
    )
    included = [item for item in chosen if item.is_included]
    for item in included:
        if [other.slug for other in included].count(item.slug) > 1:
            errors.setdefault(f"slug-{item.key}", "slug_twice")
    if not included:
        errors[""] = "nothing_chosen"
    return chosen, errors


def _chosen(
    item: FoundDeployment,
    text: Mapping[str, str],
    teams: Mapping[str, Team],
    known: set[str],
    edges: Mapping[str, FoundEdge],
    errors: Errors,
) -> Chosen:
    mine: Errors = {}
    name = text.get(f"name-{item.key}", item.name).strip()
    slug = text.get(f"slug-{item.key}", item.slug).strip()
    environment = text.get(f"environment-{item.key}", "production")
    team = text.get(f"team-{item.key}", "")
    if not name or len(name) > 120:
        mine[f"name-{item.key}"] = "required"
    if not _SLUG.fullmatch(slug):
        mine[f"slug-{item.key}"] = "bad_slug"
    elif connect.is_slug_taken(slug):
        mine[f"slug-{item.key}"] = "slug_taken"
    if environment not in environments():
        mine[f"environment-{item.key}"] = "unknown_environment"
    if team and team not in teams:
        mine[f"team-{item.key}"] = "unknown_team"
    groups = tuple(_group(group, text, known, mine) for group in item.groups)
    _agree(groups, mine)
    is_included = bool(text.get(f"include-{item.key}", "1"))
    if not any(rows for group in groups for rows in group.workers.values()):
        mine.setdefault(f"name-{item.key}", "no_workers")
    if is_included:
        errors.update(mine)
    return Chosen(
        found=item,
        is_included=is_included,
        name=name,
        slug=slug,
        environment=environment,
        team=teams.get(team),
        groups=groups,
        edges=_edges(item, text, edges),
    )


def _edges(
    item: FoundDeployment, text: Mapping[str, str], edges: Mapping[str, FoundEdge]
) -> tuple[FoundEdge, ...]:
    """The router and frontend that the person chose; those that discovery attached by default."""
    found = []
    for scope in ("router", "frontend"):
        mine = [edge for edge in item.edges if edge.scope == scope]
        wanted = text.get(f"{scope}-{item.key}")
        if wanted is None:
            found += mine[:1]
        elif wanted in edges:
            found.append(next((e for e in mine if e.instance == wanted), edges[wanted]))
    return tuple(found)


def _group(
    group: FoundGroup, text: Mapping[str, str], known: set[str], errors: Errors
) -> ChosenGroup:
    role = text.get(f"role-{group.key}", group.role)
    allowed = {*ROLES, LEAVE_OUT, *({group.role} if group.role else ())}
    workers: dict[str, list[FoundWorker]] = {}
    for worker in group.workers:
        own = text.get(worker_field(worker), "") or role
        if own != LEAVE_OUT:
            workers.setdefault(own if own in allowed else "", []).append(worker)
    accelerator = text.get(f"accelerator-{group.key}", group.accelerator)
    written = text.get(f"gpus-{group.key}", group.devices or "")
    gpus: Decimal | None = None
    if workers:
        if "" in workers:
            errors[f"role-{group.key}"] = "role_missing"
        if accelerator not in known:
            errors[f"accelerator-{group.key}"] = "accelerator_missing"
        gpus = _number(written, f"gpus-{group.key}", errors, 0.0001, 1024, "gpus_missing")
    return ChosenGroup(
        found=group,
        role=role,
        accelerator=accelerator,
        gpus=gpus,
        workers={role: tuple(found) for role, found in workers.items()},
    )


def _agree(groups: Sequence[ChosenGroup], errors: Errors) -> None:
    """A pool has one engine, one accelerator and one number of GPUs per worker."""
    seen: dict[str, tuple[str, str, Decimal | None]] = {}
    for group in groups:
        facts = (group.found.profile, group.accelerator, group.gpus)
        for role in group.workers:
            if seen.setdefault(role, facts) != facts and role:
                errors.setdefault(f"role-{group.found.key}", "pool_differs")


@dataclass(frozen=True, slots=True)
class Aims:
    """Prices per GPU-hour by accelerator, objectives in seconds by deployment key and signal."""

    prices: Mapping[str, Decimal]
    objectives: Mapping[str, Mapping[str, float]]


def read_prices(
    draft: ConnectDraft, chosen: Sequence[Chosen], defaults: Mapping[str, str]
) -> tuple[Aims, Errors]:
    """`defaults` are the texts of fields that nobody has typed in yet."""
    text = {**defaults, **typed(draft, "prices")}
    errors: Errors = {}
    prices: dict[str, Decimal] = {}
    included = [item for item in chosen if item.is_included]
    for slug in accelerators_of(included):
        written = text.get(f"price-{slug}", "").strip()
        if written:
            value = _number(written, f"price-{slug}", errors, 0, 100_000, "bad_price")
            if value is not None:
                prices[slug] = value
    objectives: dict[str, dict[str, float]] = {}
    for item in included:
        for code, unit, high in (("ttft", 1.0, 3599.0), ("tpot", 0.001, 3_599_000.0)):
            written = text.get(f"{code}-{item.key}", "").strip()
            if not written:
                continue
            name = f"{code}-{item.key}"
            value = _number(written, name, errors, 0.001, high, "bad_objective")
            if value is not None:
                objectives.setdefault(item.key, {})[code] = float(value) * unit
    return Aims(prices, objectives), errors


def accelerators_of(chosen: Sequence[Chosen]) -> tuple[str, ...]:
    """Accelerators of the included deployments."""
    return tuple(
        sorted(
            {
                group.accelerator
                for item in chosen
                if item.is_included
                for group in item.groups
                if group.workers and group.accelerator
            }
        )
    )
