"""What the Connect wizard does: test, find, dry run, finish. Each goes to the rooms' services."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from decimal import Decimal
from typing import Any, Final

from django.db import IntegrityError, transaction

from apps.accounts.domain.authorize import ObjectScope, Permission, Viewer, require
from apps.audit import services as audit
from apps.cost import selectors as cost_selectors
from apps.cost import services as cost
from apps.fleet import selectors as fleet
from apps.slo import services as slo
from apps.slo.domain.objective import ObjectiveSignal
from apps.telemetry.collectors.probe import ProbeFailed
from apps.telemetry.domain.draft_coverage import nearest
from apps.telemetry.domain.found import Discovery, Unread
from apps.telemetry.services import connect, drafts
from apps.telemetry.services.discover import find_at_addresses, find_in_prometheus
from apps.telemetry.services.drafts import ConnectDraft
from apps.telemetry.services.source_test import (
    SourceTest,
    check_addresses,
    check_prometheus,
    metrics_address,
)

from . import fields
from .fields import Aims, Chosen, Errors, Source

#: Objectives that are proposed, in seconds; moved to the nearest bound of the ladder.
PROPOSED: Final = {"ttft": 2.0, "tpot": 0.05}
#: A dry run older than this does not allow a command mode.
DRY_RUN_S: Final = 3600
#: Deployments of one draft: each has about a dozen fields, and a form may hold 1,000.
MAX_DEPLOYMENTS: Final = 50
ADAPTERS: Final = ("noop", "router_workers")
#: Secrets by what they are for; those of a backend carry the deployment's key.
TOKEN, ROUTER_KEY = "token", "router_key"


def test(*, actor: Viewer, now: datetime, draft: ConnectDraft, source: Source) -> SourceTest:
    """Test the source as typed, and keep the outcome."""
    if source.kind == "prometheus":
        found = check_prometheus(
            actor=actor, now=now, url=source.url, token=drafts.secret(draft, TOKEN)
        )
    else:
        addresses, problem = _scraped(actor, now, draft, source)
        found = check_addresses(actor=actor, now=now, urls=tuple(addresses))
        if problem:
            found = replace(found, problem="router_unreadable")
    drafts.keep_test(actor=actor, now=now, found=found)
    return found


def find(*, actor: Viewer, now: datetime, draft: ConnectDraft, source: Source) -> str:
    """Look for deployments and keep them; returns the code of what went wrong, or nothing."""
    try:
        found = _find(actor, now, draft, source)
    except ProbeFailed as error:
        return error.code
    drafts.keep_found(actor=actor, now=now, found=_capped(found))
    return ""


def _capped(found: Discovery) -> Discovery:
    """As many deployments as one form can hold; the rest is told, to be connected afterwards."""
    rest = found.deployments[MAX_DEPLOYMENTS:]
    if not rest:
        return found
    line = Unread("", "too_many", len(rest), tuple(item.slug for item in rest[:3]))
    kept = found.deployments[:MAX_DEPLOYMENTS]
    return replace(found, deployments=kept, unread=(line, *found.unread))


def _find(actor: Viewer, now: datetime, draft: ConnectDraft, source: Source) -> Discovery:
    if source.kind == "prometheus":
        return find_in_prometheus(
            actor=actor,
            now=now,
            url=source.url,
            token=drafts.secret(draft, TOKEN),
            parameters=source.parameters,
        )
    addresses, _ = _scraped(actor, now, draft, source)
    return find_at_addresses(actor=actor, now=now, urls=tuple(addresses), roles=addresses)


def _scraped(
    actor: Viewer, now: datetime, draft: ConnectDraft, source: Source
) -> tuple[dict[str, str], str]:
    """Metrics addresses with the role that a router gives them (empty without one), and why the
    router could not be read. The router's key goes to the router alone."""
    roles = {metrics_address(item): "" for item in source.addresses}
    if not source.router_url:
        return roles, ""
    key = drafts.secret(draft, ROUTER_KEY)
    listed = connect.router_workers(actor=actor, now=now, address=source.router_url, credential=key)
    for url, role in listed.roles.items():
        roles[metrics_address(url)] = role if role in fields.ROLES else ""
    return roles, listed.problem


def defaults_of_prices(
    now: datetime, discovery: Discovery | None, chosen: Sequence[Chosen]
) -> dict[str, str]:
    """Texts of the fields of step 4: the price in force, else the list price; objectives on a
    bound of the ladder that they are measured with."""
    text: dict[str, str] = {}
    slugs = fields.accelerators_of(chosen)
    held = cost_selectors.prices_at(now, keys=slugs)
    rows = fleet.accelerators().filter(slug__in=slugs)
    listed = dict(rows.values_list("slug", "list_price_usd_per_hour"))
    for slug in slugs:
        text[f"price-{slug}"] = str(held[slug]) if slug in held else listed.get(slug, "")
    for item in chosen:
        ladders = ladders_of(discovery, item)
        for code, wanted in PROPOSED.items():
            bounds = ladders.get(code, ())
            value = nearest(wanted, bounds) if bounds else wanted
            shown = Decimal(str(value)) * (1000 if code == "tpot" else 1)
            text[f"{code}-{item.key}"] = format(shown.normalize(), "f")
    return text


def currency() -> str:
    """The currency of the price book that prices are set in."""
    book = cost_selectors.default_book()
    return book.currency if book is not None else "USD"


def ladders_of(discovery: Discovery | None, chosen: Chosen) -> Mapping[str, Sequence[float]]:
    """Bucket bounds of `ttft` and `tpot` where they are measured best: frontend, router, decode
    (a router that has no TPOT leaves it to the engine)."""
    if discovery is None:
        return {}
    places = [e.profile for e in chosen.edges if e.scope == "frontend"]
    places += [e.profile for e in chosen.edges if e.scope == "router"]
    places += [g.found.profile for g in chosen.groups if {"decode", "mixed"} & set(g.workers)]
    found: dict[str, Sequence[float]] = {}
    for place in places:
        for code, bounds in discovery.ladders.get(place, {}).items():
            found.setdefault(code, bounds)
    return found


def pools_of(chosen: Chosen) -> tuple[connect.PlannedPool, ...]:
    """Pools of a deployment: groups of one role together."""
    rows: dict[str, list[connect.PlannedWorker]] = {}
    facts: dict[str, fields.ChosenGroup] = {}
    for group in chosen.groups:
        for role, workers in group.workers.items():
            facts.setdefault(role, group)
            rows.setdefault(role, []).extend(
                connect.PlannedWorker(w.name, w.url, w.metrics_url) for w in workers
            )
    return tuple(
        connect.PlannedPool(
            role=role,
            engine=facts[role].found.profile,
            accelerator=facts[role].accelerator,
            devices_per_worker=facts[role].gpus or Decimal(0),
            workers=tuple(workers),
        )
        for role, workers in rows.items()
    )


def backend_of(draft: ConnectDraft, key: str) -> connect.PlannedBackend:
    """How a deployment is commanded, as typed in step 5."""
    text = fields.typed(draft, "commands")
    source = fields.typed(draft, "source")
    adapter = text.get(f"adapter-{key}", "noop")
    address = text.get(f"address-{key}", source.get("router_url", ""))
    if adapter != "router_workers" or not address:
        return connect.PlannedBackend()
    credential = drafts.secret(draft, f"control:{key}")
    if not credential and address == source.get("router_url", ""):
        credential = drafts.secret(draft, ROUTER_KEY)
    flips = bool(text.get(f"flip-{key}", ""))
    return connect.PlannedBackend(
        adapter=adapter,
        address=address,
        parameters={"kind": "smg", "role_flip": "1" if flips else ""},
        credential=credential,
        engine_credential=drafts.secret(draft, f"engine:{key}"),
    )


def mark_of(draft: ConnectDraft, key: str) -> str:
    """What a dry run was run with: adapter, address and secrets."""
    text = fields.typed(draft, "commands")
    parts = [text.get(f"{name}-{key}", "") for name in ("adapter", "address", "flip")]
    parts.append(fields.typed(draft, "source").get("router_url", ""))
    return drafts.fingerprint(draft, *parts, names=(f"control:{key}", f"engine:{key}", ROUTER_KEY))


def dry_run(*, actor: Viewer, now: datetime, draft: ConnectDraft, chosen: Chosen) -> None:
    """Run a deployment's dry run and keep its outcome."""
    backend = backend_of(draft, chosen.key)
    if backend.adapter == "noop":
        outcome = connect.DryRun(False, "no_backend")
    else:
        outcome = connect.dry_run(actor=actor, now=now, backend=backend, pools=pools_of(chosen))
    drafts.keep_dry_run(
        actor=actor,
        now=now,
        key=chosen.key,
        outcome={
            "ok": outcome.ok,
            "code": outcome.code,
            "detail": outcome.detail,
            "workers": outcome.workers,
            "mark": mark_of(draft, chosen.key),
        },
    )


def passed(draft: ConnectDraft, key: str, now: datetime) -> bool | None:
    """Whether the dry run of what is typed now passed lately; None if there is none."""
    run = draft.dry_runs.get(key)
    if not run or run.get("mark") != mark_of(draft, key):
        return None
    age_s = (now - datetime.fromisoformat(run["at"])).total_seconds()
    return bool(run["ok"]) if age_s <= DRY_RUN_S else None


def read_commands(
    draft: ConnectDraft, chosen: Sequence[Chosen], now: datetime
) -> tuple[dict[str, str], Errors]:
    """Mode by deployment key, and what speaks against it."""
    text = fields.typed(draft, "commands")
    modes: dict[str, str] = {}
    errors: Errors = {}
    for item in chosen:
        if not item.is_included:
            continue
        mode = text.get(f"mode-{item.key}", "observe")
        adapter = text.get(f"adapter-{item.key}", "noop")
        if adapter not in ADAPTERS:
            errors[f"adapter-{item.key}"] = "unknown_adapter"
        elif adapter != "noop":
            source = fields.typed(draft, "source").get("router_url", "")
            fields.check_address(
                text.get(f"address-{item.key}", source), f"address-{item.key}", errors
            )
        if mode not in ("observe", "recommend", "approve"):
            errors[f"mode-{item.key}"] = "mode_not_offered"
        elif mode != "observe" and item.environment != "demo":
            errors[f"mode-{item.key}"] = "mode_needs_second_person"
        elif mode == "approve" and not passed(draft, item.key, now):
            errors[f"mode-{item.key}"] = "dry_run_first"
        modes[item.key] = mode
    return modes, errors


def finish(
    *,
    actor: Viewer,
    now: datetime,
    draft: ConnectDraft,
    source: Source,
    chosen: Sequence[Chosen],
    aims: Aims,
    modes: Mapping[str, str],
) -> connect.Connected:
    """Create everything in one transaction, and throw the draft away. Raises NotAllowed,
    ConnectRefused, FetchError, and what the services of `cost` and `slo` raise; then nothing was
    created and the draft is kept."""
    plan = connect.ConnectPlan(
        source=connect.PlannedSource(
            kind=source.kind,
            url=source.url if source.kind == "prometheus" else "",
            interval_s=source.interval_s,
            parameters=source.parameters,
            token=drafts.secret(draft, TOKEN) if source.kind == "prometheus" else "",
        ),
        deployments=tuple(_planned(draft, item, modes) for item in chosen if item.is_included),
        cluster=source.cluster,
        cluster_slug=source.cluster_slug,
        cluster_name=source.cluster_name,
    )
    try:
        with transaction.atomic():
            # A second click finds no draft any more, and creates nothing twice.
            if not drafts.hold(draft):
                raise connect.ConnectRefused("draft_gone")
            made = connect.connect_cluster(actor=actor, now=now, plan=plan)
            _prices(actor, now, aims)
            for key, by_signal in aims.objectives.items():
                for code, threshold_s in by_signal.items():
                    slo.set_objective(
                        actor=actor,
                        now=now,
                        deployment_id=made.deployments[key].pk,
                        signal=ObjectiveSignal(code),
                        threshold_s=threshold_s,
                    )
            _record(actor, now, made)
            drafts.discard(actor=actor)
            return made
    except IntegrityError as error:
        # Somebody took a slug or connected the cluster in the same instant.
        raise connect.ConnectRefused("changed_meanwhile") from error


def _planned(
    draft: ConnectDraft, item: Chosen, modes: Mapping[str, str]
) -> connect.PlannedDeployment:
    return connect.PlannedDeployment(
        key=item.key,
        slug=item.slug,
        name=item.name,
        namespace=item.found.namespace,
        model=item.found.model,
        environment=item.environment,
        team=item.team,
        mode=modes.get(item.key, "observe"),
        pools=pools_of(item),
        edges=item.edges,
        backend=backend_of(draft, item.key),
    )


def _prices(actor: Viewer, now: datetime, aims: Aims) -> None:
    """Set the prices that differ from those in force; nothing without the permission for it."""
    held = cost_selectors.prices_at(now, keys=aims.prices)
    changed = {slug: rate for slug, rate in aims.prices.items() if held.get(slug) != rate}
    if not changed or not fields.may_price(actor):
        return
    require(actor, Permission.CONFIGURE, ObjectScope())
    book = cost_selectors.default_book() or cost.create_book(
        actor=actor, now=now, slug="list-prices", name="List prices"
    )
    for slug, rate in sorted(changed.items()):
        cost.set_price(actor=actor, now=now, book_id=book.pk, key=slug, rate=rate, source="connect")


def _record(actor: Viewer, now: datetime, made: connect.Connected) -> None:
    after: dict[str, Any] = {"deployments": sorted(d.slug for d in made.deployments.values())}
    audit.record(
        actor=actor,
        now=now,
        action="connect.finish",
        object_kind="cluster",
        object_id=str(made.cluster.pk),
        object_label=made.cluster.slug,
        cluster_id=str(made.cluster.pk),
        after=after,
    )
