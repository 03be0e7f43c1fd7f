"""Reads of evaluations and recommendations."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import chain, pairwise
from typing import Any
from uuid import UUID

from django.db import connection
from django.db.models import QuerySet
from django.db.models.expressions import RawSQL
from django.db.models.fields.json import KT

from apps.accounts.domain.authorize import Viewer
from apps.fleet import selectors as fleet
from apps.fleet.models import Deployment

from .domain.guardrails import Guardrail
from .models import Evaluation, PredictionScore, Recommendation, RecommendationState

#: With fewer outcomes than this the ranges are those of the model, unscaled (planning §4).
OUTCOMES_FOR_SCALE = 20
OUTCOMES_KEPT = 60
COVERED = 0.9


def open_recommendation(deployment: Deployment) -> Recommendation | None:
    """The open recommendation, blocked and paused ones too."""
    return Recommendation.objects.filter(
        deployment=deployment, state=RecommendationState.OPEN
    ).first()


def recommendation_by_number(viewer: Viewer, number: str) -> Recommendation:
    """A visible recommendation by its number ("R-12"); raises fleet.selectors.NotVisible."""
    found = recommendations_for(viewer).filter(number=number).first()
    if found is None:
        raise fleet.NotVisible(number)
    return found


def recommendation_by_id(viewer: Viewer, recommendation_id: UUID | str) -> Recommendation:
    """A visible recommendation by id; raises fleet.selectors.NotVisible."""
    found = recommendations_for(viewer).filter(pk=recommendation_id).first()
    if found is None:
        raise fleet.NotVisible(str(recommendation_id))
    return found


def recommendations_for(viewer: Viewer) -> QuerySet[Recommendation]:
    """Recommendations of the deployments the viewer may see, newest first."""
    return Recommendation.objects.filter(
        deployment__in=fleet.deployments_for(viewer)
    ).select_related("deployment", "diagnosis")


def guardrails(recommendation: Recommendation) -> tuple[Guardrail, ...]:
    """The stored results of the guardrails."""
    return tuple(Guardrail.from_json(row) for row in recommendation.guardrails)


def latest_evaluation(deployment: Deployment) -> Evaluation | None:
    """The newest evaluation, None before the first."""
    return Evaluation.objects.filter(deployment=deployment).select_related("diagnosis").first()


def evaluations_between(deployment: Deployment, start: datetime, end: datetime) -> list[Evaluation]:
    """Evaluations in `[start, end)`, oldest first."""
    rows = Evaluation.objects.filter(deployment=deployment, at__gte=start, at__lt=end)
    return list(rows.select_related("diagnosis").order_by("at"))


#: What charts read of an evaluation; the rest of it stays in the database.
_CHARTED = ("deployment_id", "at", "goodput", "costs")


def newest_evaluations(
    deployment: Deployment, start: datetime, end: datetime, most: int
) -> list[Evaluation]:
    """The newest evaluations in `[start, end]`, oldest first, with what charts read of them."""
    rows = Evaluation.objects.filter(deployment=deployment, at__gte=start, at__lte=end)
    return list(rows.only(*_CHARTED).order_by("-at")[:most])[::-1]


@dataclass(frozen=True, slots=True)
class ChartedEvaluation:
    """The values of an evaluation that charts draw; None where one has no value."""

    at: datetime
    is_stale: bool
    prefill_busy: float | None
    decode_busy: float | None
    good_per_s: float | None


def evaluations_per_step(
    deployment: Deployment, start: datetime, end: datetime, step_s: float
) -> list[ChartedEvaluation]:
    """The newest evaluation of each step `(from, to]` of `(start, end]`, oldest first, as charts
    draw it (1 query, each step one look into the index: fourteen days hold too many
    evaluations to read them all)."""
    kept = Evaluation._meta
    field = kept.get_field("at")
    count = math.ceil((end - start).total_seconds() / step_s)
    if count <= 0:
        return []
    edges = [start + timedelta(seconds=step_s * index) for index in range(count + 1)]
    values = [field.get_db_prep_value(at, connection) for at in edges]
    owner = kept.get_field("deployment").get_db_prep_value(deployment.pk, connection)
    quote = connection.ops.quote_name
    at, table = quote("at"), quote(kept.db_table)
    steps = ", ".join(["(%s, %s)"] * count)
    # Both databases name the columns of VALUES column1, column2.
    newest = RawSQL(
        f"SELECT (SELECT id FROM {table} WHERE deployment_id = %s AND {at} > column1"
        f" AND {at} <= column2 ORDER BY {at} DESC LIMIT 1) FROM (VALUES {steps}) AS steps",
        [owner, *chain.from_iterable(pairwise(values))],
    )
    # As texts, which need no JSON; and not by the names of keys: looking for fields of such names,
    # Django keeps an exception that holds all that the request made.
    rows = Evaluation.objects.filter(pk__in=newest).order_by("at")
    return [
        ChartedEvaluation(end or at, bool(stale), _float(prefill), _float(decode), _float(good))
        for at, end, stale, prefill, decode, good in rows.values_list(
            "at",
            "window_end",
            "stale",
            KT("busy__prefill__value"),
            KT("busy__decode__value"),
            KT("goodput__rate__value"),
        )
    ]


def _float(stored: Any) -> float | None:
    # SQLite has a word for the null of JSON.
    return None if stored is None or stored == "null" else float(stored)


def scores(deployment: Deployment) -> list[PredictionScore]:
    """The newest scored predictions of a deployment."""
    rows = PredictionScore.objects.filter(recommendation__deployment=deployment)
    return list(rows.select_related("recommendation")[:OUTCOMES_KEPT])


def similar_changes(deployment: Deployment) -> tuple[int, float | None]:
    """(scored changes, median relative error of their TTFT P95) for the words of confidence."""
    errors = sorted(
        score.relative_error["ttft_p95"]
        for score in scores(deployment)
        if score.relative_error.get("ttft_p95") is not None
    )
    if not errors:
        return 0, None
    middle = len(errors) // 2
    median = errors[middle] if len(errors) % 2 else (errors[middle - 1] + errors[middle]) / 2
    return len(errors), median


def width_scale(deployment: Deployment) -> float:
    """Factor on the ranges from past outcomes: the ceil(0.9 (n + 1))-th smallest score (split
    conformal); 1 with fewer than 20 outcomes."""
    found = sorted(max(row.scores.values()) for row in scores(deployment) if row.scores)
    if len(found) < OUTCOMES_FOR_SCALE:
        return 1.0
    rank = min(len(found), math.ceil(COVERED * (len(found) + 1)))
    return max(0.2, float(found[rank - 1]))
