"""WSGI entry point."""

from __future__ import annotations

import os

from django.core.wsgi import get_wsgi_application

from apps.common.heap import settle

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "controlplane.settings.production")
application = get_wsgi_application()
settle()
