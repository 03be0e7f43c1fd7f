"""Series as plotly figures, for reports and notebooks (`?format=plotly`).

The Python package builds and validates them; the browser draws from columns and never asks for
these. Imported on use: plotly's first import takes longer than a page.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, Final

TITLES: Final = {
    "ttft": "Time to first token",
    "tpot": "Time per output token",
    "busy": "Busy share by phase",
    "flow": "Demand and goodput",
    "tokens": "Tokens",
    "queue": "Requests waiting",
}


def figures(columns: dict[str, Any]) -> dict[str, Any]:
    """Panel name -> plotly figure (JSON data), validated by plotly; gaps stay gaps."""
    import plotly.graph_objects as go

    times = _times(columns)
    made = {}
    for name, panel in columns["panels"].items():
        figure = go.Figure(layout={"title": {"text": TITLES.get(name, name)}})
        figure.update_yaxes(title_text=panel["unit"], rangemode="tozero")
        for line, values in panel.items():
            if isinstance(values, list):
                figure.add_trace(
                    go.Scatter(x=times, y=values, name=line, mode="lines", connectgaps=False)
                )
        if panel.get("objective") is not None:
            figure.add_hline(y=panel["objective"], line_dash="dash", annotation_text="objective")
        made[name] = figure.to_plotly_json()
    return made


def _times(columns: dict[str, Any]) -> list[str]:
    if columns["t0"] is None:
        return []
    start = datetime.fromisoformat(columns["t0"])
    step = timedelta(seconds=columns["step"])
    return [(start + step * index).isoformat() for index in range(columns["n"])]
