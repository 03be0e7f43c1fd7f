"""What exporters of GPUs and hosts say of a pool, beside its busy share."""

from __future__ import annotations

from typing import Final

from apps.common.measurement import Measurement, State
from apps.telemetry.domain.figures import HardwareFigures
from apps.telemetry.domain.hardware_figures import NOT_ATTRIBUTABLE

from .domain.types import Figure, Status
from .loaded import Loaded

#: More processes want to run than there are CPUs; a link is nearly full.
PRESSURE, LINK_FULL = 1.0, 0.9
#: Shown where they are measured, in this order: figure of the page -> field.
_SHOWN: Final = (
    ("tensor_active", "tensor_active"),
    ("dram_active", "dram_active"),
    ("sm_active", "sm_active"),
    ("power", "power"),
    ("energy_per_token", "energy_per_token"),
    ("cpu_busy", "host_cpu_busy"),
    ("cpu_pressure", "host_pressure"),
    ("link_use", "network_share"),
    ("rdma_use", "rdma_share"),
    ("host_overhead", "host_overhead"),
)
#: Shown only when something happened.
_EVENTS: Final = (
    ("xid_errors", "faults"),
    ("link_downs", "link_downs"),
    ("network_errors", "network_errors"),
)
_LIMITS: Final = {"cpu_pressure": PRESSURE, "link_use": LINK_FULL, "rdma_use": LINK_FULL}


def figures(loaded: Loaded, role: str) -> tuple[Figure, ...]:
    """The hardware figures of a role; none where no exporter was joined. A figure that a shared
    GPU cannot give is shown as missing, one that nobody exports is left out."""
    found = loaded.figures.hardware.get(role)
    if found is None:
        return ()
    shown = [
        Figure(code, figure, _status(code, figure), None, None)
        for code, name in _SHOWN
        if _is_said(figure := _field(found, name))
    ]
    events = [
        Figure(code, figure, Status.WARN, None, None)
        for code, name in _EVENTS
        if (figure := _field(found, name)).value
    ]
    return (*shown, *events)


def _field(found: HardwareFigures, name: str) -> Measurement:
    figure = getattr(found, name)
    assert isinstance(figure, Measurement)
    return figure


def _is_said(figure: Measurement) -> bool:
    return figure.state is not State.NO_DATA or figure.method == NOT_ATTRIBUTABLE


def _status(code: str, figure: Measurement) -> Status | None:
    limit = _LIMITS.get(code)
    if limit is None or figure.value is None or figure.state is not State.OK:
        return None
    return Status.WARN if figure.number() > limit else None
