"""Reads of commands. Every selector on behalf of a person takes the viewer (DESIGN law 15)."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from django.db.models import Prefetch, Q, QuerySet

from apps.accounts.domain.authorize import Viewer
from apps.accounts.selectors import teams_for
from apps.fleet import selectors as fleet
from apps.fleet.models import Deployment

from .domain import scoring
from .domain.approvals import rule_for
from .domain.states import ACTIVE, CommandState
from .models import Approval, Command, CommandEvent, KillSwitch, Step
from .services import finish
from .services.errors import CommandNotFound
from .services.kill_switch import stop_reason


def commands_for(viewer: Viewer) -> QuerySet[Command]:
    """Commands of the deployments the viewer may see, newest first."""
    return Command.objects.filter(deployment__in=fleet.deployments_for(viewer)).select_related(
        "deployment", "deployment__cluster", "rollback_of"
    )


def detailed(rows: QuerySet[Command]) -> QuerySet[Command]:
    """The same with steps, approvals, rollbacks and log (4 more queries for any number)."""
    return rows.prefetch_related(
        Prefetch("steps", Step.objects.order_by("index")),
        Prefetch("approvals", Approval.objects.order_by("at")),
        Prefetch("rollbacks", Command.objects.order_by("serial")),
        Prefetch("events", CommandEvent.objects.order_by("id")),
    )


def command_by_number(viewer: Viewer, number: str) -> Command:
    """A visible command by its number or its id, with details. Raises CommandNotFound."""
    rows = detailed(commands_for(viewer))
    found = rows.filter(number__iexact=number).first()
    if found is None:
        try:
            found = rows.filter(pk=UUID(number)).first()
        except ValueError:
            found = None
    if found is None:
        raise CommandNotFound(number=number)
    return found


def active_for(deployment: Deployment) -> Command | None:
    """The command that holds the deployment now: active, or the rollback of one."""
    return (
        Command.objects.filter(deployment=deployment, state__in=[s.value for s in ACTIVE])
        .select_related("deployment", "rollback_of")
        .first()
    )


def last_for(deployment: Deployment) -> Command | None:
    """The newest command in any state."""
    return Command.objects.filter(deployment=deployment).order_by("-serial").first()


def steps(command: Command) -> QuerySet[Step]:
    """Steps in order."""
    return Step.objects.filter(command=command).order_by("index")


def events(command: Command) -> QuerySet[CommandEvent]:
    """The log in order."""
    return CommandEvent.objects.filter(command=command).order_by("id")


def approvals_needed(command: Command) -> int:
    """How many approvers the environment asks for."""
    return rule_for(command.deployment.environment).needed


def command_for_recommendation(recommendation_id: UUID) -> Command | None:
    """The newest command made from a recommendation."""
    return Command.objects.filter(recommendation_id=recommendation_id).order_by("-serial").first()


def accuracy(viewer: Viewer, since: datetime | None = None) -> scoring.Accuracy:
    """How good predictions have been: figures of finished commands the viewer may see."""
    rows = commands_for(viewer).filter(
        state__in=[CommandState.SUCCEEDED.value, CommandState.ROLLED_BACK.value]
    )
    if since is not None:
        rows = rows.filter(finished_at__gte=since)
    found: list[scoring.Score] = []
    for predicted, measured in rows.values_list("predicted", "measured"):
        found += scoring.scores(finish.predictions(predicted), finish.predictions(measured))
    return scoring.accuracy(found)


def kill_switch_for(deployment: Deployment) -> str | None:
    """The scope whose kill switch stops this deployment (`file` for the stop file), or None."""
    return stop_reason(deployment)


def kill_switches_for(viewer: Viewer) -> QuerySet[KillSwitch]:
    """Switches ever set on what the viewer may see or on the installation, with who asked for a
    release."""
    deployments = fleet.deployments_for(viewer)
    scope_ids = {*deployments.values_list("pk", flat=True)}
    scope_ids |= {*deployments.values_list("team_id", flat=True)} - {None}
    scope_ids |= {*fleet.clusters_for(viewer).values_list("pk", flat=True)}
    scope_ids |= {*teams_for(viewer).values_list("pk", flat=True)}
    return KillSwitch.objects.filter(Q(scope_id__in=scope_ids) | Q(scope_id__isnull=True)).order_by(
        "scope_kind", "at"
    )
