"""Reads of telemetry, split by noun: figures, series, what is usual, sources."""

from ..domain.levels import SLIDING, least_step_s
from .figures import figures, figures_over
from .latest import BriefFigures, brief_of, latest_figures
from .series import series
from .sources import down_scopes, sources_for, targets_of
from .usual import MOMENTS, usual
from .windows import latest_end, window_of

__all__ = [
    "MOMENTS",
    "SLIDING",
    "BriefFigures",
    "brief_of",
    "down_scopes",
    "figures",
    "figures_over",
    "latest_end",
    "latest_figures",
    "least_step_s",
    "series",
    "sources_for",
    "targets_of",
    "usual",
    "window_of",
]
