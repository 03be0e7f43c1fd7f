"""System checks that refuse the mixtures which lose work (DESIGN §6)."""

from __future__ import annotations

from typing import Any

from celery.signals import celeryd_init
from django.conf import settings
from django.core.checks import CheckMessage, Error, Tags, register


class RefusedMixture(SystemExit):
    """A way of running that would lose work."""


@register(Tags.security)
def secrets_are_real(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    """Production never runs on short or empty secrets."""
    if not settings.SETTINGS_MODULE.endswith("production"):
        return []
    found: list[CheckMessage] = []
    for name in ("SECRET_KEY",):
        if len(getattr(settings, name, "")) < 32:
            found.append(
                Error(f"{name} is shorter than 32 characters", id="fulcrum.E001",
                      hint="Set FULCRUM_SECRET_KEY to a random text.")
            )  # fmt: skip
    return found


@register(Tags.database)
def database_fits_the_way_of_running(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    """SQLite and the in-memory broker belong to one process."""
    if not settings.SETTINGS_MODULE.endswith("production"):
        return []
    found: list[CheckMessage] = []
    if "sqlite3" in str(settings.DATABASES["default"]["ENGINE"]):
        found.append(
            Error("Production needs PostgreSQL: SQLite allows one process only",
                  id="fulcrum.E002", hint="Set FULCRUM_DATABASE_URL to postgresql://...")
        )  # fmt: skip
    if settings.CELERY_BROKER_URL.startswith("memory:"):
        found.append(
            Error("Production needs Redis: the in-memory broker dies with its process",
                  id="fulcrum.E003", hint="Set FULCRUM_BROKER_URL to redis://...")
        )  # fmt: skip
    return found


@celeryd_init.connect  # type: ignore[untyped-decorator]
def refuse_a_worker_beside_the_memory_broker(
    sender: Any = None, conf: Any = None, **kwargs: Any
) -> None:
    """A worker process of its own hears nothing from an in-memory broker."""
    if conf is None or conf.get("fulcrum_embedded", False):
        return
    if str(conf.broker_url).startswith("memory:"):
        raise RefusedMixture(
            "A separate worker needs FULCRUM_BROKER_URL=redis://...; "
            "with the in-memory broker run `manage.py up`."
        )
    if "sqlite3" in str(settings.DATABASES["default"]["ENGINE"]):
        raise RefusedMixture(
            "A separate worker needs FULCRUM_DATABASE_URL=postgresql://...; "
            "with SQLite run `manage.py up`."
        )
