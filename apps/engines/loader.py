"""Loads the profiles that ship with Fulcrum, and those of an installation's own folder.

A file of that folder adds an engine or replaces the shipped profile of the same name. A file that
cannot be used is reported by `problems()` with its place and what to do; the shipped profiles stay.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from .compose import composed
from .profile_files import Problem, ProfileError, read_profile
from .schema import Profile

FOLDER: Final = Path(__file__).resolve().parent / "profiles"
_LOG: Final = logging.getLogger(__name__)


class UnknownProfile(LookupError):
    """No profile by this name is known."""


class _Registry:
    """Profiles by name, read once."""

    def __init__(self, folder: Path | None) -> None:
        self.problems: list[Problem] = []
        own = self._own(folder) if folder else {}
        raw = {**_shipped(), **own}
        self.profiles: dict[str, Profile] = {}
        for name, profile in raw.items():
            try:
                self.profiles[name] = composed(profile, raw)
            except ValueError as error:
                if name not in own:
                    raise
                self._report(Problem(f"{name}.yaml", 0, "passes_through", str(error)))
                if name in (shipped := _shipped()):
                    self.profiles[name] = composed(shipped[name], _shipped())
        self.own = frozenset(own) & frozenset(self.profiles)
        self.aliases = {alias.lower(): p.profile for p in raw.values() for alias in p.aliases}
        # What an installation adds wins over what ships.
        self.aliases |= {alias.lower(): name for name in own for alias in own[name].aliases}

    def _own(self, folder: Path) -> dict[str, Profile]:
        try:
            files = sorted(p for p in folder.iterdir() if p.suffix in (".yaml", ".yml"))
        except OSError as error:
            self._report(
                Problem(str(folder), 0, "", f"the folder cannot be read: {error.strerror or error}")
            )
            return {}
        found: dict[str, Profile] = {}
        for path in files:
            try:
                found[path.stem] = read_profile(path)
            except ProfileError as error:
                self._report(error.problem)
        return found

    def _report(self, problem: Problem) -> None:
        self.problems.append(problem)
        _LOG.error("an engine profile was left out: %s", problem)


_lock: Final = threading.Lock()
_folder: Path | None = None
_registry: _Registry | None = None
_read: dict[str, Profile] = {}


def _shipped() -> Mapping[str, Profile]:
    """The files beside this module; an error here is a defect of the release."""
    if not _read:
        _read.update((path.stem, read_profile(path)) for path in sorted(FOLDER.glob("*.yaml")))
    return _read


def _known() -> _Registry:
    global _registry
    with _lock:
        if _registry is None:
            _registry = _Registry(_folder)
        return _registry


def configure(folder: str | Path | None) -> None:
    """Names the installation's own folder (None or "" for none); it is read at the next use."""
    global _folder, _registry
    with _lock:
        _folder = Path(folder) if folder else None
        _registry = None


def load(name: str) -> Profile:
    """A profile by its own name or an engine's; raises UnknownProfile."""
    known = _known()
    wanted = name.lower()
    profile = known.profiles.get(wanted) or known.profiles.get(known.aliases.get(wanted, ""))
    if profile is None:
        raise UnknownProfile(name)
    return profile


def names() -> tuple[str, ...]:
    """The names of all profiles, shipped and own."""
    return tuple(sorted(_known().profiles))


def shipped_names() -> tuple[str, ...]:
    return tuple(sorted(path.stem for path in FOLDER.glob("*.yaml")))


def own_names() -> frozenset[str]:
    """The profiles that come from the installation's folder."""
    return _known().own


def problems() -> tuple[Problem, ...]:
    """Files of the installation's folder that were left out, and why."""
    return tuple(_known().problems)
