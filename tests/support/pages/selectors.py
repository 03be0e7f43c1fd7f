"""The series answer, and a stand-in for `apps.overview.selectors`."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from apps.fleet.selectors import NotVisible
from apps.overview.domain import types as t

from .base import wave
from .commands import command_list, review
from .deployment import deployment
from .fleet import fleet
from .variants import demo, stale


def series(n: int = 181) -> dict[str, Any]:
    """The answer of the series address for the same incident (columns, `null` marks a gap)."""

    def line(base: float, late: float) -> list[float | None]:
        return [*wave(base, late, n, rise=117)]

    p50 = line(0.45, 0.95)
    p50[40:44] = [None] * 4
    return {
        "as_of": "2026-11-29T19:08:00Z", "t0": "2026-11-29T16:08:00Z", "step": 60, "n": n,
        "panels": {
            "ttft": {"unit": "s", "objective": 1.2, "place": "frontend", "p50": p50,
                     "p95": line(0.86, 1.84), "p99": line(1.12, 2.62), "complete": [[0, n - 1]]},
            "tpot": {"unit": "s", "objective": 0.04, "place": "frontend",
                     "p50": line(0.018, 0.018), "p95": line(0.0235, 0.024),
                     "p99": line(0.0285, 0.029), "complete": [[0, n - 1]]},
            "busy": {"unit": "ratio", "objective": None, "limit": 0.85, "place": "engine",
                     "prefill": line(0.62, 0.94), "decode": line(0.46, 0.47)},
            "flow": {"unit": "req/s", "objective": None, "place": "frontend",
                     "demand": line(8.7, 11.8), "good": line(8.6, 8.4)},
        },
        "events": [{"t": "2026-11-29T17:10:00Z", "kind": "command", "id": "C-0913",
                    "label": "decode 6 → 6"}],
        "coverage": 2,
    }  # fmt: skip


class Selectors(SimpleNamespace):
    """Stands in for `apps.overview.selectors`; `calls` records what was asked."""

    def __init__(self, **pages: Any) -> None:
        super().__init__(calls=[], pages=pages)

    def _note(self, name: str, *asked: Any) -> None:
        self.calls.append((name, *asked))

    def fleet_page(self, viewer: Any, now: Any, params: Any) -> t.FleetPage:
        self._note("fleet_page", viewer, dict(params))
        return self.pages.get("fleet", fleet())

    def deployment_page(self, viewer: Any, slug: str, now: Any) -> t.DeploymentPage:
        self._note("deployment_page", viewer, slug)
        known = {
            "assist-chat-prod": deployment(),
            "chat-pd": demo(),
            "stale-prod": replace(stale(), slug="stale-prod"),
            **self.pages.get("deployments", {}),
        }
        if slug not in known:
            raise NotVisible(slug)
        return known[slug]

    def review_page(self, viewer: Any, number: str, now: Any) -> t.ReviewPage:
        self._note("review_page", viewer, number)
        if number != "R-2187":
            raise NotVisible(number)
        return self.pages.get("review", review())

    def command_page(self, viewer: Any, number: str, now: Any) -> t.CommandView:
        self._note("command_page", viewer, number)
        known = {item.number: item for item in command_list().rows}
        known |= self.pages.get("commands", {})
        if number not in known:
            raise NotVisible(number)
        return known[number]

    def command_list(self, viewer: Any, now: Any, params: Any) -> t.CommandList:
        self._note("command_list", viewer, dict(params))
        return self.pages.get("command_list", command_list())

    def nav_counts(self, viewer: Any, now: Any) -> dict[str, int]:
        return {"deployments": 8, "commands": 1}

    def collector_age_s(self, now: Any) -> float:
        return 4.0
