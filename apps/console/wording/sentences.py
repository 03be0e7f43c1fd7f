"""Sentences: whole templates with named parameters, chosen by code, never glued from parts.

A code has one or more variants, the richest first; the first variant whose parameters are all
given is used, so that a read model may leave out what it does not know.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import lru_cache
from string import Formatter
from typing import Any

from django.conf import settings
from django.utils.html import conditional_escape
from django.utils.safestring import SafeString, mark_safe

from apps.common.sentences import Plural, Sentences, Variant
from apps.overview.domain.types import Text

from ..reader import Reader
from . import kinds
from .translated import translated

logger = logging.getLogger(__name__)


class UnknownCode(KeyError):
    """No words exist for a code. Raised in tests and in debug; production shows the code."""


class MissingParameter(KeyError):
    """No variant of a code fits the given parameters."""


def is_strict() -> bool:
    """True where an unknown code must fail loudly."""
    return bool(settings.DEBUG or settings.FULCRUM_STRICT_WORDING)


def template_of(variant: Variant, params: Mapping[str, Any]) -> str:
    """The translated template of a variant."""
    if isinstance(variant, Plural):
        found = kinds.plain(params.get(variant.by))
        return variant.choose(int(found) if found is not None else 2)
    return translated(variant)


@lru_cache(maxsize=4096)
def fields_of(template: str) -> frozenset[str]:
    """Names of the parameters a template uses."""
    return frozenset(name for _, name, _, _ in Formatter().parse(template) if name)


def render(table: Sentences, text: Text, reader: Reader, *, mark: bool = False) -> str:
    """The sentence of a code. With `mark`, parameters stand in `<b>` and it is safe HTML."""
    variants = table.get(text.code)
    if variants is None:
        if is_strict():
            raise UnknownCode(text.code)
        logger.error("no words for code %s", text.code)
        return text.code.replace(".", ": ").replace("_", " ")
    params = dict(text.params)
    given = {name for name, value in params.items() if value is not None}
    template = None
    for variant in variants:
        template = template_of(variant, params)
        if fields_of(template) <= given:
            break
    else:
        if is_strict():
            raise MissingParameter(f"{text.code} needs {sorted(fields_of(template or '') - given)}")
        logger.error("code %s lacks parameters", text.code)
    return _fill(template or "", params, reader, mark)


def _fill(template: str, params: Mapping[str, Any], reader: Reader, mark: bool) -> str:
    parts: list[str] = []
    for literal, name, _, _ in Formatter().parse(template):
        parts.append(str(conditional_escape(literal)) if mark else literal)
        if name:
            shown = kinds.show(name, params.get(name), params, reader)
            parts.append(f'<b class="num">{conditional_escape(shown)}</b>' if mark else shown)
    joined = "".join(parts)
    return mark_safe(joined) if mark else joined


__all__ = [
    "MissingParameter",
    "Plural",
    "SafeString",
    "Sentences",
    "UnknownCode",
    "fields_of",
    "is_strict",
    "render",
    "template_of",
]
