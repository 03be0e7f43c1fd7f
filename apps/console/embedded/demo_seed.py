"""Declares the running demo fleet to the product, through the same services as a person would.

Idempotent: attaching again to the same fleet changes nothing but the demo user's password.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from decimal import Decimal
from itertools import islice
from typing import Any, Final
from uuid import UUID

from apps.accounts import services as accounts
from apps.accounts.domain.authorize import SYSTEM, Permission, Role, ScopeKind
from apps.cost import selectors as cost_selectors
from apps.cost import services as cost
from apps.fleet import selectors as fleet_selectors
from apps.fleet import services as fleet
from apps.slo import services as slo
from apps.slo.domain.objective import ObjectiveSignal
from apps.telemetry import selectors as telemetry_selectors
from apps.telemetry import services as telemetry

CLUSTER: Final = "demo"
USER: Final = "demo"
ACCELERATOR: Final = "h200-sxm"
MAIN: Final = "chat-pd"
#: Tokens of KV room and running requests per decode worker (see the demo profile).
POOL_FACTS: Final[dict[str, dict[str, Any]]] = {
    "prefill": {"prefill_tokens_per_step": 8192},
    "decode": {"kv_capacity_tokens": 230_000, "max_sequences": 96},
}


def seed(
    *, state: dict[str, Any], now: datetime, password: str, prometheus_url: str = ""
) -> dict[str, str]:
    """Register everything of the state file; returns what `demo.json` shows (without the URL)."""
    cluster = fleet.register_cluster(
        actor=SYSTEM, now=now, slug=CLUSTER, name="Demo", uid="demo-cluster", mode_cap="approve"
    )
    team = accounts.create_team(actor=SYSTEM, now=now, slug="demo", name="Demo team")
    devices = _declare_nodes(state, cluster, now)
    exporters = list(state.get("exporters", ()))
    _price_book(now)
    for item in state["deployments"]:
        _declare_deployment(item, cluster, team, now, prometheus_url, devices, exporters)
    token = _people(cluster.pk, now, password)
    main = next(item for item in state["deployments"] if item["slug"] == MAIN)
    return {
        "user": USER,
        "password": password,
        "token": token,
        "deployment": MAIN,
        "router_url": main["router"]["url"],
        "router_key": main["router"]["read_key"],
    }


def _declare_nodes(state: dict[str, Any], cluster: Any, now: datetime) -> Iterator[Any]:
    """As many devices as the fleet's workers use, eight to a node: the demo owns no spare GPU.
    Returns them in the order in which the fleet's workers stand on them."""
    total = sum(len(item["workers"]) for item in state["deployments"])
    number = 0
    while total > 0:
        number += 1
        fleet.declare_node(
            actor=SYSTEM,
            now=now,
            cluster=cluster,
            name=f"demo-node-{number}",
            accelerator=ACCELERATOR,
            devices=min(8, total),
        )
        total -= 8
    devices = fleet_selectors.devices_for(SYSTEM).filter(node__cluster=cluster)
    return iter(devices.order_by("node__name", "index"))


def _price_book(now: datetime) -> None:
    if cost_selectors.default_book() is not None:
        return
    book = cost.create_book(actor=SYSTEM, now=now, slug="list-prices", name="List prices")
    row = fleet_selectors.accelerators().get(slug=ACCELERATOR)
    cost.set_price(
        actor=SYSTEM,
        now=now,
        book_id=book.pk,
        key=ACCELERATOR,
        rate=Decimal(row.list_price_usd_per_hour),
        valid_from=now - timedelta(days=1),
        source="catalog",
    )


def _declare_deployment(
    item: dict[str, Any],
    cluster: Any,
    team: Any,
    now: datetime,
    prometheus_url: str,
    devices: Iterator[Any],
    exporters: list[dict[str, str]],
) -> None:
    deployment = fleet.register_deployment(
        actor=SYSTEM,
        now=now,
        cluster=cluster,
        slug=item["slug"],
        name=item["name"],
        served_model=item["model"],
        environment="demo",
        preset="demo",
        team=team,
    )
    fleet.set_mode(actor=SYSTEM, now=now, deployment=deployment, mode="approve")
    by_role: dict[str, list[dict[str, Any]]] = {}
    for worker in item["workers"]:
        by_role.setdefault(worker["role"], []).append(worker)
    standing = {worker["url"]: list(islice(devices, 1)) for worker in item["workers"]}
    for role, workers in by_role.items():
        fleet.declare_pool(
            actor=SYSTEM,
            now=now,
            deployment=deployment,
            role=role,
            accelerator=ACCELERATOR,
            devices_per_worker=Decimal(workers[0].get("devices", 1)),
            engine=item["engine"],
            engine_version=item["engine_version"],
            wanted=len(workers),
            facts={
                **POOL_FACTS[role],
                **item.get("pool_facts", {}).get(role, {}),
                "weight_precision": "bf16",
                "kv_precision": "bf16",
                "checkpoint": item["model"],
            },
        )
        for worker in workers:
            fleet.declare_worker(
                now=now,
                deployment=deployment,
                name=worker["name"],
                url=worker["url"],
                role=role,
                metrics_url=worker["metrics_url"],
                bootstrap_port=worker.get("bootstrap_port"),
                devices=standing[worker["url"]],
            )
    router = item["router"]
    can_act = item["engine"] == "sglang"
    fleet.connect_backend(
        actor=SYSTEM,
        now=now,
        deployment=deployment,
        adapter="router_workers",
        address=router["url"],
        parameters={
            "kind": router["kind"],
            "metrics_url": router["metrics_url"],
            "role_flip": "1" if can_act else "",
        },
        credential=router["admin_key"],
        engine_credential=item.get("engine_key", ""),
        observe_interval_s=5,
    )
    objectives = item["objectives"]
    for signal, key in ((ObjectiveSignal.TTFT, "ttft_p95_s"), (ObjectiveSignal.TPOT, "tpot_p95_s")):
        slo.set_objective(
            actor=SYSTEM,
            now=now,
            deployment_id=deployment.pk,
            signal=signal,
            threshold_s=float(objectives[key]),
        )
    parameters = {} if prometheus_url or not exporters else {"exporters": exporters}
    # A restart finds the source of the first start; only where its exporters stand may differ.
    present = telemetry_selectors.sources_for(SYSTEM).filter(deployment=deployment).first()
    if present is not None:
        if present.parameters != parameters:
            telemetry.change_source(
                actor=SYSTEM, now=now, source_id=present.pk, parameters=parameters
            )
        return
    telemetry.create_source(
        actor=SYSTEM,
        now=now,
        cluster=cluster,
        deployment=deployment,
        kind="prometheus" if prometheus_url else "scrape",
        url=prometheus_url,
        interval_s=5,
        parameters=parameters,
    )


def _people(cluster_id: UUID, now: datetime, password: str) -> str:
    user = accounts.create_user(actor=SYSTEM, now=now, username=USER, password=password)
    for role in (Role.OPERATOR, Role.APPROVER):
        accounts.bind_role(
            actor=SYSTEM,
            now=now,
            user=user,
            role=role,
            scope_kind=ScopeKind.CLUSTER,
            scope_id=cluster_id,
        )
    _, text = accounts.issue_token(
        actor=SYSTEM,
        now=now,
        user=user,
        name="demo",
        permissions=[
            Permission.READ,
            Permission.PROPOSE,
            Permission.APPROVE,
            Permission.ROLL_BACK,
            Permission.DISMISS,
            Permission.KILL_ON,
            Permission.KILL_OFF,
            Permission.READ_AUDIT,
        ],
        life=timedelta(days=7),
    )
    return text
