"""The project package: settings, addresses, Celery, system checks."""

from .celery import app as celery_app

__all__ = ["celery_app"]
