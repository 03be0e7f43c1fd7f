"""Web, worker and beat in one process (DESIGN §6, embedded mode).

The Celery worker is a thread pool on the in-memory broker; messages die with the process and that
is fine, because rows are the truth and every dispatcher runs again a second after the restart.
"""

from __future__ import annotations

import logging
import signal
import sys
import threading
import warnings
from collections.abc import Callable
from types import FrameType
from typing import Any

from celery.beat import EmbeddedService, Scheduler
from celery.exceptions import SecurityWarning
from django.core.wsgi import get_wsgi_application
from waitress.server import create_server

from apps.common.heap import settle
from controlplane.celery import app as celery_app

log = logging.getLogger(__name__)


class Embedded:
    """Runs until SIGTERM or SIGINT; stops beat, worker and server in that order."""

    def __init__(self, *, host: str, port: int, worker_threads: int = 4) -> None:
        celery_app.conf.fulcrum_embedded = True
        celery_app.conf.broker_transport_options = {"polling_interval": 0.1}
        # The worker is a thread of this process: its warning about the superuser is not about it.
        warnings.filterwarnings("ignore", category=SecurityWarning)
        application = get_wsgi_application()
        settle()
        self._server = create_server(application, host=host, port=port, threads=8, ident="fulcrum")
        self.port: int = self._server.effective_port
        self._worker: Any = celery_app.Worker(
            pool_cls="threads",
            concurrency=worker_threads,
            queues=["collect", "control", "reports"],
            loglevel="WARNING",
            quiet=True,
            without_gossip=True,
            without_mingle=True,
            without_heartbeat=True,
            hostname="embedded",
        )
        self._beat: Any = EmbeddedService(
            celery_app, thread=True, scheduler_cls=Scheduler, max_interval=0.5
        )
        self._worker_thread = threading.Thread(target=self._run_worker, name="celery-worker")
        self._worker_thread.daemon = True

    def run(self, on_ready: Callable[[], None]) -> None:
        """Serve until a signal comes."""
        signal.signal(signal.SIGTERM, _leave)
        signal.signal(signal.SIGINT, _leave)
        self._worker_thread.start()
        self._beat.start()
        on_ready()
        try:
            self._server.run()
        finally:
            self.stop()

    def stop(self) -> None:
        """End beat, worker, server; running tasks get a moment, rows do the rest."""
        self._beat.stop()
        self._worker.stop()
        self._server.close()

    def _run_worker(self) -> None:
        try:
            self._worker.start()
        except Exception:  # the process must not go on without its worker
            log.exception("the embedded worker stopped")
            signal.raise_signal(signal.SIGTERM)


def _leave(number: int, frame: FrameType | None) -> None:
    sys.exit(0)
