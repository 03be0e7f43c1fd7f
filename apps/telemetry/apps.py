from django.apps import AppConfig
from django.conf import settings

from apps.engines import loader


class TelemetryConfig(AppConfig):
    name = "apps.telemetry"
    label = "telemetry"

    def ready(self) -> None:
        loader.configure(settings.FULCRUM_PROFILE_FOLDER)
