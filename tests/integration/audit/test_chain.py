"""Any change to the chain is found, and the first broken event is named."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from apps.accounts.domain.authorize import SYSTEM
from apps.audit import selectors, services
from apps.audit.models import AuditEvent, AuditHead
from tests.support.builders import NOW

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def five_events() -> None:
    for number in range(5):
        services.record(
            actor=SYSTEM,
            now=NOW,
            action="test.act",
            object_kind="thing",
            object_id=str(number),
            after={"n": number, "text": "数据"},
        )


def test_an_untouched_chain_is_complete() -> None:
    report = selectors.verify()
    assert (report.events, report.broken_at) == (5, None)


def edit() -> None:
    AuditEvent.objects.filter(pk=3).update(actor_name="somebody else")


def delete() -> None:
    AuditEvent.objects.filter(pk=3).delete()


def swap() -> None:
    third, fourth = AuditEvent.objects.get(pk=3), AuditEvent.objects.get(pk=4)
    AuditEvent.objects.filter(pk=3).update(action=fourth.action, object_id=fourth.object_id)
    AuditEvent.objects.filter(pk=4).update(action=third.action, object_id=third.object_id)


@pytest.mark.parametrize("tamper", [edit, delete, swap])
def test_tampering_is_found_at_its_place(tamper: Callable[[], None]) -> None:
    tamper()
    assert selectors.verify().broken_at == 3


def test_a_cut_tail_is_found() -> None:
    AuditEvent.objects.filter(pk=5).delete()
    report = selectors.verify()
    assert report.broken_at == 5
    assert "cut off" in report.reason


def test_a_rolled_back_change_leaves_no_event() -> None:
    from django.db import transaction

    with pytest.raises(RuntimeError), transaction.atomic():
        services.record(actor=SYSTEM, now=NOW, action="x", object_kind="t", object_id="1")
        raise RuntimeError
    assert AuditHead.objects.get().sequence == 5
    assert selectors.verify().broken_at is None
