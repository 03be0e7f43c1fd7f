"""Plain builder functions for rows that many tests need. People: alice, bob, charlie only.

alice is an operator, bob an approver, charlie a stranger who sees nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from apps.accounts import selectors as accounts_selectors
from apps.accounts import services as accounts
from apps.accounts.domain.authorize import SYSTEM, Role, ScopeKind, Viewer
from apps.accounts.models import User
from apps.fleet import services as fleet
from apps.fleet.models import Accelerator, Cluster, Deployment

NOW = datetime(2026, 11, 30, 3, 8, tzinfo=UTC)


@dataclass(frozen=True)
class World:
    """One cluster with one deployment of 2 prefill and 4 decode workers, and the cast."""

    cluster: Cluster
    deployment: Deployment
    alice: User
    bob: User
    charlie: User

    def viewer(self, user: User, **extra: Any) -> Viewer:
        return accounts_selectors.viewer_for(user, **extra)


def accelerator(slug: str = "h200-sxm") -> Accelerator:
    row, _ = Accelerator.objects.get_or_create(
        slug=slug,
        defaults={"vendor": "nvidia", "name": "H200", "list_price_usd_per_hour": "4.59"},
    )
    return row


def person(name: str, *roles: Role, now: datetime = NOW) -> User:
    user = accounts.create_user(actor=SYSTEM, now=now, username=name, password=f"{name}-password-1")
    for role in roles:
        accounts.bind_role(
            actor=SYSTEM,
            now=now,
            user=user,
            role=role,
            scope_kind=ScopeKind.INSTALLATION,
            scope_id=None,
        )
    return user


def deployment(
    cluster: Cluster,
    slug: str,
    *,
    now: datetime = NOW,
    environment: str = "demo",
    mode: str = "approve",
    prefill: int = 2,
    decode: int = 4,
    port: int = 21_000,
) -> Deployment:
    accelerator()
    row = fleet.register_deployment(
        actor=SYSTEM,
        now=now,
        cluster=cluster,
        slug=slug,
        name=slug,
        served_model="Qwen/Qwen3-32B",
        environment=environment,
        preset="demo",
    )
    fleet.set_mode(actor=SYSTEM, now=now, deployment=row, mode=mode)
    for role, count in (("prefill", prefill), ("decode", decode)):
        fleet.declare_pool(
            actor=SYSTEM,
            now=now,
            deployment=row,
            role=role,
            accelerator="h200-sxm",
            devices_per_worker=Decimal(1),
            engine="sglang",
            engine_version="0.5.23",
            wanted=count,
            facts={
                "kv_capacity_tokens": 60_000,
                "max_sequences": 48,
                "prefill_tokens_per_step": 8192,
            },
        )
        for index in range(count):
            port += 1
            url = f"http://127.0.0.1:{port}"
            worker = fleet.declare_worker(
                now=now,
                deployment=row,
                name=f"{role[0]}-{index}",
                url=url,
                role=role,
                metrics_url=f"{url}/metrics",
                bootstrap_port=port + 1000 if role == "prefill" else None,
            )
            type(worker).objects.filter(pk=worker.pk).update(serving="serving", serving_at=now)
    return row


def world(*, now: datetime = NOW, environment: str = "demo", mode: str = "approve") -> World:
    """The usual set-up of an integration test."""
    accelerator()
    cluster = fleet.register_cluster(
        actor=SYSTEM, now=now, slug="lab", name="Lab", uid="lab-uid", mode_cap="auto"
    )
    fleet.declare_node(
        actor=SYSTEM, now=now, cluster=cluster, name="node-1", accelerator="h200-sxm", devices=6
    )
    return World(
        cluster=cluster,
        deployment=deployment(cluster, "chat-pd", now=now, environment=environment, mode=mode),
        alice=person("alice", Role.OPERATOR, now=now),
        bob=person("bob", Role.APPROVER, now=now),
        charlie=person("charlie", now=now),
    )
