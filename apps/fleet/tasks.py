"""Wake-ups of the fleet room. Rows decide what is done; a doubled message changes nothing."""

from __future__ import annotations

from celery import shared_task

from apps.common.clock import utcnow

from . import selectors, services


@shared_task(name="fleet.observe_due", ignore_result=True)
def observe_due() -> None:
    """Enqueue an observation for each backend that is due."""
    for deployment_id in selectors.due_backend_ids(utcnow()):
        observe.delay(str(deployment_id))


@shared_task(name="fleet.observe", ignore_result=True)
def observe(deployment_id: str) -> None:
    """Observe one backend."""
    services.observe_backend(deployment_id=deployment_id, now=utcnow())
