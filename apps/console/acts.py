"""What people do here: each function calls one service of `commands` or `planning`.

Services raise typed errors with a `code`, `params` and an `http_status`. `Refused` carries such an
error to the page, which shows it in words, with the fresh state and the HTTP status. What a person
may not see raises `NotVisible` (404), as if it did not exist.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from apps.accounts.domain.authorize import NotAllowed, ScopeKind, Viewer
from apps.commands import selectors as command_selectors
from apps.commands import services as commands
from apps.fleet import selectors as fleet
from apps.fleet.selectors import NotVisible
from apps.overview.domain.types import Text
from apps.planning import selectors as planning_selectors
from apps.planning import services as planning

from .wording import TABLE


@dataclass(frozen=True)
class Refused(Exception):
    """An act that was refused; nothing was changed by it."""

    text: Text
    status: int


@contextmanager
def _typed() -> Iterator[None]:
    """Turn a typed error of a service into `Refused`; anything else goes on as it is."""
    try:
        yield
    except NotAllowed as error:
        params = {"permission": error.permission.value}
        raise Refused(Text("error.not_allowed", params), 403) from error
    except planning.NotOpen as error:
        raise Refused(Text("error.not_open"), 409) from error
    except commands.CommandError as error:
        if error.http_status == 404:
            raise NotVisible(str(error)) from error
        raise Refused(refusal(error.code, error.params), error.http_status) from error


def refusal(code: str, params: Mapping[str, Any]) -> Text:
    """The sentence of an error code; a code without words is still told as a refusal."""
    known = f"error.{code}"
    return Text(known if known in TABLE else "error.unknown", dict(params))


def propose(
    *,
    actor: Viewer,
    now: datetime,
    recommendation: str,
    expected_revision: int,
    plan_hash: str,
    idempotency_key: str,
    note: str,
) -> str:
    """Propose exactly the plan that was read; returns the command's number (C-…).

    Where the environment lets one person decide, the service approves it in the same call. Another
    plan by now is refused (409) and shown.
    """
    with _typed():
        found = planning_selectors.recommendation_by_number(actor, recommendation)
        command = commands.propose(
            actor=actor,
            now=now,
            recommendation_id=found.pk,
            expected_revision=expected_revision,
            plan_hash=plan_hash,
            note_text=note,
            idempotency_key=idempotency_key,
        )
        return str(command.number)  # type: ignore[union-attr]  # not a dry run


def approve(*, actor: Viewer, now: datetime, number: str, plan_hash: str, reason: str) -> None:
    """Approve exactly the plan the person saw; its hash went with the form."""
    with _typed():
        commands.approve(
            actor=actor,
            now=now,
            command_id=_command(actor, number).pk,
            plan_hash=plan_hash,
            reason=reason,
        )


def reject(*, actor: Viewer, now: datetime, number: str, reason: str) -> None:
    with _typed():
        commands.reject(actor=actor, now=now, command_id=_command(actor, number).pk, reason=reason)


def cancel(*, actor: Viewer, now: datetime, number: str, reason: str) -> None:
    with _typed():
        commands.cancel(actor=actor, now=now, command_id=_command(actor, number).pk, reason=reason)


def rollback(*, actor: Viewer, now: datetime, number: str, reason: str) -> str:
    """Roll a command back; returns the number of the command that does it."""
    with _typed():
        made = commands.rollback(
            actor=actor, now=now, command_id=_command(actor, number).pk, reason=reason
        )
        return str(made.number)


def dismiss(*, actor: Viewer, now: datetime, recommendation: str, reason: str) -> None:
    with _typed():
        found = planning_selectors.recommendation_by_number(actor, recommendation)
        planning.dismiss(actor=actor, now=now, recommendation_id=found.pk, reason=reason)


def set_kill_switch(*, actor: Viewer, now: datetime, slug: str, on: bool, reason: str) -> None:
    """Stop all commands of a deployment, or allow them again (two people in production)."""
    with _typed():
        deployment = fleet.deployment_by_slug(actor, slug)
        commands.set_kill_switch(
            actor=actor,
            now=now,
            scope_kind=ScopeKind.DEPLOYMENT,
            scope_id=deployment.pk,
            on=on,
            reason=reason,
        )


def _command(actor: Viewer, number: str) -> Any:
    return command_selectors.command_by_number(actor, number)
