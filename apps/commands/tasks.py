"""Wake-ups of the commands room. Rows decide what is done; a doubled message changes nothing."""

from __future__ import annotations

import os
import socket
from typing import Final
from uuid import uuid4

from celery import shared_task

from apps.common.clock import utcnow

from . import services

_HOST: Final = f"{socket.gethostname()[:40]}:{os.getpid()}"


@shared_task(name="commands.drive_due", ignore_result=True)
def drive_due() -> None:
    """Apply what mode `auto` allows, then enqueue a drive for each command that needs one."""
    now = utcnow()
    services.apply_open_recommendations(now=now)
    for command_id in services.due_ids(now):
        drive.delay(str(command_id))


@shared_task(name="commands.drive", ignore_result=True)
def drive(command_id: str) -> None:
    """Advance one command by one bounded piece."""
    services.drive(command_id=command_id, owner=f"{_HOST}:{uuid4().hex[:8]}", now=utcnow())
