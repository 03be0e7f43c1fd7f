"""For machines, without a session: is the process alive, are its parts reachable?"""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.db import DatabaseError, connection
from django.http import HttpRequest, JsonResponse
from django.views.decorators.http import require_safe
from kombu.exceptions import OperationalError

from apps.common.clock import utcnow

from .. import data


@require_safe
def healthz(request: HttpRequest) -> JsonResponse:
    """The process answers; nothing else is touched."""
    return JsonResponse({"status": "ok"})


@require_safe
def readyz(request: HttpRequest) -> JsonResponse:
    """200 when database and broker answer, else 503; the collector's age is told beside them.

    An old collector does not make the web process unready: during an outage people need the page.
    """
    checks: dict[str, Any] = {"database": _database(), "broker": _broker()}
    is_ready = all(check["ok"] for check in checks.values())
    checks["collector"] = _collector() if checks["database"]["ok"] else {"age_s": None}
    status = 200 if is_ready else 503
    return JsonResponse({"status": "ok" if is_ready else "unready", **checks}, status=status)


def _database() -> dict[str, Any]:
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
            cursor.fetchone()
    except DatabaseError as error:
        return {"ok": False, "error": type(error).__name__}
    return {"ok": True}


def _broker() -> dict[str, Any]:
    if settings.CELERY_BROKER_URL.startswith("memory://"):
        return {"ok": True, "kind": "memory"}
    from controlplane.celery import app

    try:
        with app.connection_for_read() as link:
            link.ensure_connection(max_retries=0, timeout=2)
    except (OperationalError, OSError) as error:
        return {"ok": False, "error": type(error).__name__}
    return {"ok": True}


def _collector() -> dict[str, Any]:
    try:
        age = data.collector_age_s(utcnow())
    except DatabaseError as error:
        return {"age_s": None, "error": type(error).__name__}
    return {"age_s": round(age, 1) if age is not None else None}
