"""What a tick read and did not use, as one sentence for the source. Pure.

A value that cannot be is left out before anything is computed; without this sentence its figure
would only be missing, and nobody could tell why.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

from apps.engines.evaluate import Defect

#: Figures that are named one by one; of the rest only the number is told.
NAMED: Final = 3

_WORDS: Final[Mapping[str, str]] = {
    "malformed": "lines that could not be read",
    "refused": "values that were infinite or too large and not read",
    "broken": "histograms that lacked a bucket or their sum and were not read",
}


def sentence(lines: Iterable[Mapping[str, int]], figures: Iterable[Defect]) -> str:
    """`lines` are `Reading.defects` of each target, `figures` what `evaluate` refused. Figures come
    first: they say what to do. Empty when everything was used."""
    grouped: dict[tuple[str, str], list[Defect]] = {}
    for defect in figures:
        grouped.setdefault((defect.signal.value, defect.names), []).append(defect)
    parts = [
        f"{names} was not used ({_times(len(found))}): {found[0].reason}"
        for (_, names), found in list(grouped.items())[:NAMED]
    ]
    if len(grouped) > NAMED:
        parts.append(f"{len(grouped) - NAMED} other figures were not used")
    counted: Counter[str] = Counter()
    for target in lines:
        counted.update(target)
    parts += [f"{words}: {counted[kind]}" for kind, words in _WORDS.items() if counted[kind]]
    return "; ".join(parts)


def _times(count: int) -> str:
    return "1 time" if count == 1 else f"{count} times"
