"""Adds to a profile the rows of the engines whose families it passes through.

Dynamo's workers repeat their engine's own families on the worker's port. Each name then stands in
one file, the engine's, and a release that renames it is followed in one place. Rules: the
exporter's own rows come first, except those marked `fallback`, which come last; the engines' rows
lose their siblings, because another engine's family may be there for other reasons and a zero
would be invented; a signal that the exporter lists as absent stays absent.
"""

from __future__ import annotations

from collections.abc import Mapping

from .measures import kind_of, unit_of
from .schema import Profile, Row, SignalRows
from .window import Signal, signals_of


def composed(profile: Profile, known: Mapping[str, Profile]) -> Profile:
    """The profile with all of its rows; raises ValueError for an engine that is not known."""
    if not profile.passes_through:
        return profile
    engines: list[Profile] = []
    for name in profile.passes_through:
        engine = known.get(name)
        if engine is None:
            raise ValueError(f"no profile is called {name!r}; name one of {sorted(known)}")
        if engine.passes_through:
            raise ValueError(f"{name!r} passes families through itself; name its engines instead")
        engines.append(engine)
    signals: dict[Signal, SignalRows] = {}
    absent = dict(profile.absent)
    for signal in Signal:
        if signal not in signals_of(profile.scope) or signal in absent:
            continue
        rows = _rows(signal, profile, engines)
        if rows:
            signals[signal] = SignalRows(kind=kind_of(signal), unit=unit_of(signal), rows=rows)
        else:
            absent[signal] = next(
                (e.absent[signal] for e in engines if signal in e.absent), "not exported"
            )
    # Not validated again: the passed rows' version ranges are their engine's, not this exporter's.
    return profile.model_copy(
        update={
            "collapse": _union(profile.collapse, *(e.collapse for e in engines)),
            "totals": _union(profile.totals, *(e.totals for e in engines)),
            "signals": signals,
            "absent": absent,
        }
    )


def _rows(signal: Signal, profile: Profile, engines: list[Profile]) -> tuple[Row, ...]:
    own = profile.signals[signal].rows if signal in profile.signals else ()
    passed = [
        row.model_copy(update={"siblings": ()})
        for engine in engines
        if signal in engine.signals
        for row in engine.signals[signal].rows
    ]
    return (
        *(row for row in own if not row.fallback),
        *passed,
        *(row for row in own if row.fallback),
    )


def _union(*labels: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for group in labels for name in group))
