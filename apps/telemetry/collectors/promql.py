"""Builds PromQL. Every name and value that comes from data passes through here, escaped."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal

Operator = Literal["=", "!=", "=~", "!~"]
_REGEX: Final = {ord(char): f"\\{char}" for char in "\\.+*?()|[]{}^$"}
_LABEL: Final = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")


def text(value: str) -> str:
    """A quoted string."""
    escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def label(name: str) -> str:
    """A label name; raises ValueError if it is none (names cannot be quoted)."""
    if not _LABEL.fullmatch(name):
        raise ValueError(f"not a label name: {name!r}")
    return name


def any_of(values: Iterable[str]) -> str:
    """A regular expression that matches exactly these values (RE2 syntax; "" = label missing)."""
    return "|".join(value.translate(_REGEX) for value in values)


@dataclass(frozen=True, slots=True)
class Matcher:
    name: str
    operator: Operator
    value: str

    def __str__(self) -> str:
        return f"{label(self.name)}{self.operator}{text(self.value)}"


@dataclass(frozen=True, slots=True)
class Selector:
    """Series of one metric, or of several (`names`), that pass all matchers."""

    names: tuple[str, ...]
    matchers: tuple[Matcher, ...] = ()

    def __str__(self) -> str:
        named = (
            Matcher("__name__", "=", self.names[0])
            if len(self.names) == 1
            else Matcher("__name__", "=~", any_of(self.names))
        )
        return "{" + ",".join(str(matcher) for matcher in (named, *self.matchers)) + "}"


def duration(seconds: float) -> str:
    """A range in milliseconds, at least one."""
    return f"{max(1, round(seconds * 1000))}ms"


def fresh(selector: Selector, not_before: float) -> str:
    """Gauges whose sample is not older than a Unix time; NaN is dropped."""
    return f"({selector} == {selector} and timestamp({selector}) >= {not_before:.3f})"


def per(
    expression: str, by: Iterable[str], *, collapse: Iterable[str] = (), aggregate: str = "sum"
) -> str:
    """Aggregate by labels after copies that repeat one quantity were reduced to their maximum."""
    groups = ",".join(label(name) for name in by)
    copies = ",".join(label(name) for name in collapse)
    inner = f"max without({copies}) ({expression})" if copies else expression
    return f"{aggregate} by ({groups}) ({inner})"
