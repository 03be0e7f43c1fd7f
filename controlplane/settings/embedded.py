"""One process: web, worker and beat, SQLite in the state folder (DESIGN §6)."""

from __future__ import annotations

from .base import *  # noqa: F403
