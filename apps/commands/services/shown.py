"""Plans that a page showed, so that exactly what was read is what is applied.

A dry run made afresh may choose another worker (loads move by the second) and so have another
hash. The cache is a convenience: without the entry a plan is made anew, and if its hash is another
one the person is shown it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, cast

from django.core.cache import cache

LIFE_S: Final = 900


def remember(digest: str, parts: Mapping[str, Any]) -> None:
    """Keep a plan's parts under its hash."""
    cache.set(f"commands.plan.{digest}", dict(parts), LIFE_S)


def recall(digest: str) -> dict[str, Any] | None:
    """The parts of a plan that was shown, if still kept."""
    return cast("dict[str, Any] | None", cache.get(f"commands.plan.{digest}"))
