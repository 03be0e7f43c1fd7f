"""Keeping the few figures that a page over the whole fleet shows."""

from __future__ import annotations

from datetime import datetime

from apps.fleet import selectors as fleet
from apps.fleet.models import Deployment

from ..domain.figures import DeploymentFigures
from ..models import LatestFigures
from ..selectors.latest import LATENCIES, RATES, brief_of


def keep_figures(*, deployment: Deployment, figures: DeploymentFigures, now: datetime) -> None:
    """Keep the figures that were found at `now`; an older finding never replaces a newer one.
    Nothing is kept before the first window."""
    if figures.at is None:
        return
    brief = brief_of(figures)
    values = {name: getattr(brief, name) for name in (*LATENCIES, *RATES)}
    # Histograms that are collected more rarely than counters are judged by their own beat.
    every_s = {
        name: fleet.defaults_for(deployment).window_s
        for name in LATENCIES
        if values[name].observed_at is not None and values[name].observed_at < figures.at
    }
    stored = {
        "at": figures.at.isoformat(),
        "every_s": every_s,
        **{name: figure.to_json() for name, figure in values.items()},
    }
    rows = LatestFigures.objects.filter(deployment=deployment)
    rows.exclude(kept_at__gt=now).update(kept_at=now, figures=stored)
