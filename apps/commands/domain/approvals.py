"""Who may approve (DESIGN law 13): pure rules over people, environment and mode."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Rule:
    """`needed` different approvers; may a proposer be one; may a token."""

    needed: int
    own_proposal: bool
    tokens: bool


RULES: Final[Mapping[str, Rule]] = {
    "production": Rule(needed=1, own_proposal=False, tokens=False),
    "staging": Rule(needed=1, own_proposal=False, tokens=True),
    "demo": Rule(needed=1, own_proposal=True, tokens=True),
}

#: The planner's name among proposers; only of a recommendation that nobody touched.
PLANNER: Final = "fulcrum"


@dataclass(frozen=True, slots=True)
class Proposer:
    """Who chose or edited a target. `user_id` is empty for the planner."""

    user_id: str
    name: str

    def to_json(self) -> dict[str, str]:
        return {"id": self.user_id, "name": self.name}


def rule_for(environment: str) -> Rule:
    """The rule of an environment; an unknown one is held to production's."""
    return RULES.get(environment, RULES["production"])


def proposers_of(
    user_id: str, name: str, *, untouched_recommendation: bool
) -> tuple[Proposer, ...]:
    """Whoever applies the planner's untouched recommendation proposes nothing of their own."""
    if untouched_recommendation:
        return (Proposer("", PLANNER),)
    return (Proposer(user_id, name),)


def refusal(
    *,
    environment: str,
    mode: str,
    proposers: Sequence[Proposer],
    approver_id: str,
    is_system: bool,
    is_active: bool,
    holds_role: bool,
    via_token: bool,
) -> str | None:
    """Why this approver may not approve, as a code; None if they may.

    Codes: `inactive`, `no_role`, `token`, `own_proposal`, `not_automatic`.
    """
    rule = rule_for(environment)
    if is_system:
        only_planner = all(not one.user_id for one in proposers)
        return None if mode == "auto" and only_planner else "not_automatic"
    if not is_active:
        return "inactive"
    if not holds_role:
        return "no_role"
    if via_token and not rule.tokens:
        return "token"
    if not rule.own_proposal and any(one.user_id == approver_id for one in proposers):
        return "own_proposal"
    return None
