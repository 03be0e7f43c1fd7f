"""System checks that refuse the mixtures which lose work (DESIGN §6)."""

from __future__ import annotations

from typing import Any, Final

from celery.signals import celeryd_init
from django.conf import settings
from django.core.checks import CheckMessage, Error, Tags, register
from django.db import connection

SHORTEST_SECRET: Final = 32


def _is_production() -> bool:
    return bool(settings.SETTINGS_MODULE.endswith("production"))


@register(Tags.security)
def secret_key_is_long(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    """Production never signs sessions with a short key."""
    if not _is_production() or len(settings.SECRET_KEY) >= SHORTEST_SECRET:
        return []
    message = f"FULCRUM_SECRET_KEY is shorter than {SHORTEST_SECRET} characters"
    return [Error(message, hint="Set it to a random text.", id="fulcrum.E001")]


@register(Tags.database)
def database_fits_the_way_of_running(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    """SQLite and the in-memory broker belong to one process."""
    if not _is_production():
        return []
    found: list[CheckMessage] = []
    if connection.vendor == "sqlite":
        message = "Production needs PostgreSQL: SQLite allows one process only"
        hint = "Set FULCRUM_DATABASE_URL to postgresql://..."
        found.append(Error(message, hint=hint, id="fulcrum.E002"))
    if settings.CELERY_BROKER_URL.startswith("memory:"):
        message = "Production needs Redis: the in-memory broker dies with its process"
        hint = "Set FULCRUM_BROKER_URL to redis://..."
        found.append(Error(message, hint=hint, id="fulcrum.E003"))
    return found


@celeryd_init.connect  # type: ignore[untyped-decorator]
def refuse_a_worker_beside_the_memory_broker(
    sender: Any = None, conf: Any = None, **kwargs: Any
) -> None:
    """A worker process of its own hears nothing from an in-memory broker."""
    if conf is None or conf.get("fulcrum_embedded", False):
        return
    if str(conf.broker_url).startswith("memory:"):
        raise SystemExit(
            "A separate worker needs FULCRUM_BROKER_URL=redis://...; "
            "with the in-memory broker run `manage.py up`."
        )
    if connection.vendor == "sqlite":
        raise SystemExit(
            "A separate worker needs FULCRUM_DATABASE_URL=postgresql://...; "
            "with SQLite run `manage.py up`."
        )
