"""The Celery application. Messages only wake; rows are the truth (DESIGN law 5)."""

from __future__ import annotations

import os

from celery import Celery

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "controlplane.settings.embedded")

app = Celery("fulcrum")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.conf.task_default_queue = "control"
app.conf.task_routes = {
    "telemetry.*": {"queue": "collect"},
    "fleet.*": {"queue": "collect"},
    "planning.*": {"queue": "control"},
    "commands.*": {"queue": "control"},
    "reporting.*": {"queue": "reports"},
}
app.autodiscover_tasks(
    ["apps.fleet", "apps.telemetry", "apps.planning", "apps.commands"], related_name="tasks"
)


def load_schedule() -> None:
    from .schedule import BEAT

    app.conf.beat_schedule = BEAT


load_schedule()

from . import checks  # noqa: E402, F401 - registers the system checks and the worker's refusal
