"""What a profile claims to have seen in a live recording of one product."""

from __future__ import annotations

from apps.engines import loader
from apps.engines.schema import Evidence
from apps.engines.window import Signal


def live_signals(profile: str, role: str, product: str, but: str = "") -> set[Signal]:
    """Signals that a process of this product must answer in this role: one of the names that
    answer it is marked `live`, from a recording of the product itself. Names that start with `but`
    do not count."""
    loaded = loader.load(profile)
    return {
        signal
        for signal in loaded.signals
        if any(
            ref.evidence is Evidence.LIVE
            and product in ref.source
            and not (but and ref.name.startswith(but))
            for row in loaded.rows(signal, role)
            for term in row.terms
            for ref in term.any_of
        )
    }
