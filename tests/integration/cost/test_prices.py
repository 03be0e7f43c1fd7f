"""Price books: spans without overlap, exact on SQLite, and who may write."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal

import pytest
from django.core.exceptions import ValidationError
from django.db import connection

from apps.accounts.domain.authorize import SYSTEM, NotAllowed
from apps.cost import selectors, services
from apps.cost.models import Price, PriceBook
from tests.support.builders import NOW, world

pytestmark = pytest.mark.django_db
LATER = NOW + timedelta(days=1)


def book() -> PriceBook:
    return services.create_book(actor=SYSTEM, now=NOW, slug="list", name="List prices")


def test_every_digit_survives_the_database() -> None:
    exact = Decimal("4.590000000000000000000000000001")
    services.set_price(actor=SYSTEM, now=NOW, book_id=book().pk, key="h200-sxm", rate=exact)
    assert selectors.price_at("h200-sxm", NOW) == exact
    with connection.cursor() as cursor:
        cursor.execute("select rate from cost_price")
        assert cursor.fetchone()[0] == str(exact)


def test_a_new_price_ends_the_old_one() -> None:
    b = book()
    for now, rate in ((NOW, "4.59"), (LATER, "4.20")):
        services.set_price(actor=SYSTEM, now=now, book_id=b.pk, key="h200-sxm", rate=Decimal(rate))
    assert selectors.price_at("h200-sxm", LATER - timedelta(seconds=1)) == Decimal("4.59")
    assert selectors.price_at("h200-sxm", LATER) == Decimal("4.20")
    assert selectors.price_at("h200-sxm", NOW - timedelta(seconds=1)) is None


def test_a_price_cannot_slide_under_a_later_one() -> None:
    b = book()
    services.set_price(actor=SYSTEM, now=LATER, book_id=b.pk, key="h200-sxm", rate=Decimal(5))
    with pytest.raises(services.PriceOverlap):
        services.set_price(actor=SYSTEM, now=NOW, book_id=b.pk, key="h200-sxm", rate=Decimal(4))
    assert Price.objects.count() == 1


@pytest.mark.parametrize("rate", [Decimal(-1), Decimal("NaN"), Decimal("Infinity"), 4.59])
def test_only_finite_decimals_are_prices(rate: object) -> None:
    with pytest.raises(services.InvalidPrice):
        services.set_price(actor=SYSTEM, now=NOW, book_id=book().pk, key="x", rate=rate)  # type: ignore[arg-type]


def test_the_column_refuses_floats() -> None:
    with pytest.raises(ValidationError):
        Price.objects.create(book=book(), kind="accelerator", key="x", rate=0.1, valid_from=NOW)


def test_only_who_may_configure_the_installation_sets_prices() -> None:
    w = world()
    b = book()
    for user in (w.alice, w.bob, w.charlie):
        with pytest.raises(NotAllowed):
            services.set_price(
                actor=w.viewer(user), now=NOW, book_id=b.pk, key="h200-sxm", rate=Decimal(1)
            )


def test_no_book_means_no_price_not_a_free_gpu() -> None:
    assert selectors.price_at("h200-sxm", NOW) is None
    assert selectors.prices_at(NOW) == {}


def test_a_new_default_replaces_the_old_one() -> None:
    book()
    second = services.create_book(actor=SYSTEM, now=NOW, slug="contract", name="Contract")
    assert selectors.default_book() == second
