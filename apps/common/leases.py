"""Leases on rows (DESIGN law 5): rows are the truth, messages only wake.

A lease is taken by one conditional UPDATE whose row count decides, so two claimers can never both
win, on SQLite and on PostgreSQL alike. Each successful claim raises `lease_epoch`; whoever writes
later must still hold the epoch it was given (fencing).
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.apps import apps
from django.db import models
from django.db.models import F, Q


class LeasedModel(models.Model):
    """Adds the lease columns. Claim with `claim()`, never by assigning the fields."""

    lease_owner = models.CharField(max_length=64, blank=True, default="")
    lease_until = models.DateTimeField(null=True, blank=True)
    lease_epoch = models.PositiveBigIntegerField(default=0)

    class Meta:
        abstract = True


@dataclass(frozen=True, slots=True)
class Lease:
    """A held lease. `epoch` is the fencing number to present with each write."""

    pk: Any
    owner: str
    epoch: int
    until: datetime


class LeaseLost(Exception):
    """Somebody else holds the row now; the holder must stop without writing."""


def claim(
    rows: models.QuerySet[Any], pk: Any, *, owner: str, now: datetime, ttl_s: float
) -> Lease | None:
    """Take the lease on `pk` if it is free or expired; None when another owner holds it."""
    until = now + timedelta(seconds=ttl_s)
    free = Q(lease_until__isnull=True) | Q(lease_until__lt=now)
    won = (
        rows.filter(pk=pk)
        .filter(free)
        .update(lease_owner=owner, lease_until=until, lease_epoch=F("lease_epoch") + 1)
    )
    if won != 1:
        return None
    epoch = (
        rows.filter(pk=pk, lease_owner=owner, lease_until=until)
        .values_list("lease_epoch", flat=True)
        .first()
    )
    return None if epoch is None else Lease(pk=pk, owner=owner, epoch=epoch, until=until)


def renew(rows: models.QuerySet[Any], lease: Lease, *, now: datetime, ttl_s: float) -> Lease:
    """Extend a held lease; raises LeaseLost if the epoch has moved on."""
    until = now + timedelta(seconds=ttl_s)
    held = rows.filter(pk=lease.pk, lease_epoch=lease.epoch, lease_owner=lease.owner)
    if held.update(lease_until=until) != 1:
        raise LeaseLost(f"lease epoch {lease.epoch} on {lease.pk} is no longer held")
    return Lease(pk=lease.pk, owner=lease.owner, epoch=lease.epoch, until=until)


def assert_held(rows: models.QuerySet[Any], lease: Lease) -> None:
    """Raise LeaseLost unless the epoch is still ours. Call inside the writing transaction."""
    if not rows.filter(pk=lease.pk, lease_epoch=lease.epoch, lease_owner=lease.owner).exists():
        raise LeaseLost(f"lease epoch {lease.epoch} on {lease.pk} is no longer held")


def release(rows: models.QuerySet[Any], lease: Lease) -> bool:
    """Give the row back; False when it was already taken over (nothing is changed then)."""
    held = rows.filter(pk=lease.pk, lease_epoch=lease.epoch, lease_owner=lease.owner)
    return held.update(lease_owner="", lease_until=None) == 1


def expire_all(now: datetime) -> int:
    """End every held lease of every leased model; returns how many.

    Only for a process that is alone on its database and has just started: whoever held a lease is
    dead then. Owners and epochs stay, so whoever takes a row over sees that it was abandoned.
    """
    ended = 0
    for model in apps.get_models():
        if issubclass(model, LeasedModel):
            ended += model._default_manager.filter(lease_until__gt=now).update(lease_until=now)
    return ended
