"""Writes of accounts: people, role bindings, tokens; each with its audit event."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

from django.conf import settings
from django.db import transaction

from apps.audit import services as audit

from .domain.authorize import NotAllowed, Permission, Role, ScopeKind, Viewer
from .models import ApiToken, RoleBinding, Team, User

MAX_TOKEN_LIFE: Final = timedelta(days=90)


class InvalidToken(ValueError):
    """A token request that cannot be granted; the message says why."""


@transaction.atomic
def create_user(
    *, actor: Viewer, now: datetime, username: str, password: str | None, language: str = ""
) -> User:
    """Create a person, or set the password of the one with that name."""
    user, created = User.objects.get_or_create(username=username, defaults={"language": language})
    user.set_password(password)
    user.save()
    audit.record(
        actor=actor,
        now=now,
        action="user.create" if created else "user.set_password",
        object_kind="user",
        object_id=str(user.pk),
        object_label=username,
    )
    return user


@transaction.atomic
def create_team(*, actor: Viewer, now: datetime, slug: str, name: str) -> Team:
    """Create a team, or return the one with that slug."""
    team, created = Team.objects.get_or_create(slug=slug, defaults={"name": name})
    if created:
        audit.record(
            actor=actor,
            now=now,
            action="team.create",
            object_kind="team",
            object_id=str(team.pk),
            object_label=slug,
        )
    return team


@transaction.atomic
def bind_role(
    *,
    actor: Viewer,
    now: datetime,
    user: User,
    role: Role,
    scope_kind: ScopeKind,
    scope_id: UUID | None,
) -> RoleBinding:
    """Give a person a role on a scope."""
    binding, created = RoleBinding.objects.get_or_create(
        user=user, role=role.value, scope_kind=scope_kind.value, scope_id=scope_id
    )
    if created:
        audit.record(
            actor=actor,
            now=now,
            action="role.bind",
            object_kind="user",
            object_id=str(user.pk),
            object_label=user.username,
            after={"role": role.value, "scope": scope_kind.value, "scope_id": str(scope_id or "")},
        )
    return binding


@transaction.atomic
def issue_token(
    *,
    actor: Viewer,
    now: datetime,
    user: User,
    name: str,
    permissions: Iterable[Permission],
    life: timedelta,
) -> tuple[ApiToken, str]:
    """Issue a token for `user`; returns the row and the plain text, which is never stored."""
    if not actor.is_system and actor.user_id != user.pk:
        raise NotAllowed(Permission.MANAGE_PEOPLE)
    if life <= timedelta(0) or life > MAX_TOKEN_LIFE:
        raise InvalidToken(f"a token lives between 1 second and {MAX_TOKEN_LIFE.days} days")
    granted = sorted({permission.value for permission in permissions})
    if not granted:
        raise InvalidToken("a token needs at least one permission")
    public_id = secrets.token_hex(6)
    secret = secrets.token_urlsafe(32)
    pepper_id, pepper = _newest_pepper()
    token = ApiToken.objects.create(
        user=user,
        name=name,
        public_id=public_id,
        digest=_digest(pepper, secret),
        pepper_id=pepper_id,
        permissions=granted,
        created_at=now,
        expires_at=now + life,
    )
    audit.record(
        actor=actor,
        now=now,
        action="token.issue",
        object_kind="token",
        object_id=str(token.pk),
        object_label=name,
        after={"permissions": granted, "expires_at": token.expires_at.isoformat()},
    )
    return token, f"ful_{public_id}.{secret}"


@transaction.atomic
def revoke_token(*, actor: Viewer, now: datetime, token: ApiToken) -> None:
    """End a token at once; a second call changes nothing."""
    if not actor.is_system and actor.user_id != token.user_id:
        raise NotAllowed(Permission.MANAGE_PEOPLE)
    if ApiToken.objects.filter(pk=token.pk, revoked_at__isnull=True).update(revoked_at=now) == 1:
        audit.record(
            actor=actor,
            now=now,
            action="token.revoke",
            object_kind="token",
            object_id=str(token.pk),
            object_label=token.name,
        )


def verify_token(*, text: str, now: datetime) -> ApiToken | None:
    """The live token behind its plain text, or None. Comparison takes constant time."""
    if not text.startswith("ful_") or "." not in text:
        return None
    public_id, secret = text[4:].split(".", 1)
    token = ApiToken.objects.select_related("user").filter(public_id=public_id).first()
    if token is None:
        return None
    pepper = dict(_peppers()).get(token.pepper_id)
    if pepper is None or not hmac.compare_digest(_digest(pepper, secret), token.digest):
        return None
    if token.revoked_at is not None or token.expires_at <= now or not token.user.is_active:
        return None
    if token.last_used_at is None or now - token.last_used_at > timedelta(minutes=1):
        ApiToken.objects.filter(pk=token.pk).update(last_used_at=now)
    return token


def _peppers() -> list[tuple[str, str]]:
    return [
        (hashlib.sha256(f"pepper id {pepper}".encode()).hexdigest()[:8], pepper)
        for pepper in settings.FULCRUM_TOKEN_PEPPERS
    ]


def _newest_pepper() -> tuple[str, str]:
    return _peppers()[0]


def _digest(pepper: str, secret: str) -> str:
    return hmac.new(pepper.encode(), secret.encode(), hashlib.sha256).hexdigest()
