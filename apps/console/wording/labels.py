"""Names of coded things: causes, figures, guardrails, checks, states, roles.

One table for each kind of code; an unknown code raises where `sentences.is_strict()` says so.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Final

from django.utils.translation import gettext_lazy as _
from django.utils.translation import pgettext_lazy

from apps.common.sentences import Words
from apps.diagnosis.wording import CAUSES as CAUSES
from apps.diagnosis.wording import CAUSES_PHRASE as CAUSES_PHRASE
from apps.diagnosis.wording import CAUSES_SHORT as CAUSES_SHORT

from .names import CHECKS as CHECKS
from .names import COST_LINES as COST_LINES
from .names import FIGURES as FIGURES
from .names import GUARDRAILS as GUARDRAILS
from .names import ROLE_SOURCES as ROLE_SOURCES
from .names import SIGNALS as SIGNALS
from .translated import translated

logger = logging.getLogger(__name__)

ROLE_ORDER: Final = ("prefill", "decode", "mixed")

ROLES: Final[Words] = {
    "prefill": pgettext_lazy("role inside a sentence", "prefill"),
    "decode": pgettext_lazy("role inside a sentence", "decode"),
    "mixed": pgettext_lazy("role inside a sentence", "mixed"),
    "encode": pgettext_lazy("role inside a sentence", "encode"),
    "unknown": pgettext_lazy("role inside a sentence", "unknown role"),
}

ROLES_TITLE: Final[Words] = {
    "prefill": pgettext_lazy("role as a title", "Prefill"),
    "decode": pgettext_lazy("role as a title", "Decode"),
    "mixed": pgettext_lazy("role as a title", "Mixed"),
    "encode": pgettext_lazy("role as a title", "Encode"),
    "unknown": pgettext_lazy("role as a title", "Unknown role"),
}

PHASES: Final[Words] = {
    "queue": pgettext_lazy("phase", "Queue"),
    "prefill": pgettext_lazy("phase", "Prefill"),
    "kv_transfer": pgettext_lazy("phase", "KV transfer"),
    "prefill_and_kv": pgettext_lazy("phase", "Prefill + transfer"),
    "decode": pgettext_lazy("phase", "Decode"),
}

STATUSES: Final[Words] = {
    "ok": pgettext_lazy("status", "OK"),
    "warn": pgettext_lazy("status", "Warning"),
    "crit": pgettext_lazy("status", "Critical"),
    "unknown": pgettext_lazy("status", "No fresh data"),
    "paused": pgettext_lazy("status", "Paused"),
    "info": pgettext_lazy("status", "Information"),
}

#: Command states in words (`design/ui.md` §6.4).
COMMAND_STATES: Final[Words] = {
    "PROPOSED": pgettext_lazy("command state", "Waiting for approval"),
    "APPROVED": pgettext_lazy("command state", "Approved"),
    "SCHEDULED": pgettext_lazy("command state", "Scheduled"),
    "PREFLIGHT": pgettext_lazy("command state", "Checking"),
    "RUNNING": pgettext_lazy("command state", "Applying"),
    "SOAK": pgettext_lazy("command state", "Verifying"),
    "SUCCEEDED": pgettext_lazy("command state", "Done"),
    "REJECTED": pgettext_lazy("command state", "Rejected"),
    "EXPIRED": pgettext_lazy("command state", "Expired"),
    "CANCELLED": pgettext_lazy("command state", "Cancelled"),
    "DENIED": pgettext_lazy("command state", "Refused"),
    "SUPERSEDED": pgettext_lazy("command state", "Superseded"),
    "PARTIAL": pgettext_lazy("command state", "Partly done"),
    "ROLLING_BACK": pgettext_lazy("command state", "Rolling back"),
    "ROLLED_BACK": pgettext_lazy("command state", "Rolled back"),
    "FAILED": pgettext_lazy("command state", "Failed"),
    "ROLLBACK_FAILED": pgettext_lazy("command state", "Roll back failed"),
}

STEP_STATES: Final[Words] = {
    "PLANNED": pgettext_lazy("step state", "planned"),
    "INTENT": pgettext_lazy("step state", "about to be sent"),
    "SENT": pgettext_lazy("step state", "sent"),
    "UNKNOWN": pgettext_lazy("step state", "answer unknown, looking"),
    "ACCEPTED": pgettext_lazy("step state", "accepted"),
    "VERIFYING": pgettext_lazy("step state", "being verified"),
    "DONE": pgettext_lazy("step state", "done"),
    "FAILED": pgettext_lazy("step state", "failed"),
}

RECOMMENDATION_STATES: Final[Words] = {
    "open": pgettext_lazy("recommendation state", "Open"),
    "applied": pgettext_lazy("recommendation state", "Applied"),
    "dismissed": pgettext_lazy("recommendation state", "Dismissed"),
    "expired": pgettext_lazy("recommendation state", "Expired"),
    "superseded": pgettext_lazy("recommendation state", "Superseded"),
}

COMMAND_KINDS: Final[Words] = {
    "scale": pgettext_lazy("command kind", "Scale"),
    "rebalance": pgettext_lazy("command kind", "Rebalance"),
    "drain": pgettext_lazy("command kind", "Drain"),
    "role_flip": pgettext_lazy("command kind", "Role flip"),
    "restart": pgettext_lazy("command kind", "Restart"),
    "rollback": pgettext_lazy("command kind", "Roll back"),
}

CONFIDENCE: Final[Words] = {
    "high": _("High confidence"),
    "medium": _("Medium confidence"),
    "low": _("Low confidence"),
    "model_only": _("Low confidence, model only"),
}

DECISIONS: Final[Words] = {
    "approve": pgettext_lazy("decision", "approved"),
    "approved": pgettext_lazy("decision", "approved"),
    "rejected": pgettext_lazy("decision", "rejected"),
    "reject": pgettext_lazy("decision", "rejected"),
    "cancel": pgettext_lazy("decision", "cancelled"),
    "break_glass": pgettext_lazy("decision", "broke the glass"),
}

SERVING: Final[Words] = {
    "serving": pgettext_lazy("worker", "serving"),
    "draining": pgettext_lazy("worker", "draining"),
    "absent": pgettext_lazy("worker", "absent"),
    "unhealthy": pgettext_lazy("worker", "down"),
    "unknown": pgettext_lazy("worker", "unknown"),
    "starting": pgettext_lazy("worker", "starting"),
}

MODES: Final[Words] = {
    "observe": pgettext_lazy("mode", "observe"),
    "recommend": pgettext_lazy("mode", "recommend"),
    "approve": pgettext_lazy("mode", "approve"),
    "auto": pgettext_lazy("mode", "auto"),
}

ENVIRONMENTS: Final[Words] = {
    "production": pgettext_lazy("environment", "production"),
    "staging": pgettext_lazy("environment", "staging"),
    "demo": pgettext_lazy("environment", "demo"),
}

PLACES: Final[Words] = {
    "frontend": pgettext_lazy("place of measurement", "frontend"),
    "router": pgettext_lazy("place of measurement", "router"),
    "engine": pgettext_lazy("place of measurement", "engine"),
    "exporter": pgettext_lazy("place of measurement", "exporter"),
    "declared": pgettext_lazy("place of measurement", "declared"),
    "model": pgettext_lazy("place of measurement", "model"),
}

#: States of a figure (DESIGN law 1) in words.
FIGURE_STATES: Final[Words] = {
    "ok": pgettext_lazy("state of a figure", "fresh"),
    "clamped": pgettext_lazy("state of a figure", "at or above the last bucket bound"),
    "no_traffic": pgettext_lazy("state of a figure", "no traffic"),
    "too_few": pgettext_lazy("state of a figure", "too few requests"),
    "partial": pgettext_lazy("state of a figure", "part of the workers"),
    "stale": pgettext_lazy("state of a figure", "old"),
    "no_data": pgettext_lazy("state of a figure", "no data"),
    "source_down": pgettext_lazy("state of a figure", "source unreachable"),
    "conflict": pgettext_lazy("state of a figure", "sources contradict each other"),
}

USUAL_BASIS: Final[Words] = {
    "same_hour_4_weeks": _("the same hour of the last 4 weeks"),
    "last_24_h": _("the last 24 h"),
    "since_start": _("samples so far"),
}

PERMISSIONS: Final[Words] = {
    "read": pgettext_lazy("permission", "read"),
    "propose": pgettext_lazy("permission", "propose"),
    "approve": pgettext_lazy("permission", "approve"),
    "roll_back": pgettext_lazy("permission", "roll back"),
    "dismiss": pgettext_lazy("permission", "dismiss"),
    "kill_on": pgettext_lazy("permission", "stop commands"),
    "kill_off": pgettext_lazy("permission", "allow commands again"),
    "configure": pgettext_lazy("permission", "configure"),
    "manage_people": pgettext_lazy("permission", "manage people"),
    "read_audit": pgettext_lazy("permission", "read the audit"),
}

SOURCE_KINDS: Final[Words] = {
    "prometheus": pgettext_lazy("kind of source", "Prometheus"),
    "direct": pgettext_lazy("kind of source", "direct scrape"),
    "scrape": pgettext_lazy("kind of source", "direct scrape"),
    "backend": pgettext_lazy("kind of source", "backend"),
    "prices": pgettext_lazy("kind of source", "prices"),
    "exporter": pgettext_lazy("kind of source", "exporter"),
}

TABLES: Final[Mapping[str, Words]] = {
    "cause": CAUSES,
    "cause_short": CAUSES_SHORT,
    "cause_phrase": CAUSES_PHRASE,
    "figure": FIGURES,
    "guardrail": GUARDRAILS,
    "check": CHECKS,
    "cost_line": COST_LINES,
    "command_state": COMMAND_STATES,
    "command_kind": COMMAND_KINDS,
    "step_state": STEP_STATES,
    "recommendation_state": RECOMMENDATION_STATES,
    "confidence": CONFIDENCE,
    "decision": DECISIONS,
    "serving": SERVING,
    "mode": MODES,
    "environment": ENVIRONMENTS,
    "place": PLACES,
    "figure_state": FIGURE_STATES,
    "usual_basis": USUAL_BASIS,
    "permission": PERMISSIONS,
    "source_kind": SOURCE_KINDS,
    "role": ROLES_TITLE,
    "phase": PHASES,
    "status": STATUSES,
}


def word(table: Words, code: str) -> str:
    """The words of a code; an unknown code raises in tests and debug, else shows itself."""
    found = table.get(code)
    if found is not None:
        return translated(found)
    from .sentences import UnknownCode, is_strict

    if is_strict():
        raise UnknownCode(code)
    logger.error("no words for code %s", code)
    return code.replace("_", " ")


def role(code: str) -> str:
    """A role inside a sentence. A backend may report any role: unknown ones show as they are."""
    found = ROLES.get(code)
    return str(found) if found is not None else code


def role_title(code: str) -> str:
    found = ROLES_TITLE.get(code)
    return str(found) if found is not None else code


def in_order(roles: Iterable[str]) -> list[str]:
    """Roles in the fixed order prefill, decode, mixed, then others by name."""
    return sorted(
        roles, key=lambda item: (ROLE_ORDER.index(item) if item in ROLE_ORDER else 9, item)
    )
