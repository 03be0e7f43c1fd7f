"""The fleet's control port: truth of the load generators, load switch, faults.

It listens on loopback without a key, so it refuses what a web page could send: a foreign Host
header, or any Origin header.
"""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

from apps.simulation.demo.engine import NORMAL, Engine
from apps.simulation.demo.http import BadRequest, Reply, Request

if TYPE_CHECKING:
    from apps.simulation.demo.fleet import Deployment, Fleet


class Control:
    """Handler of the control port."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet

    def handle(self, request: Request, reply: Reply) -> None:
        """Answer one request."""
        host = request.headers.get("host", "").rsplit(":", 1)[0]
        if "origin" in request.headers or host not in ("127.0.0.1", "localhost"):
            reply.send_json(403, {"error": "only for programs on this host"})
            return
        routes = {
            ("GET", "/health"): lambda _: {"status": "ok"},
            ("GET", "/truth"): self._truth,
            ("GET", "/faults"): self._faults,
            ("POST", "/fault"): self._fault,
            ("POST", "/stop_load"): self._stop_load,
            ("POST", "/start_load"): self._start_load,
        }
        answer = routes.get((request.method, request.path))
        if answer is None:
            reply.send_json(
                404, {"error": "not found", "routes": [" ".join(key) for key in routes]}
            )
            return
        reply.send(200, json.dumps(answer(request)))

    def _chosen(self, slug: object) -> list[Deployment]:
        if slug is None:
            return self._fleet.deployments
        found = [d for d in self._fleet.deployments if d.slug == slug]
        if not found:
            raise BadRequest(f"unknown deployment {slug!r}")
        return found

    def _truth(self, request: Request) -> dict[str, Any]:
        try:
            since = float(request.query.get("since", "0"))
        except ValueError as error:
            raise BadRequest("since must be Unix seconds") from error
        chosen = self._chosen(request.query.get("deployment"))
        rows = [row for d in chosen for row in d.load.truth.since(since)]
        rows.sort(key=lambda row: row["end"])
        return {
            "now": time.time(),
            "seed": self._fleet.options.seed,
            "scenario": self._fleet.scenario.name,
            "load": {d.slug: {"running": d.load.running, "phase": d.load.phase} for d in chosen},
            "totals": {d.slug: d.load.truth.totals() for d in chosen},
            "requests": rows,
            "stalls": [stall for stall in self._fleet.stalls.stalls if stall["at"] > since],
        }

    def _faults(self, request: Request) -> dict[str, Any]:
        return {
            d.slug: {engine.plan.url: engine.fault for engine in d.engines}
            for d in self._fleet.deployments
        }

    def _fault(self, request: Request) -> dict[str, Any]:
        body = request.json()
        kind = str(body.get("kind"))
        worker = body.get("worker")
        chosen = self._chosen(body.get("deployment"))
        engines = [e for d in chosen for e in d.engines if _matches(e, worker)]
        if worker is None and kind != NORMAL:
            raise BadRequest("a fault needs a worker, by name or URL")
        if not engines:
            raise BadRequest(f"no worker is called {worker!r}")
        if worker is not None and len(engines) > 1:
            raise BadRequest(f"{worker!r} stands in several deployments: name the deployment")
        try:
            return {"faults": [engine.set_fault(kind, body.get("value")) for engine in engines]}
        except ValueError as error:
            raise BadRequest(str(error)) from error

    def _stop_load(self, request: Request) -> dict[str, Any]:
        chosen = self._chosen(request.json().get("deployment"))
        for deployment in chosen:
            deployment.load.stop()
        return {"totals": {d.slug: d.load.truth.totals() for d in chosen}}

    def _start_load(self, request: Request) -> dict[str, Any]:
        chosen = self._chosen(request.json().get("deployment"))
        self._fleet.start_load(chosen)
        return {"totals": {d.slug: d.load.truth.totals() for d in chosen}}


def _matches(engine: Engine, worker: object) -> bool:
    return worker is None or worker in (engine.plan.name, engine.plan.url)
