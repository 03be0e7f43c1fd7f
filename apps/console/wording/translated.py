"""Lazy texts of the tables in the active language, each looked up once for a language."""

from __future__ import annotations

from typing import Final

from django.utils.functional import Promise
from django.utils.translation import get_language

#: Language and identity of a text -> the text, kept so that its identity stays its own, and the
#: words. Grows to the tables' size only: their texts are made once, when they are imported.
_KNOWN: Final[dict[tuple[str | None, int], tuple[Promise, str]]] = {}


def translated(text: object) -> str:
    """The words of a table's text. Catalogues do not change while a process runs; asking them for
    each figure of each row takes longer than all else that a row says."""
    if not isinstance(text, Promise):
        return str(text)
    key = (get_language(), id(text))
    known = _KNOWN.get(key)
    if known is None:
        known = _KNOWN[key] = (text, str(text))
    return known[1]
