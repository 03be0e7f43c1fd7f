"""Geometry of server-drawn SVG. All results are unlocalized machine numbers as text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

SPARK_WIDTH: Final = 160.0
SPARK_HEIGHT: Final = 24.0
#: Space between two segments of a bar, in percent of its width.
SEAM: Final = 0.25


def number(value: float) -> str:
    """A short machine number: no locale, no exponent, no trailing zeros."""
    text = f"{value:.2f}".rstrip("0").rstrip(".")
    return "0" if text in ("", "-0") else text


@dataclass(frozen=True, slots=True)
class Spark:
    """`lines` are polyline points; a gap in the series starts a new one (never bridged).

    `tail` is the dotted continuation of an old series; `objective` the y of the dashed line.
    """

    lines: tuple[str, ...]
    dots: tuple[tuple[str, str], ...]
    objective: str
    tail: str

    @property
    def is_empty(self) -> bool:
        return not self.lines and not self.dots


def spark(
    series: Sequence[float | None], objective: float | None = None, *, is_old: bool = False
) -> Spark:
    """A sparkline from zero; the top is the largest value or the objective, plus 8 %."""
    known = [value for value in series if value is not None]
    if not known:
        return Spark((), (), "", "")
    top = max([*known, objective or 0.0]) * 1.08 or 1.0
    width = SPARK_WIDTH * (0.7 if is_old else 1.0)
    step = width / max(1, len(series) - 1)

    def y(value: float) -> str:
        return number(SPARK_HEIGHT - 1 - max(0.0, value) / top * (SPARK_HEIGHT - 2))

    lines: list[str] = []
    dots: list[tuple[str, str]] = []
    run: list[str] = []
    last = ""

    def close() -> None:
        if len(run) > 1:
            lines.append(" ".join(run))
        elif run:
            x, _sep, height = run[0].partition(",")
            dots.append((x, height))
        run.clear()

    for index, value in enumerate(series):
        if value is None:
            close()
            continue
        last = y(value)
        run.append(f"{number(index * step)},{last}")
    close()
    return Spark(
        lines=tuple(lines),
        dots=tuple(dots),
        objective=y(objective) if objective is not None and objective > 0 else "",
        tail=f"M{number(width)} {last}H{number(SPARK_WIDTH)}" if is_old and last else "",
    )


@dataclass(frozen=True, slots=True)
class Segment:
    """A part of a bar: position and width in percent, its fill, a label for hover."""

    x: str
    width: str
    fill: str
    label: str = ""


def bar(parts: Sequence[tuple[float, str, str]], scale: float | None = None) -> tuple[Segment, ...]:
    """Segments of a stacked bar from (amount, fill, label); `scale` is the amount of 100 %."""
    whole = scale if scale else sum(amount for amount, _fill, _label in parts)
    if whole <= 0:
        return ()
    segments: list[Segment] = []
    at = 0.0
    for amount, fill, label in parts:
        share = max(0.0, amount) / whole * 100
        if share > 0:
            seam = min(SEAM, share / 2)
            segments.append(Segment(f"{number(at)}%", f"{number(share - seam)}%", fill, label))
        at += share
    return tuple(segments)


def percent(share: float | None) -> str:
    """A share as an SVG length, held between 0 and 100 %."""
    return f"{number(min(1.0, max(0.0, share or 0.0)) * 100)}%"
