"""The time line of what could explain a change: commands, recommendations, causes, people."""

from __future__ import annotations

from datetime import datetime, timedelta

from apps.commands.models import Command
from apps.diagnosis.models import DiagnosisRecord
from apps.planning.models import Recommendation

from .domain.types import Change, Status, Text
from .labels import SEVERITY, changes
from .loaded import Loaded

KEPT = 12
HORIZON = timedelta(days=1)


def timeline(loaded: Loaded) -> tuple[Change, ...]:
    """The newest entries first."""
    since = loaded.now - HORIZON
    found = [*_commands(loaded), *_recommendations(loaded), *_causes(loaded)]
    recent = [change for change in found if change.at >= since]
    return tuple(sorted(recent, key=lambda change: change.at, reverse=True)[:KEPT])


def _commands(loaded: Loaded) -> list[Change]:
    lines = []
    for command in Command.objects.filter(deployment=loaded.deployment).order_by("-serial")[:8]:
        who = ", ".join(str(p.get("name", "")) for p in command.proposers)
        link = f"/commands/{command.number}/"
        params = {
            "command": command.number,
            "changes": changes(command.before, command.targets) or None,
        }
        moments = [
            (command.requested_at, "command_proposed", Status.INFO),
            (command.started_at, "command_started", Status.INFO),
        ]
        ended = {
            "SUCCEEDED": ("command_verified", Status.OK),
            "PARTIAL": ("command_partial", Status.CRIT),
            "FAILED": ("command_failed", Status.CRIT),
            "DENIED": ("command_denied", Status.WARN),
            "EXPIRED": ("command_expired", Status.PAUSED),
            "CANCELLED": ("command_cancelled", Status.PAUSED),
            "REJECTED": ("command_rejected", Status.PAUSED),
            "SUPERSEDED": ("command_superseded", Status.WARN),
            "ROLLED_BACK": ("command_rolled_back", Status.WARN),
            "ROLLBACK_FAILED": ("command_rollback_failed", Status.CRIT),
        }.get(command.state)
        if ended and command.finished_at:
            moments.append((command.finished_at, *ended))
        for at, code, status in moments:
            if at is not None:
                given = {name: value for name, value in params.items() if value is not None}
                lines.append(Change(at, status, Text(f"change.{code}", given), None, who, link))
    return lines


def _recommendations(loaded: Loaded) -> list[Change]:
    rows = Recommendation.objects.filter(deployment=loaded.deployment).order_by("-sequence")[:6]
    return [
        Change(
            row.created_at,
            Status.INFO,
            Text(
                "change.recommended",
                {"recommendation": row.number, "changes": changes(row.current, row.targets)},
            ),
            None,
            "fulcrum",
            f"/recommendations/{row.number}/",
        )
        for row in rows
    ]


def _causes(loaded: Loaded) -> list[Change]:
    """Where the diagnosis changed; one line each time."""
    rows = (
        DiagnosisRecord.objects.filter(deployment=loaded.deployment)
        .order_by("-at")
        .values_list("since", "cause", "severity")
        .distinct()[:400]
    )
    seen: dict[datetime, tuple[str, str]] = {}
    for since, cause, severity in rows:
        seen.setdefault(since, (cause, severity))
    return [
        Change(
            since,
            SEVERITY.get(severity, Status.INFO),
            # The same code in two forms: a short name, and a phrase for the sentence.
            Text("change.cause", {"cause": cause, "cause_phrase": cause}),
            None,
            "",
        )
        for since, (cause, severity) in list(seen.items())[:6]
    ]
