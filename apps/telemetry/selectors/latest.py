"""The few figures of many deployments at once, for pages over the whole fleet."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID

from apps.common.measurement import Measurement, Place, State
from apps.fleet import selectors as fleet
from apps.fleet.models import Deployment

from ..domain.figures import DeploymentFigures
from ..domain.states import age_state, aged
from ..models import LatestFigures
from .figures import figures
from .sources import down_scopes

LATENCIES: Final = ("ttft_p95", "tpot_p95")
RATES: Final = ("arrivals_per_s", "completions_per_s")
_SCOPES: Final = {
    Place.FRONTEND: frozenset({"frontend"}),
    Place.ROUTER: frozenset({"router"}),
    Place.ENGINE: frozenset({"decode", "mixed"}),
}


@dataclass(frozen=True, slots=True)
class BriefFigures:
    """What a row of the fleet shows of a deployment's figures; see `DeploymentFigures`."""

    at: datetime | None
    ttft_p95: Measurement
    tpot_p95: Measurement
    arrivals_per_s: Measurement
    completions_per_s: Measurement


def brief_of(found: DeploymentFigures) -> BriefFigures:
    """The brief of whole figures."""
    return BriefFigures(
        found.at, found.ttft.p95, found.tpot.p95, found.arrivals_per_s, found.completions_per_s
    )


def latest_figures(
    deployments: Collection[Deployment], now: datetime
) -> Mapping[UUID, BriefFigures]:
    """Brief figures by deployment id, as `services.keep_figures` kept them, aged to `now` (no query
    for deployments selected with `latest_figures`; 1 when some are too old to have a value). They
    are made from the windows where windows came two intervals or more after what is kept."""
    found: dict[UUID, BriefFigures] = {}
    gone: dict[UUID, tuple[LatestFigures, float]] = {}
    for deployment in deployments:
        row: LatestFigures | None = getattr(deployment, "latest_figures", None)
        interval_s = fleet.defaults_for(deployment).collect_interval_s
        behind = None if row is None else _behind(row)
        if row is None or behind is None or behind >= timedelta(seconds=2 * interval_s):
            found[deployment.pk] = brief_of(figures(deployment, now))
            continue
        brief, is_gone = _aged(row, now, interval_s, frozenset())
        found[deployment.pk] = brief
        if is_gone:
            gone[deployment.pk] = (row, interval_s)
    if gone:
        down = down_scopes(gone)
        for pk, (row, interval_s) in gone.items():
            found[pk], _ = _aged(row, now, interval_s, down.get(pk, frozenset()))
    return found


def _behind(row: LatestFigures) -> timedelta | None:
    return None if row.kept_at is None else row.newest_end - row.kept_at


def _aged(
    row: LatestFigures, now: datetime, interval_s: float, down: frozenset[str]
) -> tuple[BriefFigures, bool]:
    """The kept figures at their age, and whether one of them has none left for its age."""
    stored: dict[str, Any] = row.figures
    values: dict[str, Measurement] = {}
    is_gone = False
    for name in (*LATENCIES, *RATES):
        figure = Measurement.from_json(stored[name])
        if figure.observed_at is not None:
            every = max(interval_s, stored["every_s"].get(name, 0.0))
            is_down = bool(_SCOPES.get(figure.place, frozenset()) & down)
            age = age_state(figure.observed_at, now, every, is_down=is_down)
            is_gone = is_gone or age is State.NO_DATA
            figure = aged(figure, age)
        values[name] = figure
    at = datetime.fromisoformat(stored["at"]) if stored["at"] else None
    return BriefFigures(at, **values), is_gone
