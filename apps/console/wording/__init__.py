"""Words for codes: the only place where read models turn into sentences.

`say` renders a `Text` in the active language; `say_html` does so with its figures in bold;
`heading` words a cause. `CODES` lists every code with the parameters of its variants.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from apps.diagnosis import wording as diagnosis
from apps.overview.domain.types import DiagnosisView, Text

from ..reader import Reader
from . import commands, coverage, labels, overview, planning
from .sentences import (
    MissingParameter,
    Plural,
    Sentences,
    UnknownCode,
    fields_of,
    render,
    template_of,
)

TABLE: Final[Sentences] = {
    **diagnosis.TABLE,
    **planning.TABLE,
    **commands.TABLE,
    **overview.TABLE,
    **coverage.TABLE,
}


def say(text: Text | None, reader: Reader) -> str:
    """The sentence of a code; empty for None."""
    return render(TABLE, text, reader) if text is not None else ""


def say_html(text: Text | None, reader: Reader) -> str:
    """The sentence with its parameters in bold, safe to print."""
    return render(TABLE, text, reader, mark=True) if text is not None else ""


def heading(diagnosis_view: DiagnosisView, reader: Reader) -> str:
    """The heading of a diagnosis, naming worker, count or role where they are known."""
    code = f"heading.{diagnosis_view.cause}"
    params = dict(diagnosis_view.sentence.params)
    if diagnosis_view.worker:
        params.setdefault("worker", diagnosis_view.worker)
    if "missing" not in params and {"wanted", "ready"} <= params.keys():
        params["missing"] = int(params["wanted"]) - int(params["ready"])
    if code in TABLE:
        known = {name for name, value in params.items() if value is not None}
        if any(fields_of(template_of(item, params)) <= known for item in TABLE[code]):
            return render(TABLE, Text(code, params), reader)
    return labels.word(labels.CAUSES, diagnosis_view.cause)


def codes() -> Mapping[str, tuple[frozenset[str], ...]]:
    """Every code with the parameter names of each of its variants (for docs and tests)."""
    return {
        code: tuple(fields_of(template_of(variant, {})) for variant in variants)
        for code, variants in TABLE.items()
    }


__all__ = [
    "TABLE",
    "MissingParameter",
    "Plural",
    "UnknownCode",
    "codes",
    "heading",
    "labels",
    "say",
    "say_html",
]
