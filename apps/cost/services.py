"""Writes of price books."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from uuid import UUID

from django.db import transaction
from django.db.models import Q

from apps.accounts.domain.authorize import ObjectScope, Permission, Viewer, require
from apps.audit.services import record

from .models import Price, PriceBook, PriceKind


class PriceOverlap(ValueError):
    """A price already holds in that span."""


class InvalidPrice(ValueError):
    """The rate is negative, not finite, or not a Decimal."""


@transaction.atomic
def create_book(
    *,
    actor: Viewer,
    now: datetime,
    slug: str,
    name: str,
    currency: str = "USD",
    make_default: bool = True,
) -> PriceBook:
    """A new price book; the first default one stays unless `make_default`."""
    require(actor, Permission.CONFIGURE, ObjectScope())
    if make_default:
        PriceBook.objects.filter(is_default=True).update(is_default=False)
    book = PriceBook.objects.create(
        slug=slug, name=name, currency=currency, is_default=make_default
    )
    record(
        actor=actor,
        now=now,
        action="price_book.create",
        object_kind="price_book",
        object_id=str(book.pk),
        object_label=name,
        after={"currency": currency, "is_default": make_default},
    )
    return book


@transaction.atomic
def set_price(
    *,
    actor: Viewer,
    now: datetime,
    book_id: UUID,
    key: str,
    rate: Decimal,
    kind: str = PriceKind.ACCELERATOR,
    valid_from: datetime | None = None,
    source: str = "",
) -> Price:
    """Let `rate` hold from `valid_from` (default now) on; the price before it ends there.

    Raises InvalidPrice, and PriceOverlap when a later price already exists (history is corrected by
    ledger revisions, not by sliding a price under it).
    """
    require(actor, Permission.CONFIGURE, ObjectScope())
    if not isinstance(rate, Decimal) or not rate.is_finite() or rate < 0:
        raise InvalidPrice("a price is a finite Decimal of at least 0")
    start = valid_from or now
    same = Price.objects.select_for_update().filter(book_id=book_id, kind=kind, key=key)
    if same.filter(Q(valid_from__gte=start) | Q(valid_to__gt=start)).exists():
        raise PriceOverlap(f"a price of {key} already holds from or after {start.isoformat()}")
    before = same.filter(valid_to__isnull=True).first()
    if before is not None:
        same.filter(pk=before.pk, valid_to__isnull=True).update(valid_to=start)
    price = Price.objects.create(
        book_id=book_id, kind=kind, key=key, rate=rate, source=source, valid_from=start
    )
    record(
        actor=actor,
        now=now,
        action="price.set",
        object_kind="price",
        object_id=str(price.pk),
        object_label=key,
        before={"rate": str(before.rate)} if before else None,
        after={"rate": str(rate), "valid_from": start.isoformat(), "kind": kind},
    )
    return price
