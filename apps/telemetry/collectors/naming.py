"""Which stored names answer for a profile's metrics: spellings, prefixes, native histograms. Pure.

Pipelines rename on the way: colons become underscores, platforms put a prefix before the name,
counters gain or lose `_total`. What is stored decides, not what a document says.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from apps.engines.exposition import spellings
from apps.engines.schema import Profile
from apps.engines.window import Kind


class Piece(Enum):
    """What a stored series is to its metric."""

    COUNTER = "counter"
    GAUGE = "gauge"
    BUCKET = "bucket"
    SUM = "sum"
    SIBLING = "sibling"


@dataclass(frozen=True, slots=True)
class Use:
    """A stored name stands for `metric` of a profile; a lower `rank` is the truer spelling."""

    metric: str
    piece: Piece
    rank: int


@dataclass(frozen=True, slots=True)
class Resolved:
    """Stored names and their uses; `histograms` are the names that only the histogram cycle
    reads; `native` are histograms that are stored without buckets, so that they cannot be read."""

    plain: dict[str, tuple[Use, ...]]
    histograms: dict[str, tuple[Use, ...]]
    native: tuple[str, ...]


def resolve(profile: Profile, stored: frozenset[str]) -> Resolved:
    """The names to read for a profile, out of those that are stored."""
    plain: dict[str, dict[Use, None]] = {}
    histograms: dict[str, dict[Use, None]] = {}
    native: dict[str, None] = {}
    for kind, _, ref in profile.refs():
        if kind is not Kind.HISTOGRAM:
            for rank, name in _found(ref.name, kind is Kind.COUNTER, stored):
                piece = Piece.COUNTER if kind is Kind.COUNTER else Piece.GAUGE
                plain.setdefault(name, {})[Use(ref.name, piece, rank)] = None
            continue
        buckets = list(_found(f"{ref.name}_bucket", False, stored))
        for rank, name in buckets:
            histograms.setdefault(name, {})[Use(ref.name, Piece.BUCKET, rank)] = None
            total = f"{name.removesuffix('_bucket')}_sum"
            histograms.setdefault(total, {})[Use(ref.name, Piece.SUM, rank)] = None
        if not buckets and any(True for _ in _found(ref.name, False, stored)):
            native[ref.name] = None
    for sibling in profile.siblings():
        for rank, name in _found(sibling, True, stored):
            plain.setdefault(name, {})[Use(sibling, Piece.SIBLING, rank)] = None
    return Resolved(
        {name: tuple(uses) for name, uses in plain.items()},
        {name: tuple(uses) for name, uses in histograms.items()},
        tuple(native),
    )


def _found(name: str, is_counter: bool, stored: frozenset[str]) -> Iterator[tuple[int, str]]:
    """Stored spellings of a name with their rank. A prefix of a platform's is only looked for
    where no spelling that we know is stored."""
    tails = spellings(name, is_counter=is_counter)
    known = [(rank, text) for rank, text in enumerate(tails) if text in stored]
    if known:
        yield from known
        return
    pattern = re.compile(f"[a-z0-9_]+_(?:{'|'.join(map(re.escape, tails))})")
    for text in sorted(stored):
        if pattern.fullmatch(text):
            yield len(tails), text
