"""Every state of a figure and a block (`design/ui.md` §7), as one living page for developers."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from apps.common.measurement import Measurement, Place, State, Trace, missing
from apps.common.units import Unit
from apps.overview.domain import types
from apps.overview.domain.types import Status, Text

from .presenters import parts
from .reader import Reader
from .wording import labels

_SERIES: Final = (0.74, 0.75, 0.76, 0.75, 0.74, 0.76, 0.78, 0.77, 0.76, 0.78)
_GAP: Final = (0.74, 0.75, 0.76, None, None, 0.76, 0.78, 0.77, 0.76, 0.78)


@dataclass(frozen=True, slots=True)
class Gallery:
    banners: tuple[parts.BannerShown, ...]
    figures: tuple[parts.FigureShown, ...]
    chips: tuple[parts.Chip, ...]
    phases: tuple[tuple[str, str], ...]


def build(reader: Reader) -> Gallery:
    """All states for one reader; `reader.now` dates the samples."""
    now = reader.now
    old = now - timedelta(minutes=4)
    return Gallery(
        banners=parts.banners(
            (
                types.Banner(
                    Status.WARN,
                    Text(
                        "banner.source_stale",
                        {"source": "Prometheus", "age_s": 240.0, "sample_at": old},
                    ),
                ),
                types.Banner(
                    Status.CRIT,
                    Text("banner.source_down", {"source": "Prometheus", "since": old}),
                ),
                types.Banner(Status.CRIT, Text("banner.kill_switch")),
                types.Banner(Status.WARN, Text("banner.backend_unreachable", {"since": old})),
                types.Banner(Status.INFO, Text("banner.observe")),
            ),
            reader,
        ),
        figures=tuple(
            parts.figure(item, reader, f"gal{index}") for index, item in enumerate(_figures(now))
        ),
        chips=tuple(
            parts.Chip(code.value, labels.word(labels.STATUSES, code.value)) for code in Status
        ),
        phases=tuple(
            (phase.value, labels.word(labels.PHASES, phase.value)) for phase in types.Phase
        ),
    )


def _figures(now: datetime) -> tuple[types.Figure, ...]:
    fresh = now - timedelta(seconds=6)
    old = now - timedelta(minutes=4)
    objective = Text("figure.objective_ttft", {"ttft_objective": 1.2})
    query = "vllm:time_to_first_token_seconds"

    def figure(
        found: Measurement,
        status: Status | None,
        series: tuple[float | None, ...] = _SERIES,
    ) -> types.Figure:
        return types.Figure("ttft_p95", found, status, 1.2, objective, series)

    def seconds(value: float, state: State, at: datetime = fresh) -> Measurement:
        return Measurement(
            value, Unit.SECONDS, state, at, Place.FRONTEND, trace=Trace("Prometheus", query)
        )

    conflict = Measurement(
        0.78, Unit.SECONDS, State.CONFLICT, fresh, Place.FRONTEND, lower=0.78, upper=1.10
    )
    partial = Measurement(
        0.78, Unit.SECONDS, State.PARTIAL, fresh, Place.FRONTEND, coverage=(8, 10)
    )
    few = Measurement(None, Unit.SECONDS, State.TOO_FEW, fresh, Place.FRONTEND, sample_count=12)
    return (
        figure(seconds(0.78, State.OK), Status.OK),
        figure(seconds(1.84, State.OK), Status.CRIT),
        figure(seconds(2.5, State.CLAMPED), Status.CRIT),
        figure(missing(Unit.SECONDS, State.NO_TRAFFIC, observed_at=fresh), None, ()),
        figure(few, None, ()),
        figure(partial, Status.OK),
        figure(conflict, Status.UNKNOWN),
        figure(seconds(0.78, State.STALE, old), Status.OK),
        figure(seconds(0.78, State.SOURCE_DOWN, old), Status.OK),
        figure(missing(Unit.SECONDS, trace=Trace("", query)), None, ()),
        figure(seconds(0.78, State.OK), Status.OK, _GAP),
        types.Figure(
            "ttft_budget",
            Measurement(0.61, Unit.RATIO, State.OK, fresh, Place.FRONTEND),
            Status.CRIT,
            None,
            None,
        ),
    )
