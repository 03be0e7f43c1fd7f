"""Reads of price books."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from decimal import Decimal

from django.db.models import Q, QuerySet

from .models import Price, PriceBook, PriceKind


def default_book() -> PriceBook | None:
    """The price book in force; None before anybody made one."""
    return PriceBook.objects.filter(is_default=True).first()


def books() -> QuerySet[PriceBook]:
    """All price books with their prices (installation-wide facts, no scope)."""
    return PriceBook.objects.prefetch_related("prices")


def prices_at(
    at: datetime,
    *,
    kind: str = PriceKind.ACCELERATOR,
    keys: Iterable[str] | None = None,
    book: PriceBook | None = None,
) -> dict[str, Decimal]:
    """Rates of a book, else of the default one, that hold at a time, by key (1 query and that for
    the default book). Absent = no price."""
    book = book or default_book()
    if book is None:
        return {}
    rows = Price.objects.filter(book=book, kind=kind, valid_from__lte=at).filter(
        Q(valid_to__isnull=True) | Q(valid_to__gt=at)
    )
    if keys is not None:
        rows = rows.filter(key__in=set(keys))
    return {row.key: row.rate for row in rows}


def price_at(key: str, at: datetime, *, kind: str = PriceKind.ACCELERATOR) -> Decimal | None:
    """The rate of one accelerator (per GPU-hour) or component (per hour); None if nobody set it."""
    return prices_at(at, kind=kind, keys=[key]).get(key)
