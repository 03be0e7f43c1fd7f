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


def test_a_start_ends_the_leases_of_the_dead(backend: Backend) -> None:
    rows = Backend.objects.all()
    dead = leases.claim(rows, backend.pk, owner="dead", now=NOW, ttl_s=120)
    assert dead is not None
    start = NOW + timedelta(seconds=1)
    assert leases.expire_all(start) == 1
    at_once = start + timedelta(milliseconds=1)
    taken = leases.claim(rows, backend.pk, owner="next", now=at_once, ttl_s=120)
    assert taken is not None
    assert taken.epoch == dead.epoch + 1
    with pytest.raises(leases.LeaseLost):
        leases.renew(rows, dead, now=at_once, ttl_s=120)
    assert leases.release(rows, dead) is False
    leases.assert_held(rows, taken)
    # What is free or has run out is left as it is.
    assert leases.release(rows, taken) is True
    assert leases.expire_all(at_once) == 0
