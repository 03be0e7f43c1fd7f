"""Hashed, expiring API tokens."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.test import override_settings

from apps.accounts import services
from apps.accounts.domain.authorize import NotAllowed, Permission, Role
from apps.accounts.models import ApiToken
from apps.audit.models import AuditEvent
from tests.support.builders import NOW, person

pytestmark = pytest.mark.django_db


def issue(life: timedelta = timedelta(days=1)) -> tuple[ApiToken, str]:
    from apps.accounts.selectors import viewer_for

    alice = person("alice", Role.OPERATOR)
    return services.issue_token(
        actor=viewer_for(alice),
        now=NOW,
        user=alice,
        name="robot",
        permissions=[Permission.READ],
        life=life,
    )


def test_the_database_holds_no_usable_secret() -> None:
    token, text = issue()
    secret = text.split(".", 1)[1]
    dump = str(list(ApiToken.objects.values())) + str(list(AuditEvent.objects.values()))
    assert secret not in dump
    assert text not in dump
    assert services.verify_token(text=text, now=NOW) == token


def test_expiry_revocation_deactivation_and_wrong_secrets() -> None:
    token, text = issue()
    later = NOW + timedelta(days=1)
    assert services.verify_token(text=text, now=later) is None
    assert services.verify_token(text=text[:-1] + "x", now=NOW) is None
    assert services.verify_token(text="ful_nothing", now=NOW) is None
    token.user.is_active = False
    token.user.save()
    assert services.verify_token(text=text, now=NOW) is None
    token.user.is_active = True
    token.user.save()
    assert services.verify_token(text=text, now=NOW) == token
    from apps.accounts.selectors import viewer_for

    services.revoke_token(actor=viewer_for(token.user), now=NOW, token=token)
    assert services.verify_token(text=text, now=NOW) is None


def test_peppers_rotate_and_old_tokens_keep_working_while_theirs_is_configured() -> None:
    _, text = issue()
    with override_settings(FULCRUM_TOKEN_PEPPERS=["newer", "test-pepper"]):
        assert services.verify_token(text=text, now=NOW) is not None
    with override_settings(FULCRUM_TOKEN_PEPPERS=["newer"]):
        assert services.verify_token(text=text, now=NOW) is None


@pytest.mark.parametrize("life", [timedelta(0), timedelta(days=91)])
def test_a_token_has_a_bounded_life(life: timedelta) -> None:
    with pytest.raises(services.InvalidToken):
        issue(life)
    assert ApiToken.objects.count() == 0


def test_nobody_makes_or_ends_tokens_for_another() -> None:
    from apps.accounts.selectors import viewer_for

    token, _ = issue()
    bob = person("bob", Role.ADMIN)
    with pytest.raises(NotAllowed):
        services.issue_token(
            actor=viewer_for(bob),
            now=NOW,
            user=token.user,
            name="n",
            permissions=[Permission.READ],
            life=timedelta(days=1),
        )
    with pytest.raises(NotAllowed):
        services.revoke_token(actor=viewer_for(bob), now=NOW, token=token)
    assert ApiToken.objects.get().revoked_at is None
