"""Reads one profile file and says exactly where it is wrong."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml
from pydantic import ValidationError

from .schema import Profile

#: A profile is a few hundred lines; more is another file by mistake.
MAX_BYTES: Final = 1_000_000
_LOADER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_ADVICE: Final = {
    "missing": "add it",
    "extra_forbidden": "remove it or correct its spelling",
    "string_pattern_mismatch": "correct the name",
    "literal_error": "use one of these",
    "enum": "use one of these",
}


@dataclass(frozen=True, slots=True)
class Problem:
    """Why a file was left out. `line` counts from 1 (0: the whole file), `key` is the path to the
    entry, `reason` says what is wrong and what to do."""

    file: str
    line: int
    key: str
    reason: str

    def __str__(self) -> str:
        place = f", line {self.line}" if self.line else ""
        key = f", {self.key}" if self.key else ""
        return f"{self.file}{place}{key}: {self.reason}"


class ProfileError(ValueError):
    """A file that is no profile."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(str(problem))
        self.problem = problem


def read_profile(path: Path) -> Profile:
    """Raises ProfileError; the file's name must be the profile's."""
    try:
        if path.stat().st_size > MAX_BYTES:
            raise ProfileError(Problem(path.name, 0, "", f"longer than {MAX_BYTES} bytes"))
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = f"the file cannot be read as UTF-8 text: {error}"
        raise ProfileError(Problem(path.name, 0, "", reason)) from error
    try:
        data = yaml.load(text, Loader=_LOADER)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        reason = f"not YAML: {getattr(error, 'problem', None) or error}"
        raise ProfileError(Problem(path.name, mark.line + 1 if mark else 0, "", reason)) from error
    if not isinstance(data, dict):
        raise ProfileError(Problem(path.name, 1, "", "a profile is a mapping of keys; begin with "
                                   "'version: 1' and 'profile: <name>'"))  # fmt: skip
    try:
        profile = Profile.model_validate(data)
    except ValidationError as error:
        raise ProfileError(_problem(path.name, text, error)) from error
    if profile.profile != path.stem:
        reason = f"the profile is called {profile.profile!r}; name the file {profile.profile}.yaml"
        raise ProfileError(Problem(path.name, _line_of(text, ("profile",)), "profile", reason))
    return profile


def _problem(file: str, text: str, error: ValidationError) -> Problem:
    """The first thing that is wrong; the others are counted."""
    first, *others = error.errors(include_url=False, include_context=False, include_input=False)
    where = tuple(part for part in first["loc"] if part != "[key]")
    reason = str(first["msg"]).removeprefix("Value error, ")
    advice = _ADVICE.get(str(first["type"]))
    if advice:
        reason = f"{reason}; {advice}"
    if others:
        reason = f"{reason} ({len(others)} more)"
    return Problem(file, _line_of(text, where), ".".join(str(part) for part in where), reason)


def _line_of(text: str, where: Sequence[Any]) -> int:
    """The line of an entry, or of the closest one above it that exists."""
    node = yaml.compose(text, Loader=_LOADER)
    line = 1
    for part in where:
        child: Any = None
        if isinstance(node, yaml.MappingNode):
            for key, value in node.value:
                if key.value == str(part):
                    line, child = key.start_mark.line + 1, value
        elif isinstance(node, yaml.SequenceNode) and part in range(len(node.value)):
            child = node.value[part]
            line = child.start_mark.line + 1
        if child is None:
            break
        node = child
    return line
