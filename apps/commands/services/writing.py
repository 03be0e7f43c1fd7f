"""Writing a new command: one row with its steps, or none."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from django.db import IntegrityError, transaction
from django.db.models import Max

from apps.accounts.domain.authorize import Viewer
from apps.backends.protocol import StepKind

from ..domain import specs
from ..domain.states import ACTIVE
from ..models import Command, Step
from . import errors
from .checks import active_number
from .log import note, record
from .planned import Planned, Seen

_SERIAL_TRIES: Final = 3


def insert(
    actor: Viewer, now: datetime, seen: Seen, planned: Planned, values: Mapping[str, Any]
) -> Command:
    """Write a command with its steps, its first event and its audit record; all or nothing.

    Raises ActiveCommandExists if another command holds the deployment.
    """
    for attempt in range(_SERIAL_TRIES):
        try:
            with transaction.atomic():
                command = _create(now, seen, planned, values)
                note(command, now, "proposed", targets=command.targets, before=command.before)
                record(
                    command,
                    now=now,
                    actor=actor,
                    action="command.propose",
                    before={"workers": command.before},
                    after={"workers": command.targets, "plan_hash": command.plan_hash},
                    reason=command.note,
                )
                return command
        except IntegrityError as error:
            number = active_number(seen.deployment)
            if number is not None and values.get("state") in [s.value for s in ACTIVE]:
                raise errors.ActiveCommandExists(command=number) from error
            earlier = (
                values.get("idempotency_key")
                and Command.objects.filter(idempotency_key=values["idempotency_key"]).first()
            )
            if earlier:
                return same_request(earlier, str(values.get("request_digest", "")))
            if attempt == _SERIAL_TRIES - 1:
                raise
    raise AssertionError("unreachable")


def _create(now: datetime, seen: Seen, planned: Planned, values: Mapping[str, Any]) -> Command:
    serial = (Command.objects.aggregate(top=Max("serial"))["top"] or 0) + 1
    plan = specs.list_to_json(planned.steps)
    command = Command.objects.create(
        serial=serial,
        number=f"C-{serial}",
        deployment=seen.deployment,
        kind=planned.parts.kind,
        targets=dict(planned.parts.targets),
        before=dict(planned.parts.before),
        plan=plan,
        rollback_plan=specs.list_to_json(planned.rollback_steps),
        plan_hash=planned.digest,
        hash_parts=planned.parts.to_json(),
        expected_revision=planned.parts.expected_revision,
        requested_at=now,
        members=seen.members,
        true_now={role: seen.snapshot.count(role) for role in planned.parts.before},
        **values,
    )
    Step.objects.bulk_create(
        [
            Step(
                command=command,
                index=spec["index"],
                kind=StepKind(spec["kind"]).value,
                worker_url=spec["worker"]["url"],
                worker_name=spec["worker"]["name"],
                spec=spec,
            )
            for spec in plan
        ]
    )
    return command


def same_request(earlier: Command, digest: str) -> Command:
    """The command an idempotency key made; raises IdempotencyConflict for another request."""
    if earlier.request_digest != digest:
        raise errors.IdempotencyConflict()
    return earlier
