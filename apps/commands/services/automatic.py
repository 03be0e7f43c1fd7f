"""Mode `auto`: the planner's own untouched recommendation, applied without a person.

A person raised the mode before (DESIGN laws 12 and 13); every check of a proposal and of the
dispatch holds as for anybody.
"""

from __future__ import annotations

import logging
from datetime import datetime

from apps.accounts.domain.authorize import SYSTEM
from apps.fleet import selectors as fleet

from ..models import Command
from . import errors, facts
from .checks import active_number
from .decide import approve
from .propose import propose

log = logging.getLogger(__name__)


def apply_open_recommendations(*, now: datetime) -> list[Command]:
    """Propose and approve what is open and not blocked where the mode is `auto`."""
    made = []
    for deployment in fleet.deployments_for(SYSTEM).filter(mode="auto"):
        if fleet.effective_mode(deployment) != "auto" or active_number(deployment):
            continue
        recommendation_id = facts.provider.appliable(deployment)
        if recommendation_id is None:
            continue
        try:
            command = propose(
                actor=SYSTEM,
                now=now,
                recommendation_id=recommendation_id,
                idempotency_key=f"auto:{recommendation_id}",
                via="auto",
            )
            assert isinstance(command, Command)  # not a dry run
            if command.state == "PROPOSED":
                made.append(
                    approve(
                        actor=SYSTEM,
                        now=now,
                        command_id=command.pk,
                        plan_hash=command.plan_hash,
                        via="auto",
                    )
                )
        except errors.CommandError as error:
            log.info("auto: %s is not applied: %s", deployment.slug, error)
    return made
