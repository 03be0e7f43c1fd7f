"""The draft of a cluster that a person is connecting: texts are kept as typed, secrets sealed."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from django.db import transaction

from apps.accounts.domain.authorize import NotAllowed, Permission, Viewer
from apps.common.secretbox import SecretUnreadable
from apps.fleet import connect

from ..domain.found import Discovery, discovery_from_json
from ..models import ConnectDraft
from .source_test import SourceTest, require_connect

__all__ = [
    "ConnectDraft", "blank", "discard", "draft_of", "drop_test", "fingerprint", "found_in", "go_to",
    "hold", "keep_dry_run", "keep_found", "keep_test", "open_draft", "secret", "type_in",
]  # fmt: skip

STEPS: Final = ("source", "find", "coverage", "prices", "commands")
#: Longest text that a field may hold, and longest list of addresses.
MAX_FIELD: Final = 400
MAX_LIST: Final = 20_000


def draft_of(actor: Viewer) -> ConnectDraft | None:
    """The actor's own draft. Raises NotAllowed for who may not connect anything."""
    require_connect(actor)
    return ConnectDraft.objects.filter(owner_id=actor.user_id).first()


def blank(actor: Viewer, now: datetime) -> ConnectDraft:
    """An empty draft that is not stored: what a person sees before anything was typed."""
    return ConnectDraft(owner_id=_owner(actor), created_at=now, updated_at=now)


def _owner(actor: Viewer) -> UUID:
    """Drafts are people's; what acts without a person has none."""
    if actor.user_id is None:
        raise NotAllowed(Permission.CONFIGURE)
    return actor.user_id


@transaction.atomic
def open_draft(*, actor: Viewer, now: datetime) -> ConnectDraft:
    """The actor's draft, a new one if there is none. Raises NotAllowed."""
    require_connect(actor)
    draft, _ = ConnectDraft.objects.get_or_create(
        owner_id=_owner(actor), defaults={"created_at": now, "updated_at": now}
    )
    return draft


@transaction.atomic
def type_in(
    *,
    actor: Viewer,
    now: datetime,
    step: str,
    fields: Mapping[str, str],
    secrets: Mapping[str, str] | None = None,
    forget: Iterable[str] = (),
) -> ConnectDraft:
    """Keep what was typed on a step (also what is wrong), and seal what is secret. `forget` names
    secrets that no longer hold (their address changed)."""
    draft = _locked(actor, now)
    draft.typed = {
        **draft.typed,
        step: {name: text[:MAX_LIST] for name, text in fields.items()},
    }
    sealed = {name: text for name, text in draft.sealed.items() if name not in set(forget)}
    for name, secret in (secrets or {}).items():
        if secret:
            sealed[name] = connect.secret_box().seal(secret, bound_to=_place(draft, name))
    draft.sealed = sealed
    draft.updated_at = now
    draft.save(update_fields=["typed", "sealed", "updated_at"])
    return draft


@transaction.atomic
def go_to(*, actor: Viewer, now: datetime, step: str) -> ConnectDraft:
    """Remember where the person is, to come back to."""
    if step not in STEPS:
        raise ValueError("unknown step")
    draft = _locked(actor, now)
    draft.step = step
    draft.save(update_fields=["step"])
    return draft


@transaction.atomic
def keep_test(*, actor: Viewer, now: datetime, found: SourceTest) -> ConnectDraft:
    """Keep the outcome of a test; another source than before makes older findings worthless."""
    draft = _locked(actor, now)
    before = (draft.test or {}).get("kind"), (draft.test or {}).get("url")
    draft.test, draft.tested_at = found.to_json(), now
    if before != (found.kind, found.url):
        draft.found, draft.found_at = None, None
    draft.updated_at = now
    draft.save(update_fields=["test", "tested_at", "found", "found_at", "updated_at"])
    return draft


@transaction.atomic
def drop_test(*, actor: Viewer, now: datetime) -> ConnectDraft:
    """The source was changed: neither its test nor what was found in it holds."""
    draft = _locked(actor, now)
    draft.test = draft.found = draft.tested_at = draft.found_at = None
    draft.save(update_fields=["test", "tested_at", "found", "found_at"])
    return draft


@transaction.atomic
def keep_found(*, actor: Viewer, now: datetime, found: Discovery) -> ConnectDraft:
    draft = _locked(actor, now)
    draft.found, draft.found_at, draft.updated_at = found.to_json(), now, now
    draft.save(update_fields=["found", "found_at", "updated_at"])
    return draft


@transaction.atomic
def keep_dry_run(
    *, actor: Viewer, now: datetime, key: str, outcome: Mapping[str, Any]
) -> ConnectDraft:
    """Keep the outcome of a deployment's dry run (safe to show)."""
    draft = _locked(actor, now)
    draft.dry_runs = {**draft.dry_runs, key: {**outcome, "at": now.isoformat()}}
    draft.updated_at = now
    draft.save(update_fields=["dry_runs", "updated_at"])
    return draft


def hold(draft: ConnectDraft) -> bool:
    """Lock the draft until the transaction ends; False if it is gone."""
    return ConnectDraft.objects.select_for_update().filter(pk=draft.pk).exists()


@transaction.atomic
def discard(*, actor: Viewer) -> None:
    """Throw the draft away, with its sealed secrets."""
    require_connect(actor)
    ConnectDraft.objects.filter(owner_id=actor.user_id).delete()


def found_in(draft: ConnectDraft) -> Discovery | None:
    return None if draft.found is None else discovery_from_json(draft.found)


def secret(draft: ConnectDraft, name: str) -> str:
    """A secret in clear, for use in a request or to be sealed elsewhere; empty without one (or
    when its key is gone: then it has to be typed again)."""
    sealed = draft.sealed.get(name, "")
    if not sealed:
        return ""
    try:
        return connect.secret_box().open(sealed, bound_to=_place(draft, name))
    except SecretUnreadable:
        return ""


def fingerprint(draft: ConnectDraft, *parts: str, names: Iterable[str] = ()) -> str:
    """Identity of an address with the secrets that go to it: changes when either does."""
    sealed = (draft.sealed.get(name, "") for name in names)
    return hashlib.sha256("\0".join((*parts, *sealed)).encode()).hexdigest()[:24]


def _locked(actor: Viewer, now: datetime) -> ConnectDraft:
    open_draft(actor=actor, now=now)
    return ConnectDraft.objects.select_for_update().get(owner_id=actor.user_id)


def _place(draft: ConnectDraft, name: str) -> str:
    return f"telemetry.connect_draft:{draft.pk}:{name}"
