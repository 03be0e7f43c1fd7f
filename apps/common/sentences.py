"""The shape of sentences: whole templates with named parameters, in variants, richest first.

Rooms keep the words of their own codes in this shape (`diagnosis.wording`); the console renders
them for a reader. No domain noun here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from django.utils.functional import Promise


@dataclass(frozen=True, slots=True)
class Plural:
    """A sentence whose form depends on the parameter `count` (or another integer one)."""

    choose: Callable[[int], str]
    by: str = "count"


Variant = str | Promise | Plural
Sentences = Mapping[str, tuple[Variant, ...]]

#: Code -> its name in a word or two.
Words = Mapping[str, object]
