"""A strict backend in memory, and a small fleet in front of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

from apps.accounts import services as accounts
from apps.accounts.domain.authorize import SYSTEM, Role, ScopeKind, Viewer
from apps.accounts.selectors import viewer_for
from apps.backends.protocol import (
    ABSENT,
    BASELINE,
    Applied,
    Capabilities,
    Connection,
    Outcome,
    Preflight,
    Progress,
    Snapshot,
    StepKind,
    StepSpec,
    Verified,
    WorkerRef,
    WorkerView,
)
from apps.backends.router_workers.plan import Options, plan_change
from apps.commands import services
from apps.commands.domain.proof import Load
from apps.commands.domain.scoring import Sample
from apps.commands.models import Command
from apps.commands.services import facts as facts_module
from apps.common.measurement import Measurement, State
from apps.common.units import Unit
from apps.fleet import services as fleet
from apps.fleet.models import Accelerator, Backend, Cluster, Deployment, Pool
from apps.fleet.selectors import NotVisible

T0 = datetime(2026, 11, 30, 3, 6, tzinfo=UTC)


class Crash(BaseException):
    """kill -9: nothing after this point of the call happens."""


@dataclass
class World:
    """The outside: members of the router, roles and load of the engines, and what was done to them.

    `mutations` holds every change from outside; a test asserts that each is there once.
    `before_call` and `after_call` run around the effect of a call (a test raises Crash there);
    `answers` gives other outcomes than ACCEPTED, as (outcome, does it take effect).
    """

    members: dict[str, str] = field(default_factory=dict)
    engines: dict[str, str] = field(default_factory=dict)
    ports: dict[str, int] = field(default_factory=dict)
    in_flight: dict[str, int] = field(default_factory=dict)
    served: dict[str, int] = field(default_factory=dict)
    mutations: list[tuple[str, str]] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)
    observations: int = 0
    readable: bool = True
    denials: tuple[str, ...] = ()
    owners: tuple[str, ...] = ()
    unhealthy: set[str] = field(default_factory=set)
    answers: dict[StepKind, list[tuple[Outcome, bool]]] = field(default_factory=dict)
    before_call: Callable[[StepSpec], None] | None = None
    after_call: Callable[[StepSpec], None] | None = None
    on_verify: Callable[[StepSpec], None] | None = None
    stuck: set[StepKind] = field(default_factory=set)

    def act(self, kind: StepKind, url: str, role: str) -> None:
        self.mutations.append((kind.value, url))
        if kind is StepKind.REMOVE_WORKER:
            del self.members[url]
        elif kind is StepKind.SWITCH_ROLE:
            self.engines[url] = role
        elif kind is StepKind.ADD_WORKER:
            self.members[url] = role


class MemoryAdapter:
    """Judges by what it sees before it writes, as every adapter must."""

    name = "memory"
    world: World

    def __init__(self, connection: Connection) -> None:
        self.connection = connection

    def capabilities(self) -> Capabilities:
        return Capabilities(True, False, False, True, True, True, True, True)

    def observe(self, now: datetime, known: Sequence[WorkerRef] = ()) -> Snapshot:
        world = self.world
        world.observations += 1
        if not world.readable:
            return Snapshot(now, (), complete=False, fence="", problems=("router connect",))
        views = [
            WorkerView(
                url=url,
                router_id=f"id-{url}",
                role=role,
                status="ready",
                is_healthy=url not in world.unhealthy,
                engine_role=world.engines[url],
                in_flight=world.in_flight.get(url, 0),
                bootstrap_port=world.ports.get(url),
                labels={"runtime_type": "sglang"},
            )
            for url, role in world.members.items()
        ]
        views += [
            WorkerView(
                url=ref.url,
                router_id="",
                role=world.engines.get(ref.url, ref.role),
                status=ABSENT,
                is_healthy=False,
                engine_role=world.engines.get(ref.url),
                in_flight=world.in_flight.get(ref.url, 0),
                bootstrap_port=ref.bootstrap_port,
                labels={"runtime_type": "sglang"},
            )
            for ref in known
            if ref.url not in world.members and ref.url in world.engines
        ]
        fence = repr(sorted(world.members.items()))
        return Snapshot(now, tuple(views), True, fence, owners=world.owners)

    def plan(
        self, snapshot: Snapshot, targets: Mapping[str, int], gpus_per_worker: Mapping[str, Decimal]
    ) -> tuple[StepSpec, ...]:
        return plan_change(snapshot, targets, gpus_per_worker, Options(kv_lease_s=1))

    rollback_plan = plan

    def preflight(self, steps: Sequence[StepSpec], snapshot: Snapshot) -> Preflight:
        return Preflight(self.world.denials)

    def apply(self, step: StepSpec, *, key: str, epoch: int) -> Applied:
        world, url = self.world, step.worker.url
        if world.before_call is not None:
            world.before_call(step)
        if self._is_new(step):
            return Applied(Outcome.NOOP, reason="already")
        outcome, effect = Outcome.ACCEPTED, True
        if world.answers.get(step.kind):
            outcome, effect = world.answers[step.kind].pop(0)
        if effect:
            world.keys.append(key)
            world.act(step.kind, url, step.target_role)
        if world.after_call is not None:
            world.after_call(step)
        return Applied(outcome, request=f"{step.kind} {url}", answer="said", reason="because")

    def _is_new(self, step: StepSpec) -> bool:
        world, url = self.world, step.worker.url
        if step.kind is StepKind.REMOVE_WORKER:
            return url not in world.members
        if step.kind is StepKind.SWITCH_ROLE:
            return world.engines[url] == step.target_role
        if step.kind is StepKind.ADD_WORKER:
            return world.members.get(url) == step.target_role
        return False

    def verify(self, step: StepSpec, *, since: datetime, now: datetime) -> Verified:
        world, url = self.world, step.worker.url
        if world.on_verify is not None:
            world.on_verify(step)
        if not world.readable:
            return Verified(Progress.UNREADABLE, "router connect")
        if step.kind in world.stuck:
            return Verified(Progress.PROGRESSING, "stuck")
        if step.kind is StepKind.SET_DRAIN_TIME:
            return Verified(Progress.CONVERGED)
        if step.kind is StepKind.WAIT_IDLE:
            if world.in_flight.get(url, 0):
                return Verified(Progress.PROGRESSING, "requests_in_flight")
            lease_s = float(step.expected["lease_s"])
            done = (now - since).total_seconds() >= lease_s
            return Verified(Progress.CONVERGED if done else Progress.PROGRESSING, "kv_lease")
        if step.kind is StepKind.WAIT_SERVING:
            done = world.members.get(url) == step.target_role and url not in world.unhealthy
            return Verified(Progress.CONVERGED if done else Progress.PROGRESSING)
        if step.kind is StepKind.VERIFY_DATA_PLANE:
            world.served[url] = world.served.get(url, 0) + 1
            key = BASELINE + "worker"
            if key not in step.expected:
                return Verified(Progress.PROGRESSING, detail={key: str(world.served[url])})
            rose = world.served[url] > int(step.expected[key])
            return Verified(Progress.CONVERGED if rose else Progress.PROGRESSING, data="rose")
        return Verified(Progress.CONVERGED if self._is_new(step) else Progress.PROGRESSING)


@dataclass
class FakeFacts(facts_module.Nothing):
    """What the rooms below would say."""

    age_s: float | None = 1.0
    load: dict[str, Load] = field(default_factory=dict)
    goodput: float | None = 0.97
    ttft: float | None = 0.8
    failing: float = 0.0
    rec: facts_module.RecommendationFacts | None = None
    refusing: tuple[str, ...] = ()
    applied: list[str] = field(default_factory=list)
    scored: list[list[str]] = field(default_factory=list)
    policy: dict[str, Any] = field(default_factory=lambda: {"revision": 3})

    def data_age_s(self, deployment: Deployment, now: datetime) -> float | None:
        return self.age_s

    def loads(self, deployment: Deployment, now: datetime) -> Mapping[str, Load]:
        return self.load

    def measured(
        self, deployment: Deployment, end: datetime, span_s: float
    ) -> Mapping[str, Measurement]:
        found = {}
        if self.goodput is not None:
            found["goodput"] = figure(self.goodput, Unit.RATIO)
        if self.ttft is not None:
            found["ttft_p95"] = figure(self.ttft, Unit.SECONDS)
        return found

    def sample(self, deployment: Deployment, end: datetime, span_s: float) -> Sample:
        return Sample(end, ttft_p95=self.ttft, goodput=self.goodput, error_share=self.failing)

    def recommendation(self, recommendation_id: UUID) -> facts_module.RecommendationFacts | None:
        return self.rec if self.rec and self.rec.id == recommendation_id else None

    def recommendation_id(self, viewer: Viewer, number: str) -> UUID:
        if self.rec is None or self.rec.number != number:
            raise NotVisible(number)
        return self.rec.id

    def recheck(self, recommendation_id: UUID, now: datetime) -> tuple[str, ...]:
        return self.refusing

    def mark_applied(
        self, recommendation_id: UUID, *, actor: Viewer, now: datetime, command_id: UUID
    ) -> bool:
        if self.rec is None or self.rec.state != "open":
            return False
        self.rec = replace(self.rec, state="applied")
        self.applied.append(Command.objects.get(pk=command_id).number)
        return True

    def score(
        self, recommendation_id: UUID, *, now: datetime, measured: Mapping[str, Measurement]
    ) -> None:
        self.scored.append(sorted(measured))

    def appliable(self, deployment: Deployment) -> UUID | None:
        return self.rec.id if self.rec and self.rec.state == "open" else None

    def guardrails(self, deployment: Deployment) -> Mapping[str, Any]:
        return self.policy


def figure(
    value: float, unit: Unit, lower: float | None = None, upper: float | None = None
) -> Measurement:
    return Measurement(value, unit, State.OK, T0, lower=lower, upper=upper)


@dataclass
class Stage:
    """A deployment of 2 prefill and 4 decode workers, three people, and a clock."""

    deployment: Deployment
    world: World
    facts: FakeFacts
    people: dict[str, Viewer]
    now: datetime = T0

    def propose(self, targets: Mapping[str, int] | None = None, **more: Any) -> Command:
        wanted = targets if targets is not None else {"prefill": 3, "decode": 3}
        made = services.propose(
            actor=more.pop("actor", self.people["alice"]),
            now=self.now,
            deployment_id=self.deployment.pk,
            targets=wanted,
            expected_revision=more.pop("expected_revision", self.revision),
            **more,
        )
        assert isinstance(made, Command)
        return made

    def approved(self, targets: Mapping[str, int] | None = None) -> Command:
        command = self.propose(targets)
        return services.approve(
            actor=self.people["bob"],
            now=self.now,
            command_id=command.pk,
            plan_hash=command.plan_hash,
        )

    @property
    def revision(self) -> int:
        return Deployment.objects.values_list("revision", flat=True).get(pk=self.deployment.pk)

    def drive(self, command: Command, owner: str = "w1") -> services.Driven:
        return services.drive(command_id=command.pk, owner=owner, now=self.now)

    def run(
        self,
        command: Command,
        until: Callable[[Command], bool] | None = None,
        owner: str = "w1",
        pieces: int = 400,
    ) -> Command:
        """Drive until the end or `until`, moving the clock by what each piece asks for."""
        for _ in range(pieces):
            command.refresh_from_db()
            if until is not None and until(command):
                return command
            driven = self.drive(command, owner)
            command.refresh_from_db()
            if driven.next_s is None:
                if until is None or until(command):
                    return command
                raise AssertionError(f"ended in {command.state} {command.error_code}")
            self.now += timedelta(seconds=max(driven.next_s, 0.01))
        raise AssertionError(f"still {command.state} after {pieces} pieces")

    def wait(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)

    def counts(self) -> dict[str, int]:
        roles = list(self.world.members.values())
        return {role: roles.count(role) for role in ("prefill", "decode")}

    def wanted(self) -> dict[str, int]:
        rows = Pool.objects.filter(deployment=self.deployment)
        return dict(rows.values_list("role", "wanted_workers"))


def build_stage(environment: str = "production", devices: int = 6) -> Stage:
    gpu = Accelerator.objects.create(slug="h100", vendor="NVIDIA", name="H100")
    cluster = Cluster.objects.create(slug="c", name="c", uid="c", mode_cap="auto")
    deployment = Deployment.objects.create(
        slug="assist-chat",
        name="assist-chat",
        cluster=cluster,
        served_model="m",
        environment=environment,
        mode="approve",
        preset="demo",
        created_at=T0,
    )
    if devices:
        fleet.declare_node(
            actor=SYSTEM, now=T0, cluster=cluster, name="n", accelerator="h100", devices=devices
        )
    Backend.objects.create(deployment=deployment, adapter="memory", address="http://router")
    world = World()
    for role, count in (("prefill", 2), ("decode", 4)):
        Pool.objects.create(
            deployment=deployment,
            role=role,
            accelerator=gpu,
            devices_per_worker=Decimal(1),
            wanted_workers=count,
            min_workers=1,
        )
        for number in range(count):
            add_worker(deployment, world, f"{role[0]}-{number}", role)
    people = {}
    for name, role in (
        ("alice", Role.OPERATOR),
        ("bob", Role.APPROVER),
        ("charlie", Role.VIEWER),
    ):
        user = accounts.create_user(actor=SYSTEM, now=T0, username=name, password=None)
        accounts.bind_role(
            actor=SYSTEM,
            now=T0,
            user=user,
            role=role,
            scope_kind=ScopeKind.DEPLOYMENT,
            scope_id=deployment.pk,
        )
        people[name] = viewer_for(user)
    MemoryAdapter.world = world
    return Stage(deployment, world, FakeFacts(), people)


def add_worker(
    deployment: Deployment, world: World, name: str, role: str, *, listed: bool = True
) -> str:
    """Declare a worker and its engine; `listed` puts it into the router too."""
    url = f"http://{name}"
    port = 9000 + len(world.engines)
    fleet.declare_worker(
        now=T0,
        deployment=deployment,
        name=name,
        url=url,
        role=role,
        metrics_url=f"{url}/metrics",
        bootstrap_port=port,
    )
    world.engines[url] = role
    world.ports[url] = port
    if listed:
        world.members[url] = role
    return url


def recommendation(stage: Stage, **more: Any) -> facts_module.RecommendationFacts:
    """An open recommendation of the planner, with a prediction."""
    base = facts_module.RecommendationFacts(
        id=UUID(int=7),
        number="R-7",
        deployment_id=stage.deployment.pk,
        state="open",
        targets={"prefill": 3, "decode": 3},
        expected_revision=stage.revision,
        predicted={
            "goodput": figure(0.96, Unit.RATIO, 0.92, 0.99).to_json(),
            "ttft_p95": figure(0.8, Unit.SECONDS, 0.6, 1.0).to_json(),
        },
        do_nothing={"goodput": figure(0.60, Unit.RATIO).to_json()},
    )
    found = replace(base, **more)
    stage.facts.rec = found
    return found
