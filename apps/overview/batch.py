"""What the fleet page needs of all its deployments: one query a table, for any number."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Final
from uuid import UUID

from django.db.models import OuterRef, Q, Subquery, Sum
from django.db.models.fields.json import KeyTransform

from apps.accounts.domain.authorize import Viewer
from apps.commands.domain.states import ACTIVE, CommandState
from apps.commands.models import Command
from apps.fleet import selectors as fleet
from apps.fleet.models import Backend, Deployment, Device, Pool
from apps.planning.models import Evaluation, Recommendation, RecommendationState
from apps.slo.models import Objective
from apps.telemetry import selectors as telemetry
from apps.telemetry.models import LatestFigures, Source

from .loaded import Loaded

#: What a row shows of an evaluation and its diagnosis; the rest of them stays in the database.
_EVALUATED = (
    "deployment_id", "at", "window_end", "diagnosis__deployment_id",
    "diagnosis__at", "diagnosis__window_end", "diagnosis__cause", "diagnosis__severity",
    "diagnosis__since", "diagnosis__params", "diagnosis__worker", "diagnosis__role",
)  # fmt: skip
_FIGURES: Final = {
    "goodput": ("share",),
    "costs": ("good_per_million", "total_per_hour"),
    "busy": ("prefill", "decode"),
}
_RECOMMENDED = ("deployment_id", "number", "sequence", "refreshed_at", "blocked", "state")
_COMMANDED = ("deployment_id", "number", "serial", "state")


def deployments(viewer: Viewer, most: int) -> list[Deployment]:
    """At most so many visible deployments, each with its backend and latest figures (1 query)."""
    rows = fleet.deployments_for(viewer).select_related(None)
    found = list(rows.select_related("cluster", "backend", "latest_figures")[:most])
    for row in found:
        # Each of them knows the deployment that knows it, and so all would live until the next
        # search for garbage (measured with 200 deployments: 0.16 s once in ten requests).
        for model, name in ((Backend, "backend"), (LatestFigures, "latest_figures")):
            other = getattr(row, name, None)
            if other is not None:
                model._meta.get_field("deployment").delete_cached_value(other)
    return found


def load(viewer: Viewer, rows: Sequence[Deployment], now: datetime) -> list[Loaded]:
    """The deployments with all that a row shows read already (6 queries)."""
    ids = [row.pk for row in rows]
    gpus = _gpus(ids)
    figures = telemetry.latest_figures(rows, now)
    evaluations = _evaluations(ids)
    recommendations = {
        found.deployment_id: found
        for found in Recommendation.objects.filter(
            deployment__in=ids, state=RecommendationState.OPEN
        ).only(*_RECOMMENDED)
    }
    commands = _commands(ids)
    thresholds = _thresholds(ids)
    sources = _sources(rows)
    found: list[Loaded] = []
    for row in rows:
        loaded = Loaded(viewer, row, now)
        mine = commands.get(row.pk, [])
        loaded.preset(
            gpus=gpus.get(row.pk, {}),
            brief=figures[row.pk],
            evaluation=evaluations.get(row.pk),
            recommendation=recommendations.get(row.pk),
            active_command=mine[0] if mine else None,
            proposed=sum(command.state == CommandState.PROPOSED for command in mine),
            thresholds=thresholds.get(row.pk, {}),
            sources=sources[row.pk],
            backend=getattr(row, "backend", None),
        )
        evaluation = evaluations.get(row.pk)
        if evaluation is not None and evaluation.diagnosis is not None:
            loaded.preset(diagnosis=evaluation.diagnosis)
        found.append(loaded)
    return found


def clusters(viewer: Viewer, now: datetime) -> Mapping[UUID, Decimal | None]:
    """The visible clusters with their declared GPUs, None where no device is declared (1 query)."""
    present = Q(node__provisioned_from__lte=now) & (
        Q(node__provisioned_to__isnull=True) | Q(node__provisioned_to__gt=now)
    )
    shares = Device.objects.filter(present, node__cluster=OuterRef("pk"))
    rows = fleet.clusters_for(viewer).annotate(
        gpus=Subquery(
            shares.order_by().values("node__cluster").annotate(total=Sum("share")).values("total")
        )
    )
    return dict(rows.values_list("pk", "gpus"))


def _gpus(ids: Sequence[UUID]) -> dict[UUID, dict[str, Decimal | None]]:
    found: dict[UUID, dict[str, Decimal | None]] = {}
    rows = Pool.objects.filter(deployment__in=ids).values_list(
        "deployment_id", "role", "devices_per_worker", "wanted_workers"
    )
    for deployment_id, role, unit, wanted in rows:
        gpus = None if unit is None else unit * wanted
        found.setdefault(deployment_id, {})[role] = gpus
    return found


def _evaluations(ids: Sequence[UUID]) -> dict[UUID, Evaluation]:
    """The newest evaluations with the figures of a row only: whole, their JSON takes longer to
    read than all the rest of the page."""
    newest = Evaluation.objects.filter(deployment=OuterRef("pk")).order_by("-at").values("pk")[:1]
    keys = Deployment.objects.filter(pk__in=ids).annotate(last=Subquery(newest)).values("last")
    rows = Evaluation.objects.filter(pk__in=keys).select_related("diagnosis").order_by()
    # Not `F("busy__prefill")`: looking for a field of that name, Django keeps an exception that
    # holds all that the request made until the next search for garbage.
    names = {
        f"{part}_{key}": KeyTransform(key, part) for part, of in _FIGURES.items() for key in of
    }
    found: dict[UUID, Evaluation] = {}
    for row in rows.only(*_EVALUATED).annotate(**names):
        for part, of in _FIGURES.items():
            values = {key: getattr(row, f"{part}_{key}") for key in of}
            setattr(row, part, {key: value for key, value in values.items() if value is not None})
        found[row.deployment_id] = row
    return found


def _commands(ids: Sequence[UUID]) -> dict[UUID, list[Command]]:
    found: dict[UUID, list[Command]] = {}
    states = [state.value for state in ACTIVE]
    for command in Command.objects.filter(deployment__in=ids, state__in=states).only(*_COMMANDED):
        found.setdefault(command.deployment_id, []).append(command)
    return found


def _thresholds(ids: Sequence[UUID]) -> dict[UUID, dict[str, float]]:
    found: dict[UUID, dict[str, float]] = {}
    rows = Objective.objects.filter(deployment__in=ids, valid_to__isnull=True)
    for owner, signal, threshold_s in rows.values_list("deployment_id", "signal", "threshold_s"):
        found.setdefault(owner, {})[signal] = threshold_s
    return found


def _sources(rows: Sequence[Deployment]) -> dict[UUID, list[Source]]:
    shared = Q(deployment__isnull=True, cluster__in={row.cluster_id for row in rows})
    own: dict[UUID, list[Source]] = {}
    of_cluster: dict[UUID, list[Source]] = {}
    for source in Source.objects.filter(Q(deployment__in=[row.pk for row in rows]) | shared):
        if source.deployment_id is not None:
            own.setdefault(source.deployment_id, []).append(source)
        else:
            of_cluster.setdefault(source.cluster_id, []).append(source)
    return {
        row.pk: sorted(
            [*own.get(row.pk, ()), *of_cluster.get(row.cluster_id, ())], key=lambda s: s.name
        )
        for row in rows
    }
