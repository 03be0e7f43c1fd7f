"""The recorded and written expositions, and readings made from them."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from apps.engines import loader
from apps.engines.evaluate import SignalPart, evaluate
from apps.engines.exposition import parse
from apps.engines.readings import read
from apps.engines.scraped import ScrapedReader
from apps.engines.window import Signal

FOLDER = Path(__file__).resolve().parents[2] / "data" / "engines"
LIVE = sorted(path.name for path in (FOLDER / "live").glob("*.prom"))
SAMPLES = sorted(path.name for path in (FOLDER / "samples").glob("*.prom"))


@cache
def text(kind: str, name: str) -> str:
    return (FOLDER / kind / name).read_text(encoding="utf-8")


@cache
def names_in(
    kind: str, files: tuple[str, ...] = ()
) -> frozenset[tuple[str, tuple[tuple[str, str], ...]]]:
    """Every (series name, labels) of a folder, or of some of its files."""
    files = files or tuple(LIVE if kind == "live" else SAMPLES)
    return frozenset(
        (series.name, series.labels) for name in files for series in parse(text(kind, name)).series
    )


def signals(profile: str, role: str, kind: str, name: str) -> dict[Signal, SignalPart]:
    """The signals of a recording, as if the target had answered empty just before: each counter
    then shows its whole value."""
    loaded = loader.load(profile)
    present = read(text(kind, name), loaded)
    before = type(present)({}, {}, present.siblings)
    return evaluate(loaded, role, ScrapedReader(loaded, role, [before, present]))
