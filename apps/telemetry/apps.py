from typing import Any

from django.apps import AppConfig
from django.conf import settings
from django.core.checks import CheckMessage, Warning, register

from apps.engines import loader


class TelemetryConfig(AppConfig):
    name = "apps.telemetry"
    label = "telemetry"

    def ready(self) -> None:
        loader.configure(settings.FULCRUM_PROFILE_FOLDER)
        register(own_profiles_are_usable)


def own_profiles_are_usable(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    """A broken profile of the installation is left out; `manage.py check` says which and why."""
    hint = "Correct it or take it out of FULCRUM_PROFILE_FOLDER; see docs/reference/profiles.md."
    return [Warning(str(problem), hint=hint, id="fulcrum.W001") for problem in loader.problems()]
