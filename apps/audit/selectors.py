"""Reads of audit: the time line, and the check of the chain."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from django.db.models import Q, QuerySet

from .models import AuditEvent, AuditHead
from .services import digest


@dataclass(frozen=True, slots=True)
class ChainReport:
    """Result of `verify`: the number of events and the first broken sequence, if any."""

    events: int
    broken_at: int | None
    reason: str = ""


def events_for(*, deployment_ids: Iterable[str], everything: bool = False) -> QuerySet[AuditEvent]:
    """Events of the deployments a viewer may see; `everything` for installation-wide readers."""
    if everything:
        return AuditEvent.objects.all()
    return AuditEvent.objects.filter(Q(deployment_id__in=list(deployment_ids)))


def verify() -> ChainReport:
    """Walk the chain from the start and name the first event that does not fit."""
    previous = "0" * 64
    expected = 1
    for event in AuditEvent.objects.order_by("sequence").iterator():
        if event.sequence != expected:
            return ChainReport(expected - 1, expected, "an event is missing")
        if event.previous_hash != previous:
            return ChainReport(expected - 1, expected, "the event does not follow the one before")
        if digest(event) != event.hash:
            return ChainReport(expected - 1, expected, "the event was changed")
        previous = event.hash
        expected += 1
    head = AuditHead.objects.filter(pk=1).first()
    if head is not None and (head.sequence != expected - 1 or head.hash != previous):
        return ChainReport(expected - 1, expected, "the end of the chain was cut off")
    return ChainReport(expected - 1, None)
