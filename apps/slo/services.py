"""Writes of objectives."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from django.db import transaction

from apps.accounts.domain.authorize import Permission, Viewer, require
from apps.audit.services import record
from apps.fleet import selectors as fleet

from . import selectors
from .domain.objective import ObjectiveFacts, ObjectiveSignal, validate
from .models import Objective


@transaction.atomic
def set_objective(
    *,
    actor: Viewer,
    now: datetime,
    deployment_id: UUID,
    signal: ObjectiveSignal,
    threshold_s: float,
    quantile: float = 0.95,
    target_share: float | None = None,
) -> ObjectiveFacts:
    """End the active objective of the signal and start this one; the same numbers change nothing.

    `target_share` defaults to the quantile. Raises NotAllowed, NotVisible, InvalidObjective. Two
    writers at once: the unique active row makes the second fail with IntegrityError.
    """
    deployment = fleet.deployment_by_id(deployment_id)
    require(actor, Permission.CONFIGURE, fleet.object_scope(deployment))
    share = quantile if target_share is None else target_share
    validate(quantile=quantile, threshold_s=threshold_s, target_share=share)
    before = selectors.objectives(deployment).get(signal)
    if before and (before.quantile, before.threshold_s, before.target_share) == (
        quantile,
        threshold_s,
        share,
    ):
        return before
    if before:
        row = Objective.objects.filter(pk=before.id, valid_to__isnull=True)
        # An objective replaced within the instant it began never held: no empty span is kept.
        if before.since >= now:
            row.delete()
        else:
            row.update(valid_to=now)
    after = Objective.objects.create(
        deployment=deployment,
        signal=signal.value,
        quantile=quantile,
        threshold_s=threshold_s,
        target_share=share,
        valid_from=now,
    )
    record(
        actor=actor,
        now=now,
        action="objective.set",
        object_kind="objective",
        object_id=str(after.pk),
        object_label=f"{deployment.slug} {signal.value}",
        cluster_id=str(deployment.cluster_id),
        deployment_id=str(deployment.pk),
        before=_numbers(before) if before else None,
        after=_numbers(selectors.facts(after)),
    )
    return selectors.facts(after)


def _numbers(facts: ObjectiveFacts) -> dict[str, float]:
    return {
        "quantile": facts.quantile,
        "threshold_s": facts.threshold_s,
        "target_share": facts.target_share,
    }
