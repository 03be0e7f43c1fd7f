"""Law 5: one conditional UPDATE decides, the epoch fences."""

from __future__ import annotations

from datetime import timedelta

import pytest

from apps.common import leases
from apps.fleet.models import Backend
from tests.support.builders import NOW, world

pytestmark = pytest.mark.django_db


@pytest.fixture
def backend() -> Backend:
    return Backend.objects.create(deployment=world().deployment)


def test_two_claimers_one_winner(backend: Backend) -> None:
    rows = Backend.objects.all()
    first = leases.claim(rows, backend.pk, owner="a", now=NOW, ttl_s=30)
    assert first is not None
    assert leases.claim(rows, backend.pk, owner="b", now=NOW, ttl_s=30) is None
    # not even the same owner gets it twice: two threads of one process are two claimers
    assert leases.claim(rows, backend.pk, owner="a", now=NOW, ttl_s=30) is None


def test_an_expired_lease_is_taken_over_with_a_higher_epoch(backend: Backend) -> None:
    rows = Backend.objects.all()
    first = leases.claim(rows, backend.pk, owner="a", now=NOW, ttl_s=30)
    later = NOW + timedelta(seconds=31)
    second = leases.claim(rows, backend.pk, owner="b", now=later, ttl_s=30)
    assert first is not None and second is not None
    assert second.epoch == first.epoch + 1
    with pytest.raises(leases.LeaseLost):
        leases.assert_held(rows, first)
    with pytest.raises(leases.LeaseLost):
        leases.renew(rows, first, now=later, ttl_s=30)
    assert leases.release(rows, first) is False
    leases.assert_held(rows, second)
    assert leases.release(rows, second) is True
    assert leases.claim(rows, backend.pk, owner="c", now=later, ttl_s=1) is not None
