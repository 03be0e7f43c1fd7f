"""Price books: what a GPU-hour of an accelerator, or an hour of a shared component, costs."""

from __future__ import annotations

import uuid

from django.db import models
from django.db.models import F, Q

from .fields import ExactDecimalField


class PriceKind(models.TextChoices):
    """What a price is for. GPU prices are per GPU-hour, component prices per hour."""

    ACCELERATOR = "accelerator"
    COMPONENT = "component"


class PriceBook(models.Model):
    """A list of prices in one currency. At most one book is the default one."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    slug = models.SlugField(max_length=63, unique=True)
    name = models.CharField(max_length=120)
    currency = models.CharField(max_length=3, default="USD")
    is_default = models.BooleanField(default=False)

    class Meta:
        ordering = ["slug"]
        constraints = [
            models.UniqueConstraint(
                fields=["is_default"], condition=Q(is_default=True), name="price_book_one_default"
            )
        ]


class Price(models.Model):
    """One rate over `[valid_from, valid_to)`, without overlap per book, kind and key.

    `key` is an accelerator's slug or a component's code; `cluster` narrows a component's price.
    """

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    book = models.ForeignKey(PriceBook, on_delete=models.CASCADE, related_name="prices")
    kind = models.CharField(max_length=16, choices=PriceKind.choices)
    key = models.CharField(max_length=63)
    rate = ExactDecimalField()
    source = models.CharField(max_length=200, blank=True)
    valid_from = models.DateTimeField()
    valid_to = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["book", "kind", "key", "valid_from"]
        constraints = [
            models.UniqueConstraint(
                fields=["book", "kind", "key"],
                condition=Q(valid_to__isnull=True),
                name="price_one_open",
            ),
            models.CheckConstraint(
                condition=Q(valid_to__isnull=True) | Q(valid_to__gt=F("valid_from")),
                name="price_ends_after_start",
            ),
        ]
