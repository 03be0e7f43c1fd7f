"""Loads the profiles that ship with Fulcrum."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Final

import yaml

from .schema import Profile

FOLDER: Final = Path(__file__).resolve().parent / "profiles"

#: What inventories call an engine, and the profile that reads it.
ALIASES: Final = {
    "sglang": "sglang",
    "vllm": "vllm",
    "dynamo": "dynamo_component",
    "dynamo_component": "dynamo_component",
    "dynamo_frontend": "dynamo_frontend",
    "smg": "smg",
    "sglang-router": "smg",
}


class UnknownProfile(LookupError):
    """No profile by this name is shipped."""


@cache
def load(name: str) -> Profile:
    """A profile by its own name or an engine's; raises UnknownProfile."""
    known = ALIASES.get(name.lower(), name.lower())
    path = FOLDER / f"{known}.yaml"
    if not known.replace("_", "").isalnum() or not path.is_file():
        raise UnknownProfile(name)
    return Profile.model_validate(yaml.safe_load(path.read_text(encoding="utf-8")))


@cache
def names() -> tuple[str, ...]:
    """The names of all shipped profiles."""
    return tuple(sorted(path.stem for path in FOLDER.glob("*.yaml")))
